// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ROUNDING_HPP
#define TESSERA_CUDA_ROUNDING_HPP

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <type_traits>

#include <tessera/cuda/ptx.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/types.hpp>

// Rounding to narrow types by the machine's own instructions, two elements at a time: the same bits as T(x).
namespace tessera::detail {

/// Whether the machine converts to and from 8 bits by itself.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool converts_8_bits = true;
#else
inline constexpr bool converts_8_bits = false;
#endif

/// Two neighbours of a row, rounded.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T low, high;
};
template <class T, class Compute>
__device__ __forceinline__ Pair<T> rounded_pair(Compute low, Compute high) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    __nv_bfloat162 const x = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<Pair<T> const*>(&x);
  } else if constexpr (std::is_same_v<T, fp16_t>) {
    __half2 const x = __floats2half2_rn(low, high);
    return *reinterpret_cast<Pair<T> const*>(&x);
  } else if constexpr (converts_8_bits && float_type<T> && sizeof(T) == 1) {
    using Kind = std::conditional_t<std::is_same_v<T, e4m3_t>, ptx::E4m3, ptx::E5m2>;
    std::uint16_t const x = ptx::narrow_pair(Kind{}, low, high);
    return *reinterpret_cast<Pair<T> const*>(&x);
  } else {
    return {T(low), T(high)};
  }
}
/// The same two as fp32; of a NaN, a NaN.
template <class T>
__device__ __forceinline__ float2 widened_pair(Pair<T> x) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    auto const bits = *reinterpret_cast<std::uint32_t const*>(&x);
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  } else if constexpr (std::is_same_v<T, fp16_t>) {
    return __half22float2(*reinterpret_cast<__half2 const*>(&x));
  } else if constexpr (converts_8_bits && float_type<T> && sizeof(T) == 1) {
    using Kind = std::conditional_t<std::is_same_v<T, e4m3_t>, ptx::E4m3, ptx::E5m2>;
    std::uint32_t const halves = ptx::widen_pair(Kind{}, *reinterpret_cast<std::uint16_t const*>(&x));
    return __half22float2(*reinterpret_cast<__half2 const*>(&halves));
  } else if constexpr (std::is_same_v<T, e5m2_t>) {  // the upper half of fp16
    std::uint32_t const halves = x.low.bits() << 8 | x.high.bits() << 24;
    return __half22float2(*reinterpret_cast<__half2 const*>(&halves));
  } else if constexpr (std::is_same_v<T, e4m3_t>) {  // as fp16, whose exponents are for numbers 2^8 times as large
    std::uint32_t const bits = x.low.bits() | x.high.bits() << 16;
    std::uint32_t const halves = (bits & 0x800080) << 8 | (bits & 0x7f007f) << 7;
    float2 const y = __half22float2(*reinterpret_cast<__half2 const*>(&halves));
    return {isnan(x.low) ? NAN : y.x * 256, isnan(x.high) ? NAN : y.y * 256};
  } else {
    return {static_cast<float>(x.low), static_cast<float>(x.high)};
  }
}
/// One element.
template <class T, class Compute>
__device__ __forceinline__ T rounded(Compute x) {
  return rounded_pair<T>(x, Compute(0)).low;
}
/// The same as the bits of a register; T has 16 bits.
template <class T>
__device__ __forceinline__ std::uint32_t packed_pair(float low, float high) {
  Pair<T> const x = rounded_pair<T>(low, high);
  return *reinterpret_cast<std::uint32_t const*>(&x);
}

template <class T, class From>
__device__ __forceinline__ Pack<T, 1> rounded(Pack<From, 1> const& x) {
  return {rounded<T>(x[0])};
}
/// N elements; N is even.
template <class T, class From, int N>
__device__ __forceinline__ Pack<T, N> rounded(Pack<From, N> const& x) {
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    if constexpr (std::is_same_v<From, float>) {
      Pair<T> const pair = rounded_pair<T>(x[i], x[i + 1]);
      y[i] = pair.low;
      y[i + 1] = pair.high;
    } else {
      y[i] = T(x[i]);
      y[i + 1] = T(x[i + 1]);
    }
  }
  return y;
}

/// N elements, without loss; N is even.
template <class Compute, class T, int N>
__device__ __forceinline__ Pack<Compute, N> widened(Pack<T, N> const& x) {
  Pack<Compute, N> y;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    if constexpr (std::is_same_v<Compute, float>) {
      float2 const pair = widened_pair(Pair<T>{x[i], x[i + 1]});
      y[i] = pair.x;
      y[i + 1] = pair.y;
    } else {
      y[i] = static_cast<Compute>(x[i]);
      y[i + 1] = static_cast<Compute>(x[i + 1]);
    }
  }
  return y;
}

/// The same bits as T(x), of 8-bit types as T::saturate(x).
template <class T, int N>
__device__ __forceinline__ Pack<T, N> saturated(Pack<float, N> const& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (!float_type<T> || sizeof(T) != 1) {
    return rounded<T>(x);
  } else {
    static_assert(N % 2 == 0);
    Pack<T, N> y;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      if constexpr (converts_8_bits) {
        using Kind = std::conditional_t<std::is_same_v<T, e4m3_t>, ptx::E4m3, ptx::E5m2>;
        std::uint16_t const pair = ptx::narrow_pair_saturating(Kind{}, x[i], x[i + 1]);
        memcpy(&y.value[i], &pair, sizeof(pair));
      } else {
        y[i] = T::saturate(x[i]);
        y[i + 1] = T::saturate(x[i + 1]);
      }
    }
    return y;
  }
}

}  // namespace tessera::detail

#endif
