// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_NARROW_FUNCTORS_HPP
#define TESSERA_NARROW_FUNCTORS_HPP

/// \file
/// The ready functors whose results are stored in 16 or 8 bits.
///
/// A functor of 16-bit numbers may cost some twenty instructions an element beside a copy, and half of what an fp32
/// result takes is then rounded away. So a functor may have a member `for_narrow()`, which returns the functor that
/// takes its place where the result is stored in fp16, bf16 or an 8-bit floating-point type and everything is computed
/// in fp32. The ready ones below are within 2^-14 of the result, a quarter of what rounding to fp16 may change and a
/// thirty-second of bf16, and 0 where that lies below 2^-119. Nothing cancels, and NaN and infinities give what they
/// give in fp32.
///
/// Such a functor may have a third text, for usual arguments and results of no more than eight significant bits (bf16
/// and 8-bit types): `usual(x...)` says whether arguments are, and `for_usual()` returns the functor that computes it.
/// A GPU's transform takes it for packs of elements that are all usual, so that what is rare costs no branch an
/// element. Where what is usual of some arguments is so of all that have no larger magnitudes, a member
/// `static constexpr bool usual_by_magnitude = true` says so, and `usual` may be asked once, of the largest magnitude
/// of each argument: of all packs of a thread, and on a CPU, which does not ask otherwise, of 256 elements.

#include <Kokkos_Core.hpp>
#include <type_traits>
#include <utility>

#include <tessera/element/convert.hpp>
#include <tessera/narrow_elementary.hpp>

namespace tessera {

/// The functor that takes f's place where results are stored in few bits: f.for_narrow(), or f where it has none.
template <class F>
constexpr auto for_narrow(F const& f) {
  if constexpr (requires { f.for_narrow(); })
    return f.for_narrow();
  else
    return f;
}

/// The functor that takes f's place for usual arguments: f.for_usual(), or f where it has none.
template <class F>
constexpr auto for_usual(F const& f) {
  if constexpr (requires { f.for_usual(); })
    return f.for_usual();
  else
    return f;
}
/// Whether for_usual(f) may be called with these arguments.
template <class F, class... T>
KOKKOS_INLINE_FUNCTION constexpr bool usual([[maybe_unused]] F const& f, T... x) {
  if constexpr (requires { f.for_usual(); })
    return f.usual(x...);
  else
    return true;
}

namespace detail {

template <class F>
inline constexpr bool has_usual_v = requires(F const& f) {
  f.for_usual();
};
/// Whether usual(f, x...) may be asked of magnitudes that may be those of different elements.
template <class F>
inline constexpr bool usual_by_magnitude_v = !has_usual_v<F> || requires {
  requires F::usual_by_magnitude;
};
template <class F>
using UsualOf = decltype(for_usual(std::declval<F const&>()));

template <class F>
using NarrowOf = decltype(for_narrow(std::declval<F const&>()));

/// f, or what takes its place where results of fp32 are rounded to To.
template <class Real, class To, class F>
constexpr auto for_results(F const& f) {
  if constexpr (narrow_type<To> && std::is_same_v<Real, float>)
    return for_narrow(f);
  else
    return f;
}

inline constexpr float log2_e = 1.44269504f;

/// x / (1 + 2^-y), and 0 at -infinity, where the quotient is.
KOKKOS_FORCEINLINE_FUNCTION float gated(float x, float y) { return larger(x, -128.0f) * logistic_of_power(y); }

}  // namespace detail

namespace fn::usual {

/// sin(x) and cos(x) for |x| < 32 and results of up to eight significant bits: within 2^-20 + 2^-22 |x|, and for
/// |x| < 1/64 within 2^-14 of the sine
struct sin {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::sine_of_few_turns(static_cast<float>(x));
  }
};
struct cos {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::cosine_of_few_turns(static_cast<float>(x));
  }
};
/// x Phi(x) for |x| < 6
struct gelu {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::gelu_of_few_deviations(static_cast<float>(x));
  }
};

}  // namespace fn::usual

