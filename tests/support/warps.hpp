// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_WARPS_HPP
#define TESSERA_TESTS_WARPS_HPP

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include <tessera/launch.hpp>
#include <tessera/pack_conversion.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/warp.hpp>

// A machine with warps on a CPU: every thread of a team is a context of its own, which runs until it has to wait for
// others. The kernels for packed rows, which a host has no use for, run here as they do on a GPU, team after team; a
// thread that does not come to an exchange is found out.
namespace tessera::test {

/// The execution space.
struct Warps {
  int multiprocessors = 3;
};

/// The threads of the team at hand.
class WarpScheduler {
 public:
  static WarpScheduler& instance() {
    static WarpScheduler scheduler;
    return scheduler;
  }
  /// Calls body() once for each of `threads` threads.
  void run(int threads, std::function<void()> const& body) {
    threads_ = threads;
    body_ = &body;
    groups_.assign(static_cast<std::size_t>(threads / 32 + 1), Group{});
    done_.assign(static_cast<std::size_t>(threads), false);
    contexts_.resize(static_cast<std::size_t>(threads));
    if (stacks_.size() < static_cast<std::size_t>(threads)) stacks_.resize(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      auto const k = static_cast<std::size_t>(i);
      stacks_[k].resize(stack_bytes);
      getcontext(&contexts_[k]);
      contexts_[k].uc_stack.ss_sp = stacks_[k].data();
      contexts_[k].uc_stack.ss_size = stack_bytes;
      contexts_[k].uc_link = &main_;
      makecontext(&contexts_[k], entry, 0);
    }
    for (int left = threads; left > 0;) {
      moved_ = false;
      for (current_ = 0; current_ < threads; ++current_) {
        auto const k = static_cast<std::size_t>(current_);
        if (done_[k]) continue;
        swapcontext(&main_, &contexts_[k]);
        if (done_[k]) --left, moved_ = true;
      }
      if (!moved_) throw std::logic_error("some threads wait for others that do not come");
    }
  }
  int thread() const { return current_; }
  void meet_warp() { meet(groups_[static_cast<std::size_t>(current_ / 32)], 32); }
  void meet_team() { meet(groups_.back(), threads_); }

  std::vector<std::byte> scratch;
  std::uint32_t words[1024][8];  // (threads, words) in exchange

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 16;
  struct Group {
    int here = 0;
    std::uint64_t meetings = 0;
  };

  static void entry() {
    WarpScheduler& s = instance();
    (*s.body_)();
    s.done_[static_cast<std::size_t>(s.current_)] = true;
  }
  void meet(Group& group, int size) {
    moved_ = true;
    std::uint64_t const meeting = group.meetings;
    if (++group.here == size) {
      group.here = 0;
      ++group.meetings;
      return;
    }
    while (group.meetings == meeting) swapcontext(&contexts_[static_cast<std::size_t>(current_)], &main_);
  }

  int threads_ = 0, current_ = 0;
  bool moved_ = false;
  std::function<void()> const* body_ = nullptr;
  std::vector<Group> groups_;  // of each warp, and of the team
  std::vector<bool> done_;
  std::vector<ucontext_t> contexts_;
  std::vector<std::vector<char>> stacks_;
  ucontext_t main_{};
};

class WarpTeam {
 public:
  explicit WarpTeam(int rank) : rank_(rank) {}
  int league_rank() const { return rank_; }
  void team_barrier() const { WarpScheduler::instance().meet_team(); }
  detail::HostScratch team_scratch(int) const {
    return detail::HostScratch(reinterpret_cast<char*>(WarpScheduler::instance().scratch.data()));
  }

 private:
  int rank_;
};

}  // namespace tessera::test

namespace tessera::detail {

template <>
struct TeamMemberOf<test::Warps> {
  using type = test::WarpTeam;
};

template <>
struct Machine<test::Warps> {
  static constexpr bool is_host = false;
  static constexpr int lanes = 32;
  static constexpr int threads(int wanted) { return wanted; }
  static std::size_t scratch_limit(test::Warps const&) { return 230400; }
  static int concurrency(test::Warps const& exec) { return exec.multiprocessors; }
  static int thread() { return test::WarpScheduler::instance().thread(); }

  template <int Threads, int, class Functor>
  static void launch(char const*, test::Warps const&, int league, std::size_t scratch, Functor const& functor) {
    auto& scheduler = test::WarpScheduler::instance();
    for (int rank = 0; rank < league; ++rank) {
      scheduler.scratch.assign(scratch + 16, std::byte{0xA5});
      test::WarpTeam const team(rank);
      scheduler.run(Threads, [&] { functor(team); });
    }
  }
};

template <>
struct WarpAtoms<test::Warps> {
  static constexpr bool available = true;
  static int thread() { return test::WarpScheduler::instance().thread(); }

  template <int Lanes, class T, class Join>
  static T join(T x, Join const& f) {
    auto& s = test::WarpScheduler::instance();
    static_assert(sizeof(T) <= sizeof(s.words[0]));
    for (int step = Lanes / 2; step > 0; step /= 2) {
      int const me = s.thread();
      std::memcpy(s.words[me], &x, sizeof(T));
      s.meet_warp();
      T other;
      std::memcpy(&other, s.words[me ^ step], sizeof(T));
      s.meet_warp();
      x = f(x, other);
    }
    return x;
  }
  template <class Tag, int Warps, class T>
  static T share(T const& x) {
    return share_in_turn<Tag, Warps>(x, 0);
  }
  template <class Tag, int Warps, class T>
  static T share_in_turn(T const& x, int turn) {
    static T all[2][Warps];
    auto& s = test::WarpScheduler::instance();
    int const me = s.thread();
    if (me % 32 == 0) all[turn][me / 32] = x;
    s.meet_team();
    return all[turn][me % 32 % Warps];
  }
  template <class T, int N, int Packs>
  static std::int32_t largest_magnitude(Pack<T, N> const (&x)[Packs]) {
    std::int32_t largest = 0;
    for (auto const& pack : x)
      for (int i = 0; i < N; ++i) {
        auto const bits =
            static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, static_cast<float>(pack[i])) & 0x7fffffffu);
        largest = bits > largest ? bits : largest;
      }
    return largest;
  }
  template <class T, int N>
  static void renew(Pack<T, N>&) {}
  template <class T, int N>
  static Pack<float, N> widened(Pack<T, N> const& x) {
    return widened_pack(x);
  }
  template <class T, int N>
  static Pack<T, N> narrowed(Pack<float, N> const& x) {
    Pack<T, N> y;
    for (int i = 0; i < N; ++i) {
      if constexpr (sizeof(T) == 1)
        y[i] = T::saturate(x[i]);
      else
        y[i] = T(x[i]);
    }
    return y;
  }
};

}  // namespace tessera::detail

#endif
