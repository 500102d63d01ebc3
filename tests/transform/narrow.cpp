// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/derivatives.hpp>
#include <tessera/element/word_pairs.hpp>
#include <tessera/epilogue.hpp>
#include <tessera/functors.hpp>
#include <tessera/limits.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/streaming.hpp>
#include <tessera/transform.hpp>

#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <type_traits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// All numbers of 16 bits.
template <class T>
std::vector<T> all_numbers() {
  std::vector<T> all;
  for (int bits = 0; bits < 65536; ++bits) all.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
  return all;
}

/// Half of the distance of numbers of T near x: what rounding to T may change.
template <class T>
double half_a_unit(double x) {
  constexpr bool bf16 = std::is_same_v<T, bf16_t>;
  int const exponent = std::max(std::ilogb(x), bf16 ? -126 : -14);
  return std::ldexp(1.0, exponent - (bf16 ? 8 : 11));
}

/// What a result may be off: `relative` of it, `absolute`, and the rounding to T.
template <class T>
double allowed(double want, double relative, double absolute) {
  return relative * std::abs(want) + absolute + (want == 0 ? 0 : half_a_unit<T>(want * (1 + relative)));
}

/// The largest error in units of what is allowed, and where; a NaN is larger than any.
struct Worst {
  double ratio = 0, at = 0;
  void take(double x, double error, double bound) {
    double const now = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::abs(error) / bound;
    if (now <= ratio) return;
    ratio = now;
    at = x;
  }
  void check() const {
    INFO("largest error / bound " << ratio << " at " << at);
    CHECK(ratio <= 1);
  }
};

/// f of these numbers of T, in T, against fp64: within 2^-14 of the result beside the rounding to T, within absolute(x)
/// where that is more, and what is infinite or NaN is so.
template <class Exec, class T, class F>
void check_narrow(
    F const& f, std::function<double(double)> const& reference,
    std::function<double(double)> const& absolute = [](double) { return 0x1p-119; },
    std::vector<T> const& x = all_numbers<T>()) {
  ViewOf<Exec, T*> const in("in", x.size()), out("out", x.size());
  fill(in, x);
  transform(Exec{}, out, f, in);
  std::vector<T> const got = values(out);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const at = to_double(x[i]), want = reference(at), result = to_double(got[i]);
    if (std::isnan(want)) {
      CHECK(std::isnan(result));
      continue;
    }
    double const largest = limits<T>::max;
    if (std::abs(want) > largest) {
      CHECK(std::abs(result) >= largest);
      CHECK(std::signbit(result) == std::signbit(want));
      continue;
    }
    worst.take(at, result - want, allowed<T>(want, 0x1p-14, absolute(at)));
  }
  worst.check();
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
/// s vanishes faster than x grows
double times(double x, double s) { return s == 0 ? 0 : x * s; }

template <class Exec, class T>
void check_all() {
  check_narrow<Exec, T>(fn::tanh{}, [](double x) { return std::tanh(x); });
  check_narrow<Exec, T>(fn::elu{0.5}, [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); });
  check_narrow<Exec, T>(fn::sigmoid{}, logistic);
  check_narrow<Exec, T>(fn::silu{}, [](double x) { return times(x, logistic(x)); });
  check_narrow<Exec, T>(fn::gelu{}, [](double x) { return times(x, 0.5 * std::erfc(-x / std::sqrt(2.0))); });
  check_narrow<Exec, T>(fn::gelu_tanh{}, [](double x) {
    return times(x, logistic(2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  });
  check_narrow<Exec, T>(fn::softplus{}, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); });
}

