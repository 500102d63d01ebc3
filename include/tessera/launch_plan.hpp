// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What an operation would start: its kernels, in their order, and the scheme by which each does its work.
#ifndef TESSERA_LAUNCH_PLAN_HPP
#define TESSERA_LAUNCH_PLAN_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// A kernel that an operation starts.
struct KernelLaunch {
  std::string label;              ///< that Kokkos Tools show: "tessera::softmax"
  std::string scheme;             ///< "rows in registers", say; empty where the operation knows one way only
  std::int64_t teams = 0;         ///< 0: there are no teams, but a call for each index
  std::int64_t indices = 0;       ///< of those
  int team_threads = 1;           ///< of a team; 1 on a CPU, where a team is a core
  int together = 1;               ///< neighbouring teams that run at the same time and share work
  std::size_t scratch_bytes = 0;  ///< team scratch

  bool operator==(KernelLaunch const&) const = default;
};

struct LaunchPlan {
  std::vector<KernelLaunch> kernels;  ///< none where there is nothing to do

  bool operator==(LaunchPlan const&) const = default;
};

/// "tessera::softmax: rows in the registers of several teams, 32768 teams of 512 threads, 8 at a time, 18 KB scratch",
/// a line for each kernel.
std::string to_string(LaunchPlan const& plan);

namespace detail {

/// Where the kernels started by this thread go; nullptr: to the machine.
inline thread_local constinit LaunchPlan* launches_planned = nullptr;

}  // namespace detail

/// What `operation()` would start: it is called, with all its checks and choices, but the kernels of Tessera that the
/// calling thread starts meanwhile are listed instead. Nothing is read or written.
///
///     LaunchPlan const plan = launch_plan([&] { softmax(exec, out, in); });
///
/// Errors are those of the operation.
template <class Operation>
LaunchPlan launch_plan(Operation const& operation) {
  LaunchPlan plan;
  struct Planning {
    LaunchPlan* const before;
    explicit Planning(LaunchPlan* to) : before(detail::launches_planned) { detail::launches_planned = to; }
    Planning(Planning const&) = delete;
    Planning& operator=(Planning const&) = delete;
    ~Planning() { detail::launches_planned = before; }
  } const planning(&plan);
  operation();
  return plan;
}

}  // namespace tessera

#endif
