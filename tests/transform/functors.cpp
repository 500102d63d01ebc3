// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/functors.hpp>
#include <tessera/transform.hpp>

#include <functional>
#include <limits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

enum Which {
  exp_,
  log_,
  sin_,
  cos_,
  tanh_,
  sqrt_,
  rsqrt_,
  abs_,
  clamp_,
  relu_,
  elu_,
  sigmoid_,
  silu_,
  gelu_,
  gelu_tanh_,
  softplus_,
  swiglu_,
  scale_,
  negate_,
  square_,
  reciprocal_,
  min_,
  max_,
  add_,
  multiply_,
  subtract_,
  quantize_,
  cast_,
  chain_
};

/// Every functor in one kernel, chosen at run time, so that this file stays quick to compile.
struct Pick {
  Which which;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, T y) const {
    switch (which) {
      case exp_:
        return fn::exp{}(x);
      case log_:
        return fn::log{}(x);
      case sin_:
        return fn::sin{}(x);
      case cos_:
        return fn::cos{}(x);
      case tanh_:
        return fn::tanh{}(x);
      case sqrt_:
        return fn::sqrt{}(x);
      case rsqrt_:
        return fn::rsqrt{}(x);
      case abs_:
        return fn::abs{}(x);
      case clamp_:
        return fn::clamp{-0.5, 2}(x);
      case relu_:
        return fn::relu{}(x);
      case elu_:
        return fn::elu{0.5}(x);
      case sigmoid_:
        return fn::sigmoid{}(x);
      case silu_:
        return fn::silu{}(x);
      case gelu_:
        return fn::gelu{}(x);
      case gelu_tanh_:
        return fn::gelu_tanh{}(x);
      case softplus_:
        return fn::softplus{}(x);
      case swiglu_:
        return fn::swiglu{}(x, y);
      case scale_:
        return fn::scale{0.25}(x);
      case negate_:
        return fn::negate{}(x);
      case square_:
        return fn::square{}(x);
      case reciprocal_:
        return fn::reciprocal{}(x);
      case min_:
        return fn::min{}(x, y);
      case max_:
        return fn::max{}(x, y);
      case add_:
        return fn::add{}(x, y, T(1));
      case multiply_:
        return fn::multiply{}(x, y, T(2));
      case subtract_:
        return fn::subtract{}(x, y);
      case quantize_:
        return fn::quantize<e4m3_t>{0.5}(x);
      case cast_:
        return fn::cast<bf16_t>{}(x);
      case chain_:
        return compose(fn::add{}, fn::gelu{}, fn::scale{2})(x, y);
    }
    return T(0);
  }
};