/// What sine and cosine may be off at x: of few turns and for eight significant bits 2^-20 and, by their argument,
/// 2^-22 of it, but small arguments have their relative accuracy.
template <class T>
double absolute_of_sine(double x) {
  return !std::is_same_v<T, bf16_t> || std::abs(x) >= 32 || std::abs(x) < 0x1p-6 ? 0x1p-34
                                                                                 : 0x1p-20 + 0x1p-22 * std::abs(x);
}
/// All numbers of 16 bits, one after the other and so that neighbours are of all magnitudes.
template <class Exec, class T>
void check_sines() {
  std::vector<T> const in_order = all_numbers<T>();
  std::vector<T> mixed;
  for (std::size_t i = 0; i < in_order.size(); ++i) mixed.push_back(in_order[i * 40503 % in_order.size()]);
  for (std::vector<T> const& x : {in_order, mixed}) {
    check_narrow<Exec, T>(
        fn::sin{}, [](double at) { return std::sin(at); }, absolute_of_sine<T>, x);
    check_narrow<Exec, T>(
        fn::cos{}, [](double at) { return std::cos(at); }, absolute_of_sine<T>, x);
  }
  // In a chain, with a first stage that is exact and one that is not usual for half of what is.
  check_narrow<Exec, T>(
      compose(fn::negate{}, fn::sin{}), [](double at) { return -std::sin(at); }, absolute_of_sine<T>, mixed);
  check_narrow<Exec, T>(
      compose(fn::scale{2}, fn::cos{}), [](double at) { return std::cos(2 * at); },
      [](double at) { return absolute_of_sine<T>(2 * at); },
      std::vector<T>(in_order.begin(), in_order.begin() + (std::is_same_v<T, bf16_t> ? 0x7f00 : 0x7800)));
}

/// The results of bf16 are less than a unit in the last place from the sine and cosine of every number of it.
template <class Exec, class F>
void check_units(F const& f, std::function<double(double)> const& reference) {
  std::vector<bf16_t> const x = all_numbers<bf16_t>();
  ViewOf<Exec, bf16_t*> const in("in", x.size()), out("out", x.size());
  fill(in, x);
  transform(Exec{}, out, f, in);
  std::vector<bf16_t> const got = values(out);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const at = to_double(x[i]), want = reference(at);
    if (want != 0 && std::isfinite(want)) worst.take(at, to_double(got[i]) - want, 2 * half_a_unit<bf16_t>(want));
  }
  worst.check();
}

/// gradient(f) at every number of bf16 that is not NaN, of what arrives as 1 and where f has two inputs a second one
/// of 1.
template <class Exec, class F>
void check_slope(F const& f, std::function<double(double)> const& reference, double absolute) {
  std::vector<bf16_t> const x = all_numbers<bf16_t>();
  ViewOf<Exec, bf16_t*> const in("in", x.size()), ones("ones", x.size()), out("out", x.size());
  fill(in, x);
  fill(ones, std::vector<bf16_t>(x.size(), bf16_t(1)));
  if constexpr (std::is_same_v<F, fn::swiglu>)
    transform(Exec{}, out, gradient(f), ones, in, ones);
  else
    transform(Exec{}, out, gradient(f), ones, in);
  std::vector<bf16_t> const got = values(out);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const at = to_double(x[i]), result = to_double(got[i]);
    if (std::isnan(at)) {
      CHECK(std::isnan(result));
      continue;
    }
    double const want = reference(at);
    worst.take(at, result - want, allowed<bf16_t>(want, 0x1p-13, absolute + 0x1p-119));
  }
  worst.check();
}

/// x tanh(x)
struct Damped {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x) const {
    return x * fn::tanh{}(x);
  }
  struct Narrow {
    KOKKOS_FUNCTION float operator()(float x) const { return x * fn::narrow::tanh{}(x); }
  };
  static constexpr Narrow for_narrow() { return {}; }
};

