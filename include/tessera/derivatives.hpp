// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DERIVATIVES_HPP
#define TESSERA_DERIVATIVES_HPP

/// \file
/// Derivatives of the ready functors and of chains of them, by which a backward pass recomputes what it needs from the
/// inputs of the forward one:
///
///     auto const f = compose(fn::add{}, fn::gelu{});
///     transform(exec, y, f, x, b);                    // y = gelu(x + b)
///     transform(exec, dx, gradient(f), dy, x, b);     // dx = dy gelu'(x + b)
///
/// However long the chain is, forward and backward pass together move y, x, dx, dy and x again.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/compose.hpp>
#include <tessera/detail/normal_distribution.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/functors.hpp>
#include <tessera/narrow_elementary.hpp>
#include <tessera/narrow_functors.hpp>

namespace tessera {

/// The partial derivatives of a functor: `derivative<F>::at<I>(f, x...)` is that to input I, and where F wants the
/// element's index, `at<I>(f, index, x...)`. Specialise it for a functor of your own to use that in gradient().
template <class F>
struct derivative;

namespace detail {

/// The other factor of a product rule; constants have the type of their argument.
template <class T>
using SlopeOf = RealOf<T>;

template <int I, class F, class... T>
KOKKOS_INLINE_FUNCTION auto slope_of(F const& f, [[maybe_unused]] std::int64_t index, T... x) {
  if constexpr (wants_index_v<F>)
    return derivative<F>::template at<I>(f, index, x...);
  else
    return derivative<F>::template at<I>(f, x...);
}

template <int I, class F>
struct Gradient {
  static constexpr bool wants_index = wants_index_v<F>;
  F f;

  template <class G, class... T>
  requires(wants_index) KOKKOS_INLINE_FUNCTION auto operator()(std::int64_t index, G g, T... x) const {
    return real(g) * slope_of<I>(f, index, x...);
  }
  template <class G, class... T>
  requires(!wants_index) KOKKOS_INLINE_FUNCTION auto operator()(G g, T... x) const {
    return real(g) * slope_of<I>(f, 0, x...);
  }
  constexpr auto for_narrow() const { return Gradient<I, NarrowOf<F>>{tessera::for_narrow(f)}; }
};

/// Derivatives that are one function of one argument.
template <class F>
struct UnarySlope {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(F const& f, T x) {
    static_assert(I == 0, "this functor has one input");
    return derivative<F>::slope(f, real(x));
  }
};

}  // namespace detail

/// The functor (g, x...) -> g * (the derivative of f to its input I at x...), for transform.
template <int I = 0, class F>
constexpr auto gradient(F f) {
  return detail::Gradient<I, F>{f};
}

/// The chain rule; what lies between the stages is computed again.
template <class First, class... Rest>
struct derivative<detail::Chain<First, Rest...>> {
  using Chain = detail::Chain<First, Rest...>;

  template <int I, class... T>
  requires(!Chain::wants_index) KOKKOS_INLINE_FUNCTION static auto at(Chain const& f, T... x) {
    return through<I>(f, 0, x...);
  }
  template <int I, class... T>
  requires(Chain::wants_index) KOKKOS_INLINE_FUNCTION static auto at(Chain const& f, std::int64_t index, T... x) {
    return through<I>(f, index, x...);
  }

