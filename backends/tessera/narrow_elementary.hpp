// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_NARROW_ELEMENTARY_HPP
#define TESSERA_NARROW_ELEMENTARY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/elementary.hpp>

// Functions of results that are stored in 16 or 8 bits (narrow_functors.hpp), and their texts for usual arguments.
namespace tessera::detail {

/// 2^x for x <= 0 within 2^-18, 0 below -126; NaN stays.
KOKKOS_FORCEINLINE_FUNCTION float exp2_below(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::exp2_approximate(x);
#else
  return chosen(x < -126.0f, 0.0f, exp2_approximate<true>(x));
#endif
}

/// ln(1 + e) for 0 <= e <= 1 within 2^-16: where a GPU's logarithm of the sum loses e, e - e^2 / 2 + e^3 / 3.
KOKKOS_FORCEINLINE_FUNCTION float log1p_for_narrow(float e) {
#if defined(__CUDA_ARCH__)
  float const near = Kokkos::fma(Kokkos::fma(e, 1.0f / 3.0f, -0.5f), e, 1.0f) * e;
  float const far = ptx::log2_approximate(1.0f + e) * 0.693147181f;
  return e < 0.03125f ? near : far;
#else
  float p = -2.38691010e-2f;
  p = p * e + 1.01222143e-1f;
  p = p * e - 2.10048541e-1f;
  p = p * e + 3.25206608e-1f;
  p = p * e - 4.99361366e-1f;
  p = p * e + 9.99991596e-1f;
  return p * e;
#endif
}

/// 1 / (1 + 2^-y) within 2^-17, above 1 / 2 within 2^-22: slopes take what it is short of 1. 0 below 2^-126.
KOKKOS_FORCEINLINE_FUNCTION float logistic_of_power(float y) {
#if defined(__CUDA_ARCH__)
  return ptx::reciprocal_approximate(1.0f + ptx::exp2_approximate(-y));
#else
  float const e = exp2_below(-__builtin_fabsf(y)), r = reciprocal_of_normal(1.0f + e);
  return chosen(y < 0.0f, e * r, r);
#endif
}

/// True where a machine's own sine and cosine do for bf16: their absolute error is 2^-20 and 2^-22 of x.
KOKKOS_FORCEINLINE_FUNCTION bool few_turns(float x) { return Kokkos::abs(x) < 32.0f; }

#if !defined(__CUDA_ARCH__)
/// x of few turns as n half turns and a rest of up to pi / 2, which is within 2^-25 |x|.
struct FewTurns {
  float rest;
  std::uint32_t sign;  // in its first bit: n is odd
  KOKKOS_FORCEINLINE_FUNCTION explicit FewTurns(float x) {
    constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
    float const shifted = x * 0.318309873f + magic;
    rest = (shifted - magic) * -3.14159274f + x;
    sign = __builtin_bit_cast(std::uint32_t, shifted) << 31;
  }
  KOKKOS_FORCEINLINE_FUNCTION float with_sign(float y) const {
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, y) ^ sign);
  }
};
#endif

/// sin x of few turns within 2^-20 + 2^-22 |x|, of small arguments within 2^-14 of it, without a branch.
KOKKOS_FORCEINLINE_FUNCTION float sine_of_few_turns(float x) {
#if defined(__CUDA_ARCH__)
  return fabsf(x) < 0.015625f ? x : ptx::sine_approximate(x);
#else
  FewTurns const turns(x);
  float const r = turns.rest, square = r * r;  // the polynomial of sine_of_rest<true>()
  float const p = (-1.85358338e-4f * square + 8.31402838e-3f) * square - 1.66658312e-1f;
  return turns.with_sign(r * square * p + r);
#endif
}
/// cos x likewise: that of the rest within 2^-24, so that a CPU reduces the argument of both once.
KOKKOS_FORCEINLINE_FUNCTION float cosine_of_few_turns(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::cosine_approximate(x);
#else
  FewTurns const turns(x);
  float const square = turns.rest * turns.rest;
  float p = 2.3153525e-5f * square - 1.3853686e-3f;
  p = p * square + 4.1663583e-2f;
  p = p * square - 4.9999905e-1f;
  return turns.with_sign(p * square + 1.0f);
#endif
}

