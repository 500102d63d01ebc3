// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_WARP_HPP
#define TESSERA_CUDA_WARP_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/pack_conversion.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/types.hpp>
#if defined(__CUDACC__)
#include <tessera/cuda/rounding.hpp>
#endif

namespace tessera::detail {

template <>
struct WarpAtoms<Kokkos::Cuda> {
  static constexpr bool available = true;

#if defined(__CUDACC__)
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.y * 32 + threadIdx.x); }

  template <int Lanes, class T, class Join>
  __device__ __forceinline__ static T join(T x, Join const& f) {
#pragma unroll
    for (int step = Lanes / 2; step > 0; step /= 2) {
      T other;
      static_assert(sizeof(T) % 4 == 0);
      std::uint32_t words[sizeof(T) / 4];
      memcpy(words, &x, sizeof(T));
#pragma unroll
      for (std::uint32_t& word : words) word = __shfl_xor_sync(~0u, word, step);
      memcpy(&other, words, sizeof(T));
      x = f(x, other);
    }
    return x;
  }

  template <class Tag, int Warps, class T>
  __device__ __forceinline__ static T share(T const& x) {
    static_assert(Warps <= 32 && is_power_of_two(Warps));
    __shared__ T all[Warps];  // (Warps)
    if (threadIdx.x == 0) all[threadIdx.y] = x;
    __syncthreads();
    return all[threadIdx.x % Warps];
  }

  /// Who writes a place again has met the others since they have read it.
  template <class Tag, int Warps, class T>
  __device__ __forceinline__ static T share_in_turn(T const& x, int turn) {
    static_assert(Warps <= 32 && is_power_of_two(Warps));
    __shared__ T all[2][Warps];  // (2, Warps)
    if (threadIdx.x == 0) all[turn][threadIdx.y] = x;
    __syncthreads();
    return all[turn][threadIdx.x % Warps];
  }

  template <class Tag, class T>
  __device__ __forceinline__ static T share_among_teams(T const& x, int teams) {
#if __CUDA_ARCH__ >= 900
    static_assert(sizeof(T) % 4 == 0);
    __shared__ T all[8];  // (teams)
    ptx::cluster_meet();  // a team's shared memory may be written once it has started
    if (thread() < teams) {
      std::uint32_t words[sizeof(T) / 4];
      memcpy(words, &x, sizeof(T));
      std::uint32_t const to = ptx::cluster_address(ptx::shared_address(&all[ptx::cluster_rank()]), thread());
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i) ptx::cluster_store_word(to + 4 * i, words[i]);
    }
    ptx::cluster_meet_in_order();
    return all[threadIdx.x % static_cast<unsigned>(teams)];
#else
    return x;  // such kernels are launched with one team
#endif
  }

  template <class T, int N, int Packs>
  __device__ __forceinline__ static std::int32_t largest_magnitude(Pack<T, N> const (&x)[Packs]) {
    if constexpr (sizeof(T) == 2) {  // of two at a time, and one is widened
      std::uint32_t largest = 0;
#pragma unroll
      for (Pack<T, N> const& pack : x) {
        std::uint32_t pairs[N / 2];
        memcpy(pairs, &pack, sizeof(pairs));
#pragma unroll
        for (std::uint32_t const pair : pairs) largest = __vmaxu2(largest, pair & 0x7fff7fffu);
      }
      largest = max(largest >> 16, largest & 0xffffu);
      return __float_as_int(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(largest))));
    } else {
      std::int32_t largest = 0;
#pragma unroll
      for (Pack<T, N> const& pack : x)
#pragma unroll
        for (int i = 0; i < N; ++i) largest = max(largest, __float_as_int(pack[i]) & 0x7fffffff);
      return largest;
    }
  }

  template <class T, int N>
  __device__ __forceinline__ static void renew(Pack<T, N>& x) {
    static_assert(sizeof(x) % 4 == 0);
    int words[sizeof(x) / 4];
    memcpy(words, &x, sizeof(x));
#pragma unroll
    for (int& word : words) word = ptx::anew(word);
    memcpy(&x, words, sizeof(x));
  }

  template <class T, int N>
  __device__ __forceinline__ static Pack<float, N> widened(Pack<T, N> const& x) {
    return widened_pack(x);
  }
  template <class T, int N>
  __device__ __forceinline__ static Pack<T, N> narrowed(Pack<float, N> const& x) {
    return saturated<T>(x);
  }
#endif
};

}  // namespace tessera::detail

#endif
