// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/derivatives.hpp>
#include <tessera/functors.hpp>
#include <tessera/limits.hpp>
#include <tessera/model.hpp>
#include <tessera/transform.hpp>

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
  scale_,
  negate_,
  square_,
  reciprocal_,
  swiglu_,
  add_,
  multiply_,
  subtract_,
  min_,
  max_,
  chain_
};
constexpr int unary = swiglu_, all_functors = chain_ + 1;

/// A functor, its value in fp64, and whether its argument must be positive.
template <class F>
auto with_functor(Which which, F const& f) {
  switch (which) {
    case exp_:
      return f(fn::exp{});
    case log_:
      return f(fn::log{});
    case sin_:
      return f(fn::sin{});
    case cos_:
      return f(fn::cos{});
    case tanh_:
      return f(fn::tanh{});
    case sqrt_:
      return f(fn::sqrt{});
    case rsqrt_:
      return f(fn::rsqrt{});
    case abs_:
      return f(fn::abs{});
    case clamp_:
      return f(fn::clamp{-0.5, 0.75});
    case relu_:
      return f(fn::relu{});
    case elu_:
      return f(fn::elu{1.5});
    case sigmoid_:
      return f(fn::sigmoid{});
    case silu_:
      return f(fn::silu{});
    case gelu_:
      return f(fn::gelu{});
    case gelu_tanh_:
      return f(fn::gelu_tanh{});
    case softplus_:
      return f(fn::softplus{});
    case scale_:
      return f(fn::scale{-2.5});
    case negate_:
      return f(fn::negate{});
    case square_:
      return f(fn::square{});
    default:
      return f(fn::reciprocal{});
  }
}
bool needs_positive(Which which) { return which == log_ || which == sqrt_ || which == rsqrt_ || which == reciprocal_; }

/// Every derivative in one kernel, chosen at run time.
template <int I>
struct PickSlope {
  Which which;
  template <class T>
  KOKKOS_FUNCTION T operator()(T g, T x, T y) const {
    switch (which) {
      case exp_:
        return gradient(fn::exp{})(g, x);
      case log_:
        return gradient(fn::log{})(g, x);
      case sin_:
        return gradient(fn::sin{})(g, x);
      case cos_:
        return gradient(fn::cos{})(g, x);
      case tanh_:
        return gradient(fn::tanh{})(g, x);
      case sqrt_:
        return gradient(fn::sqrt{})(g, x);
      case rsqrt_:
        return gradient(fn::rsqrt{})(g, x);
      case abs_:
        return gradient(fn::abs{})(g, x);
      case clamp_:
        return gradient(fn::clamp{-0.5, 0.75})(g, x);
      case relu_:
        return gradient(fn::relu{})(g, x);
      case elu_:
        return gradient(fn::elu{1.5})(g, x);
      case sigmoid_:
        return gradient(fn::sigmoid{})(g, x);
      case silu_:
        return gradient(fn::silu{})(g, x);
      case gelu_:
        return gradient(fn::gelu{})(g, x);
      case gelu_tanh_:
        return gradient(fn::gelu_tanh{})(g, x);
      case softplus_:
        return gradient(fn::softplus{})(g, x);
      case scale_:
        return gradient(fn::scale{-2.5})(g, x);
      case negate_:
        return gradient(fn::negate{})(g, x);
      case square_:
        return gradient(fn::square{})(g, x);
      case reciprocal_:
        return gradient(fn::reciprocal{})(g, x);
      case swiglu_:
        return gradient<I>(fn::swiglu{})(g, x, y);
      case add_:
        return gradient<I>(fn::add{})(g, x, y);
      case multiply_:
        return gradient<I>(fn::multiply{})(g, x, y);
      case subtract_:
        return gradient<I>(fn::subtract{})(g, x, y);
      case min_:
        return gradient<I>(fn::min{})(g, x, y);
      case max_:
        return gradient<I>(fn::max{})(g, x, y);
      case chain_:
        return gradient<I>(compose(fn::multiply{}, fn::gelu{}, fn::scale{0.5}, fn::sigmoid{}))(g, x, y);
    }
    return x;
  }
};