 private:
  template <int I, class... T>
  KOKKOS_INLINE_FUNCTION static auto through(Chain const& f, std::int64_t index, T... x) {
    if constexpr (sizeof...(Rest) == 0)
      return detail::slope_of<I>(f.last, index, x...);
    else
      return detail::slope_of<0>(f.rest, index, detail::stage_value(detail::call(f.first, index, x...))) *
             detail::slope_of<I>(f.first, index, x...);
  }
};

// ---- arithmetic

template <>
struct derivative<fn::add> {
  template <int I, class T, class... U>
  KOKKOS_INLINE_FUNCTION static auto at(fn::add const&, T, U...) {
    return detail::RealOf<T>(1);
  }
};
/// The product of the other factors.
template <>
struct derivative<fn::multiply> {
  template <int I, class... T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::multiply const&, T... x) {
    static_assert(I < static_cast<int>(sizeof...(T)));
    decltype((detail::real(x) * ...)) product = 1;
    int i = 0;
    ((product = i++ == I ? product : product * detail::real(x)), ...);
    return product;
  }
};
template <>
struct derivative<fn::subtract> {
  template <int I, class T, class U>
  KOKKOS_INLINE_FUNCTION static auto at(fn::subtract const&, T, U) {
    return detail::RealOf<T>(I == 0 ? 1 : -1);
  }
};
/// 1 for the argument that the result is, the second where they are equal.
template <>
struct derivative<fn::min> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::min const&, T a, T b) {
    bool const first = a < b || a != a;
    return detail::RealOf<T>((I == 0) == first ? 1 : 0);
  }
};
template <>
struct derivative<fn::max> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::max const&, T a, T b) {
    bool const first = a > b || a != a;
    return detail::RealOf<T>((I == 0) == first ? 1 : 0);
  }
};
template <>
struct derivative<fn::scale> : detail::UnarySlope<fn::scale> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::scale const& f, T) {
    return static_cast<T>(f.factor);
  }
};
template <>
struct derivative<fn::negate> : detail::UnarySlope<fn::negate> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::negate const&, T) {
    return T(-1);
  }
};
template <>
struct derivative<fn::square> : detail::UnarySlope<fn::square> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::square const&, T x) {
    return x + x;
  }
};
template <>
struct derivative<fn::reciprocal> : detail::UnarySlope<fn::reciprocal> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::reciprocal const&, T x) {
    return T(-1) / (x * x);
  }
};
/// The sign; 0 at 0.
template <>
struct derivative<fn::abs> : detail::UnarySlope<fn::abs> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::abs const&, T x) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x;
  }
};
/// 1 from low to high, both included.
template <>
struct derivative<fn::clamp> : detail::UnarySlope<fn::clamp> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::clamp const& f, T x) {
    return x != x ? x : x < static_cast<T>(f.low) || x > static_cast<T>(f.high) ? T(0) : T(1);
  }
};

// ---- elementary functions

template <>
struct derivative<fn::exp> : detail::UnarySlope<fn::exp> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::exp const& f, T x) {
    return f(x);
  }
};
template <>
struct derivative<fn::log> : detail::UnarySlope<fn::log> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::log const&, T x) {
    return T(1) / x;
  }
};
template <>
struct derivative<fn::sin> : detail::UnarySlope<fn::sin> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::sin const&, T x) {
    return fn::cos{}(x);
  }
};
template <>
struct derivative<fn::cos> : detail::UnarySlope<fn::cos> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::cos const&, T x) {
    return -fn::sin{}(x);
  }
};
/// 4 e / (1 + e)^2 with e = e^(-2 |x|): 1 - tanh^2 without cancellation.
template <>
struct derivative<fn::tanh> : detail::UnarySlope<fn::tanh> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::tanh const&, T x) {
    T const e = Kokkos::exp(T(-2) * Kokkos::abs(x)), sum = T(1) + e;
    return T(4) * e / (sum * sum);
  }
};
template <>
struct derivative<fn::sqrt> : detail::UnarySlope<fn::sqrt> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::sqrt const&, T x) {
    return T(0.5) / Kokkos::sqrt(x);
  }
};
template <>
struct derivative<fn::rsqrt> : detail::UnarySlope<fn::rsqrt> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::rsqrt const& f, T x) {
    return T(-0.5) * f(x) / x;
  }
};

// ---- activations

