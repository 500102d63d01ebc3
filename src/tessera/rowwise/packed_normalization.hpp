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

/// Weight and bias of the columns that a thread has of ragged rows, in places of its own in scratch: rows of a team
/// that begin at the same place of a pack have the same, which then are packs. Of T, or of fp32 if one of them is.
template <class Row, class Shape, class T>
class OwnParameters {
 public:
  using Atoms = typename Row::Atoms;
  static constexpr int width = Row::width;
  using Values = Pack<float, width>;

  KOKKOS_FORCEINLINE_FUNCTION static bool narrow(Operand const& weight, Operand const& bias) {
    auto const is_own = [](Operand const& a) { return !a.present() || a.type == scalar_of<T>; };
    return is_own(weight) && is_own(bias);
  }
  KOKKOS_FORCEINLINE_FUNCTION static std::size_t bytes(Operand const& weight, Operand const& bias) {
    std::size_t const size = narrow(weight, bias) ? sizeof(Pack<T, width>) : sizeof(Values);
    return size * Shape::packs * Shape::threads * ((weight.present() ? 1 : 0) + (bias.present() ? 1 : 0));
  }

  KOKKOS_FORCEINLINE_FUNCTION OwnParameters() {
    unroll<Shape::singles>([&](auto single) { slopes[single] = 1; });
  }
  KOKKOS_FORCEINLINE_FUNCTION OwnParameters(void* scratch, bool of_t) : OwnParameters() {
    mine = Atoms::settled(static_cast<std::byte*>(scratch));
    is_narrow = of_t;
  }

  /// Those of a row, unless they are there from the row before.
  KOKKOS_FORCEINLINE_FUNCTION void take(Row const& row, Operand const& weight, Operand const& bias) {
    if (before == row.before || !row.inside()) return;
    before = row.before;
    int which = 0;
    auto const take_one = [&](Operand const& from, float(&of_single)[Shape::singles]) {
      if (!from.present()) return;
      unroll<Shape::packs>([&](auto k) {
        Values x{};
        if (row.has(k))
          for (int j = 0; j < width; ++j) x[j] = load_parameter<Atoms, T, 1>(from, row.column(k) + j)[0];
        if (is_narrow)
          this->template place<Pack<T, width>>(which, k) = Atoms::template narrowed<T>(x);
        else
          this->template place<Values>(which, k) = x;
      });
      unroll<Shape::singles>([&](auto single) {
        constexpr Constant<Shape::packs + decltype(single)::value> k{};
        if (row.has(k)) of_single[single] = load_parameter<Atoms, T, 1>(from, row.column(k))[0];
      });
      ++which;
    };
    take_one(weight, slopes);
    take_one(bias, offsets);
  }
  template <class K, int N>
  KOKKOS_FORCEINLINE_FUNCTION void scale(Operand const& weight, Operand const& bias, K k, Pack<float, N>& x) const {
    if constexpr (N == 1 && width > 1) {
      constexpr int single = K::value - Shape::packs;
      x[0] = x[0] * slopes[single] + offsets[single];
    } else {
      if (weight.present()) {
        Values const w = values(0, k);
        for (int j = 0; j < width; ++j) x[j] *= w[j];
      }
      if (bias.present()) {
        Values const b = values(weight.present() ? 1 : 0, k);
        for (int j = 0; j < width; ++j) x[j] += b[j];
      }
    }
  }

 private:
  template <class Stored>
  KOKKOS_FORCEINLINE_FUNCTION Stored& place(int which, int k) const {
    return reinterpret_cast<Stored*>(mine)[(which * Shape::packs + k) * Shape::threads + Atoms::thread()];
  }
  KOKKOS_FORCEINLINE_FUNCTION Values values(int which, int k) const {
    if (!is_narrow) return place<Values>(which, k);
    auto const raw = place<Pack<T, width>>(which, k);
    return Atoms::widened(raw);
  }

