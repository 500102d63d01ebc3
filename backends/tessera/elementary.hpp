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

// Functions that a machine has in one instruction, where its library spends several on cases that its caller excludes.
namespace tessera::detail {

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
  return Kokkos::tanh(x);
#endif
}

/// The larger of a and b; a where b is NaN, b where a is.
KOKKOS_FORCEINLINE_FUNCTION float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return b > a || a != a ? b : a;  // SIMD code, which the C library's fmax is not
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
