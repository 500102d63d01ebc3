// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_COLUMN_SUMS_HPP
#define TESSERA_ROWWISE_COLUMN_SUMS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/part_columns.hpp>
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

  KOKKOS_FORCEINLINE_FUNCTION void store(int which, std::int64_t column, Acc value) const {
    RowInputs<Acc>::visit(type[which], [&](auto tag) {
      using T = typename decltype(tag)::type;
      static_cast<T*>(out[which])[column * stride[which]] = static_cast<T>(value);
    });
  }
  /// A team's columns: those of the first output in `each` units, then those of the second.
  template <class Columns, class Exec>
  KOKKOS_FORCEINLINE_FUNCTION void join(TeamMember<Exec> const& team, typename Columns::Values* room, int unit,
                                        int each) const {
    int const which = unit / each;
    std::int64_t const first = std::int64_t{unit - which * each} * Columns::columns_a_team;
    if (out[which] == nullptr) return;
    Columns::join(
        team, room, parts[which], rows, columns, first, Acc(0), [](Acc a, Acc b) { return a + b; },
        [&](std::int64_t column, Acc sum) { store(which, column, sum); });
  }
};

/// The last part of a kernel whose teams run at the same time: what they have left is added up when all have. Columns:
/// of PartColumns, with the kernel's threads.
template <class Exec, class Columns>
struct SumsOfTeams : ColumnSums<float> {
  static constexpr std::size_t scratch_bytes = Columns::scratch_bytes;
  bool is_wanted = false;

  /// `room` for scratch_bytes, where the team has read and written all else.
  KOKKOS_FORCEINLINE_FUNCTION void operator()(TeamMember<Exec> const& team, void* room) const {
    if (!is_wanted) return;
    meet_all_teams<Exec>();
    auto const each = static_cast<int>(Columns::teams(this->columns));
    TESSERA_ROLLED
    for (int unit = team.league_rank(); unit < 2 * each; unit += team.league_size()) {
      team.team_barrier();
      this->template join<Columns, Exec>(team, static_cast<typename Columns::Values*>(room), unit, each);
    }
  }
};

struct NoSums {
  static constexpr std::size_t scratch_bytes = 0;
};

/// The kernel, for Columns of PartColumns.
template <class Exec, class Acc, class Columns>
struct SumColumns : ColumnSums<Acc> {
  using ColumnSums<Acc>::parts, ColumnSums<Acc>::out, ColumnSums<Acc>::rows, ColumnSums<Acc>::columns;
  static constexpr int columns_a_team = Columns::columns_a_team;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;

  /// Teams of the first output, then those of the second.
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (starts_early) wait_for_kernels_before<Exec>();
    auto const each = static_cast<int>(Columns::teams(columns));
    if constexpr (Machine<Exec>::lanes == 1)
      by_a_core(team.league_rank(), each);
    else
      this->template join<Columns, Exec>(team, Columns::room(team), team.league_rank(), each);
  }

 private:
  KOKKOS_FUNCTION void by_a_core(int unit, int each) const {
    int const which = unit / each;
    std::int64_t const first = std::int64_t{unit - which * each} * columns_a_team;
    if (out[which] == nullptr) return;
    Acc sum[columns_a_team] = {};
    auto const count = static_cast<int>(columns - first < columns_a_team ? columns - first : columns_a_team);
    for (std::int64_t i = 0; i < rows; ++i) {
      Acc const* const from = parts[which] + i * columns + first;
      for (int j = 0; j < count; ++j) sum[j] += from[j];
    }
    for (int j = 0; j < count; ++j) this->store(which, first + j, sum[j]);
  }
};

template <class Acc, class Exec>
void launch_column_sums(char const* label, Exec const& exec, ColumnSums<Acc> const& sums) {
  using Space = KernelSpace<Exec>;
  auto const start = [&](auto way) {
    using Columns = decltype(way);
    launch<Columns::threads>(
        KernelLabel{label, "sums of columns"}, exec, (sums.out[1] == nullptr ? 1 : 2) * Columns::teams(sums.columns),
        Machine<Space>::lanes == 1 ? 0 : Columns::scratch_bytes, SumColumns<Space, Acc, Columns>{sums});
  };
  if constexpr (Machine<Space>::lanes == 1)
    start(PartColumns<Space, Acc, 1, 8>{});
  else
    with_part_columns<Space, Acc>(
        sums.rows, sums.columns,
        are_packed_parts(sums.parts[0], sums.columns) && are_packed_parts(sums.parts[1], sums.columns), start);
}

}  // namespace tessera::detail

#endif
