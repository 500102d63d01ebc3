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
#if !defined(__CUDA_ARCH__)
#include <tessera/sines.hpp>
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

#if !defined(__CUDA_ARCH__)
/// e^y = p 2^k, k = shifted - 1.5 2^23 and p near 1: y = k ln 2 + r, |r| <= ln 2 / 2, ln 2 in two parts (W. J. Cody, W.
/// Waite, "Software Manual for the Elementary Functions", 1980), a polynomial of degree 7 in r (the coefficients of
/// Cephes' expf).
struct ExponentialParts {
  float shifted, p;
  KOKKOS_FORCEINLINE_FUNCTION explicit ExponentialParts(float y) {
    constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
    shifted = y * 1.44269504088896341f + magic;
    float const k = shifted - magic;
    float const r = (y - k * 0.693359375f) - k * -2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint32_t exponent() const { return __builtin_bit_cast(std::uint32_t, shifted); }
};
#endif

/// e^x for x <= 0. On a CPU within 1 unit in the last place, subnormal results included, without a branch or a call:
/// 2^k is two factors, of which the last rounds to a subnormal number.
KOKKOS_FORCEINLINE_FUNCTION float exp_below(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::exp(x);
#else
  ExponentialParts const e(chosen(x < -104.0f, -104.0f, x));  // beyond, it is 0 as there; NaN stays
  constexpr std::uint32_t enlarged = 100;                     // the result times 2^100 is normal
  std::uint32_t const power = (e.exponent() << 23) + ((127u + enlarged) << 23);
  return e.p * __builtin_bit_cast(float, power) * 7.88860905e-31f;
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double exp_below(double x) { return Kokkos::exp(x); }

/// The same for sums of many, beside the largest of which e^-87 is nothing (fp64: e^-708): below that it is that. On a
/// CPU without a branch or a call, as a power of 2, within (2 |x| + 4) u, in fp64 by the series within 2 units.
KOKKOS_FORCEINLINE_FUNCTION float exp_below_in_sum(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::exp(x);
#else
  constexpr float magic = 12582912.0f;      // 1.5 2^23: a sum with it has no fraction bits
  float const y = -87.0f > x ? -87.0f : x;  // NaN stays
  float const shifted = y * 1.44269504088896341f + magic, k = shifted - magic;
  float const r = y * 1.44269504088896341f - k;
  float p = 1.326472863e-3f;  // 2^r, |r| <= 1/2: least relative error 9.2e-8
  p = p * r + 9.671513727e-3f;
  p = p * r + 5.550733750e-2f;
  p = p * r + 2.402224207e-1f;
  p = p * r + 6.931469776e-1f;
  p = p * r + 1.0f;
  return p * __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, shifted) << 23) + 0x3f800000u);
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double exp_below_in_sum(double x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::exp(x);
#else
  constexpr double magic = 6755399441055744.0;  // 1.5 2^52
  double const y = -708.0 > x ? -708.0 : x;
  double const shifted = y * 1.44269504088896340736 + magic, k = shifted - magic;
  double const r = (y - k * 6.93145751953125e-1) - k * 1.42860682030941723212e-6;
  double const square = r * r;
  double even = 1.0 / 479001600.0, odd = 1.0 / 6227020800.0;  // two chains
  even = even * square + 1.0 / 3628800.0;
  odd = odd * square + 1.0 / 39916800.0;
  even = even * square + 1.0 / 40320.0;
  odd = odd * square + 1.0 / 362880.0;
  even = even * square + 1.0 / 720.0;
  odd = odd * square + 1.0 / 5040.0;
  even = even * square + 1.0 / 24.0;
  odd = odd * square + 1.0 / 120.0;
  even = even * square + 0.5;
  odd = odd * square + 1.0 / 6.0;
  double const p = (odd * r + even) * square + r + 1.0;
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, shifted) << 52) + 0x3ff0000000000000u);
#endif
}

