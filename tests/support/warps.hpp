// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_WARPS_HPP
#define TESSERA_TESTS_WARPS_HPP

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <vector>

#include <tessera/launch.hpp>
#include <tessera/pack_conversion.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/relay.hpp>
#include <tessera/warp.hpp>

// A machine with warps on a CPU: every thread of a team is a context of its own, which runs until it has to wait for
// others. The kernels for packed rows, which a host has no use for, run here as they do on a GPU, team after team, or
// those together that share a row; a thread that does not come to an exchange is found out, and so is one that reads
// what it has copied before it has waited for it.
namespace tessera::test {

/// The execution space.
struct Warps {
  int multiprocessors = 3;
  int most_together = 4;  // teams
};

/// The threads of the teams at hand.
class WarpScheduler {
 public:
  static WarpScheduler& instance() {
    static WarpScheduler scheduler;
    return scheduler;
  }
  /// Calls body(team) once for each of `threads` threads of `teams` teams.
  void run(int teams, int threads, std::function<void(int)> const& body) {
    int const all = teams * threads;
    auto const count = static_cast<std::size_t>(all);
    threads_ = threads;
    body_ = &body;
    warps_.assign(count / 32 + 1, Group{});
    teams_.assign(static_cast<std::size_t>(teams), Group{});
    together_ = Group{};
    done_.assign(count, false);
    copies_.assign(count, {});
    contexts_.resize(count);
    if (words.size() < count) words.resize(count);
    if (stacks_.size() < count) stacks_.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
      stacks_[k].resize(stack_bytes);
      getcontext(&contexts_[k]);
      contexts_[k].uc_stack.ss_sp = stacks_[k].data();
      contexts_[k].uc_stack.ss_size = stack_bytes;
      contexts_[k].uc_link = &main_;
      makecontext(&contexts_[k], entry, 0);
    }
    for (int left = all; left > 0;) {
      moved_ = false;
      for (current_ = 0; current_ < all; ++current_) {
        auto const k = static_cast<std::size_t>(current_);
        if (done_[k]) continue;
        swapcontext(&main_, &contexts_[k]);
        if (done_[k]) --left, moved_ = true;
      }
      if (!moved_) throw std::logic_error("some threads wait for others that do not come");
    }
  }
  int thread() const { return current_ % threads_; }
  int team() const { return current_ / threads_; }
  /// Of all threads.
  std::size_t current() const { return static_cast<std::size_t>(current_); }
  void meet_warp() { meet(warps_[current() / 32], 32); }
  void meet_team() { meet(teams_[static_cast<std::size_t>(team())], threads_); }
  void meet_together() { meet(together_, static_cast<int>(contexts_.size())); }
  /// Others may be waiting for what this thread has just done, with wait_until().
  void has_done() { moved_ = true; }
  template <class Ready>
  void wait_until(Ready const& ready) {
    while (!ready()) swapcontext(&contexts_[current()], &main_);
    moved_ = true;
  }

  /// What is copied is not there before it has been waited for, and what was there before is gone.
  template <class Bits>
  void copy(Bits* to, Bits const& x) {
    std::vector<std::byte> bytes(sizeof(x));
    std::memcpy(bytes.data(), &x, sizeof(x));
    std::memset(static_cast<void*>(to), 0xA5, sizeof(x));
    copies_[current()].open.push_back({to, std::move(bytes)});
  }
  void end_copies() {
    Copies& mine = copies_[current()];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
  }
  void wait_for_copies(int pending) {
    auto& groups = copies_[current()].groups;
    while (static_cast<int>(groups.size()) > pending) {
      for (Copy const& copy : groups.front()) std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
      groups.pop_front();
    }
  }

  std::vector<std::vector<std::byte>> scratch;      // of each team
  std::vector<std::array<std::uint32_t, 8>> words;  // (threads, words) in exchange

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 16;
  struct Group {
    int here = 0;
    std::uint64_t meetings = 0;
  };
  struct Copy {
    void* to;
    std::vector<std::byte> bytes;
  };
  /// Of a thread.
  struct Copies {
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };

  static void entry() {
    WarpScheduler& s = instance();
    (*s.body_)(s.team());
    s.done_[s.current()] = true;
  }
  void meet(Group& group, int size) {
    moved_ = true;
    std::uint64_t const meeting = group.meetings;
    if (++group.here == size) {
      group.here = 0;
      ++group.meetings;
      return;
    }
    while (group.meetings == meeting) swapcontext(&contexts_[current()], &main_);
  }

  int threads_ = 0, current_ = 0;
  bool moved_ = false;
  std::function<void(int)> const* body_ = nullptr;
  std::vector<Group> warps_, teams_;
  Group together_;  // of all threads
  std::vector<Copies> copies_;
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
    auto& s = WarpScheduler::instance();
    return detail::HostScratch(reinterpret_cast<char*>(s.scratch[static_cast<std::size_t>(s.team())].data()));
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