template <class Exec, class T>
std::vector<T> evaluate(Which which, std::vector<T> const& x, std::vector<T> const& y) {
  ViewOf<Exec, T*> const vx("x", x.size()), vy("y", y.size()), out("out", x.size());
  fill(vx, x);
  fill(vy, y);
  transform(Exec{}, out, Pick{which}, vx, vy);
  return values(out);
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_tanh(double x) {
  return x * sigmoid(2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
}

struct Row {
  Which which;
  double low, high;
  /// Units in the last place: a constant, and a part that grows with x^2 where the argument of an exponential is
  /// rounded. CUDA's worst single-precision function here, erfc, has 4; compositions add their own roundings.
  double ulps, ulps_x2;
  std::function<double(double, double)> reference;
};

std::vector<Row> rows() {
  auto const unary = [](double (*f)(double)) { return [f](double x, double) { return f(x); }; };
  return {
      {exp_, -80, 80, 4, 0, unary(std::exp)},
      {log_, 1e-3, 1e6, 4, 0, unary(std::log)},
      {sin_, -3, 3, 4, 0, unary(std::sin)},
      {cos_, -1.5, 1.5, 4, 0, unary(std::cos)},
      // Many turns, and more than a GPU's short reduction takes.
      {sin_, -29000, 29000, 4, 0, unary(std::sin)},
      {cos_, -29000, 29000, 4, 0, unary(std::cos)},
      {sin_, 31000, 1e9, 4, 0, unary(std::sin)},
      {cos_, 31000, 1e9, 4, 0, unary(std::cos)},
      {sin_, 1e9, 3e38, 4, 0, unary(std::sin)},
      {cos_, -3e38, -1e9, 4, 0, unary(std::cos)},
      {sin_, -1e-30, 1e-30, 4, 0, unary(std::sin)},
      {tanh_, -8, 8, 4, 0, unary(std::tanh)},
      {sqrt_, 0, 1e6, 1, 0, unary(std::sqrt)},
      {rsqrt_, 1e-6, 1e6, 4, 0, [](double x, double) { return 1 / std::sqrt(x); }},
      {abs_, -3, 3, 0, 0, [](double x, double) { return std::abs(x); }},
      {clamp_, -4, 4, 0, 0, [](double x, double) { return std::min(std::max(x, -0.5), 2.0); }},
      {relu_, -4, 4, 0, 0, [](double x, double) { return std::max(x, 0.0); }},
      {elu_, -0x1p-4, 0x1p-4, 1.5, 0, [](double x, double) { return x > 0 ? x : 0.5 * std::expm1(x); }},
      {elu_, -20, 4, 1.5, 0, [](double x, double) { return x > 0 ? x : 0.5 * std::expm1(x); }},
      {sigmoid_, -80, 80, 6, 0, [](double x, double) { return sigmoid(x); }},
      {silu_, -80, 80, 8, 0, [](double x, double) { return x * sigmoid(x); }},
      {gelu_, -12, 12, 8, 2, [](double x, double) { return gelu(x); }},
      {gelu_tanh_, -8, 8, 8, 1, [](double x, double) { return gelu_tanh(x); }},
      {softplus_, -80, 80, 6, 0,
       [](double x, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }},
      {swiglu_, -10, 10, 9, 0, [](double x, double y) { return x * sigmoid(x) * y; }},
      {scale_, -4, 4, 1, 0, [](double x, double) { return 0.25 * x; }},
      {negate_, -4, 4, 0, 0, [](double x, double) { return -x; }},
      {square_, -4, 4, 1, 0, [](double x, double) { return x * x; }},
      {reciprocal_, 0.1, 40, 1, 0, [](double x, double) { return 1 / x; }},
      {min_, -4, 4, 0, 0, [](double x, double y) { return std::min(x, y); }},
      {max_, -4, 4, 0, 0, [](double x, double y) { return std::max(x, y); }},
      {multiply_, -4, 4, 2, 0, [](double x, double y) { return 2 * x * y; }},
  };
}

/// Against fp64 formulas (the worst-case conditioned long double for fp64 would change nothing at these bounds).
template <class Exec, class T>
void check_rows(double slack) {
  double const epsilon = std::numeric_limits<T>::epsilon();
  double const smallest = std::numeric_limits<T>::min();
  for (Row const& row : rows()) {
    std::vector<T> const x = uniform<T>(1001, 11 + row.which, row.low, row.high);
    std::vector<T> const y = uniform<T>(1001, 77, -2, 2);
    std::vector<T> const got = evaluate<Exec>(row.which, x, y);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const want = row.reference(x[i], y[i]);
      double const bound = (slack + row.ulps + row.ulps_x2 * x[i] * x[i]) * epsilon * std::abs(want) + smallest;
      worst = std::max(worst, std::abs(got[i] - want) / bound);
    }
    INFO("functor " << row.which << ", largest error / bound " << worst);
    CHECK(worst <= 1);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("ready functors agree with fp64 formulas in fp32", Exec, functors_fp32) {
  check_rows<Exec, float>(0);
}
TEST_CASE_TEMPLATE_APPLY(functors_fp32, Spaces);

// The reference is fp64 itself here, with its own roundings: 12 more units, and its arguments' rounding for gelu.
TEST_CASE_TEMPLATE_DEFINE("ready functors agree with fp64 formulas in fp64", Exec, functors_fp64) {
  check_rows<Exec, double>(80);
}
TEST_CASE_TEMPLATE_APPLY(functors_fp64, Spaces);

TEST_CASE_TEMPLATE_DEFINE("ready functors at NaN, infinities and far tails", Exec, functors_special) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const x{nan, inf, -inf, -1000.f, 1000.f, 0.f};
  std::vector<float> const y(x.size(), 1.f);
  auto const at = [&](Which which) { return evaluate<Exec>(which, x, y); };
  for (int w = exp_; w <= chain_; ++w) {
    INFO("functor " << w);
    CHECK(std::isnan(at(static_cast<Which>(w))[0]));
  }
  using Values = std::vector<float>;
  auto const tail = [&](Which which) {
    Values v = at(which);
    v.erase(v.begin());
    return v;
  };
  CHECK(tail(exp_) == Values{inf, 0, 0, inf, 1});
  CHECK(tail(tanh_) == Values{1, -1, -1, 1, 0});
  CHECK(tail(relu_) == Values{inf, 0, 0, 1000, 0});
  CHECK(tail(clamp_) == Values{2, -0.5f, -0.5f, 2, 0});
  CHECK(tail(elu_) == Values{inf, -0.5f, -0.5f, 1000, 0});
  CHECK(tail(sigmoid_) == Values{1, 0, 0, 1, 0.5f});
  CHECK(tail(silu_) == Values{inf, 0, 0, 1000, 0});
  CHECK(tail(gelu_) == Values{inf, 0, 0, 1000, 0});
  CHECK(tail(gelu_tanh_) == Values{inf, 0, 0, 1000, 0});
  CHECK(tail(swiglu_) == Values{inf, 0, 0, 1000, 0});
  CHECK(std::isnan(tail(sin_)[0]));
  CHECK(tail(sin_)[4] == 0);
  CHECK(tail(cos_)[4] == 1);
  CHECK(tail(softplus_)[0] == inf);
  CHECK(tail(softplus_)[1] == 0);
  CHECK(tail(softplus_)[3] == 1000);
  CHECK(tail(rsqrt_)[4] == inf);
  CHECK(tail(log_)[4] == -inf);
  CHECK(std::isnan(tail(sqrt_)[2]));
  CHECK(tail(quantize_) == Values{448, -448, -448, 448, 0});
  // A NaN as the second input.
  for (Which w : {min_, max_, add_, multiply_, subtract_, swiglu_})
    CHECK(std::isnan(evaluate<Exec>(w, Values{1.f}, Values{nan})[0]));
}
TEST_CASE_TEMPLATE_APPLY(functors_special, Spaces);

TEST_CASE_TEMPLATE_DEFINE("exponential and logarithm where numbers end", Exec, functors_ends) {
  using Values = std::vector<float>;
  float const inf = std::numeric_limits<float>::infinity();
  auto const at = [](Which which, Values const& x) { return evaluate<Exec>(which, x, Values(x.size(), 1.f)); };
  Values const x{-103.f, -95.f, -87.4f, -87.f, 88.f, 88.72f};
  Values const e = at(exp_, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const want = std::exp(static_cast<double>(x[i]));
    CHECK(std::abs(e[i] - want) <= 4 * 0x1p-23 * want + 0x1p-149);
  }
  CHECK(at(exp_, {-104.5f, 88.73f, 1e30f, -1e30f}) == Values{0, inf, inf, 0});
  Values const y{1e-45f, 3e-40f, 1.17549435e-38f, 0.99999994f, 1.f, 1.0000001f, 3.4e38f};
  Values const l = at(log_, y);
  for (std::size_t i = 0; i < y.size(); ++i) {
    double const want = std::log(static_cast<double>(y[i]));
    CHECK(std::abs(l[i] - want) <= 4 * 0x1p-23 * std::abs(want));
  }
  CHECK(at(log_, {inf, 0.f, -0.f}) == Values{inf, -inf, -inf});
  CHECK(std::isnan(at(log_, {-1e-45f})[0]));
}
TEST_CASE_TEMPLATE_APPLY(functors_ends, Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast, quantize and compose", Exec, functors_precision) {
  std::vector<float> const x = uniform<float>(501, 5, -300, 300), y = uniform<float>(501, 6, -3, 3);
  std::vector<float> const cast = evaluate<Exec>(cast_, x, y), quantized = evaluate<Exec>(quantize_, x, y);
  std::vector<float> const chain = evaluate<Exec>(chain_, y, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(cast[i] == static_cast<float>(bf16_t(x[i])));
    CHECK(quantized[i] == static_cast<float>(e4m3_t::saturate(x[i] / 0.5f)));
    // First applied first: 2 gelu(y + y), with the bound of gelu at 2 y and of the sum.
    double const sum = 2. * y[i], want = 2 * gelu(sum);
    CHECK(std::abs(chain[i] - want) <= (10 + 2 * sum * sum) * 0x1p-23 * std::abs(want) + 0x1p-126);
  }
}
TEST_CASE_TEMPLATE_APPLY(functors_precision, Spaces);

TEST_CASE("compose chains any number, passes 16-bit results on as fp32 and lets integers be") {
  CHECK(compose(fn::square{})(3) == 9);
  CHECK(compose(fn::subtract{}, fn::square{}, fn::negate{}, fn::scale{0.5}, fn::reciprocal{})(1.0, 3.0) == -0.5);
  CHECK(compose(fn::cast<bf16_t>{}, fn::square{})(1.0f + 0x1p-12f) == 1.0f);
  CHECK(compose(compose(fn::add{}, fn::negate{}), compose(fn::square{}))(1, 2) == 9);
  CHECK_FALSE(wants_index_v<decltype(compose(fn::add{}, fn::gelu{}))>);
  CHECK(wants_index_v<decltype(compose(fn::add{}, fn::dropout(0.5, 1)))>);
  CHECK(wants_index_v<decltype(compose(fn::dropout(0.5, 1), fn::square{}))>);
  CHECK(fn::scale{0.5}(3) == 1.5);
  CHECK(fn::exp{}(0) == 1.0);
}

TEST_CASE_TEMPLATE_DEFINE("dropout follows the element's index", Exec, functors_dropout) {
  int const m = 37, n = 123;
  double const p = 0.3;
  ViewOf<Exec, float**> const x("x", m, n), right("right", m, n);
  ViewOf<Exec, float**, Kokkos::LayoutLeft> const left("left", m, n);
  fill(x, std::vector<float>(static_cast<std::size_t>(m * n), 2.f));
  fn::dropout const dropout(p, 42, 3);
  transform(Exec{}, right, dropout, x);
  transform(Exec{}, left, compose(fn::add{}, dropout), x);
  std::vector<float> const got = values(right);
  CHECK(got == values(left));  // the index does not depend on the layout
  int kept = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    bool const keep = philox_word(42, 3, i) >= static_cast<std::uint64_t>(p * 4294967296.0);
    CHECK(got[i] == (keep ? 2.f * static_cast<float>(1 / (1 - p)) : 0.f));
    kept += keep;
  }
  // Five standard deviations of a binomial count.
  CHECK(std::abs(kept - m * n * (1 - p)) < 5 * std::sqrt(m * n * p * (1 - p)));

  transform(Exec{}, right, fn::dropout(0, 1), x);
  for (float v : values(right)) CHECK(v == 2.f);
  transform(Exec{}, right, fn::dropout(1, 1), x);
  for (float v : values(right)) CHECK(v == 0.f);
}
TEST_CASE_TEMPLATE_APPLY(functors_dropout, Spaces);

TEST_CASE("dropout refuses a probability outside [0, 1]") {
  for (double p : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    CHECK(contains(error_of([&] { fn::dropout(p, 1); }, ErrorCode::value), "must lie in [0, 1]"));
}
