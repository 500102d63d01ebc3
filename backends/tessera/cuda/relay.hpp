// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_RELAY_HPP
#define TESSERA_CUDA_RELAY_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__CUDACC__)
#include <tessera/cuda/ptx.hpp>
#endif

namespace tessera::detail {

/// Parts of a team meet at barriers that count its warps, those of other teams at barriers that count the bytes that
/// have come. Kernels for machines without clusters are never launched.
template <int Warps>
class Relay<Kokkos::Cuda, Warps> {
 public:
  static constexpr int turns = 8, most_teams = 16;

 private:
  struct Box {
    uint4 parts[turns][Warps], from[turns][most_teams], all[turns];
    std::uint64_t given[turns], come[turns], known[turns];
  };

 public:
  static constexpr std::size_t bytes = sizeof(Box);

#if defined(__CUDACC__)
  __device__ __forceinline__ Relay(void* scratch, int of_teams) : box(*static_cast<Box*>(scratch)), teams(of_teams) {}

  __device__ __forceinline__ void begin() const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0 && threadIdx.y == 0) {
      for (int turn = 0; turn < turns; ++turn) {
        ptx::barrier_init(&box.given[turn], Warps);
        ptx::barrier_init(&box.come[turn], 1);
        ptx::barrier_init(&box.known[turn], 1);
      }
      ptx::barrier_init_fence();
    }
    ptx::cluster_arrive_at_meeting();
#endif
  }
  __device__ __forceinline__ void wait() const {
#if __CUDA_ARCH__ >= 900
    ptx::cluster_wait_for_meeting();
#endif
  }

  template <class X>
  __device__ __forceinline__ void give(X const& x, int i) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x > 0) return;
    box.parts[i % turns][threadIdx.y] = words_of(x);
    ptx::barrier_arrive(&box.given[i % turns]);
#endif
  }
  template <class X>
  __device__ __forceinline__ X given(int i) const {
    await(box.given, i);
    return lane_of<X>(box.parts[i % turns], Warps);
  }
  template <class X>
  __device__ __forceinline__ X exchange(X const& x, int i) const {
#if __CUDA_ARCH__ >= 900
    int const turn = i % turns, lane = static_cast<int>(threadIdx.x);
    if (lane == 0)
      ptx::barrier_arrive_expect(&box.come[turn], static_cast<std::uint32_t>(sizeof(uint4)) * std::uint32_t(teams));
    if (lane < teams)
      ptx::cluster_store(ptx::cluster_address(ptx::shared_address(&box.from[turn][ptx::cluster_rank()]), lane),
                         ptx::cluster_address(ptx::shared_address(&box.come[turn]), lane), words_of(x));
#endif
    await(box.come, i);
    return lane_of<X>(box.from[i % turns], teams);
  }
  template <class X>
  __device__ __forceinline__ void tell(X const& x, int i) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x > 0) return;
    box.all[i % turns] = words_of(x);
    ptx::barrier_arrive(&box.known[i % turns]);
#endif
  }
  template <class X>
  __device__ __forceinline__ X told(int i) const {
    await(box.known, i);
    return from_words<X>(box.all[i % turns]);
  }

 private:
  __device__ __forceinline__ static void await([[maybe_unused]] std::uint64_t (&barriers)[turns],
                                               [[maybe_unused]] int i) {
#if __CUDA_ARCH__ >= 900
    ptx::barrier_wait(&barriers[i % turns], static_cast<std::uint32_t>(i / turns) & 1u);
#endif
  }
  template <class X>
  __device__ __forceinline__ static uint4 words_of(X const& x) {
    static_assert(sizeof(X) <= sizeof(uint4) && sizeof(X) % 4 == 0);
    uint4 words{};
    memcpy(&words, &x, sizeof(X));
    return words;
  }
  template <class X>
  __device__ __forceinline__ static X from_words(uint4 const& from) {
    uint4 const words = from;
    X x;
    memcpy(&x, &words, sizeof(X));
    return x;
  }
  template <class X>
  __device__ __forceinline__ static X lane_of(uint4 const* all, int count) {
    return static_cast<int>(threadIdx.x) < count ? from_words<X>(all[threadIdx.x]) : X{};
  }

  Box& box;
  int teams;
#endif
};

}  // namespace tessera::detail

#endif
