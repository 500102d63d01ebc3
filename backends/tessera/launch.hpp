// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_LAUNCH_HPP
#define TESSERA_LAUNCH_HPP

#include <Kokkos_Core.hpp>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/error.hpp>
#include <tessera/host_team.hpp>
#include <tessera/launch_plan.hpp>

// How a kernel starts. Two forms: a league of teams with scratch, and one call per index. Both are asynchronous, on the
// caller's execution-space instance, without a fence or an allocation of their own, and carry a label for Kokkos Tools.
namespace tessera::detail {

/// The host execution spaces whose launches return when the work is done: they share kernels, each compiled once for
/// the machine `Host` and called through a pointer. The code of a CPU kernel does not depend on who starts its teams.
template <class Exec>
inline constexpr bool shares_host_kernels = false;
#if defined(KOKKOS_ENABLE_SERIAL)
template <>
inline constexpr bool shares_host_kernels<Kokkos::Serial> = true;
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
template <>
inline constexpr bool shares_host_kernels<Kokkos::OpenMP> = true;
#endif

/// What kernels that run on Exec are compiled for.
template <class Exec>
using KernelSpace = std::conditional_t<shares_host_kernels<Exec>, Host, Exec>;

template <class Space>
struct TeamMemberOf {
  using type = typename Kokkos::TeamPolicy<Space>::member_type;
};
template <>
struct TeamMemberOf<Host> {
  using type = HostTeam;
};
/// The team as a kernel compiled for Space sees it.
template <class Space>
using TeamMember = typename TeamMemberOf<Space>::type;

/// How `Threads` logical threads of a team are laid over Kokkos' team and vector levels, and what the machine offers.
/// On a CPU a team is one core and does the whole team's work; elsewhere a team thread is a warp of 32 lanes.
template <class Exec>
struct Machine {
  static constexpr bool is_host =
      Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, typename Exec::memory_space>::accessible;
  static constexpr int lanes = is_host ? 1 : 32;
  static constexpr int threads(int wanted) { return is_host ? 1 : wanted; }

  /// Bytes of level-0 scratch one team can have.
  static std::size_t scratch_limit(Exec const&) {
    return static_cast<std::size_t>(Kokkos::TeamPolicy<Exec>::scratch_size_max(is_host ? 1 : 0));
  }
  /// Multiprocessors or cores that work at the same time.
  static int concurrency(Exec const& exec) { return exec.concurrency(); }

  template <int Threads, int, class Functor>
  static void launch(char const* label, Exec const& exec, int league, std::size_t scratch, Functor const& functor) {
    if constexpr (shares_host_kernels<Exec> && std::is_invocable_v<Functor const&, HostTeam const&>) {
      HostSchedule schedule(league, concurrency(exec));
      Kokkos::parallel_for(label, policy<Kokkos::Static>(exec, schedule.cores(), 1, scratch),
                           HostTeamCall<TeamMember<Exec>>{HostKernel(functor), &schedule, scratch});
    } else {
      Kokkos::parallel_for(label, policy<Kokkos::Dynamic>(exec, league, threads(Threads) / lanes, scratch), functor);
    }
  }

 private:
  template <class Schedule>
  static auto policy(Exec const& exec, int league, int team, std::size_t scratch) {
    Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Schedule>> policy(exec, league, team, lanes);
    if (scratch > 0) policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch)));
    return Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight);
  }
};

template <>
struct Machine<Host> {
  static constexpr bool is_host = true;
  static constexpr int lanes = 1;
  static constexpr int threads(int) { return 1; }
};

/// This thread's number in a team of whole warps, or in one of one thread.
template <class Exec>
KOKKOS_FORCEINLINE_FUNCTION int thread_of(TeamMember<Exec> const& team) {
  if constexpr (requires { Machine<Exec>::thread(); }) {
    return Machine<Exec>::thread();
  } else if constexpr (Machine<Exec>::lanes == 1) {
    return team.team_rank();
  } else {
    int thread = 0;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, Machine<Exec>::lanes),
                         [&](int lane) { thread = team.team_rank() * Machine<Exec>::lanes + lane; });
    return thread;
  }
}

/// What the thread whose number differs by bit `distance` (a power of two below 32) has, for all threads of a team;
/// `room` holds a value of each where the machine has no way between the lanes of a warp.
template <class Exec, class T>
KOKKOS_FORCEINLINE_FUNCTION T exchange(TeamMember<Exec> const& team, [[maybe_unused]] int thread, T x, int distance,
                                       [[maybe_unused]] T* room) {
  if constexpr (requires { Machine<Exec>::exchange(x, distance); }) {
    return Machine<Exec>::exchange(x, distance);
  } else {
    room[thread] = x;
    team.team_barrier();
    T const other = room[thread ^ distance];
    team.team_barrier();
    return other;
  }
}