  std::byte* mine = nullptr;
  bool is_narrow = true;
  int before = -1;  // of the rows that they are of
  float slopes[Shape::singles] = {}, offsets[Shape::singles] = {};
};
/// Of rows of whole packs, which read them where they are.
struct NoOwnParameters {};

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

  using Parameters = std::conditional_t<Row::ragged, OwnParameters<Row, Shape, T>, NoOwnParameters>;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Parameters parameters;
    if constexpr (Row::ragged) {
      std::size_t const bytes = Parameters::bytes(weight, bias);
      if (bytes > 0)
        parameters = Parameters(team.team_scratch(0).get_shmem_aligned(bytes, 16), Parameters::narrow(weight, bias));
      int turn = 0;
      TESSERA_ROLLED
      for (int step = team.league_rank(); step < steps; step += teams) {
        Row const row(grid, step);
        parameters.take(row, weight, bias);
        work(row, parameters, turn);
        turn ^= 1;
      }
    } else {
      work(Row(grid, team.league_rank()), parameters, 0);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void work(Row const& row, Parameters const& parameters, int turn) const {
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
    one_row(row, parameters, turn, x);
  }

  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void add(Pack<float, N>& x, Pack<T, N> const& added) const {
    Pack<float, N> const y = Row::Atoms::widened(added);
    for (int j = 0; j < N; ++j) x[j] += y[j];
    if (sum.present()) x = Row::Atoms::widened(Row::Atoms::template narrowed<T>(x));
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Parameters const& parameters, int turn, Values& x) const {
    Moments const all = RowMoments<Row, Shape, Tag>{inverse_length, centered}(row, x, turn);
    float const center = inverse_length * all.sum, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (row.lane == 0 && row.inside()) {
      if (mean.present()) row.place.template value<float>(mean) = center;
      if (rstd.present()) row.place.template value<float>(rstd) = factor;
    }

    Row::Outputs::visit(out.type, [&](auto tag) {
      row.template store<typename decltype(tag)::type>(out, [&](auto k) {
        for (int j = 0; j < x[k].size; ++j) x[k][j] = (x[k][j] - center) * factor;
        scale(row, parameters, k, x[k]);
        return x[k];
      });
    });
  }

  template <class K, int N>
  KOKKOS_FORCEINLINE_FUNCTION void scale(Row const& row, Parameters const& parameters, K k, Pack<float, N>& x) const {
    if (!row.has(k)) return;
    if constexpr (Row::ragged)
      parameters.scale(weight, bias, k, x);
    else
      scale_pack<typename Row::Atoms, T, (packs >= 4)>(weight, bias, row.column(k), x);
  }
};

/// Whether they can be looked up column by column: of T or fp32, the same for all rows.
template <class T>
bool are_neighbouring_parameters(RowArray const& a) {
  return !a.present() || ((a.type == scalar_of<T> || a.type == Scalar::fp32) && a.stride[3] == 1 && a.stride[0] == 0 &&
                          a.stride[1] == 0 && a.stride[2] == 0);
}

/// As many of so many teams, each of which has every so many-th step of ragged rows, as let all rows of a team begin at
/// the same place of a pack of `width`; 0 where only more would.
inline int teams_that_begin_alike(PackedGrid const& rows, int teams, int rows_a_team, int width) {
  auto const leap = static_cast<std::uint32_t>(rows_a_team) * rows.phase.row;  // from a step to the next one
  while (static_cast<std::uint32_t>(teams) * leap % static_cast<std::uint32_t>(width) != 0) --teams;
  return teams;
}

/// Starts as many teams as a multiprocessor has room for, with the parameters of each; a few less if all rows of a team
/// then begin at the same place of a pack. Whether it has: not where there is no room for one.
template <class Shape, class Exec, class Kernel>
bool launch_ragged_norm(char const* label, Exec const& exec, Kernel kernel) {
  std::int64_t const steps = (kernel.grid.rows + Shape::rows_a_team - 1) / Shape::rows_a_team;
  check_tiles(label, steps);
  constexpr int wanted = teams_of_registers<Shape>;
  std::size_t const scratch = Kernel::Parameters::bytes(kernel.weight, kernel.bias);
  if (scratch_of_each(exec, 1) < scratch) return false;
  int at_once = wanted;
  while (at_once > 1 && scratch_of_each(exec, at_once) < scratch) --at_once;
  kernel.steps = static_cast<int>(steps);
  kernel.teams =
      static_cast<int>(std::min(steps, static_cast<std::int64_t>(at_once) * Machine<Exec>::concurrency(exec)));
  if (steps > kernel.teams && kernel.teams >= Kernel::width)
    kernel.teams = teams_that_begin_alike(kernel.grid, kernel.teams, Shape::rows_a_team, Kernel::width);
  launch<Shape::threads, wanted>(KernelLabel{label, "unaligned rows in registers of teams that stay"}, exec,
                                 kernel.teams, scratch, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