using tessera::detail::NarrowOf;

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("functors of narrow results, of every number of 16 bits", Exec, narrow_id) {
  SUBCASE("bf16") { check_all<Exec, bf16_t>(); }
  SUBCASE("fp16") { check_all<Exec, fp16_t>(); }
}
TEST_CASE_TEMPLATE_APPLY(narrow_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("sine and cosine of narrow results, of every number of 16 bits", Exec, sines_id) {
  SUBCASE("bf16") {
    check_sines<Exec, bf16_t>();
    check_units<Exec>(fn::sin{}, [](double x) { return std::sin(x); });
    check_units<Exec>(fn::cos{}, [](double x) { return std::cos(x); });
  }
  SUBCASE("fp16") { check_sines<Exec, fp16_t>(); }
}
TEST_CASE_TEMPLATE_APPLY(sines_id, Spaces);

TEST_CASE("what is usual is asked of every stage of a chain") {
  auto const shifted = for_narrow(compose(fn::add{}, fn::sin{}));
  CHECK(usual(shifted, 1.0f, 2.0f));
  CHECK(!usual(shifted, 16.0f, 16.0f));
  CHECK(usual(fn::gelu{}, 1e30f));
  CHECK(!usual(fn::narrow::cos{}, std::numeric_limits<float>::quiet_NaN()));
  CHECK(std::is_same_v<detail::UsualOf<decltype(shifted)>, decltype(compose(fn::add{}, fn::usual::sin{}))>);
  CHECK(std::is_same_v<detail::UsualOf<fn::narrow::gelu>, fn::usual::gelu>);
  CHECK(usual(compose(fn::add{}, fn::narrow::gelu{}), 6.0f, -0.0625f));
  CHECK(!usual(compose(fn::add{}, fn::narrow::gelu{}), -5.0f, -1.0f));
  CHECK(!detail::has_usual_v<decltype(compose(fn::add{}, fn::narrow::tanh{}))>);
  // Of the largest magnitudes of several elements where no stage before makes more of smaller ones.
  CHECK(detail::usual_by_magnitude_v<decltype(compose(fn::add{}, fn::scale{-2}, fn::narrow::gelu{}))>);
  CHECK(!detail::usual_by_magnitude_v<decltype(compose(fn::subtract{}, fn::narrow::gelu{}))>);
  CHECK(!detail::usual_by_magnitude_v<decltype(compose(fn::narrow::gelu{}, fn::reciprocal{}, fn::narrow::sin{}))>);
}

// More packs than a GPU has under way at once, in one loop and in rows, whose usual ones have a text of their own.
TEST_CASE_TEMPLATE_DEFINE("functors of narrow results of many numbers", Exec, many_id) {
  auto const gelu = [](double x) { return times(x, 0.5 * std::erfc(-x / std::sqrt(2.0))); };
  constexpr std::size_t n = 2048;
  std::size_t const rows = runs_on_host<Exec> ? 32 : 1100;
  std::vector<bf16_t> const all = all_numbers<bf16_t>();
  std::vector<bf16_t> x, b(n, bf16_t(0));
  for (std::size_t i = 0; i < rows * n; ++i) x.push_back(all[i % all.size()]);
  check_narrow<Exec, bf16_t>(
      fn::gelu{}, gelu, [](double) { return 0x1p-119; }, x);
  check_narrow<Exec, bf16_t>(
      fn::sin{}, [](double at) { return std::sin(at); }, absolute_of_sine<bf16_t>, x);
  b[100] = bf16_t(8);
  ViewOf<Exec, bf16_t**> const in("in", rows, n), out("out", rows, n), of_rows("of rows", rows, 1);
  ViewOf<Exec, bf16_t*> const of_columns("of columns", n);
  fill(in, x);
  fill(of_columns, b);
  fill(of_rows, std::vector<bf16_t>(b.begin() + 90, b.begin() + 90 + static_cast<std::ptrdiff_t>(rows)));
  auto const check = [&](auto const& bias, auto const& bias_of) {
    transform(Exec{}, out, compose(fn::add{}, fn::gelu{}), in, bias);
    std::vector<bf16_t> const got = values(out);
    Worst worst;
    for (std::size_t i = 0; i < got.size(); ++i) {
      double const at = to_double(x[i]) + to_double(bias_of(i)), want = gelu(at);
      if (std::isfinite(want) && std::abs(want) < 3e38)
        worst.take(at, to_double(got[i]) - want, allowed<bf16_t>(want, 0x1p-14, 0x1p-119));
    }
    worst.check();
  };
  check(of_columns, [&](std::size_t i) { return b[i % n]; });
  check(of_rows, [&](std::size_t i) { return b[90 + i / n]; });
}
TEST_CASE_TEMPLATE_APPLY(many_id, Spaces);

// The bias is asked for its largest magnitude once, and where that is not usual in every row.
TEST_CASE_TEMPLATE_DEFINE("functors of narrow results of rows with a bias", Exec, bias_id) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (int n : {24, 63, 64, 256, 301, 1030})
    for (float const outlier : {0.5f, 40.f, nan}) {
      int const rows = 75;
      auto const count = static_cast<std::size_t>(rows * n);
      std::vector<bf16_t> const x = uniform<bf16_t>(count, 6, -3, 3);
      std::vector<bf16_t> b = uniform<bf16_t>(static_cast<std::size_t>(n), 7, -2, 2);
      b[static_cast<std::size_t>(n - 2)] = bf16_t(outlier);
      ViewOf<Exec, bf16_t**> const in("in", rows, n), out("out", rows, n);
      ViewOf<Exec, bf16_t*> const bias("bias", n);
      fill(in, x);
      fill(bias, b);
      transform(Exec{}, out, compose(fn::add{}, fn::gelu{}), in, bias);
      std::vector<bf16_t> const got = values(out);
      Worst worst;
      for (std::size_t i = 0; i < count; ++i) {
        double const at = to_double(x[i]) + to_double(b[i % static_cast<std::size_t>(n)]);
        if (std::isnan(at)) {
          CHECK(std::isnan(to_double(got[i])));
          continue;
        }
        double const want = times(at, 0.5 * std::erfc(-at / std::sqrt(2.0)));
        worst.take(at, to_double(got[i]) - want, allowed<bf16_t>(want, 0x1p-14, 0x1p-119));
      }
      CAPTURE(n);
      CAPTURE(outlier);
      worst.check();
    }
}
TEST_CASE_TEMPLATE_APPLY(bias_id, Spaces);

