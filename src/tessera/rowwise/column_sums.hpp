// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_COLUMN_SUMS_HPP
#define TESSERA_ROWWISE_COLUMN_SUMS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/rowwise/row_types.hpp>

namespace tessera::detail {

/// out(j) = sum over i of parts(i, j), for one output or two of the same length: what teams have summed over rows.
template <class Exec, class Acc>
struct SumColumns {
  static constexpr int columns_a_team = 32, groups = 32, threads = columns_a_team * groups;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;

  Acc const* parts[2];  // (rows, columns) each
  void* out[2];         // either may be absent
  Scalar type[2];
  std::int64_t stride[2];
  std::int64_t rows, columns;

  KOKKOS_FUNCTION static std::size_t scratch() { return Machine<Exec>::lanes == 1 ? 0 : threads * sizeof(Acc); }
  /// Teams of the first output, then those of the second.
  std::int64_t teams_an_output() const { return (columns + columns_a_team - 1) / columns_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (starts_early) wait_for_kernels_before<Exec>();
    auto const each = static_cast<int>((columns + columns_a_team - 1) / columns_a_team);
    int const which = team.league_rank() / each;
    std::int64_t const first = std::int64_t{team.league_rank() - which * each} * columns_a_team;
    if (out[which] == nullptr) return;
    if constexpr (Machine<Exec>::lanes == 1)
      by_a_core(which, first);
    else
      by_lanes(team, which, first);
  }

 private:
  KOKKOS_FUNCTION void by_a_core(int which, std::int64_t first) const {
    Acc sum[columns_a_team] = {};
    auto const count = static_cast<int>(columns - first < columns_a_team ? columns - first : columns_a_team);
    for (std::int64_t i = 0; i < rows; ++i) {
      Acc const* const from = parts[which] + i * columns + first;
      for (int j = 0; j < count; ++j) sum[j] += from[j];
    }
    for (int j = 0; j < count; ++j) store(which, first + j, sum[j]);
  }

  /// Each thread one column of every `groups`-th row, then one group the sums of all in order.
  KOKKOS_FUNCTION void by_lanes(TeamMember<Exec> const& team, int which, std::int64_t first) const {
    int const thread = thread_of<Exec>(team), group = thread / columns_a_team, j = thread % columns_a_team;
    auto* const room = static_cast<Acc*>(team.team_scratch(0).get_shmem(static_cast<int>(scratch())));
    Acc sum = 0;
    if (first + j < columns) {
      Acc const* const from = parts[which] + first + j;
      constexpr int at_once = 8;
      std::int64_t i = group;
      for (; i + (at_once - 1) * groups < rows; i += at_once * groups) {
        Acc x[at_once];
        unroll<at_once>([&](auto u) { x[u] = from[(i + u * groups) * columns]; });
        unroll<at_once>([&](auto u) { sum += x[u]; });
      }
      for (; i < rows; i += groups) sum += from[i * columns];
    }
    room[thread] = sum;
    team.team_barrier();
    if (group > 0 || first + j >= columns) return;
    for (int g = 1; g < groups; ++g) sum += room[g * columns_a_team + j];
    store(which, first + j, sum);
  }

  KOKKOS_FORCEINLINE_FUNCTION void store(int which, std::int64_t column, Acc value) const {
    RowInputs<Acc>::visit(type[which], [&](auto tag) {
      using T = typename decltype(tag)::type;
      static_cast<T*>(out[which])[column * stride[which]] = static_cast<T>(value);
    });
  }
};

template <class Exec, class Acc>
void launch_column_sums(char const* label, Exec const& exec, SumColumns<KernelSpace<Exec>, Acc> const& kernel) {
  using Kernel = SumColumns<KernelSpace<Exec>, Acc>;
  launch<Kernel::threads>(label, exec, 2 * kernel.teams_an_output(), Kernel::scratch(), kernel);
}

}  // namespace tessera::detail

#endif