/// 0 at 0
template <>
struct derivative<fn::relu> : detail::UnarySlope<fn::relu> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::relu const&, T x) {
    return x > T(0) ? T(1) : x <= T(0) ? T(0) : x;
  }
};
template <>
struct derivative<fn::elu> : detail::UnarySlope<fn::elu> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::elu const& f, T x) {
    return x > T(0) ? T(1) : static_cast<T>(f.alpha) * Kokkos::exp(x);
  }
};
/// sigmoid(x) sigmoid(-x)
template <>
struct derivative<fn::sigmoid> : detail::UnarySlope<fn::sigmoid> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::sigmoid const&, T x) {
    T const e = Kokkos::exp(-Kokkos::abs(x)), r = T(1) / (T(1) + e);
    return e * r * r;
  }
};
/// sigmoid(x) (1 + x sigmoid(-x))
template <>
struct derivative<fn::silu> : detail::UnarySlope<fn::silu> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::silu const&, T x) {
    T const left = detail::logistic(x), right = detail::logistic(-x);
    return left + detail::damped(x, left * right);
  }
};
/// Phi(x) + x phi(x), the normal distribution and its density
template <>
struct derivative<fn::gelu> : detail::UnarySlope<fn::gelu> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::gelu const&, T x) {
    if constexpr (std::is_same_v<T, float>) {  // Phi(-z) - z Phi'(z), or what that is short of 1
      float const of[] = {x};
      float z[1], ratio[1], power[1];
      detail::normal_tails(of, z, ratio, power);
      float const left = Kokkos::fma(-0.39894228f, z[0], ratio[0]) * power[0];
      float const near = detail::chosen(Kokkos::abs(x) > 13.19f, 0.0f, left);
      return detail::chosen(x < 0.0f, near, 1.0f - near);
    } else {
      T const distribution = T(0.5) * Kokkos::erfc(x * T(-0.70710678118654752440));
      T const density = T(0.39894228040143267794) * Kokkos::exp(T(-0.5) * x * x);
      return distribution + detail::damped(x, density);
    }
  }
};
template <>
struct derivative<fn::gelu_tanh> : detail::UnarySlope<fn::gelu_tanh> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::gelu_tanh const&, T x) {
    T const square = x * x, twice = T(1.59576912160573071176) * (x + T(0.044715) * square * x);
    T const left = detail::logistic(twice), both = left * detail::logistic(-twice);
    return left + detail::damped(x * T(1.59576912160573071176) * (T(1) + T(0.134145) * square), both);
  }
};
template <>
struct derivative<fn::softplus> : detail::UnarySlope<fn::softplus> {
  template <class T>
  KOKKOS_INLINE_FUNCTION static T slope(fn::softplus const&, T x) {
    return detail::logistic(x);
  }
};
template <>
struct derivative<fn::swiglu> {
  template <int I, class T, class U>
  KOKKOS_INLINE_FUNCTION static auto at(fn::swiglu const&, T gate, U up) {
    if constexpr (I == 0)
      return derivative<fn::silu>::slope(fn::silu{}, detail::real(gate)) * detail::real(up);
    else
      return fn::silu{}(gate);
  }
};

// ---- precision: as if nothing were rounded ("straight through")

template <class To>
struct derivative<fn::cast<To>> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::cast<To> const&, T) {
    return detail::RealOf<T>(1);
  }
};
/// 1 / scale
template <class To>
struct derivative<fn::quantize<To>> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::quantize<To> const& f, T) {
    return detail::RealOf<T>(1) / static_cast<detail::RealOf<T>>(f.scale);
  }
};

// ---- random

/// 1 / (1 - p) where the forward pass kept the element, else 0
template <>
struct derivative<fn::dropout> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::dropout const& f, std::int64_t index, T) {
    return f(index, detail::RealOf<T>(1));
  }
};

// ---- of results in 16 or 8 bits: within 2^-13 of the larger of their terms

