// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_NORMALIZATION_HPP
#define TESSERA_ROWWISE_PACKED_NORMALIZATION_HPP

#include <algorithm>

#include <tessera/normalization.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/row_moments.hpp>

namespace tessera::detail {

/// A pack of a parameter of the columns, of T or fp32, from column `at` on.
template <class Atoms, class T, int Width>
KOKKOS_FORCEINLINE_FUNCTION Pack<float, Width> load_parameter(Operand const& from, std::int64_t at) {
  if constexpr (!std::is_same_v<T, float>)
    if (from.type == scalar_of<T>) return Atoms::widened(load_pack<Width>(static_cast<T const*>(from.data) + at));
  return load_pack<Width>(static_cast<float const*>(from.data) + at);
}
/// x = x weight + bias, either of which may be missing. With `Together`, for which it takes registers, both are on
/// their way before one is waited for.
template <class Atoms, class T, bool Together, int Width>
KOKKOS_FORCEINLINE_FUNCTION void scale_pack(Operand const& weight, Operand const& bias, std::int64_t at,
                                            Pack<float, Width>& x) {
  if (Together && weight.present() && bias.present() && weight.type == scalar_of<T> && bias.type == scalar_of<T>) {
    auto const w = load_pack<Width>(static_cast<T const*>(weight.data) + at),
               b = load_pack<Width>(static_cast<T const*>(bias.data) + at);
    Pack<float, Width> const slope = Atoms::widened(w), offset = Atoms::widened(b);
    for (int j = 0; j < Width; ++j) x[j] = x[j] * slope[j] + offset[j];
    return;
  }
  if (weight.present()) {
    Pack<float, Width> const w = load_parameter<Atoms, T, Width>(weight, at);
    for (int j = 0; j < Width; ++j) x[j] *= w[j];
  }
  if (bias.present()) {
    Pack<float, Width> const b = load_parameter<Atoms, T, Width>(bias, at);
    for (int j = 0; j < Width; ++j) x[j] += b[j];
  }
}

/// Weight and bias of all columns of ragged rows in a team's scratch. Columns that are `Width` apart lie side by side:
/// lanes that look up the same element of their packs find neighbours, wherever packs begin.
template <int Width, int Packs>
struct ParameterTable {
  static constexpr int pitch = Packs + 1;
  using Pair = Pack<float, 2>;
  static constexpr std::size_t bytes = sizeof(Pair) * Width * pitch;

  Pair* pairs = nullptr;  // (Width, pitch)