/// A functor that may start while the kernels before it in its instance still run: it reads and writes nothing before
/// it has called wait_for_kernels_before().
template <class Functor>
concept StartsEarly = Functor::starts_early;

/// What the kernels before this one have written is there. Where none starts early it is so from the beginning.
/// If `followed_early` the kernel behind it may start now; otherwise when all teams of this one have ended, which is
/// faster unless that kernel has much to do first.
template <class Exec>
KOKKOS_FORCEINLINE_FUNCTION void wait_for_kernels_before([[maybe_unused]] bool followed_early = false) {
  if constexpr (requires { Machine<Exec>::wait_for_kernels_before(followed_early); })
    Machine<Exec>::wait_for_kernels_before(followed_early);
}

/// Teams, and the tiles they work on, are counted in 31 bits.
inline void check_tiles(char const* label, std::int64_t tiles) {
  if (tiles > INT_MAX)
    throw Error(ErrorCode::extent, std::string(label) + ": " + std::to_string(tiles) + " teams, the machine takes " +
                                       std::to_string(INT_MAX));
}

/// Error{scratch}: the machine gives a team less.
inline void check_scratch(char const* label, std::size_t scratch, std::size_t limit) {
  if (scratch > limit)
    throw Error(ErrorCode::scratch, std::string(label) + ": needs " + std::to_string(scratch) +
                                        " bytes of team scratch, the machine has " + std::to_string(limit));
}
template <class Exec>
void check_scratch(char const* label, Exec const& exec, std::size_t scratch) {
  check_scratch(label, scratch, Machine<Exec>::scratch_limit(exec));
}

/// Bytes of scratch that each of so many teams on a multiprocessor can have.
template <class Exec>
std::size_t scratch_of_each(Exec const& exec, int teams) {
  std::size_t const all = Machine<Exec>::scratch_limit(exec), lost = 3 << 10;  // beside a team's own
  return teams == 1 ? all : all / static_cast<std::size_t>(teams) - lost;
}

/// What a kernel is called: by its operation, for Kokkos Tools, and by how it goes about it, where there are several
/// ways (see KernelLaunch::scheme).
struct KernelLabel {
  char const* operation;
  char const* scheme;

  KernelLabel(char const* of_operation, char const* by = "") : operation(of_operation), scheme(by) {}
};

/// Whether this thread makes a plan: the kernel has then been added to it and is not to be started.
inline bool is_planned(KernelLabel label, std::int64_t teams, int team_threads, int together, std::size_t scratch,
                       std::int64_t indices = 0) {
  if (launches_planned == nullptr) return false;
  launches_planned->kernels.push_back({label.operation, label.scheme, teams, indices, team_threads, together, scratch});
  return true;
}

/// Floating-point operations that one core of a CPU does in about the time it takes to wake the others.
inline constexpr double worth_a_fork = 1e6;

/// Teams of `Threads` threads (a multiple of 32; one on a CPU), `league` of them, each with `scratch` bytes of level-0
/// scratch; `functor(TeamMember<Exec> const&)` is the team's work and is trivially copyable. `operations` is what all
/// teams do together, where known: a CPU does little work on the calling thread.
/// `TeamsAtOnce` of them should fit a multiprocessor's registers. Error{scratch}: the machine gives a team less
/// scratch. Error{extent}: more than 2^31 - 1 teams.
template <int Threads, int TeamsAtOnce = 1, class Exec, class Functor>
void launch(KernelLabel label, Exec const& exec, std::int64_t league, std::size_t scratch, Functor const& functor,
            double operations = HUGE_VAL) {
  static_assert(Threads % 32 == 0 && Threads <= 1024, "a team has a multiple of 32 threads, 1024 at most");
  if (league <= 0) return;
  check_tiles(label.operation, league);
  check_scratch(label.operation, exec, scratch);
  if (is_planned(label, league, Machine<Exec>::threads(Threads), 1, scratch)) return;
#if defined(KOKKOS_ENABLE_SERIAL)
  // Host spaces return when the work is done, so that it makes no difference to the caller which of them does it.
  if constexpr (shares_host_kernels<Exec> && std::is_invocable_v<Functor const&, HostTeam const&>)
    if (operations < worth_a_fork)
      return Machine<Kokkos::Serial>::template launch<Threads, TeamsAtOnce>(label.operation, Kokkos::Serial{},
                                                                            static_cast<int>(league), scratch, functor);
#endif
  Machine<Exec>::template launch<Threads, TeamsAtOnce>(label.operation, exec, static_cast<int>(league), scratch,
                                                       functor);
}

