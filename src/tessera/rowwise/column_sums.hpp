// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_COLUMN_SUMS_HPP
#define TESSERA_ROWWISE_COLUMN_SUMS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/row_types.hpp>

namespace tessera::detail {

/// out(j) = sum over i of parts(i, j), for one output or two of the same length: what teams have summed over rows.
template <class Acc>
struct ColumnSums {
  Acc const* parts[2];  // (rows, columns) each
  void* out[2];         // either may be absent
  Scalar type[2];
  std::int64_t stride[2];
  std::int64_t rows, columns;
};

/// `Width` columns a thread, which divide the number of columns; `Groups` threads share them.
template <class Exec, class Acc, int Width, int Groups>
struct SumColumns : ColumnSums<Acc> {
  using ColumnSums<Acc>::parts, ColumnSums<Acc>::out, ColumnSums<Acc>::type, ColumnSums<Acc>::stride;
  using ColumnSums<Acc>::rows, ColumnSums<Acc>::columns;
  static constexpr int groups = Groups, threads = 256, lanes = threads / groups, columns_a_team = lanes * Width;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;

  using Values = Pack<Acc, Width>;

  KOKKOS_FUNCTION static std::size_t scratch() {
    return Machine<Exec>::lanes == 1 || groups == 1 ? 0 : threads * sizeof(Values);
  }
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

  /// Each thread its columns of every `groups`-th row, then one group the sums of all in order.
  KOKKOS_FUNCTION void by_lanes(TeamMember<Exec> const& team, int which, std::int64_t first) const {
    int const thread = thread_of<Exec>(team), group = thread / lanes, lane = thread % lanes;
    std::int64_t const column = first + lane * Width;
    Values sum = {};
    if (column < columns) {
      Acc const* const from = parts[which] + column;
      constexpr int at_once = 8;
      std::int64_t i = group;
      for (; i + (at_once - 1) * groups < rows; i += at_once * groups) {
        Values x[at_once];
        unroll<at_once>([&](auto u) { x[u] = load_pack<Width>(from + (i + u * groups) * columns); });
        unroll<at_once>([&](auto u) { add(sum, x[u]); });
      }
      if (i < rows) {  // often that is all: on its way together
        Values x[at_once] = {};
        unroll<at_once>([&](auto u) {
          if (i + u * groups < rows) x[u] = load_pack<Width>(from + (i + u * groups) * columns);
        });
        unroll<at_once>([&](auto u) { add(sum, x[u]); });
      }
    }
    if constexpr (groups > 1) {
      auto* const room = static_cast<Values*>(team.team_scratch(0).get_shmem_aligned(scratch(), 16));
      room[thread] = sum;
      team.team_barrier();
      if (thread >= columns_a_team || first + thread >= columns) return;
      auto const* const sums = reinterpret_cast<Acc const*>(room) + thread;
      Acc all = 0;
      unroll<groups>([&](auto g) { all += sums[g * columns_a_team]; });
      store(which, first + thread, all);
    } else if (column < columns) {
      for (int j = 0; j < Width; ++j) store(which, column + j, sum[j]);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION static void add(Values& sum, Values const& x) {
    for (int j = 0; j < Width; ++j) sum[j] += x[j];
  }

  KOKKOS_FORCEINLINE_FUNCTION void store(int which, std::int64_t column, Acc value) const {
    RowInputs<Acc>::visit(type[which], [&](auto tag) {
      using T = typename decltype(tag)::type;
      static_cast<T*>(out[which])[column * stride[which]] = static_cast<T>(value);
    });
  }
};

template <class Exec, class Acc>
void launch_column_sums(char const* label, Exec const& exec, ColumnSums<Acc> const& sums) {
  auto const start = [&](auto width, auto groups) {
    using Kernel = SumColumns<KernelSpace<Exec>, Acc, decltype(width)::value, decltype(groups)::value>;
    Kernel const kernel{sums};
    launch<Kernel::threads>(label, exec, (sums.out[1] == nullptr ? 1 : 2) * kernel.teams_an_output(), Kernel::scratch(),
                            kernel);
  };
  // As many threads a column as have few parts each, which are on their way together; of many columns, of which there
  // are few parts, fewer.
  constexpr int wide = static_cast<int>(pack_bytes / sizeof(Acc)), many = 8, most = 32, few_parts = 16;
  if constexpr (Machine<KernelSpace<Exec>>::lanes > 1)
    if (sums.columns % wide == 0) {
      if (sums.columns < 32768) return start(Constant<wide>{}, Constant<most>{});
      return sums.rows <= few_parts ? start(Constant<wide>{}, Constant<1>{})
                                    : start(Constant<wide>{}, Constant<many>{});
    }
  start(Constant<1>{}, Constant<many>{});
}

}  // namespace tessera::detail

#endif
