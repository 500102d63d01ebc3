// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_FUNCTORS_HPP
#define TESSERA_FUNCTORS_HPP

/// \file
/// Ready functors for tessera::transform and for epilogues, and compose() which chains them and your own.
///
/// A functor is any trivially copyable object with a `KOKKOS_FUNCTION` call operator. The ones here take and return
/// fp32 or fp64 (integers are computed with in fp64 where the result is no integer), hold their parameters in fp64 and
/// use them rounded to the type of the argument. NaN in gives NaN out, also from min, max, clamp and relu; infinities
/// give the limit of the function. Accuracy is that of the machine's elementary functions (a few units in the last
/// place) wherever nothing else is said, and no form cancels: the tails of gelu, silu, sigmoid, softplus and elu keep
/// their relative accuracy until they underflow.
/// That is for results of fp32 and fp64: where they are stored in fp16, bf16 or 8 bits, sin, cos, tanh and the
/// activations are those of narrow_functors.hpp. Of a chain the last one is, and one before where all that follow it
/// have `static constexpr bool keeps_accuracy = true`: relative errors pass through them as they are.
///
/// A functor with a member `static constexpr bool wants_index = true` is called with the linear index of the element
/// (std::int64_t, counted in the order of the last index first whatever the layout) before the other arguments. If it
/// takes no more of it than the Philox word of the element, `seed()`, `offset()` and `drawn(word, x...)` beside the
/// call let those who have many elements find four words at a time.

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/element/convert.hpp>
#include <tessera/elementary.hpp>
#include <tessera/error.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/philox.hpp>
#include <tessera/types.hpp>
#include <tessera/unroll.hpp>

namespace tessera {

/// True for functors that are called with the element's linear index first.
template <class F>
inline constexpr bool wants_index_v = [] {
  if constexpr (requires { F::wants_index; })
    return static_cast<bool>(F::wants_index);
  else
    return false;
}();

/// True for those that take no more of the index than the element's random word.
template <class F>
inline constexpr bool draws_words_v = wants_index_v<F>&& requires(F const& f) {
  f.seed();
  f.offset();
};

namespace detail {

/// The number a real function is evaluated for.
template <class T>
KOKKOS_INLINE_FUNCTION constexpr auto real(T x) {
  if constexpr (std::integral<T>)
    return static_cast<double>(x);
  else if constexpr (narrow_type<T>)
    return static_cast<float>(x);
  else
    return x;
}
template <class T>
using RealOf = decltype(real(std::declval<T>()));

/// x times a factor s(x) that vanishes faster than x grows: 0, not NaN, at infinity.
template <class T>
KOKKOS_INLINE_FUNCTION T damped(T x, T s) {
  return chosen(s == T(0), s, x * s);
}

/// 1 / (1 + exp(-x)) without overflow and with an accurate left tail.
template <class T>
KOKKOS_INLINE_FUNCTION T logistic(T x) {
  T const e = exp_below(-Kokkos::abs(x));
  T const r = T(1) / (T(1) + e);
  return chosen(x < T(0), e * r, r);
}

/// x 2^n, both normal, where `shifted` is n + 1.5 2^23.
KOKKOS_INLINE_FUNCTION float times_power(float x, float shifted) {
  std::uint32_t const n = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) + n);
}