namespace detail {

/// Derivatives that are one function of one number of fp32.
template <class F>
struct NarrowSlope {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static float at(F const& f, T x) {
    static_assert(I == 0, "this functor has one input");
    return derivative<F>::slope(f, static_cast<float>(x));
  }
};

/// s + factor s (1 - s), s = 1 / (1 + 2^-y): the derivative of x s by x, with the factor x y' ln 2.
KOKKOS_FORCEINLINE_FUNCTION float gated_slope(float factor, float y) {
  float const s = logistic_of_power(y);
  return s + damped(factor, Kokkos::fma(-s, s, s));
}

}  // namespace detail

template <>
struct derivative<fn::narrow::sin> : detail::NarrowSlope<fn::narrow::sin> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::sin const&, float x) { return fn::narrow::cos{}(x); }
};
template <>
struct derivative<fn::narrow::cos> : detail::NarrowSlope<fn::narrow::cos> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::cos const&, float x) { return -fn::narrow::sin{}(x); }
};
/// 4 s (1 - s), s = 1 / (1 + e^2|x|)
template <>
struct derivative<fn::narrow::tanh> : detail::NarrowSlope<fn::narrow::tanh> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::tanh const&, float x) {
    float const s = detail::logistic_of_power(Kokkos::abs(x) * (-2.0f * detail::log2_e));
    return 4.0f * Kokkos::fma(-s, s, s);
  }
};
template <>
struct derivative<fn::narrow::elu> : detail::NarrowSlope<fn::narrow::elu> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::elu const& f, float x) {
    return detail::chosen(x > 0.0f, 1.0f, f.alpha * detail::exp2_below(x * detail::log2_e));
  }
};
/// s (1 - s), s = 1 / (1 + e^|x|)
template <>
struct derivative<fn::narrow::sigmoid> : detail::NarrowSlope<fn::narrow::sigmoid> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::sigmoid const&, float x) {
    float const s = detail::logistic_of_power(Kokkos::abs(x) * -detail::log2_e);
    return Kokkos::fma(-s, s, s);
  }
};
template <>
struct derivative<fn::narrow::silu> : detail::NarrowSlope<fn::narrow::silu> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::silu const&, float x) {
    return detail::gated_slope(x, x * detail::log2_e);
  }
};
/// Phi(x) + x phi(x), phi the density: from Phi(-|x|) - |x| phi(x), which is that or what it lacks to 1
template <>
struct derivative<fn::narrow::gelu> : detail::NarrowSlope<fn::narrow::gelu> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::gelu const&, float x) {
    detail::NormalTail const tail(x);
    float const left = Kokkos::fma(-0.39894228f, tail.z, tail.distribution) * tail.power;
    return detail::chosen(x < 0.0f, left, 1.0f - left);
  }
};
template <>
struct derivative<fn::narrow::gelu_tanh> : detail::NarrowSlope<fn::narrow::gelu_tanh> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::gelu_tanh const&, float x) {
    constexpr float c = 1.59576912f, cubic = 0.044715f;
    float const square = x * x;
    return detail::gated_slope(x * Kokkos::fma(square, 3 * cubic * c, c),
                               x * Kokkos::fma(square, cubic * c * detail::log2_e, c * detail::log2_e));
  }
};
template <>
struct derivative<fn::narrow::softplus> : detail::NarrowSlope<fn::narrow::softplus> {
  KOKKOS_INLINE_FUNCTION static float slope(fn::narrow::softplus const&, float x) {
    return detail::logistic_of_power(x * detail::log2_e);
  }
};
template <>
struct derivative<fn::narrow::swiglu> {
  template <int I, class T, class U>
  KOKKOS_INLINE_FUNCTION static float at(fn::narrow::swiglu const&, T gate, U up) {
    float const x = static_cast<float>(gate);
    if constexpr (I == 0)
      return derivative<fn::narrow::silu>::slope({}, x) * static_cast<float>(up);
    else
      return fn::narrow::silu{}(x);
  }
};

}  // namespace tessera

#endif