double value(Which which, double x, double y) {
  switch (which) {
    case swiglu_:
      return fn::swiglu{}(x, y);
    case add_:
      return x + y;
    case multiply_:
      return x * y;
    case subtract_:
      return x - y;
    case min_:
      return std::min(x, y);
    case max_:
      return std::max(x, y);
    case chain_:
      return compose(fn::multiply{}, fn::gelu{}, fn::scale{0.5}, fn::sigmoid{})(x, y);
    default:
      return with_functor(which, [&](auto f) { return static_cast<double>(f(x)); });
  }
}

/// Operands of a call that are tensors of n elements, each read or written once.
template <class... V>
double moved(std::size_t n, V const&... v) {
  return ((v.size() == n ? static_cast<double>(n * sizeof(typename V::value_type)) : 0.0) + ...);
}

}  // namespace

/// Central differences of the functor in fp64, h = 1e-5: an error of h^2 times the third derivative (100 at most at
/// these arguments) and of roundings over h, 1e-7 together. fp32: 20 units of what the terms of a derivative add up
/// to, 4.
TEST_CASE_TEMPLATE_DEFINE("derivatives of functors agree with finite differences", Exec, differences_id) {
  constexpr std::size_t n = 200;
  constexpr double h = 1e-5;
  for (int i = 0; i < all_functors; ++i) {
    auto const which = static_cast<Which>(i);
    CAPTURE(i);
    double const low = needs_positive(which) ? 0.4 : -3;
    auto const x = uniform<double>(n, 1, low, 3), y = uniform<double>(n, 2, -2, 2), g = uniform<double>(n, 3, 0.5, 2);
    ViewOf<Exec, double*> const vx("x", n), vy("y", n), vg("g", n), out("out", n);
    ViewOf<Exec, float*> const narrow("narrow", n), fx("fx", n), fy("fy", n), fg("fg", n);
    fill(vx, x);
    fill(vy, y);
    fill(vg, g);
    auto const rounded = [](std::vector<double> const& v) { return std::vector<float>(v.begin(), v.end()); };
    fill(fx, rounded(x));
    fill(fy, rounded(y));
    fill(fg, rounded(g));
    for (int to : {0, 1}) {
      if (to == 1 && i < unary) continue;
      CAPTURE(to);
      if (to == 0) {
        transform(Exec{}, out, PickSlope<0>{which}, vg, vx, vy);
        transform(Exec{}, narrow, PickSlope<0>{which}, fg, fx, fy);
      } else {
        transform(Exec{}, out, PickSlope<1>{which}, vg, vx, vy);
        transform(Exec{}, narrow, PickSlope<1>{which}, fg, fx, fy);
      }
      auto const d = values(out);
      auto const f = values(narrow);
      int far = 0;
      for (std::size_t k = 0; k < n; ++k) {
        // At a kink differences tell of neither side.
        bool const kink = std::abs(x[k]) < 2 * h || std::abs(x[k] + 0.5) < 2 * h || std::abs(x[k] - 0.75) < 2 * h ||
                          std::abs(x[k] - y[k]) < 2 * h;
        if (kink) continue;
        double const dx = to == 0 ? h : 0, dy = to == 1 ? h : 0;
        double const slope = g[k] * (value(which, x[k] + dx, y[k] + dy) - value(which, x[k] - dx, y[k] - dy)) / (2 * h);
        far += !(std::abs(d[k] - slope) <= 1e-7 * (1 + std::abs(slope)));
        double const size = std::max(4.0, 4 * std::abs(d[k])) * (which == exp_ ? 2 : 1);
        far += !(std::abs(static_cast<double>(f[k]) - d[k]) <= 20 * limits<float>::roundoff * size);
      }
      CHECK(far == 0);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("derivatives in the tails, at kinks, of casts and of dropout", Exec, special_id) {
  CHECK(derivative<fn::relu>::at<0>(fn::relu{}, 0.0f) == 0);
  CHECK(std::isnan(derivative<fn::relu>::at<0>(fn::relu{}, std::nanf(""))));
  CHECK(derivative<fn::abs>::at<0>(fn::abs{}, 0.0) == 0);
  CHECK(derivative<fn::clamp>::at<0>(fn::clamp{0, 1}, 1.0) == 1);
  CHECK(derivative<fn::elu>::at<0>(fn::elu{2}, 0.0) == 2);
  CHECK(derivative<fn::max>::at<1>(fn::max{}, 1.0f, 1.0f) == 1);
  // 1 - tanh^2 and s (1 - s) would be 0 here.
  CHECK(std::abs(derivative<fn::tanh>::at<0>(fn::tanh{}, 20.0f) / (4 * std::exp(-40.0)) - 1) < 1e-5);
  CHECK(std::abs(derivative<fn::sigmoid>::at<0>(fn::sigmoid{}, 40.0f) / std::exp(-40.0) - 1) < 1e-5);
  for (double x : {-1e30, 1e30, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}) {
    double const limit = x > 0 ? 1 : 0;
    CHECK(derivative<fn::gelu>::at<0>(fn::gelu{}, x) == limit);
    CHECK(derivative<fn::silu>::at<0>(fn::silu{}, x) == limit);
    CHECK(derivative<fn::gelu>::at<0>(fn::gelu{}, static_cast<float>(x)) == limit);
    CHECK(derivative<fn::silu>::at<0>(fn::silu{}, static_cast<float>(x)) == limit);
  }
  CHECK(derivative<fn::cast<e4m3_t>>::at<0>(fn::cast<e4m3_t>{}, 3.3f) == 1);
  CHECK(derivative<fn::quantize<e4m3_t>>::at<0>(fn::quantize<e4m3_t>{4}, 3.3f) == 0.25f);

  constexpr std::size_t n = 1000;
  ViewOf<Exec, float*> const x("x", n), dy("dy", n), y("y", n), dx("dx", n);
  fill(x, uniform<float>(n, 1, 1, 2));
  fill(dy, std::vector<float>(n, 3.0f));
  auto const f = compose(fn::scale{2}, fn::dropout(0.4, 7, 3));
  transform(Exec{}, y, f, x);
  transform(Exec{}, dx, gradient(f), dy, x);
  auto const forward = values(y), backward = values(dx);
  int wrong = 0;
  for (std::size_t i = 0; i < n; ++i)
    wrong += forward[i] == 0 ? backward[i] != 0 : std::abs(backward[i] - 3 * 2 / 0.6) > 1e-5;
  CHECK(wrong == 0);
}

/// Forward and backward pass of three sigmoids, one after the other. Each View of a call is read or written once, so
/// that what is passed is what is moved; the tests of transform hold it to its operands.
TEST_CASE_TEMPLATE_DEFINE("three stacked sigmoids move five tensors", Exec, traffic_id) {
  constexpr std::size_t n = 10007;
  auto const f = compose(fn::sigmoid{}, fn::sigmoid{}, fn::sigmoid{});
  ViewOf<Exec, bf16_t*> const x("x", n), y("y", n), dy("dy", n), dx("dx", n);
  auto const in = uniform<bf16_t>(n, 1, -4, 4), g = uniform<bf16_t>(n, 2);
  fill(x, in);
  fill(dy, g);
  double bytes = 0;
  transform(Exec{}, y, f, x);
  bytes += moved(n, y, x);
  transform(Exec{}, dx, gradient(f), dy, x);
  bytes += moved(n, dx, dy, x);
  CHECK(bytes == model::hbm_traffic_sigmoids_recomputed(3, n, 2).total_bytes());
  CHECK(bytes == 5.0 * n * 2);
  CHECK(model::hbm_traffic_sigmoids_stored(3, n, 2).total_bytes() == 8.0 * n * 2);
  auto const sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  auto const d = values(dx);
  int far = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double expected = to_double(g[i]), v = to_double(in[i]);
    for (int k = 0; k < 3; ++k) {
      v = sigmoid(v);
      expected *= v * (1 - v);
    }
    // Some twenty roundings of fp32 and one of bf16.
    far += !(std::abs(to_double(d[i]) - expected) <=
             std::abs(expected) * (limits<bf16_t>::roundoff + 40 * limits<float>::roundoff) + 1e-38);
  }
  CHECK(far == 0);
}

TEST_CASE_TEMPLATE_APPLY(differences_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(traffic_id, Spaces);