/// The normal distribution left of -z for z = |x|, Phi(-z) = ratio power, power = e^(-z^2 / 2); from z = 13.19 on,
/// where it falls below 2^-126, z counts as 0. The ratio, c = log2(e) / 2, is a rational function within 3.5e-7
/// (relative). The power is that of a whole number, added to an exponent, and of a rest, which includes the rounding of
/// the square. Each step is done for all N before the next, the order in which a GPU's compiler leaves them: it would
/// not have one number's steps overlap those of another.
template <int N>
KOKKOS_INLINE_FUNCTION void normal_tails(float const (&x)[N], float (&z)[N], float (&ratio)[N], float (&power)[N]) {
  constexpr float c = 0.72134752f, magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float square[N], shifted[N], rest[N], p[N], q[N];
  auto const each = [](auto const& f) {
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) f(i);
  };
  each([&](int i) { z[i] = chosen(Kokkos::abs(x[i]) > 13.19f, 0.0f, Kokkos::abs(x[i])); });
  each([&](int i) { square[i] = z[i] * z[i]; });
  each([&](int i) { q[i] = z[i] + 7.0502677f; });
  each([&](int i) { shifted[i] = Kokkos::fma(square[i], -c, magic); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 22.539587f); });
  each([&](int i) { rest[i] = Kokkos::fma(square[i], -c, magic - shifted[i]); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 36.091877f); });
  each([&](int i) { square[i] = Kokkos::fma(z[i], z[i], -square[i]); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 23.7806969f); });
  each([&](int i) { q[i] = reciprocal_of_normal(q[i]); });
  each([&](int i) { rest[i] = exp2_approximate(Kokkos::fma(square[i], -c, rest[i])); });
  each([&](int i) { p[i] = Kokkos::fma(0.39888674f, z[i], 2.81476879f); });
  each([&](int i) { p[i] = Kokkos::fma(p[i], z[i], 8.55901527f); });
  each([&](int i) { p[i] = Kokkos::fma(p[i], z[i], 11.8903446f); });
  each([&](int i) { power[i] = times_power(rest[i], shifted[i]); });  // perhaps 2^-126
  each([&](int i) { ratio[i] = p[i] * q[i]; });
}

/// x Phi(x) as max(x, 0) - z Phi(-z), within 8 units in the last place until that falls below 2^-126, where it is 0.
template <int N>
KOKKOS_INLINE_FUNCTION void normal_products(float (&x)[N]) {
  float z[N], ratio[N], power[N];
  normal_tails(x, z, ratio, power);
  TESSERA_UNROLL
  for (int i = 0; i < N; ++i) x[i] = Kokkos::fma(-(ratio[i] * z[i]), power[i], larger(x[i], 0.0f));
}

/// Calls f with the index in front if it wants it.
template <class F, class... T>
KOKKOS_INLINE_FUNCTION constexpr auto call(F const& f, [[maybe_unused]] std::int64_t index, T... x) {
  if constexpr (wants_index_v<F>)
    return f(index, x...);
  else
    return f(x...);
}

/// What the next stage of a chain is given: 16- and 8-bit numbers as fp32.
template <class T>
KOKKOS_INLINE_FUNCTION constexpr auto stage_value(T x) {
  if constexpr (narrow_type<T>)
    return static_cast<float>(x);
  else
    return x;
}

/// True for functors whose result is as accurate, relative to itself, as what they are given, or nearly.
template <class F>
inline constexpr bool keeps_accuracy_v = requires {
  requires F::keeps_accuracy;
};

template <class First, class... Rest>
struct Chain {
  static constexpr bool wants_index = wants_index_v<First> || wants_index_v<Chain<Rest...>>;
  First first;
  Chain<Rest...> rest;

