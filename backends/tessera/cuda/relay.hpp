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
/// have come. By mail every word carries the number of its row, written and read with it at once, so that nothing else
/// says when it has come. Kernels for machines without clusters are never launched.
template <int Warps>
class Relay<Kokkos::Cuda, Warps> {
 public:
  static constexpr int turns = 16, most_teams = 16, most_by_mail = 160, of_lane = most_by_mail / 32;

 private:
  /// A part in memory: each word with the number of its row, from 1 on.
  struct Letter {
    ulonglong2 halves[2];
  };
  struct Box {
    uint4 parts[turns][Warps], from[turns][most_teams], all[turns];
    std::uint64_t given[turns], come[turns], known[turns];
  };

 public:
  static constexpr std::size_t bytes = sizeof(Box);
  static constexpr std::size_t post_bytes(int teams) {
    return sizeof(Letter) * turns * static_cast<std::size_t>(teams + 1);
  }

#if defined(__CUDACC__)
  __device__ __forceinline__ Relay(void* scratch, int of_teams, void* mail = nullptr, int team = 0)
      : box(*static_cast<Box*>(scratch)), teams(of_teams), letters(static_cast<Letter*>(mail)), own(team) {}

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
  template <class X, class Joined>
  __device__ __forceinline__ X exchange(X const& x, int i, Joined const& joined) const {
#if __CUDA_ARCH__ >= 900
    if (letters != nullptr) return by_mail(x, i, joined);
    int const turn = i % turns, lane = static_cast<int>(threadIdx.x);
    if (lane == 0)
      ptx::barrier_arrive_expect(&box.come[turn], static_cast<std::uint32_t>(sizeof(uint4)) * std::uint32_t(teams));
    if (lane < teams)
      ptx::cluster_store(ptx::cluster_address(ptx::shared_address(&box.from[turn][ptx::cluster_rank()]), lane),
                         ptx::cluster_address(ptx::shared_address(&box.come[turn]), lane), words_of(x));
#endif
    await(box.come, i);
    X all[of_lane] = {};
    all[0] = lane_of<X>(box.from[i % turns], teams);
    return joined(all);
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
  /// One of the teams, each in its turn, joins what the others have sent and writes to all of them: if each asked for
  /// the letters of all it would take a good part of what the memory can do.
  template <class X, class Joined>
  __device__ __forceinline__ X by_mail(X const& x, int i, Joined const& joined) const {
    Letter* const of_row = letters + i % turns * (teams + 1);
    int const number = i + 1, lane = static_cast<int>(threadIdx.x);
    X own_or_come[of_lane] = {};
    if (own != i % teams) {
      if (lane == 0) send(of_row[own], x, number);
      receive(own_or_come, number, [&](int call) { return call == 0 ? &of_row[teams] : nullptr; });
      return own_or_come[0];
    }
    receive(own_or_come, number, [&](int call) {
      int const team = 32 * call + lane;
      return team < teams && team != own ? &of_row[team] : nullptr;
    });
#pragma unroll
    for (int call = 0; call < of_lane; ++call)
      if (32 * call + lane == own) own_or_come[call] = x;
    X const all = joined(own_or_come);
    if (lane == 0) send(of_row[teams], all, number);
    return all;
  }
  template <class X>
  static constexpr bool takes_both_halves = sizeof(X) > 8;
  template <class X>
  __device__ __forceinline__ static void send(Letter& to, X const& x, int number) {
    uint4 const words = words_of(x);
    ptx::store_at_once(&to.halves[0], numbered(words.x, number), numbered(words.y, number));
    if (takes_both_halves<X>) ptx::store_at_once(&to.halves[1], numbered(words.z, number), numbered(words.w, number));
  }
  /// Waits for the letters at(call) of all lanes, where that is not nullptr, asking for all of them at once.
  template <class X, class At>
  __device__ __forceinline__ static void receive(X (&to)[of_lane], int number, At const& at) {
    uint4 come[of_lane] = {};
    bool missing = true;
    while (__any_sync(~0u, missing)) {
      missing = false;
#pragma unroll
      for (int call = 0; call < of_lane; ++call) {
        Letter const* const letter = at(call);
        if (letter == nullptr) continue;
        missing |= !read(letter->halves[0], number, come[call].x, come[call].y);
        if (takes_both_halves<X>) missing |= !read(letter->halves[1], number, come[call].z, come[call].w);
      }
    }
#pragma unroll
    for (int call = 0; call < of_lane; ++call)
      if (at(call) != nullptr) to[call] = from_words<X>(come[call]);
  }
  /// Whether two words are of that number.
  __device__ __forceinline__ static bool read(ulonglong2 const& from, int number, std::uint32_t& first,
                                              std::uint32_t& second) {
    ulonglong2 const both = ptx::load_at_once(&from);
    first = static_cast<std::uint32_t>(both.x);
    second = static_cast<std::uint32_t>(both.y);
    return static_cast<int>(both.x >> 32) == number && static_cast<int>(both.y >> 32) == number;
  }
  __device__ __forceinline__ static std::uint64_t numbered(std::uint32_t word, int number) {
    return static_cast<std::uint64_t>(number) << 32 | word;
  }
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
  Letter* letters;  // (turns, teams and all) of this group, or nullptr
  int own;          // number of this team
#endif
};

}  // namespace tessera::detail

#endif