namespace fn::moderate {

/// sin(x) and cos(x) for |x| < 30000, as fn::sin and fn::cos and fn::narrow::sin and cos have them
struct sin {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::sine_of_moderate_turns(static_cast<float>(x));
  }
};
struct cos {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::cosine_of_moderate_turns(static_cast<float>(x));
  }
};

}  // namespace fn::moderate

namespace fn::narrow {

/// sin(x), x in radians; the error is 2^-34 where the sine is smaller than 2^-20, and where results have no more than
/// eight significant bits 2^-20 + 2^-22 |x| for |x| < 32
struct sin {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::sine<true>(static_cast<float>(x));
  }
  static constexpr bool usual_by_magnitude = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool usual(T x) {
    return detail::few_turns(static_cast<float>(x));
  }
  static constexpr auto for_usual() { return fn::usual::sin{}; }
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool moderate(T x) {
    return detail::moderate_turns(static_cast<float>(x));
  }
  static constexpr auto for_moderate() { return fn::moderate::sin{}; }
};
/// cos(x) likewise
struct cos {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::cosine<true>(static_cast<float>(x));
  }
  static constexpr bool usual_by_magnitude = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool usual(T x) {
    return detail::few_turns(static_cast<float>(x));
  }
  static constexpr auto for_usual() { return fn::usual::cos{}; }
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool moderate(T x) {
    return detail::moderate_turns(static_cast<float>(x));
  }
  static constexpr auto for_moderate() { return fn::moderate::cos{}; }
};
/// hyperbolic tangent: 1 - 2 / (1 + e^2x), and where that cancels x - x^3 / 3
struct tanh {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    float const v = static_cast<float>(x);
    float const far = Kokkos::fma(-2.0f, detail::logistic_of_power(v * (-2.0f * detail::log2_e)), 1.0f);
    float const near = Kokkos::fma(v * v, v * (-1.0f / 3.0f), v);
    return detail::chosen(Kokkos::abs(v) < 0.0625f, near, far);
  }
};
/// x for x > 0, else alpha (e^x - 1)
struct elu {
  float alpha = 1;
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    float const v = static_cast<float>(x);
    return detail::chosen(v > 0.0f, v, alpha * detail::expm1_for_narrow(v));
  }
};
/// 1 / (1 + e^-x)
struct sigmoid {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::logistic_of_power(static_cast<float>(x) * detail::log2_e);
  }
};
/// x sigmoid(x)
struct silu {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    float const v = static_cast<float>(x);
    return detail::gated(v, v * detail::log2_e);
  }
};
/// x Phi(x), Phi the normal distribution
struct gelu {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::gelu_for_narrow(static_cast<float>(x));
  }
  static constexpr bool usual_by_magnitude = true;
  template <class T>
  KOKKOS_INLINE_FUNCTION static bool usual(T x) {
    return detail::few_deviations(static_cast<float>(x));
  }
  static constexpr auto for_usual() { return fn::usual::gelu{}; }
};
/// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct gelu_tanh {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    constexpr float twice = 1.59576912f * detail::log2_e;
    float const v = static_cast<float>(x);
    return detail::gated(v, v * Kokkos::fma(v * v, 0.044715f * twice, twice));
  }
};
/// ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^-|x|
struct softplus {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    float const v = static_cast<float>(x);
    float const e = detail::exp2_below(Kokkos::abs(v) * -detail::log2_e);
    return detail::larger_or_nan(0.0f, v) + detail::log1p_for_narrow(e);
  }
};
/// silu(gate) * up
struct swiglu {
  template <class T, class U>
  KOKKOS_INLINE_FUNCTION float operator()(T gate, U up) const {
    return silu{}(gate) * static_cast<float>(up);
  }
};

}  // namespace fn::narrow
}  // namespace tessera

#endif
