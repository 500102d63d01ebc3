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

#include <Kokkos_Core.hpp>
#include <type_traits>
#include <utility>

#include <tessera/element/convert.hpp>
#include <tessera/elementary.hpp>

namespace tessera {

/// The functor that takes f's place where results are stored in few bits: f.for_narrow(), or f where it has none.
template <class F>
constexpr auto for_narrow(F const& f) {
  if constexpr (requires { f.for_narrow(); })
    return f.for_narrow();
  else
    return f;
}

namespace detail {

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

/// The normal distribution left of -|x| is `distribution` e^(-x^2 / 2), a rational function of z = |x| within 2.4e-5
/// (relative) for z < 13.3, beyond which the power is 0, and NaN for NaN.
struct NormalTail {
  float z, distribution, power;
  KOKKOS_FORCEINLINE_FUNCTION explicit NormalTail(float x)
      : z(-larger(-Kokkos::abs(x), -14.0f)), power(exp2_below(x * x * (-0.5f * log2_e))) {
    float const p = Kokkos::fma(Kokkos::fma(0.39942502f, z, 1.7841606f), z, 3.21920533f);
    float const q = Kokkos::fma(Kokkos::fma(z + 4.50618379f, z, 8.7099259f), z, 6.43826279f);
    distribution = p * reciprocal_of_normal<true>(q);
  }
};

}  // namespace detail

namespace fn::narrow {

/// sin(x), x in radians; the error is 2^-34 where the sine is smaller than 2^-20
struct sin {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::sine<true>(static_cast<float>(x));
  }
};
/// cos(x) likewise
struct cos {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    return detail::cosine<true>(static_cast<float>(x));
  }
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
/// x Phi(x), Phi the normal distribution, as max(x, 0) - |x| Phi(-|x|)
struct gelu {
  template <class T>
  KOKKOS_INLINE_FUNCTION float operator()(T x) const {
    float const v = static_cast<float>(x);
    detail::NormalTail const tail(v);
    return Kokkos::fma(-(tail.distribution * tail.z), tail.power, detail::larger(v, 0.0f));
  }
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