  template <class... T>
  requires(wants_index) KOKKOS_INLINE_FUNCTION constexpr auto operator()(std::int64_t index, T... x) const {
    return call(rest, index, stage_value(call(first, index, x...)));
  }
  template <class... T>
  requires(!wants_index) KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return rest(stage_value(first(x...)));
  }

  // One of its functors draws words.
  static constexpr bool first_draws = draws_words_v<First> && !wants_index_v<Chain<Rest...>>,
                        rest_draws = !wants_index_v<First> && draws_words_v<Chain<Rest...>>;
  KOKKOS_FUNCTION constexpr std::uint64_t seed() const requires(first_draws || rest_draws) {
    if constexpr (first_draws)
      return first.seed();
    else
      return rest.seed();
  }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const requires(first_draws || rest_draws) {
    if constexpr (first_draws)
      return first.offset();
    else
      return rest.offset();
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto drawn(std::uint32_t word, T... x) const {
    if constexpr (first_draws)
      return rest(stage_value(first.drawn(word, x...)));
    else
      return rest.drawn(word, stage_value(first(x...)));
  }

  /// With others in place of the last functor, and of those before it whose errors what follows does not magnify.
  constexpr auto for_narrow() const {
    auto const narrow_rest = tessera::for_narrow(rest);
    if constexpr ((keeps_accuracy_v<Rest> && ...))
      return chained(tessera::for_narrow(first), narrow_rest);
    else
      return chained(first, narrow_rest);
  }
  /// Where one of them has a text for usual arguments.
  static constexpr bool any_usual = !wants_index && (has_usual_v<First> || has_usual_v<Chain<Rest...>>);
  constexpr auto for_usual() const requires any_usual {
    return chained(tessera::for_usual(first), tessera::for_usual(rest));
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool usual(T... x) const requires any_usual {
    return tessera::usual(first, x...) & tessera::usual(rest, stage_value(tessera::for_usual(first)(x...)));
  }

 private:
  template <class F, class... G>
  static constexpr auto chained(F const& f, Chain<G...> const& g) {
    return Chain<F, G...>{f, g};
  }
};

template <class Last>
struct Chain<Last> {
  static constexpr bool wants_index = wants_index_v<Last>;
  Last last;

  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return last(x...);
  }
  KOKKOS_FUNCTION constexpr std::uint64_t seed() const requires draws_words_v<Last> { return last.seed(); }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const requires draws_words_v<Last> { return last.offset(); }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto drawn(std::uint32_t word, T... x) const {
    return last.drawn(word, x...);
  }
  constexpr auto for_narrow() const { return Chain<NarrowOf<Last>>{tessera::for_narrow(last)}; }
  constexpr auto for_usual() const requires has_usual_v<Last> { return Chain<UsualOf<Last>>{tessera::for_usual(last)}; }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool usual(T... x) const requires has_usual_v<Last> {
    return last.usual(x...);
  }
};

}  // namespace detail

/// Chains functors in the order they are applied, first applied first: compose(f, g, h)(x...) = h(g(f(x...))). The
/// first takes all the inputs, each other one the result before it. 16- and 8-bit results between stages are passed on
/// as fp32. Where a stage wants the element's index, every stage that does is given it.
///
///     transform(exec, out, compose(fn::add{}, fn::gelu{}), x, b);   // gelu(x + b)
template <class F, class... G>
constexpr auto compose(F f, G... g) {
  if constexpr (sizeof...(G) == 0)
    return detail::Chain<F>{f};
  else
    return detail::Chain<F, G...>{f, compose(g...)};
}

/// The ready functors.
namespace fn {

// ---- arithmetic

/// a + b + ... for one or more inputs
struct add {
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return (x + ...);
  }
};
/// a * b * ... for one or more inputs
struct multiply {
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return (x * ...);
  }
};
/// a - b
struct subtract {
  template <class T, class U>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T a, U b) const {
    return a - b;
  }
};
/// The smaller of a and b; NaN when one of them is.
struct min {
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr T operator()(T a, T b) const {
    return detail::chosen(a < b || a != a, a, b);
  }
};
/// The larger of a and b; NaN when one of them is.
struct max {
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr T operator()(T a, T b) const {
    return detail::chosen(a > b || a != a, a, b);
  }
};
/// factor * x
struct scale {
  static constexpr bool keeps_accuracy = true;
  double factor = 1;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    return detail::real(x) * static_cast<detail::RealOf<T>>(factor);
  }
};
/// -x
struct negate {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    return -x;
  }
};
/// x * x
struct square {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    return x * x;
  }
};
/// 1 / x
struct reciprocal {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    return detail::RealOf<T>(1) / detail::real(x);
  }
};
/// |x|
struct abs {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return Kokkos::abs(x);
  }
};
/// x limited to [low, high]
struct clamp {
  static constexpr bool keeps_accuracy = true;
  double low = 0, high = 1;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    auto const v = detail::real(x);
    using R = detail::RealOf<T>;
    R const raised = detail::chosen(v < static_cast<R>(low), static_cast<R>(low), v);
    return detail::chosen(raised > static_cast<R>(high), static_cast<R>(high), raised);
  }
};