/// e^x likewise for any x: two factors of half the exponent each, the last of which may overflow.
KOKKOS_FORCEINLINE_FUNCTION float exponential(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::exp(x);
#else
  ExponentialParts const e(chosen(x < -104.0f, -104.0f, chosen(x > 89.0f, 89.0f, x)));
  std::uint32_t const k = e.exponent() - 0x4b400000u,
                      half = static_cast<std::uint32_t>(static_cast<std::int32_t>(k) >> 1);
  auto const power = [](std::uint32_t n) { return __builtin_bit_cast(float, (n + 127u) << 23); };
  return e.p * power(half) * power(k - half);
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double exponential(double x) { return Kokkos::exp(x); }

/// ln x; -inf at 0, NaN below. On a CPU within 1 unit in the last place, without a branch or a call: x = m 2^k, m
/// between sqrt(1/2) and sqrt(2), and a polynomial in m - 1 (the coefficients of Cephes' logf).
KOKKOS_FORCEINLINE_FUNCTION float logarithm(float x) {
#if defined(__CUDA_ARCH__)
  return Kokkos::log(x);
#else
  constexpr float smallest = 1.17549435e-38f;
  bool const subnormal = x < smallest;
  std::uint32_t const bits = __builtin_bit_cast(std::uint32_t, chosen(subnormal, x * 8388608.0f, x));
  std::uint32_t const above = bits - 0x3f3504f3u;  // sqrt(1/2)
  auto const whole = static_cast<std::int32_t>(above) >> 23;
  float const k = static_cast<float>(whole) - chosen(subnormal, 23.0f, 0.0f);
  float const m = __builtin_bit_cast(float, bits - (static_cast<std::uint32_t>(whole) << 23)) - 1.0f;
  float const square = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float const rest = p * m * square - 2.12194440e-4f * k - 0.5f * square;
  float const result = (m + rest) + 0.693359375f * k;
  float const of_positive = chosen(x <= 3.4028234e38f, result, x);  // infinity and NaN are their own
  return chosen(x == 0.0f, -__builtin_inff(), chosen(x < 0.0f, __builtin_nanf(""), of_positive));
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double logarithm(double x) { return Kokkos::log(x); }

/// ln(1 + e) for 0 <= e <= 1: on a CPU ln u + (e - (u - 1)) / u, u = 1 + e rounded.
KOKKOS_FORCEINLINE_FUNCTION float logarithm_above_one(float e) {
#if defined(__CUDA_ARCH__)
  return Kokkos::log1p(e);
#else
  float const u = 1.0f + e;
  return logarithm(u) + (e - (u - 1.0f)) / u;
#endif
}
KOKKOS_FORCEINLINE_FUNCTION double logarithm_above_one(double e) { return Kokkos::log1p(e); }

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

/// 2^x for -126 <= x < 128, relative error 2^-22, for narrow results on a CPU 2^-18.
template <bool Narrow = false>
KOKKOS_FORCEINLINE_FUNCTION float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::exp2_approximate(x);
#else
  // 2^n 2^r with |r| <= 1/2, a polynomial for 2^r: SIMD code, which the C library's exp2 is not.
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = x + magic, r = x - (shifted - magic);
  float p;
  if constexpr (Narrow) {
    p = 9.58285294e-3f;
    p = p * r + 5.59064262e-2f;
    p = p * r + 2.40240991e-1f;
    p = p * r + 6.93124175e-1f;
  } else {
    p = 1.53532572e-4f;
    p = p * r + 1.33990042e-3f;
    p = p * r + 9.61843878e-3f;
    p = p * r + 5.55033199e-2f;
    p = p * r + 2.40226477e-1f;
    p = p * r + 6.93147182e-1f;
  }
  std::uint32_t const n = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, p * r + 1.0f) + n);
#endif
}

/// 1 / x for 2^-126 <= |x| <= 2^126, relative error 2^-23; 0 for an infinite x.
KOKKOS_FORCEINLINE_FUNCTION float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::reciprocal_approximate(x);
#else
  return 1.0f / x;
#endif
}

