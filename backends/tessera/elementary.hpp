// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENTARY_HPP
#define TESSERA_ELEMENTARY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <tessera/cuda/ptx.hpp>
#endif

// Functions that a machine has in one instruction, where its library spends several on cases that its caller excludes;
// and such as loops on a CPU become SIMD code with, which those of the C library are not.
namespace tessera::detail {

/// c ? a : b. On a CPU numbers are selected by bits: compilers that keep the flags that comparisons raise make branches
/// of what they are asked to choose.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION constexpr T chosen(bool c, T a, T b) {
#if !defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    std::uint32_t const mask = 0u - static_cast<std::uint32_t>(c);
    return __builtin_bit_cast(
        float, (__builtin_bit_cast(std::uint32_t, a) & mask) | (__builtin_bit_cast(std::uint32_t, b) & ~mask));
  }
#endif
  return c ? a : b;
}

/// e^x for x <= 0. On a CPU within 1 unit in the last place, subnormal results included, without a branch or a call: x
/// = k ln 2 + r, |r| <= ln 2 / 2, ln 2 in two parts (W. J. Cody, W. Waite, "Software Manual for the Elementary
/// Functions", 1980), a polynomial of degree 7 in r (the coefficients of Cephes' expf), and 2^k in two factors, of
/// which the last rounds to a subnormal number.
KOKKOS_FORCEINLINE_FUNCTION float exp_below(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::exp(x);
#else
  float const y = chosen(x < -104.0f, -104.0f, x);  // beyond, it is 0 as there; NaN stays
  constexpr float magic = 12582912.0f;              // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = y * 1.44269504088896341f + magic;
  float const k = shifted - magic;
  float const r = (y - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  constexpr std::uint32_t enlarged = 100;  // the result times 2^100 is normal
  std::uint32_t const power = (__builtin_bit_cast(std::uint32_t, shifted) << 23) + ((127u + enlarged) << 23);
  return p * __builtin_bit_cast(float, power) * 7.88860905e-31f;
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double exp_below(double x) { return Kokkos::exp(x); }

/// tanh x. On a CPU within 1.5 units in the last place: by e^-2|x|, and below 0.625, where that cancels, by a
/// polynomial (the coefficients of Cephes' tanhf).
KOKKOS_FORCEINLINE_FUNCTION float hyperbolic_tangent(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::tanh(x);
#else
  float const z = __builtin_fabsf(x), square = x * x;
  float const e = exp_below(-2.0f * z);
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  return __builtin_copysignf(chosen(z < 0.625f, z + z * square * p, (1.0f - e) / (1.0f + e)), x);
#endif
}

/// 2^x for -126 <= x < 128, relative error 2^-22.
KOKKOS_FORCEINLINE_FUNCTION float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::exp2_approximate(x);
#else
  // 2^n 2^r with |r| <= 1/2, a polynomial for 2^r: SIMD code, which the C library's exp2 is not.
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = x + magic, r = x - (shifted - magic);
  float p = 1.53532572e-4f;
  p = p * r + 1.33990042e-3f;
  p = p * r + 9.61843878e-3f;
  p = p * r + 5.55033199e-2f;
  p = p * r + 2.40226477e-1f;
  p = p * r + 6.93147182e-1f;
  std::uint32_t const n = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, p * r + 1.0f) + n);
#endif
}

/// 1 / x for 2^-126 <= |x| <= 2^126, relative error 2^-23.
KOKKOS_FORCEINLINE_FUNCTION float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::reciprocal_approximate(x);
#else
  return 1.0f / x;
#endif
}

/// tanh x = 1 - 2 / (e^2x + 1), absolute error 2^-20.6. A GPU has the exponential with an error of 2^-22 and the
/// reciprocal with one of 2^-23, relative: what is subtracted from 1 errs by 2^-23 and 2^-22 of it, by 2^-24 for the
/// rounding of 2x log2 e times its slope, and by 2^-23 for that of the sum.
KOKKOS_FORCEINLINE_FUNCTION float tanh_by_exponential(float x) {
#if defined(__CUDA_ARCH__)
  float const e = ptx::exp2_approximate(x * 2.8853900817779268f);
  return 1.0f - 2.0f * ptx::reciprocal_approximate(e + 1.0f);
#else
  return hyperbolic_tangent(x);
#endif
}

#if defined(__CUDA_ARCH__)
/// sin r for |r| <= pi / 2 within 2^-27 by a polynomial; with the other sign where bit 0 of `turns` is set.
__device__ __forceinline__ float sine_of_rest(float r, std::uint32_t turns) {
  float const square = r * r;
  float p = 2.60562979e-6f;
  p = fmaf(p, square, -1.98095382e-4f);
  p = fmaf(p, square, 8.33306555e-3f);
  p = fmaf(p, square, -1.66666597e-1f);
  return __uint_as_float(__float_as_uint(fmaf(r * square, p, r)) ^ (turns << 31));
}
/// x - turns pi, exact but for the last rounding for |turns| < 2^14 (W. J. Cody, W. Waite, "Software Manual for the
/// Elementary Functions", 1980: pi in three parts).
__device__ __forceinline__ float rest_of_turns(float x, float turns) {
  return fmaf(turns, 3.43024902e-15f, fmaf(turns, 8.74227766e-8f, fmaf(turns, -3.14159274f, x)));
}
__device__ __noinline__ float sine_by_library(float x) { return ::sinf(x); }
__device__ __noinline__ float cosine_by_library(float x) { return ::cosf(x); }
#endif

/// sin x, within 2.1 units in the last place on a GPU: its library selects one of two polynomials for every element.
KOKKOS_FORCEINLINE_FUNCTION float sine(float x) {
#if defined(__CUDA_ARCH__)
  if (!(fabsf(x) < 3e4f)) return sine_by_library(x);
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = fmaf(x, 0.318309873f, magic);
  return sine_of_rest(rest_of_turns(x, shifted - magic), __float_as_uint(shifted));
#else
  return Kokkos::sin(x);
#endif
}
/// cos x likewise, as the sine of a quarter of a turn more.
KOKKOS_FORCEINLINE_FUNCTION float cosine(float x) {
#if defined(__CUDA_ARCH__)
  if (!(fabsf(x) < 3e4f)) return cosine_by_library(x);
  constexpr float magic = 12582912.0f;
  float const shifted = fmaf(x, 0.318309873f, -0.5f) + magic;
  return sine_of_rest(rest_of_turns(x, (shifted - magic) + 0.5f), __float_as_uint(shifted) ^ 1);
#else
  return Kokkos::cos(x);
#endif
}

/// The larger of a and b; a where b is NaN, b where a is.
KOKKOS_FORCEINLINE_FUNCTION float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return chosen(a != a, b, chosen(b > a, b, a));
#endif
}

/// The larger of `largest` and x; NaN where one is.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T larger_or_nan(T largest, T x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) return ptx::maximum(largest, x);
#endif
  return x > largest || x != x ? x : largest;
}

}  // namespace tessera::detail

#endif