  template <int Threads, int TeamsAtOnce, class Functor>
  static void launch(char const* label, test::Warps const& exec, int league, std::size_t scratch,
                     Functor const& functor) {
    launch_clusters<Threads, TeamsAtOnce>(label, exec, league, 1, scratch, functor);
  }
  template <int Threads, int, class Functor>
  static void launch_clusters(char const*, test::Warps const&, int league, int cluster, std::size_t scratch,
                              Functor const& functor) {
    auto& scheduler = test::WarpScheduler::instance();
    for (int first = 0; first < league; first += cluster) {
      scheduler.scratch.assign(static_cast<std::size_t>(cluster),
                               std::vector<std::byte>(scratch + 16, std::byte{0xA5}));
      scheduler.run(cluster, Threads, [&](int team) { functor(test::WarpTeam(first + team)); });
    }
  }
  template <int, int, class>
  static bool can_launch_clusters(test::Warps const&) {
    return true;
  }
  template <int, int TeamsAtOnce, class>
  static int clusters_at_once(test::Warps const& exec, int cluster, std::size_t) {
    return cluster <= exec.most_together ? (TeamsAtOnce * exec.multiprocessors + cluster - 1) / cluster : 0;
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
      std::size_t const me = s.current();
      std::memcpy(s.words[me].data(), &x, sizeof(T));
      s.meet_warp();
      T other;
      std::memcpy(&other, s.words[me ^ static_cast<std::size_t>(step)].data(), sizeof(T));
      s.meet_warp();
      x = f(x, other);
    }
    return x;
  }
  template <class T>
  static T of_lane(T x, int lane) {
    auto& s = test::WarpScheduler::instance();
    std::memcpy(s.words[s.current()].data(), &x, sizeof(T));
    s.meet_warp();
    std::memcpy(&x, s.words[s.current() / 32 * 32 + static_cast<std::size_t>(lane)].data(), sizeof(T));
    s.meet_warp();
    return x;
  }
  template <class Tag, int Warps, class T>
  static T share(T const& x) {
    return share_in_turn<Tag, Warps>(x, 0);
  }
  template <class Tag, int Warps, class T>
  static T share_in_turn(T const& x, int turn) {
    static T all[16][2][Warps];  // (teams, turns, warps)
    auto& s = test::WarpScheduler::instance();
    int const me = s.thread(), team = s.team();
    if (me % 32 == 0) all[team][turn][me / 32] = x;
    s.meet_team();
    constexpr int lanes = static_cast<int>(std::bit_ceil(unsigned{Warps}));
    int const which = me % lanes;
    return which < Warps ? all[team][turn][which] : T{};
  }
  static constexpr std::size_t posted_part_bytes = 16;
  template <class>
  static void begin_posting(int) {}
  template <class>
  static void wait_for_posters(int) {}
  template <class Tag, class T>
  static T& part(int i, int which) {
    static T all[2][512];  // (turns, parts)
    return all[i & 1][which];
  }
  template <class Tag, class T>
  static void post_part(void*, T const& x, int, int of_team, int i) {
    auto& s = test::WarpScheduler::instance();
    int const warp = s.thread() / 32;
    if (s.thread() % 32 == 0 && warp < of_team) part<Tag, T>(i, s.team() * of_team + warp) = x;
  }
  template <class Tag, class T>
  static T posted_part(void const*, int parts, int i, int first) {
    auto& s = test::WarpScheduler::instance();
    s.meet_together();
    int const which = first + s.thread() % 32;
    return which < parts ? part<Tag, T>(i, which) : T{};
  }
  template <class T>
  static T* settled(T* scratch) {
    return scratch;
  }
  template <class T, int N>
  static void copy_ahead(Pack<T, N>* to, T const* from, ReadOnce = {}) {
    test::WarpScheduler::instance().copy(to, load_pack<N>(from));
  }
  template <int To, int From, class T, int N>
  static void copy_ahead_at(Pack<T, N>* to, T const* from) {
    copy_ahead(to + To, from + From);
  }
  template <class T, int N>
  static void copy_ahead_part(Pack<T, N>* to, T const* from, int count) {
    Pack<T, N> part;
    for (int j = 0; j < N; ++j) part[j] = j < count ? from[j] : T(0.0f);
    test::WarpScheduler::instance().copy(to, part);
  }
  template <class T, int N>
  static void store_at_once(T* to, Pack<T, N> const& x) {
    store_pack<N>(to, x);
  }
  template <class T, int N>
  static Pack<T, N> larger(Pack<T, N> a, Pack<T, N> const& b) {
    for (int j = 0; j < N; ++j) a[j] = T(detail::larger(static_cast<float>(a[j]), static_cast<float>(b[j])));
    return a;
  }
  template <class T, int N>
  static Pack<T, N> smaller(Pack<T, N> a, Pack<T, N> const& b) {
    for (int j = 0; j < N; ++j) a[j] = T(-detail::larger(-static_cast<float>(a[j]), -static_cast<float>(b[j])));
    return a;
  }
  static void end_copies() { test::WarpScheduler::instance().end_copies(); }
  static void wait_for_copies(int pending) { test::WarpScheduler::instance().wait_for_copies(pending); }
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
  template <class T>
  static std::uint32_t magnitudes(std::uint32_t x) {
    return x & (sizeof(T) == 2 ? 0x7fff7fffu : 0x7fffffffu);
  }
  template <class T>
  static std::uint32_t larger_magnitudes(std::uint32_t x, std::uint32_t y) {
    if constexpr (sizeof(T) == 4) return x > y ? x : y;
    constexpr std::uint32_t low = 0xffff;
    return std::max(x & low, y & low) | std::max(x & ~low, y & ~low);
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
  template <class T, int N>
  static Pack<std::uint32_t, N / 4> narrowed_words(Pack<float, N> const& x) {
    return __builtin_bit_cast(Pack<std::uint32_t, N / 4>, narrowed<T>(x));
  }
};