TEST_CASE("pairs of bf16 are rounded as single numbers are, also past the caches") {
  std::vector<float> x = uniform<float>(600, 8, -1, 1);
  float const others[] = {0.f,
                          -0.f,
                          1e-40f,
                          -1e-45f,
                          3.3954e38f,
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i * 7 % 250) - 130);
    if (i % 31 == 0) x[i] = others[i / 31 % std::size(others)];
  }
  for (bool const streamed : {false, true})
    for (int n : {1, 7, 8, 16, 37, 128, 300})
      for (int at : {0, 1, 32}) {
        alignas(64) bf16_t got[640] = {};
        detail::write_pairs(x.data(), x.data() + 300, n, got + at, streamed);
        detail::streaming_done();
        long wrong = got[at + 2 * n].bits() != 0;
        for (int i = 0; i < n; ++i)
          wrong += got[at + 2 * i].bits() != bf16_t(x[static_cast<std::size_t>(i)]).bits() ||
                   got[at + 2 * i + 1].bits() != bf16_t(x[static_cast<std::size_t>(300 + i)]).bits();
        CAPTURE(n);
        CHECK(wrong == 0);
      }
}

TEST_CASE_TEMPLATE_DEFINE("swiglu of narrow results", Exec, swiglu_id) {
  std::vector<bf16_t> const gate = all_numbers<bf16_t>();
  std::vector<float> const up = uniform<float>(gate.size(), 5, -2, 2);
  ViewOf<Exec, bf16_t*> const x("gate", gate.size()), out("out", gate.size());
  ViewOf<Exec, float*> const y("up", gate.size());
  fill(x, gate);
  fill(y, up);
  transform(Exec{}, out, fn::swiglu{}, x, y);
  std::vector<bf16_t> const got = values(out);
  Worst worst;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    double const at = to_double(gate[i]);
    if (!std::isfinite(at) || at > 1e38) continue;
    double const want = times(at, logistic(at)) * up[i];
    worst.take(at, to_double(got[i]) - want, allowed<bf16_t>(want, 0x1p-13, 0x1p-118));
  }
  worst.check();
}
TEST_CASE_TEMPLATE_APPLY(swiglu_id, Spaces);

TEST_CASE("a chain replaces the last stages that decide about accuracy") {
  using Gelu = fn::gelu;
  using Narrow = fn::narrow::gelu;
  // Also where what follows passes its accuracy on.
  CHECK(std::is_same_v<NarrowOf<decltype(compose(fn::add{}, Gelu{}))>, decltype(compose(fn::add{}, Narrow{}))>);
  CHECK(std::is_same_v<NarrowOf<decltype(compose(Gelu{}, fn::scale{2}, fn::clamp{}))>,
                       decltype(compose(Narrow{}, fn::scale{2}, fn::clamp{}))>);
  // A sine's errors are those of its argument, not relative ones.
  CHECK(std::is_same_v<NarrowOf<decltype(compose(Gelu{}, fn::scale{2}, fn::sin{}))>,
                       decltype(compose(Gelu{}, fn::scale{2}, fn::narrow::sin{}))>);
  CHECK(std::is_same_v<NarrowOf<fn::exp>, fn::exp>);
}

