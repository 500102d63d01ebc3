// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PACK_CONVERSION_HPP
#define TESSERA_PACK_CONVERSION_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/portable/pack.hpp>
#include <tessera/types.hpp>

#if defined(__CUDACC__)
#include <tessera/cuda/rounding.hpp>
#endif

// Packs of 16- and 8-bit numbers to fp32 and back, several elements an instruction where the machine has one for it.
// The bits are those of the conversions of types.hpp.
namespace tessera::detail {

/// Every element as fp32; of a NaN, a NaN.
template <class T, int N>
KOKKOS_FORCEINLINE_FUNCTION Pack<float, N> widened_pack(Pack<T, N> const& x) {
  Pack<float, N> y;
#if defined(__CUDA_ARCH__)
  if constexpr (N % 2 == 0) {
    unroll<N / 2>([&](auto i) {
      float2 const pair = widened_pair(Pair<T>{x[2 * i], x[2 * i + 1]});
      y[2 * i] = pair.x;
      y[2 * i + 1] = pair.y;
    });
    return y;
  }
#endif
  unroll<N>([&](auto i) { y[i] = static_cast<float>(x[i]); });
  return y;
}

/// Every element rounded to T, a 16- or 8-bit type.
template <class T, int N>
KOKKOS_FORCEINLINE_FUNCTION Pack<T, N> rounded_pack(Pack<float, N> const& x) {
  Pack<T, N> y;
#if defined(__CUDA_ARCH__)
  if constexpr (N % 2 == 0) {
    unroll<N / 2>([&](auto i) {
      Pair<T> const pair = rounded_pair<T>(x[2 * i], x[2 * i + 1]);
      y[2 * i] = pair.low;
      y[2 * i + 1] = pair.high;
    });
    return y;
  }
#endif
  unroll<N>([&](auto i) { y[i] = T(x[i]); });
  return y;
}

}  // namespace tessera::detail

#endif