/// 1 / x for 2^-126 <= |x| <= 2^125, relative error 2^-22, for narrow results 2^-20. On a CPU, whose vector units take
/// 16 clocks for 16 quotients, without a division: the exponent changes its sign, and a mantissa m becomes 3 - m or so,
/// which is within 6 %; Newton's steps with constants that balance the error of the first two.
template <bool Narrow = false>
KOKKOS_FORCEINLINE_FUNCTION float reciprocal_of_normal(float x) {
#if defined(__CUDA_ARCH__)
  return ptx::reciprocal_approximate(x);
#else
  float y = __builtin_bit_cast(float, 0x7ef34000u - __builtin_bit_cast(std::uint32_t, x));
  y *= 2.0013f - x * y;
  y *= 2.00000085f - x * y;
  if constexpr (!Narrow) y *= 2.0f - x * y;
  return y;
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
/// sin r for |r| <= pi / 2 by a polynomial within 2^-27, for narrow results 2^-19.8; with the other sign where bit 0 of
/// `turns` is set.
template <bool Narrow>
__device__ __forceinline__ float sine_of_rest(float r, std::uint32_t turns) {
  float const square = r * r;
  float p;
  if constexpr (Narrow) {
    p = fmaf(-1.85358338e-4f, square, 8.31402838e-3f);
    p = fmaf(p, square, -1.66658312e-1f);
  } else {
    p = fmaf(2.60562979e-6f, square, -1.98095382e-4f);
    p = fmaf(p, square, 8.33306555e-3f);
    p = fmaf(p, square, -1.66666597e-1f);
  }
  return __uint_as_float(__float_as_uint(fmaf(r * square, p, r)) ^ (turns << 31));
}
/// x - turns pi for |turns| < 2^14, exact but for the last rounding, for narrow results within 2^-34 more (W. J. Cody,
/// W. Waite, "Software Manual for the Elementary Functions", 1980: pi in three parts).
template <bool Narrow>
__device__ __forceinline__ float rest_of_turns(float x, float turns) {
  float const rest = fmaf(turns, 8.74227766e-8f, fmaf(turns, -3.14159274f, x));
  return Narrow ? rest : fmaf(turns, 3.43024902e-15f, rest);
}
__device__ __noinline__ float sine_by_library(float x) { return ::sinf(x); }
__device__ __noinline__ float cosine_by_library(float x) { return ::cosf(x); }
#endif

/// sin x, within 2.1 units in the last place: a GPU's library selects one of two polynomials for every element, and
/// that of a CPU is a call. For narrow results the error on a GPU is 2^-19 of it and 2^-34 besides.
template <bool Narrow = false>
KOKKOS_FORCEINLINE_FUNCTION float sine(float x) {
#if defined(__CUDA_ARCH__)
  if (!(fabsf(x) < 3e4f)) return sine_by_library(x);
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = fmaf(x, 0.318309873f, magic);
  return sine_of_rest<Narrow>(rest_of_turns<Narrow>(x, shifted - magic), __float_as_uint(shifted));
#else
  return tessera_sine(x);
#endif
}
/// cos x likewise, as the sine of a quarter of a turn more.
template <bool Narrow = false>
KOKKOS_FORCEINLINE_FUNCTION float cosine(float x) {
#if defined(__CUDA_ARCH__)
  if (!(fabsf(x) < 3e4f)) return cosine_by_library(x);
  constexpr float magic = 12582912.0f;
  float const shifted = fmaf(x, 0.318309873f, -0.5f) + magic;
  return sine_of_rest<Narrow>(rest_of_turns<Narrow>(x, (shifted - magic) + 0.5f), __float_as_uint(shifted) ^ 1);
#else
  return tessera_cosine(x);
#endif
}

/// True where sine() and cosine() need no other text than their usual one.
KOKKOS_FORCEINLINE_FUNCTION bool moderate_turns(float x) { return Kokkos::abs(x) < 3e4f; }

/// What sine() and cosine() give for moderate turns. On a CPU, for which those are calls of functions that ask every
/// vector, the text is that of the loop; of use where has_moderate_texts().
KOKKOS_FORCEINLINE_FUNCTION float sine_of_moderate_turns(float x) {
#if defined(__CUDA_ARCH__)
  return sine(x);
#else
  return sine_of_moderate<false>(x);
#endif
}
KOKKOS_FORCEINLINE_FUNCTION float cosine_of_moderate_turns(float x) {
#if defined(__CUDA_ARCH__)
  return cosine(x);
#else
  return sine_of_moderate<true>(x);
#endif
}
KOKKOS_FORCEINLINE_FUNCTION bool has_moderate_texts() {
#if defined(__CUDA_ARCH__)
  return false;
#else
  return has_moderate_sines();
#endif
}

/// e^x - 1 for x <= 0 as 2^n (e^r - 1) + (2^n - 1) with r = x - n ln 2 and a polynomial for e^r - 1, without branches:
/// within 1.1 units in the last place, for narrow results within 2^-15.
template <bool Narrow = false>
KOKKOS_FORCEINLINE_FUNCTION float expm1_below(float x) {
  constexpr float magic = 12582912.0f;            // 1.5 2^23: a sum with it has no fraction bits
  float const v = chosen(x < -30.0f, -30.0f, x);  // -1 from -17 on; NaN stays
  float const shifted = v * 1.44269504f + magic;
  float const r = (shifted - magic) * -0.693147181f + v;
  float p;  // (e^r - 1 - r) / r^2
  if constexpr (Narrow) {
    p = 4.16100137e-2f;
    p = p * r + 1.67496279e-1f;
    p = p * r + 5.00016510e-1f;
  } else {
    p = 1.38825190e-3f;
    p = p * r + 8.36652331e-3f;
    p = p * r + 4.16672006e-2f;
    p = p * r + 1.66665435e-1f;
    p = p * r + 4.99999970e-1f;
  }
  p = p * (r * r) + r;
  float const power = __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, shifted) << 23) + 0x3f800000u);
  return power * p + (power - 1.0f);
}

/// The larger of a and b; a where b is NaN, b where a is.
KOKKOS_FORCEINLINE_FUNCTION float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return chosen(b != b, a, chosen(a >= b, a, b));
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
