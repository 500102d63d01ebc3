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
/// have come. By mail every half of a part carries the number of its row, written and read with it at once, so that
/// nothing else says when it has come. Mail is sent and asked for by bulk copies: a load or a store would wait behind
/// all that the team's other threads have asked for and are storing. Kernels for machines without clusters are never
/// launched.
template <int Warps, bool ByMail>
class Relay<Kokkos::Cuda, Warps, ByMail> {
 public:
  static constexpr int turns = 16, most_teams = 16, most_by_mail = 160, fewest_by_mail = turns / 2,
                       of_lane = most_by_mail / 32;

 private:
  /// A part in memory: each half with the last 16 bits of the number of its row, from 1 on. As short as can be, since
  /// the slowest of the lines that have the letters of all teams sets how long asking for them takes.
  struct Letter {
    ulonglong2 halves;
  };
  static constexpr std::size_t most_of_letter = 12, line = 128;
  static constexpr int most_relayers = 4, copies = 4, lent = 64, borrowed = 104;
  /// The letters of a row, and behind them, in lines of their own, copies of what has come of them: writing to a line
  /// that many teams ask for takes long.
  static constexpr std::size_t turn_bytes(int teams) {
    return (sizeof(Letter) * static_cast<std::size_t>(teams) + line - 1) / line * line + copies * line;
  }
  static constexpr int near_turns = ByMail ? 1 : turns, near_teams = ByMail ? 1 : most_teams;
  struct Box {
    uint4 parts[turns][Warps], from[near_turns][near_teams], all[turns];
    Letter outgoing[most_relayers], answers[most_relayers];  // of each warp that relays
    std::uint64_t given[turns], come[turns], known[turns], fetched[most_relayers];
    Letter incoming[most_by_mail];  // of a row of which this team joins the parts, one at a time
  };

 public:
  static constexpr std::size_t bytes = sizeof(Box);
  /// Whole lines: copies to behind them take a tenth longer where sectors of memory are not sectors of scratch.
  static constexpr std::size_t bytes_by_mail(int teams) {
    std::size_t const used = sizeof(Box) - sizeof(Letter) * static_cast<std::size_t>(most_by_mail - teams);
    return (used + line - 1) / line * line;
  }
  static constexpr std::size_t post_bytes(int teams) { return turns * turn_bytes(teams); }
  /// At most, of groups of so many teams in all.
  static constexpr std::size_t most_post_bytes(int teams) {
    return turns * (sizeof(Letter) * static_cast<std::size_t>(teams) +
                    static_cast<std::size_t>(teams / fewest_by_mail) * (copies + 1) * line);
  }

#if defined(__CUDACC__)
  __device__ __forceinline__ Relay(void* scratch, int of_teams, void* mail = nullptr, int team = 0)
      : box(*static_cast<Box*>(scratch)), teams(of_teams), letters(static_cast<std::byte*>(mail)), own(team) {}

  __device__ __forceinline__ void begin() const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0 && threadIdx.y == 0) {
      for (int turn = 0; turn < turns; ++turn) {
        ptx::barrier_init(&box.given[turn], Warps);
        ptx::barrier_init(&box.come[turn], 1);
        ptx::barrier_init(&box.known[turn], 1);
      }
      for (std::uint64_t& each : box.fetched) ptx::barrier_init(&each, 1);
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

  __device__ __forceinline__ static void lend() {
    static_assert(128 * lent + Warps * 32 * borrowed == (128 + Warps * 32) * 96);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    ptx::give_registers<lent>();
#endif
  }
  __device__ __forceinline__ static void borrow() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    ptx::take_registers<borrowed>();
#endif
  }

  template <class X>
  __device__ __forceinline__ void give(X const& x, int i) const {
#if __CUDA_ARCH__ >= 900
    __syncwarp();  // all lanes have read what an earlier row has been told, whose place is written next
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
    if constexpr (ByMail) {
      return by_mail(x, i, joined);
    } else {
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
  }
  template <class X>
  __device__ __forceinline__ void tell(X const& x, int i) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x > 0) return;
    box.all[i % turns] = words_of(x);
    ptx::barrier_arrive(&box.known[i % turns]);
    ptx::bulk_wait_read();  // what has been sent of this row
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
    std::byte* const of_turn = letters + i % turns * turn_bytes(teams);
    Letter* const of_row = reinterpret_cast<Letter*>(of_turn);
    auto const answer_for = [&](int k) {
      return reinterpret_cast<Letter*>(of_turn + turn_bytes(teams) - (k + 1) * line);
    };
    int const number = i + 1;
    if (own != i % teams) {
      send(x, number, [&](int k) { return k == 0 ? &of_row[own] : nullptr; });
      return answer<X>(*answer_for(own % copies), number);
    }
    X parts[of_lane] = {};
    collect(parts, of_row, x, number);
    X const all = joined(parts);
    send(all, number, [&](int k) { return answer_for(k); });
    return all;
  }
  __device__ __forceinline__ static int relayer() { return static_cast<int>(threadIdx.y) - Warps; }

  template <class X, class To>
  __device__ __forceinline__ void send(X const& x, int number, To const& to) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x > 0) return;
    static_assert(sizeof(X) <= most_of_letter);
    uint4 const words = words_of(x);
    Letter& letter = box.outgoing[relayer()];
    letter.halves = {numbered(words.x, words.z, number), numbered(words.y, words.z >> 16, number)};
    ptx::async_proxy_fence();