TEST_CASE("any functor is an epilogue, and every part of a chain of them is replaced") {
  auto const softplus = epilogue::each(fn::softplus{});
  CHECK(softplus(1.5f, 3, 4) == fn::softplus{}(1.5f));
  CHECK(std::is_same_v<NarrowOf<decltype(softplus)>, epilogue::Each<fn::narrow::softplus>>);
  CHECK(std::is_same_v<NarrowOf<decltype(epilogue::chain(epilogue::Gelu{}, epilogue::Scale{2}, epilogue::Elu{}))>,
                       decltype(epilogue::chain(epilogue::each(fn::narrow::gelu{}), epilogue::Scale{2},
                                                epilogue::each(fn::narrow::elu{})))>);
  CHECK(for_narrow(epilogue::Elu{0.5}).f.alpha == 0.5f);
}

TEST_CASE_TEMPLATE_DEFINE("a functor of one's own has a second text for narrow results", Exec, own_id) {
  ViewOf<Exec, float*> const x("x", 3), wide("wide", 3);
  ViewOf<Exec, bf16_t*> const narrow("narrow", 3);
  fill(x, std::vector<float>{-1, 0.5, 2});
  transform(Exec{}, wide, Damped{}, x);
  transform(Exec{}, narrow, compose(Damped{}, fn::negate{}), x);
  std::vector<float> const w = values(wide);
  std::vector<bf16_t> const n = values(narrow);
  for (std::size_t i = 0; i < w.size(); ++i)
    CHECK(std::abs(static_cast<float>(n[i]) + w[i]) <= 0x1p-8f * std::abs(w[i]));
  CHECK(std::is_same_v<NarrowOf<Damped>, Damped::Narrow>);
}
TEST_CASE_TEMPLATE_APPLY(own_id, Spaces);

TEST_CASE("only narrow results of fp32 are computed in fewer steps") {
  fn::gelu const f;
  CHECK(std::is_same_v<decltype(detail::for_results<float, bf16_t>(f)), fn::narrow::gelu>);
  CHECK(std::is_same_v<decltype(detail::for_results<float, e4m3_t>(f)), fn::narrow::gelu>);
  CHECK(std::is_same_v<decltype(detail::for_results<float, float>(f)), fn::gelu>);
  CHECK(std::is_same_v<decltype(detail::for_results<double, bf16_t>(f)), fn::gelu>);
}

TEST_CASE_TEMPLATE_DEFINE("derivatives of narrow results, of every number of bf16", Exec, slopes_id) {
  double const pi = 3.14159265358979323846;
  auto const silu_slope = [](double x) { return logistic(x) + times(x, logistic(x) * logistic(-x)); };
  // The larger of the terms of a sum is 1 at most, or vanishes as the sum does.
  auto const check = [](auto const& f, std::function<double(double)> const& reference, double absolute = 0) {
    check_slope<Exec>(f, reference, absolute);
  };
  check(fn::tanh{}, [](double x) { return 4 * logistic(2 * x) * logistic(-2 * x); });
  check(fn::sigmoid{}, [](double x) { return logistic(x) * logistic(-x); });
  check(fn::elu{0.5}, [](double x) { return x > 0 ? 1 : 0.5 * std::exp(x); });
  check(fn::softplus{}, logistic);
  check(fn::silu{}, silu_slope, 0x1p-13);
  check(
      fn::gelu{},
      [&](double x) {
        return 0.5 * std::erfc(-x / std::sqrt(2.0)) + times(x, std::exp(-x * x / 2) / std::sqrt(2 * pi));
      },
      0x1p-13);
  check(
      fn::gelu_tanh{},
      [&](double x) {
        double const c = 2 * std::sqrt(2 / pi), twice = c * (x + 0.044715 * x * x * x);
        return logistic(twice) + times(x * c * (1 + 3 * 0.044715 * x * x), logistic(twice) * logistic(-twice));
      },
      0x1p-13);
  check(fn::swiglu{}, silu_slope, 0x1p-13);
}
TEST_CASE_TEMPLATE_APPLY(slopes_id, Spaces);
