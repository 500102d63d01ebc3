// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_FUNCTORS_HPP
#define TESSERA_FUNCTORS_HPP

/// \file
/// Ready functors for tessera::transform and for epilogues; compose() (compose.hpp) chains them and your own.
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
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/compose.hpp>
#include <tessera/detail/normal_distribution.hpp>
#include <tessera/element/convert.hpp>
#include <tessera/elementary.hpp>
#include <tessera/error.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/philox.hpp>
#include <tessera/types.hpp>

namespace tessera {
namespace detail {

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

}  // namespace detail

/// The ready functors.
namespace fn {

// ---- arithmetic

/// a + b + ... for one or more inputs
struct add {
  static constexpr bool keeps_magnitudes = true;
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return (x + ...);
  }
};
/// a * b * ... for one or more inputs
struct multiply {
  static constexpr bool keeps_magnitudes = true;
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
  static constexpr bool keeps_accuracy = true, keeps_magnitudes = true;
  double factor = 1;
  template <class T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T x) const {
    return detail::real(x) * static_cast<detail::RealOf<T>>(factor);
  }
};
/// -x
struct negate {
  static constexpr bool keeps_accuracy = true, keeps_magnitudes = true;
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
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool moderate(T x) {
    return detail::moderate_turns(static_cast<float>(x));
  }
  static constexpr auto for_moderate() { return fn::moderate::sin{}; }
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
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool moderate(T x) {
    return detail::moderate_turns(static_cast<float>(x));
  }
  static constexpr auto for_moderate() { return fn::moderate::cos{}; }
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