#pragma unroll
    for (int k = 0; k < copies; ++k)
      if (Letter* const place = to(k)) ptx::bulk_store(place, &letter, sizeof letter);
    ptx::bulk_commit();
#endif
  }
  /// Copies letters into this team's scratch, as they are now.
  __device__ __forceinline__ void fetch(Letter* to, Letter const* from, int count) const {
#if __CUDA_ARCH__ >= 900
    std::uint64_t* const barrier = &box.fetched[relayer()];
    __syncwarp();
    if (threadIdx.x == 0) {
      auto const all = static_cast<std::uint32_t>(sizeof(Letter)) * static_cast<std::uint32_t>(count);
      ptx::barrier_arrive_expect(barrier, all);
      ptx::bulk_load(to, from, all, barrier);
    }
    ptx::barrier_wait(barrier, fetches++ & 1u);
#endif
  }
  template <class X>
  __device__ __forceinline__ X answer(Letter const& from, int number) const {
    Letter& letter = box.answers[relayer()];
    X all;
    do fetch(&letter, &from, 1);
    while (!__all_sync(~0u, opened(letter, number, all)));
    return all;
  }
  /// Those of teams j, j + 32 and so on in lane j, this one's own among them, when all have come.
  template <class X>
  __device__ __forceinline__ void collect(X (&to)[of_lane], Letter const* from, X const& x, int number) const {
    bool missing;
    do {
      fetch(box.incoming, from, teams);
      missing = false;
#pragma unroll
      for (int call = 0; call < of_lane; ++call) {
        int const team = 32 * call + static_cast<int>(threadIdx.x);
        if (team == own)
          to[call] = x;
        else if (team < teams)
          missing |= !opened(box.incoming[team], number, to[call]);
      }
    } while (__any_sync(~0u, missing));
  }
  /// Whether a letter is of that number: what it says.
  template <class X>
  __device__ __forceinline__ static bool opened(Letter const& letter, int number, X& to) {
    ulonglong2 const both = letter.halves;
    auto const last = static_cast<std::uint32_t>(both.x >> 32 & 0xffff | both.y >> 32 << 16);
    bool const is = static_cast<std::uint16_t>(both.x >> 48) == static_cast<std::uint16_t>(number) &&
                    static_cast<std::uint16_t>(both.y >> 48) == static_cast<std::uint16_t>(number);
    if (is) to = from_words<X>({static_cast<std::uint32_t>(both.x), static_cast<std::uint32_t>(both.y), last, 0});
    return is;
  }
  /// A word and half of another one.
  __device__ __forceinline__ static std::uint64_t numbered(std::uint32_t word, std::uint32_t half, int number) {
    return static_cast<std::uint64_t>(number & 0xffff) << 48 | static_cast<std::uint64_t>(half & 0xffff) << 32 | word;
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
  std::byte* letters;  // of this group, or nullptr
  int own;             // number of this team
  mutable std::uint32_t fetches = 0;
#endif
};

}  // namespace tessera::detail

#endif