/// Whoever gives a row too early, so that what others have not read yet is written over, is found out.
template <int Warps, bool ByMail>
class Relay<test::Warps, Warps, ByMail> {
 public:
  static constexpr int turns = 16, most_teams = 16, most_by_mail = 16, fewest_by_mail = 1, of_lane = 1;

 private:
  using Words = std::array<std::uint32_t, 4>;
  struct Counted {
    Words words;
    int row;
    bool read;
  };
  struct Box {
    Counted parts[turns][Warps], from[turns][most_teams], all[turns];
  };

 public:
  static constexpr std::size_t bytes = sizeof(Box);
  static constexpr std::size_t bytes_by_mail(int) { return bytes; }
  static constexpr std::size_t post_bytes(int) { return 0; }  // no mail: all teams reach each other's scratch
  static constexpr std::size_t most_post_bytes(int) { return 0; }

  Relay(void* scratch, int of_teams, void* = nullptr, int = 0)
      : place(static_cast<std::byte*>(scratch) - scratch_of(team())), teams(of_teams) {}
  void begin() const {
    if (WarpAtoms<test::Warps>::thread() == 0) std::memset(static_cast<void*>(&box(team())), 0, sizeof(Box));
  }
  void wait() const { test::WarpScheduler::instance().meet_together(); }
  static void lend() {}
  static void borrow() {}

  template <class X>
  void give(X const& x, int i) const {
    if (lane() == 0) put(box(team()).parts[i % turns][WarpAtoms<test::Warps>::thread() / 32], x, i);
  }
  template <class X>
  X given(int i) const {
    return lane() < Warps ? get<X>(box(team()).parts[i % turns][lane()], i) : X{};
  }
  template <class X, class Joined>
  X exchange(X const& x, int i, Joined const& joined) const {
    if (lane() < teams) put(box(lane()).from[i % turns][team()], x, i);
    X const all[of_lane] = {lane() < teams ? get<X>(box(team()).from[i % turns][lane()], i) : X{}};
    return joined(all);
  }
  template <class X>
  void tell(X const& x, int i) const {
    Counted& all = box(team()).all[i % turns];
    all.read = true;  // by some of those who give, who are not waited for
    if (lane() == 0) put(all, x, i);
  }
  template <class X>
  X told(int i) const {
    return get<X>(box(team()).all[i % turns], i);
  }

 private:
  static int team() { return test::WarpScheduler::instance().team(); }
  static int lane() { return WarpAtoms<test::Warps>::thread() % 32; }
  static std::byte* scratch_of(int of_team) {
    return test::WarpScheduler::instance().scratch[static_cast<std::size_t>(of_team)].data();
  }
  Box& box(int of_team) const { return *reinterpret_cast<Box*>(scratch_of(of_team) + place); }

  template <class X>
  static void put(Counted& to, X const& x, int i) {
    if (to.row > 0 && !to.read) throw std::logic_error("a part is written over that has not been read");
    static_assert(sizeof(X) <= sizeof(Words));
    std::memcpy(to.words.data(), &x, sizeof(X));
    to.row = i + 1;
    to.read = false;
    test::WarpScheduler::instance().has_done();
  }
  template <class X>
  static X get(Counted& from, int i) {
    test::WarpScheduler::instance().wait_until([&] { return from.row > i; });
    if (from.row != i + 1) throw std::logic_error("a part has been written over before it was read");
    X x;
    std::memcpy(static_cast<void*>(&x), from.words.data(), sizeof(X));
    from.read = true;
    return x;
  }

  std::ptrdiff_t place;
  int teams;
};

}  // namespace tessera::detail

#endif
