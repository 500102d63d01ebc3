// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_HOST_TEAM_HPP
#define TESSERA_HOST_TEAM_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/vector_units.hpp>

// Kernels on a CPU. A team is one core; its kernel sees this team and no execution space, and is called through a
// pointer: Kokkos' loops over teams and indices are then compiled once an execution space, not once a kernel.
namespace tessera::detail {

/// The machine that kernels of all host execution spaces are compiled for.
struct Host {};

/// Team scratch, handed out from its beginning.
class HostScratch {
 public:
  KOKKOS_FUNCTION explicit HostScratch(char* free) : free_(free) {}
  KOKKOS_FUNCTION void* get_shmem(std::size_t bytes) { return get_shmem_aligned(bytes, 8); }
  KOKKOS_FUNCTION void* get_shmem_aligned(std::size_t bytes, std::size_t alignment) {
    auto const address = reinterpret_cast<std::uintptr_t>(free_);
    char* const taken = free_ + (alignment - address % alignment) % alignment;
    free_ = taken + bytes;
    return taken;
  }

 private:
  char* free_;
};

/// What kernels use of Kokkos' team members, for a team of one thread.
class HostTeam {
 public:
  KOKKOS_FUNCTION HostTeam(int rank, char* scratch) : rank_(rank), scratch_(scratch) {}
  KOKKOS_FUNCTION int league_rank() const { return rank_; }
  KOKKOS_FUNCTION int team_rank() const { return 0; }
  KOKKOS_FUNCTION int team_size() const { return 1; }
  KOKKOS_FUNCTION void team_barrier() const {}
  KOKKOS_FUNCTION HostScratch team_shmem() const { return HostScratch(scratch_); }
  KOKKOS_FUNCTION HostScratch team_scratch(int) const { return team_shmem(); }

 private:
  int rank_;
  char* scratch_;
};

template <class Kernel>
void run_host_team(void const* kernel, HostTeam const& team) {
  (*static_cast<Kernel const*>(kernel))(team);
}
template <class Kernel>
void run_host_range(void const* kernel, std::int64_t begin, std::int64_t end) {
  Kernel const& at = *static_cast<Kernel const*>(kernel);
  for (std::int64_t i = begin; i < end; ++i) at(i);
}

/// A kernel for host teams behind a pointer. The kernel outlives the launch.
class HostKernel {
 public:
  template <class Kernel>
  explicit HostKernel(Kernel const& kernel) : kernel_(&kernel), run_(for_units_of<Kernel, run_host_team<Kernel>>()) {}
  void operator()(HostTeam const& team) const { run_(kernel_, team); }

 private:
  void const* kernel_;
  void (*run_)(void const*, HostTeam const&);
};

/// The teams of a launch, of which each core has a run of neighbours, and takes of the others' what is left when its
/// own is done. A core begins when it comes: with Kokkos' dynamic schedule all wait until the last one has.
class HostSchedule {
 public:
  HostSchedule(int teams, int cores)
      : runs_(std::clamp(std::min(teams, cores), 1, most_runs)),
        cores_(std::clamp(teams, 1, cores)),
        together_(std::clamp(teams / cores / handed_out, 1, most_together)) {
    for (int r = 0; r < runs_; ++r) {
      run_[r].next.store(first_of(teams, r), std::memory_order_relaxed);
      run_[r].end = first_of(teams, r + 1);
    }
  }
  int cores() const { return cores_; }

  /// f(team) for all that this core comes to have.
  template <class F>
  void work(int core, F const& f) {
    int const own = static_cast<int>(std::int64_t(core) * runs_ / cores_);
    for (int i = 0; i < runs_; ++i) {
      Run& run = run_[(own + i) % runs_];
      while (run.next.load(std::memory_order_relaxed) < run.end) {
        std::int64_t const first = run.next.fetch_add(together_, std::memory_order_relaxed);
        for (std::int64_t t = first; t < std::min(first + together_, run.end); ++t) f(static_cast<int>(t));
      }
    }
  }

 private:
  static constexpr int most_runs = 64, handed_out = 40, most_together = 128;
  struct alignas(64) Run {
    std::atomic<std::int64_t> next;  // beyond the end where several found the last
    std::int64_t end;
  };
  std::int64_t first_of(int teams, int run) const { return std::int64_t(teams) * run / runs_; }

  int runs_, cores_, together_;
  Run run_[most_runs];
};

/// What a core of an execution space with these members does of a launch: a team of Kokkos' is a core.
template <class Member>
struct HostTeamCall {
  HostKernel kernel;
  HostSchedule* schedule;
  std::size_t scratch_bytes;

  void operator()(Member const& member) const {
    void* const scratch = scratch_bytes > 0 ? member.team_shmem().get_shmem(scratch_bytes) : nullptr;
    schedule->work(member.league_rank(), [&](int team) { kernel(HostTeam(team, static_cast<char*>(scratch))); });
  }
};

/// Calls kernel(i) for i in [0, n), split into one run of neighbours for each of `cores`. The kernel outlives the
/// launch.
class HostRangeCall {
 public:
  template <class Kernel>
  HostRangeCall(Kernel const& kernel, std::int64_t n, int cores)
      : kernel_(&kernel),
        n_(n),
        length_((n + cores - 1) / cores),
        run_(for_units_of<Kernel, run_host_range<Kernel>>()) {}
  std::int64_t runs() const { return (n_ + length_ - 1) / length_; }
  void operator()(std::int64_t run) const {
    std::int64_t const begin = run * length_, rest = n_ - begin;
    run_(kernel_, begin, begin + (rest < length_ ? rest : length_));
  }

 private:
  void const* kernel_;
  std::int64_t n_, length_;
  void (*run_)(void const*, std::int64_t, std::int64_t);
};

}  // namespace tessera::detail

#endif