/// e^x - 1 for x <= 0 within 2^-15 of the result: where it cancels on a GPU x + x^2 / 2 + x^3 / 6.
KOKKOS_FORCEINLINE_FUNCTION float expm1_for_narrow(float x) {
#if defined(__CUDA_ARCH__)
  float const near = fmaf(fmaf(x, 1.0f / 6.0f, 0.5f), x, 1.0f) * x;
  return x > -0.0625f ? near : ptx::exp2_approximate(x * 1.44269504f) - 1.0f;
#else
  return expm1_below<true>(x);
#endif
}

/// The normal distribution left of -|x| is `distribution` e^(-x^2 / 2), a rational function of z = |x| within 2.4e-5
/// (relative) for z < 13.3, beyond which the power is 0, and NaN for NaN.
struct NormalTail {
  float z, distribution, power;
  KOKKOS_FORCEINLINE_FUNCTION explicit NormalTail(float x)
      : z(-larger(-Kokkos::abs(x), -14.0f)), power(exp2_below(x * x * (-0.5f * 1.44269504f))) {
    float const p = Kokkos::fma(Kokkos::fma(0.39942502f, z, 1.7841606f), z, 3.21920533f);
    float const q = Kokkos::fma(Kokkos::fma(z + 4.50618379f, z, 8.7099259f), z, 6.43826279f);
    distribution = p * reciprocal_of_normal<true>(q);
  }
};

/// x Phi(x) within 2^-14 of it, 0 where Phi(-|x|) is below 2^-126, as max(x, 0) - z Phi(-z), z = |x|. A GPU has powers
/// and quotients from one unit of a quarter of the rate: there Phi is 2 to a polynomial, within 2^-14.4 for z < 13.2.
KOKKOS_FORCEINLINE_FUNCTION float gelu_for_narrow(float x) {
#if defined(__CUDA_ARCH__)
  float const z = -larger(-Kokkos::abs(x), -14.0f);
  float p = -1.92343008e-9f;
  p = fmaf(p, z, 1.40336638e-7f);
  p = fmaf(p, z, -4.50281823e-6f);
  p = fmaf(p, z, 8.41056171e-5f);
  p = fmaf(p, z, -1.02409429e-3f);
  p = fmaf(p, z, 8.67961161e-3f);
  p = fmaf(p, z, -5.39848171e-2f);
  p = fmaf(p, z, -4.58760619e-1f);
  p = fmaf(p, z, -1.15099382f);
  p = fmaf(p, z, -1.00002956f);
  return fmaf(-z, ptx::exp2_approximate(p), larger_or_nan(0.0f, x));
#else
  NormalTail const tail(x);
  return Kokkos::fma(-(tail.distribution * tail.z), tail.power, larger(x, 0.0f));
#endif
}

/// True where a polynomial of degree 6 does for gelu_for_narrow().
KOKKOS_FORCEINLINE_FUNCTION bool few_deviations(float x) { return Kokkos::abs(x) < 6.0f; }

/// x Phi(x) for |x| < 6 as max(x, 0) - z Phi(-z), z = |x|: within 2^-14.3 of it by a power of 2 where a machine has
/// that in an instruction, else within 2^-16 by a power of 32, which is five products.
KOKKOS_FORCEINLINE_FUNCTION float gelu_of_few_deviations(float x) {
  float const z = Kokkos::abs(x);
#if defined(__CUDA_ARCH__)
  float p = 2.29900598e-5f;
  p = p * z - 6.11099997e-4f;
  p = p * z + 7.19556538e-3f;
  p = p * z - 5.1185336e-2f;
  p = p * z - 4.61271942e-1f;
  p = p * z - 1.15017426f;
  p = p * z - 1.00006473f;
  return fmaxf(x, 0.0f) - z * ptx::exp2_approximate(p);
#else
  float p = 3.1196754e-7f;
  p = p * z - 1.6120279e-5f;
  p = p * z + 2.608619e-4f;
  p = p * z - 9.156636e-4f;
  p = p * z - 9.404426e-3f;
  p = p * z - 2.4405379e-2f;
  p = p * z + 9.785723e-1f;
  p *= p;
  p *= p;
  p *= p;
  p *= p;
  p *= p;
  std::int32_t const bits = __builtin_bit_cast(std::int32_t, x);
  float const positive = __builtin_bit_cast(float, bits > 0 ? bits : 0);  // one instruction, as numbers it is two
  return positive - z * p;
#endif
}

}  // namespace tessera::detail

#endif