/// Whether the machine can start neighbouring teams of this kernel so that they run at the same time.
template <int Threads, int TeamsAtOnce, class Functor, class Exec>
bool can_launch_together(Exec const& exec) {
  if constexpr (requires { Machine<Exec>::template can_launch_clusters<Threads, TeamsAtOnce, Functor>(exec); })
    return Machine<Exec>::template can_launch_clusters<Threads, TeamsAtOnce, Functor>(exec);
  return false;
}

/// How many times `together` neighbouring teams of this kernel run at the same time, each with `scratch` bytes; 0:
/// never.
template <int Threads, int TeamsAtOnce, class Functor, class Exec>
int groups_at_once(Exec const& exec, int together, std::size_t scratch) {
  if constexpr (requires {
                  Machine<Exec>::template clusters_at_once<Threads, TeamsAtOnce, Functor>(exec, together, scratch);
                }) {
    if (together > 1)
      return Machine<Exec>::template clusters_at_once<Threads, TeamsAtOnce, Functor>(exec, together, scratch);
  }
  return together == 1 ? TeamsAtOnce * Machine<Exec>::concurrency(exec) : 0;
}

/// As launch(), with `together` neighbouring teams at a time running at the same time, 8 at most (16 where
/// groups_at_once() says so); more than one if can_launch_together() only. `together` divides `league`. The functor
/// begins with wait_for_kernels_before().
template <int Threads, int TeamsAtOnce, class Exec, class Functor>
void launch_together(KernelLabel label, Exec const& exec, std::int64_t league, int together, std::size_t scratch,
                     Functor const& functor) {
  if constexpr (requires { Machine<Exec>::template can_launch_clusters<Threads, TeamsAtOnce, Functor>(exec); }) {
    if (together > 1) {
      check_tiles(label.operation, league);
      check_scratch(label.operation, exec, scratch);
      if (is_planned(label, league, Threads, together, scratch)) return;
      return Machine<Exec>::template launch_clusters<Threads, TeamsAtOnce>(
          label.operation, exec, static_cast<int>(league), together, scratch, functor);
    }
  }
  launch<Threads, TeamsAtOnce>(label, exec, league, scratch, functor);
}

/// How many teams of this kernel run at the same time if nothing else does, each with `scratch` bytes, where
/// launch_all_together() can start them; else 0.
template <int Threads, int TeamsAtOnce, class Functor, class Exec>
int teams_together(Exec const& exec, std::size_t scratch) {
  if constexpr (requires { Machine<Exec>::template teams_together<Threads, TeamsAtOnce, Functor>(exec, scratch); })
    return Machine<Exec>::template teams_together<Threads, TeamsAtOnce, Functor>(exec, scratch);
  return 0;
}

/// As launch(), of teams that wait for each other: all of them run at the same time, teams_together() at most.
template <int Threads, int TeamsAtOnce, class Exec, class Functor>
void launch_all_together(KernelLabel label, Exec const& exec, int league, std::size_t scratch, Functor const& functor) {
  if constexpr (requires { Machine<Exec>::template teams_together<Threads, TeamsAtOnce, Functor>(exec, scratch); }) {
    if (is_planned(label, league, Threads, league, scratch)) return;
    Machine<Exec>::template launch_all_together<Threads, TeamsAtOnce>(label.operation, exec, league, scratch, functor);
  }
}

/// `functor(std::int64_t i)` for every i in [0, n), which do so many operations together, where known.
template <class Exec, class Functor>
void for_each_index(KernelLabel label, Exec const& exec, std::int64_t n, Functor const& functor,
                    [[maybe_unused]] double operations = HUGE_VAL) {
  if (n <= 0) return;
  if (is_planned(label, 0, 1, 1, 0, n)) return;
#if defined(KOKKOS_ENABLE_SERIAL)
  if constexpr (shares_host_kernels<Exec> && !std::is_same_v<Exec, Kokkos::Serial>)
    if (operations < worth_a_fork) return for_each_index(label, Kokkos::Serial{}, n, functor);
#endif
  if constexpr (shares_host_kernels<Exec>) {
    HostRangeCall const call(functor, n, exec.concurrency());
    Kokkos::parallel_for(label.operation,
                         Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, call.runs()), call);
  } else {
    // Light weight: otherwise Kokkos sends functors over 512 bytes through constant memory, which waits on the host and
    // cannot be captured in a graph.
    Kokkos::parallel_for(
        label.operation,
        Kokkos::Experimental::require(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, n),
                                      Kokkos::Experimental::WorkItemProperty::HintLightWeight),
        functor);
  }
}

}  // namespace tessera::detail

#if defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/launch.hpp>
#endif

#endif
