// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_WARP_HPP
#define TESSERA_CUDA_WARP_HPP

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>

#include <tessera/pack_conversion.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/types.hpp>
#if defined(__CUDACC__)
#include <tessera/cuda/ptx.hpp>
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

  template <class T>
  __device__ __forceinline__ static T of_lane(T x, int lane) {
    static_assert(sizeof(T) == 4);
    return __shfl_sync(~0u, x, lane);
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
    static_assert(Warps <= 32);
    constexpr unsigned lanes = std::bit_ceil(unsigned{Warps});
    __shared__ T all[2][Warps];  // (2, Warps)
    if (threadIdx.x == 0) all[turn][threadIdx.y] = x;
    __syncthreads();
    unsigned const which = threadIdx.x % lanes;
    if constexpr (lanes > Warps)
      if (which >= Warps) return T{};
    return all[turn][which];
  }

  /// Barriers that count the bytes of parts that have come, or of one team the warps that have posted theirs.
  template <class Tag>
  __device__ __forceinline__ static std::uint64_t* part_barriers() {
    __shared__ std::uint64_t there[2];
    return there;
  }
  static constexpr std::size_t posted_part_bytes = sizeof(uint4);
  template <class Tag>
  __device__ __forceinline__ static void begin_posting(int teams) {
#if __CUDA_ARCH__ >= 900
    if (thread() == 0) {
      for (int turn = 0; turn < 2; ++turn)
        ptx::barrier_init(part_barriers<Tag>() + turn, teams > 1 ? 1 : static_cast<int>(blockDim.y));
      ptx::barrier_init_fence();
    }
    if (teams > 1) ptx::cluster_arrive_at_meeting();
#endif
  }
  template <class Tag>
  __device__ __forceinline__ static void wait_for_posters(int teams) {
#if __CUDA_ARCH__ >= 900
    if (teams > 1)
      ptx::cluster_wait_for_meeting();
    else
      __syncthreads();
#endif
  }
  /// A place is written again for call i + 2, by who has all parts of call i + 1, which were posted by who had read
  /// those of call i.
  template <class Tag, class T>
  __device__ __forceinline__ static void post_part(void* box, T const& x, int teams, int of_team, int i) {
    static_assert(sizeof(T) <= sizeof(uint4) && sizeof(T) % 4 == 0);
    int const turn = i & 1, parts = teams * of_team;
    uint4 words{};
    memcpy(&words, &x, sizeof(T));
    uint4* to = static_cast<uint4*>(box) + turn * parts + threadIdx.y;
#if __CUDA_ARCH__ >= 900
    std::uint64_t* const there = part_barriers<Tag>() + turn;
    if (teams == 1) {
      if (threadIdx.x > 0) return;
      *to = words;
      ptx::barrier_arrive(there);
      return;
    }
    if (thread() == 0) ptx::barrier_arrive_expect(there, static_cast<std::uint32_t>(sizeof(uint4) * parts));
    if (static_cast<int>(threadIdx.y) < of_team && static_cast<int>(threadIdx.x) < teams) {
      to += ptx::cluster_rank() * of_team;
      ptx::cluster_store(ptx::cluster_address(ptx::shared_address(to), threadIdx.x),
                         ptx::cluster_address(ptx::shared_address(there), threadIdx.x), words);
    }
#else  // such kernels are launched with one team, all of whose warps post
    if (threadIdx.x == 0) *to = words;
#endif
  }
  template <class Tag, class T>
  __device__ __forceinline__ static T posted_part(void const* box, int parts, int i, int first) {
    int const turn = i & 1;
#if __CUDA_ARCH__ >= 900
    ptx::barrier_wait(part_barriers<Tag>() + turn, i >> 1 & 1);
#else
    __syncthreads();
#endif
    T x{};
    int const which = first + static_cast<int>(threadIdx.x);
    if (which < parts) {
      uint4 const words = static_cast<uint4 const*>(box)[turn * parts + which];
      memcpy(&x, &words, sizeof(T));
    }
    return x;
  }

  template <class T>
  __device__ __forceinline__ static T* settled(T* scratch) {
    // From the address within scratch, so that the compiler knows what kind of memory it is.
    auto const address = static_cast<std::size_t>(ptx::anew(static_cast<int>(ptx::shared_address(scratch))));
    return static_cast<T*>(__cvta_shared_to_generic(address));
  }
  template <class T, int N>
  __device__ __forceinline__ static void copy_ahead(Pack<T, N>* to, T const* from, ReadOnce const& once = {}) {
#if __CUDA_ARCH__ >= 800
    static_assert(sizeof(*to) == 16);
    if constexpr (ReadOnce::marks)
      ptx::copy_async(to, from, once.policy());
    else
      ptx::copy_async<16>(to, from);
#else
    static_cast<void>(once);
    *to = load_pack<N>(from);
#endif
  }
  template <int To, int From, class T, int N>
  __device__ __forceinline__ static void copy_ahead_at(Pack<T, N>* to, T const* from) {
#if __CUDA_ARCH__ >= 800
    static_assert(sizeof(*to) == 16);
    ptx::copy_async_at<To * 16, From* static_cast<int>(sizeof(T))>(to, from);
#else
    to[To] = load_pack<N>(from + From);
#endif
  }
  template <class T, int N>
  __device__ __forceinline__ static void copy_ahead_part(Pack<T, N>* to, T const* from, int count) {
    // In words, not as 16 bytes of which some are to be left out: compute-sanitizer counts these as read.
    constexpr int of_word = 4 / static_cast<int>(sizeof(T));
    int j = 0;
#if __CUDA_ARCH__ >= 800
    for (; j + of_word <= count; j += of_word) ptx::copy_async<4>(&(*to)[j], from + j);
#endif
    for (; j < count; ++j) (*to)[j] = from[j];
  }
  __device__ __forceinline__ static void end_copies() {
#if __CUDA_ARCH__ >= 800
    ptx::copy_async_commit();
#endif
  }
  __device__ __forceinline__ static void wait_for_copies(int pending) {
#if __CUDA_ARCH__ >= 800
    if (pending >= 8)
      ptx::copy_async_wait<8>();
    else if (pending >= 4)
      pending >= 6 ? ptx::copy_async_wait<6>() : pending == 5 ? ptx::copy_async_wait<5>() : ptx::copy_async_wait<4>();
    else if (pending >= 2)
      pending == 3 ? ptx::copy_async_wait<3>() : ptx::copy_async_wait<2>();
    else
      pending == 1 ? ptx::copy_async_wait<1>() : ptx::copy_async_wait<0>();
#endif
  }

  template <class T, int N>
  __device__ __forceinline__ static void store_at_once(T* to, Pack<T, N> const& x) {
    static_assert(sizeof(x) == 16);
    ptx::store_global(to, __builtin_bit_cast(uint4, x));
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
  __device__ __forceinline__ static Pack<T, N> larger(Pack<T, N> const& a, Pack<T, N> const& b) {
    return of_words<T>(a, b, [](auto x, auto y) {
      if constexpr (sizeof(T) == 2)
        return __hmax2(x, y);
      else
        return fmaxf(x, y);
    });
  }
  template <class T, int N>
  __device__ __forceinline__ static Pack<T, N> smaller(Pack<T, N> const& a, Pack<T, N> const& b) {
    return of_words<T>(a, b, [](auto x, auto y) {
      if constexpr (sizeof(T) == 2)
        return __hmin2(x, y);
      else
        return fminf(x, y);
    });
  }

  /// A word of one fp32 or two 16-bit numbers.
  template <class T>
  __device__ __forceinline__ static std::uint32_t magnitudes(std::uint32_t x) {
    return x & (sizeof(T) == 2 ? 0x7fff7fffu : 0x7fffffffu);
  }
  template <class T>
  __device__ __forceinline__ static std::uint32_t larger_magnitudes(std::uint32_t x, std::uint32_t y) {
    if constexpr (sizeof(T) == 2)
      return __vmaxu2(x, y);
    else
      return max(x, y);
  }

  __device__ __forceinline__ static void transpose_bytes(std::uint32_t (&x)[4]) {
    std::uint32_t const a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[0], x[1], 0x7362),
                        c = __byte_perm(x[2], x[3], 0x5140), d = __byte_perm(x[2], x[3], 0x7362);
    x[0] = __byte_perm(a, c, 0x5410);
    x[1] = __byte_perm(a, c, 0x7632);
    x[2] = __byte_perm(b, d, 0x5410);
    x[3] = __byte_perm(b, d, 0x7632);
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
  template <class T, int N>
  __device__ __forceinline__ static Pack<std::uint32_t, N / 4> narrowed_words(Pack<float, N> const& x) {
    auto const pair = [&](int i) -> std::uint32_t {
      if constexpr (converts_8_bits) {
        using Kind = std::conditional_t<std::is_same_v<T, e4m3_t>, ptx::E4m3, ptx::E5m2>;
        return ptx::narrow_pair_saturating(Kind{}, x[i], x[i + 1]);
      } else {
        return T::saturate(x[i]).bits() | std::uint32_t{T::saturate(x[i + 1]).bits()} << 8;
      }
    };
    Pack<std::uint32_t, N / 4> words;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) words[i] = pair(4 * i) | pair(4 * i + 2) << 16;
    return words;
  }

 private:
  /// f(x, y) of the words of two packs, each an fp32 or two 16-bit numbers.
  template <class T, int N, class F>
  __device__ __forceinline__ static Pack<T, N> of_words(Pack<T, N> const& a, Pack<T, N> const& b, F const& f) {
    using Word = std::conditional_t<sizeof(T) == 4, float,
                                    std::conditional_t<std::is_same_v<T, bf16_t>, __nv_bfloat162, __half2>>;
    constexpr int words = sizeof(a) / sizeof(Word);
    Word x[words], y[words];
    memcpy(x, &a, sizeof(a));
    memcpy(y, &b, sizeof(b));
#pragma unroll
    for (int i = 0; i < words; ++i) x[i] = f(x[i], y[i]);
    Pack<T, N> all;
    memcpy(&all, x, sizeof(all));
    return all;
  }
#endif
};

}  // namespace tessera::detail

#endif