// ---- elementary functions

/// e^x
struct exp {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return detail::exponential(detail::real(x));
  }
};
/// natural logarithm; -inf at 0, NaN below
struct log {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return detail::logarithm(detail::real(x));
  }
};
/// sin(x), x in radians; fp32 within 2.1 units in the last place
struct sin {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    if constexpr (std::is_same_v<detail::RealOf<T>, float>)
      return detail::sine(detail::real(x));
    else
      return Kokkos::sin(detail::real(x));
  }
  static constexpr auto for_narrow() { return narrow::sin{}; }
};
/// cos(x), x in radians; fp32 within 2.1 units in the last place
struct cos {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    if constexpr (std::is_same_v<detail::RealOf<T>, float>)
      return detail::cosine(detail::real(x));
    else
      return Kokkos::cos(detail::real(x));
  }
  static constexpr auto for_narrow() { return narrow::cos{}; }
};
/// hyperbolic tangent
struct tanh {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    if constexpr (std::is_same_v<detail::RealOf<T>, float>)
      return detail::hyperbolic_tangent(detail::real(x));
    else
      return Kokkos::tanh(detail::real(x));
  }
  static constexpr auto for_narrow() { return narrow::tanh{}; }
};
/// square root; NaN below 0
struct sqrt {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return Kokkos::sqrt(detail::real(x));
  }
};
/// 1 / sqrt(x); +inf at 0, NaN below
struct rsqrt {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return Kokkos::rsqrt(detail::real(x));
  }
};

// ---- activations

/// max(x, 0)
struct relu {
  static constexpr bool keeps_accuracy = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr T operator()(T x) const {
    return detail::chosen(x < T(0), T(0), x);
  }
};
/// x for x > 0, else alpha (e^x - 1); fp32 without branches
struct elu {
  double alpha = 1;
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    using R = detail::RealOf<T>;
    R const v = detail::real(x);
    if constexpr (std::is_same_v<R, float>) {
      float const below = static_cast<float>(alpha) * detail::expm1_below(v);
      return detail::chosen(v > 0.0f, v, below);
    } else {
      return v > R(0) ? v : static_cast<R>(alpha) * Kokkos::expm1(v);
    }
  }
  constexpr auto for_narrow() const { return narrow::elu{static_cast<float>(alpha)}; }
};
/// 1 / (1 + e^-x)
struct sigmoid {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    return detail::logistic(detail::real(x));
  }
  static constexpr auto for_narrow() { return narrow::sigmoid{}; }
};
/// x sigmoid(x)
struct silu {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    auto const v = detail::real(x);
    return detail::damped(v, detail::logistic(v));
  }
  static constexpr auto for_narrow() { return narrow::silu{}; }
};
/// x (1 + erf(x / sqrt 2)) / 2, without cancellation on the left. fp32 within 8 units in the last place, 0 left of
/// -13.19, without branches; fp64 through erfc, whose argument's rounding grows with x^2: about x^2 units in the last
/// place of the left tail.
struct gelu {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    using R = detail::RealOf<T>;
    R const v = detail::real(x);
    if constexpr (std::is_same_v<R, float>) {
      float one[] = {v};
      detail::normal_products(one);
      return one[0];
    } else {
      return detail::damped(v, R(0.5) * Kokkos::erfc(v * R(-0.70710678118654752440)));
    }
  }
  static constexpr auto for_narrow() { return narrow::gelu{}; }
};
/// x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, the usual approximation of gelu (within 5e-4 of it)
struct gelu_tanh {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    using R = detail::RealOf<T>;
    R const v = detail::real(x);
    R const twice = R(1.59576912160573071176) * (v + R(0.044715) * v * v * v);
    return detail::damped(v, detail::logistic(twice));  // (1 + tanh(u)) / 2 = logistic(2u)
  }
  static constexpr auto for_narrow() { return narrow::gelu_tanh{}; }
};
/// ln(1 + e^x)
struct softplus {
  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(T x) const {
    using R = detail::RealOf<T>;
    R const v = detail::real(x);
    return detail::chosen(v < R(0), R(0), v) + detail::logarithm_above_one(detail::exp_below(-Kokkos::abs(v)));
  }
  static constexpr auto for_narrow() { return narrow::softplus{}; }
};
/// silu(gate) * up
struct swiglu {
  template <class T, class U>
  KOKKOS_INLINE_FUNCTION auto operator()(T gate, U up) const {
    return silu{}(gate)*up;
  }
  static constexpr auto for_narrow() { return narrow::swiglu{}; }
};

