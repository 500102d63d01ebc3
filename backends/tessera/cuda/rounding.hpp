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
  } else if constexpr (float_type<T> && sizeof(T) == 1) {
    using Kind = std::conditional_t<std::is_same_v<T, e4m3_t>, ptx::E4m3, ptx::E5m2>;
    std::uint16_t const x = ptx::narrow_pair(Kind{}, low, high);
    return *reinterpret_cast<Pair<T> const*>(&x);
  } else {
    return {T(low), T(high)};
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

}  // namespace tessera::detail

#endif
