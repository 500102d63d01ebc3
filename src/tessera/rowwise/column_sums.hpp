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
};

/// The kernel, for Columns of PartColumns.
template <class Exec, class Acc, class Columns>
struct SumColumns : ColumnSums<Acc> {
  using ColumnSums<Acc>::parts, ColumnSums<Acc>::out, ColumnSums<Acc>::type, ColumnSums<Acc>::stride;
  using ColumnSums<Acc>::rows, ColumnSums<Acc>::columns;
  static constexpr int columns_a_team = Columns::columns_a_team;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;

  /// Teams of the first output, then those of the second.
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (starts_early) wait_for_kernels_before<Exec>();
    auto const each = static_cast<int>((columns + columns_a_team - 1) / columns_a_team);
    int const which = team.league_rank() / each;
    std::int64_t const first = std::int64_t{team.league_rank() - which * each} * columns_a_team;
    if (out[which] == nullptr) return;
    if constexpr (Machine<Exec>::lanes == 1)
      by_a_core(which, first);
    else
      Columns::join(
          team, parts[which], rows, columns, first, Acc(0), [](Acc a, Acc b) { return a + b; },
          [&](std::int64_t column, Acc sum) { store(which, column, sum); });
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

  KOKKOS_FORCEINLINE_FUNCTION void store(int which, std::int64_t column, Acc value) const {
    RowInputs<Acc>::visit(type[which], [&](auto tag) {
      using T = typename decltype(tag)::type;
      static_cast<T*>(out[which])[column * stride[which]] = static_cast<T>(value);
    });
  }
};

template <class Exec, class Acc>
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