// ---- precision

/// x rounded to nearest even to T (integers saturate), as fp32 for the 16- and 8-bit types and as T otherwise
template <class T>
struct cast {
  static constexpr bool keeps_accuracy = true;
  template <class U>
  KOKKOS_INLINE_FUNCTION auto operator()(U x) const {
    return detail::stage_value(detail::round_to<T>(x));
  }
};
/// x / scale rounded to nearest even to T and saturated at its largest finite number, as fp32 for the 16- and 8-bit
/// types: storing it in a View of T is exact. `scale` multiplies it back.
template <class T>
struct quantize {
  static constexpr bool keeps_accuracy = true;
  double scale = 1;
  template <class U>
  KOKKOS_INLINE_FUNCTION auto operator()(U x) const {
    return detail::stage_value(detail::saturate_to<T>(detail::real(x) / static_cast<detail::RealOf<U>>(scale)));
  }
};

// ---- random

/// x / (1 - p) with probability 1 - p, else 0. The decision belongs to (seed, offset, element index): it is the same on
/// every backend and again whenever the same three are given; use a new offset for every layer and step.
/// Error{value}: p outside [0, 1].
class dropout {
 public:
  static constexpr bool keeps_accuracy = true;
  static constexpr bool wants_index = true;

  explicit dropout(double p, std::uint64_t seed, std::uint64_t offset = 0)
      : dropped_below_(threshold(p)), factor_(p < 1 ? 1 / (1 - p) : 0), seed_(seed), offset_(offset) {}

  template <class T>
  KOKKOS_INLINE_FUNCTION auto operator()(std::int64_t index, T x) const {
    return drawn(philox_word(seed_, offset_, static_cast<std::uint64_t>(index)), x);
  }

  KOKKOS_FUNCTION constexpr std::uint64_t seed() const { return seed_; }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const { return offset_; }
  /// The same with the word of the element.
  template <class T>
  KOKKOS_INLINE_FUNCTION auto drawn(std::uint32_t word, T x) const {
    using R = detail::RealOf<T>;
    bool const kept = word >= dropped_below_;
    return kept ? detail::real(x) * static_cast<R>(factor_) : R(0);
  }

 private:
  static std::uint64_t threshold(double p) {
    if (!(p >= 0 && p <= 1))
      throw Error(ErrorCode::value,
                  "tessera::fn::dropout: the probability p must lie in [0, 1], it is " + std::to_string(p));
    return static_cast<std::uint64_t>(p * 4294967296.0);
  }

  std::uint64_t dropped_below_;  // of the 2^32 values of a random word
  double factor_;
  std::uint64_t seed_, offset_;
};

}  // namespace fn
}  // namespace tessera

#endif