  KOKKOS_FORCEINLINE_FUNCTION Pair& of_column(int column) const {
    return pairs[column % Width * pitch + column / Width];
  }
  /// A pack of x, `before` + Width times `pack` being its first column.
  KOKKOS_FORCEINLINE_FUNCTION void scale(int before, int pack, Pack<float, Width>& x) const {
    Pair const* const first = pairs + before * pitch + pack;
    for (int j = 0; j < Width; ++j) {
      Pair const p = first[before + j < Width ? j * pitch : (j - Width) * pitch + 1];
      x[j] = x[j] * p[0] + p[1];
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void scale(int column, Pack<float, 1>& x) const {
    Pair const p = of_column(column);
    x[0] = x[0] * p[0] + p[1];
  }
};

/// LayerNorm if `centered`, else RMSNorm. With a residual the row is in + residual, rounded where that sum is written.
template <class Exec, class T, class Shape>
struct PackedNorm {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;
  static constexpr int packs = Shape::packs, width = Row::width;
  static constexpr bool starts_early = true;
  struct Tag {};

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon, inverse_length;
  bool centered;
  int steps = 0, teams = 0;  // ragged rows: each team stays, for every `teams`-th of so many steps

  using Table = ParameterTable<width, Shape::lanes * packs>;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    if constexpr (Row::ragged) {
      Table const table = parameters(team);
      int turn = 0;
      TESSERA_ROLLED
      for (int step = team.league_rank(); step < steps; step += teams) {
        work(Row(grid, step), table, turn);
        turn ^= 1;
      }
    } else {
      work(Row(grid, team.league_rank()), Table{}, 0);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION Table parameters(TeamMember<Exec> const& team) const {
    if (!weight.present() && !bias.present()) return {};
    Table const table{
        static_cast<typename Table::Pair*>(team.team_scratch(0).get_shmem_aligned(std::size_t{Table::bytes}, 16))};
    TESSERA_ROLLED
    for (int i = Row::Atoms::thread(); i < grid.columns; i += Shape::threads) {
      float const slope = weight.present() ? load_parameter<typename Row::Atoms, T, 1>(weight, i)[0] : 1.0f,
                  offset = bias.present() ? load_parameter<typename Row::Atoms, T, 1>(bias, i)[0] : 0.0f;
      table.of_column(i) = {{slope, offset}};
    }
    team.team_barrier();
    return table;
  }

  KOKKOS_FORCEINLINE_FUNCTION void work(Row const& row, Table const& table, int turn) const {
    Raw raw;
    Values x;
    row.load(in, raw, T(0.0f));
    if (residual.present()) {
      Raw added;
      row.load(residual, added, T(0.0f));
      unroll<Row::parts>([&](auto k) {
        x[k] = Row::Atoms::widened(raw[k]);
        add(x[k], added[k]);
      });
      if (sum.present()) row.template store<T>(sum, [&](auto k) { return x[k]; });
    } else {
      unroll<Row::parts>([&](auto k) { x[k] = Row::Atoms::widened(raw[k]); });
    }
    one_row(row, table, turn, x);
  }

  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void add(Pack<float, N>& x, Pack<T, N> const& added) const {
    Pack<float, N> const y = Row::Atoms::widened(added);
    for (int j = 0; j < N; ++j) x[j] += y[j];
    if (sum.present()) x = Row::Atoms::widened(Row::Atoms::template narrowed<T>(x));
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Table const& table, int turn, Values& x) const {
    Moments const all = RowMoments<Row, Shape, Tag>{inverse_length, centered}(row, x, turn);
    float const center = inverse_length * all.sum, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (row.lane == 0 && row.inside()) {
      if (mean.present()) row.place.template value<float>(mean) = center;
      if (rstd.present()) row.place.template value<float>(rstd) = factor;
    }

    Row::Outputs::visit(out.type, [&](auto tag) {
      row.template store<typename decltype(tag)::type>(out, [&](auto k) {
        for (int j = 0; j < x[k].size; ++j) x[k][j] = (x[k][j] - center) * factor;
        scale(row, table, k, x[k]);
        return x[k];
      });
    });
  }

  template <class K, int N>
  KOKKOS_FORCEINLINE_FUNCTION void scale(Row const& row, Table const& table, K k, Pack<float, N>& x) const {
    if (!row.has(k)) return;
    if constexpr (!Row::ragged) {
      scale_pack<typename Row::Atoms, T, (packs >= 4)>(weight, bias, row.column(k), x);
    } else if (table.pairs != nullptr) {
      if constexpr (N == 1)
        table.scale(row.column(k), x);
      else
        table.scale(row.before, K::value * Row::lanes + row.lane, x);
    }
  }
};

/// Whether they can be looked up column by column: of T or fp32, the same for all rows.
template <class T>
bool are_neighbouring_parameters(RowArray const& a) {
  return !a.present() || ((a.type == scalar_of<T> || a.type == Scalar::fp32) && a.stride[3] == 1 && a.stride[0] == 0 &&
                          a.stride[1] == 0 && a.stride[2] == 0);
}

/// As many teams as a multiprocessor has room for, with the parameters of each.
template <class Shape, class Exec, class Kernel>
void launch_ragged_norm(char const* label, Exec const& exec, Kernel kernel) {
  std::int64_t const steps = (kernel.grid.rows + Shape::rows_a_team - 1) / Shape::rows_a_team;
  check_tiles(label, steps);
  constexpr int wanted = teams_of_registers<Shape>;
  std::size_t const scratch = kernel.weight.present() || kernel.bias.present() ? Kernel::Table::bytes : 0;
  int at_once = wanted;
  while (at_once > 1 && scratch_of_each(exec, at_once) < scratch) --at_once;
  kernel.steps = static_cast<int>(steps);
  kernel.teams =
      static_cast<int>(std::min(steps, static_cast<std::int64_t>(at_once) * Machine<Exec>::concurrency(exec)));
  launch<Shape::threads, wanted>(KernelLabel{label, "unaligned rows in registers of teams that stay"}, exec,
                                 kernel.teams, scratch, kernel);
}

}  // namespace tessera::detail

#endif
