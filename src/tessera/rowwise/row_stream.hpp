// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_ROW_STREAM_HPP
#define TESSERA_ROWWISE_ROW_STREAM_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/divisor.hpp>
#include <tessera/launch.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

// How long rows, which come through scratch (streamed_rows.hpp), are laid out over teams.
namespace tessera::detail {

/// A long row of a launch: PackedRowPlace where rows are few enough to count in 31 bits, and most often of one matrix.
struct LongRowPlace {
  PackedGrid const& grid;
  int row;

  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return grid.flat ? row * a.row : PackedRowPlace(grid, row).offset(a);
  }
  /// Of several operands, with one question.
  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void offsets(Operand const (&of)[N], std::int64_t (&to)[N]) const {
    if (grid.flat) {
      unroll<N>([&](auto i) { to[i] = row * of[i].row; });
    } else {
      PackedRowPlace const at(grid, row);
      unroll<N>([&](auto i) { to[i] = at.offset(of[i]); });
    }
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value& value(Operand const& a) const {
    return static_cast<Value*>(const_cast<void*>(a.data))[offset(a)];
  }
};

/// Packs that each of so many teams has at most of a row of `packs`: whole lines of 128 bytes.
inline int part_of_team(int packs, int teams) {
  constexpr int line = 8;  // packs
  return (packs + teams * line - 1) / (teams * line) * line;
}

/// How the rows of a launch are laid out over teams.
struct RowStream {
  int teams = 1;               // that share a row
  Divisor by_teams{};          // if they hold it
  int streams = 1;             // such groups of teams: each has every `streams`-th row
  int slots = 1;               // of a team's part of a row
  int ring = 1;                // slots that a team has room for
  int twice = 0;               // slots of a row that are copied twice
  int part = 0;                // packs of a row that a team has
  std::size_t kept_bytes = 0;  // there is room for so many that all rows have in common, of each column
  bool keeps = true;           // a row stays in the ring until its result is written
  bool at_once = false;        // a row's result is written while later ones are read,
  int ahead = 0;               // and of the next but one so many slots before the next one's parts are needed
  void* mail = nullptr;        // by which teams send parts, as of relayed_rows.hpp; ring and ahead are then of rows
};

/// What a streamed kernel does with its rows: one that does not write keeps nothing.
struct StreamUse {
  bool writes = true, may_repeat = true;
  bool is_light = false;                 // little arithmetic
  std::size_t column_bytes[2] = {0, 0};  // of what all rows have in common

  std::size_t all_column_bytes() const { return column_bytes[0] + column_bytes[1]; }
};

/// What a row costs a team beside its slots, in times of a slot, as measured on an H200.
template <class Rows>
double streamed_row_cost(int teams, StreamUse const& use) {
  bool const is_light = use.is_light || sizeof(typename Rows::Element) == 4;
  switch (teams) {
    case 1:
      return 0.26;
    case 2:
      return 0.5;
    case 4:
      return 0.6;
    case 8:
      return is_light ? 0.3 : 0.75;
    default:
      return use.is_light ? 0.4 : 0.65;
  }
}

/// How long a launch takes beside its start and end, in times of a slot that is read and written while all
/// multiprocessors do so. What was measured on an H200: fewer of them have more of the memory's time each; a row costs
/// something more; a slot that is copied twice nearly one more; and parameters that come from L2 a part of what is
/// read.
template <class Rows>
double streamed_cost(PackedGrid const& grid, RowStream const& stream, int multiprocessors, StreamUse const& use) {
  double const twice = 0.8, parameters = 0.09 * sizeof(typename Rows::Element);
  double const read =
      static_cast<double>((use.all_column_bytes() - stream.kept_bytes) * Rows::width) / Rows::operand_bytes;
  auto const rounds = static_cast<double>((grid.rows + stream.streams - 1) / stream.streams);
  return rounds *
         (streamed_row_cost<Rows>(stream.teams, use) + (stream.slots * (1 + parameters * read) + stream.twice * twice) *
                                                           stream.teams * stream.streams / multiprocessors);
}

/// Lays rows out over teams, one or several a row. Of what they have no room for, with two slots on their way,
/// something is copied twice. If there is room beside that they may keep the parameters of their columns. No streams:
/// there is no way.
template <class Rows, class Kernel, class Exec>
RowStream row_stream(Exec const& exec, PackedGrid const& grid, StreamUse const& use, std::size_t& scratch) {
  constexpr int slot_packs = Rows::threads * Rows::batch, on_their_way = 2;
  bool const together = can_launch_together<Rows::threads, 1, Kernel>(exec);
  int const multiprocessors = Machine<Exec>::concurrency(exec);
  RowStream best{.streams = 0};
  double least = HUGE_VAL;
  auto const consider = [&](int teams, std::size_t kept_bytes) {
    RowStream stream;
    stream.teams = teams;
    stream.part = part_of_team(grid.around, teams);
    stream.slots = (stream.part + slot_packs - 1) / slot_packs;
    stream.kept_bytes = kept_bytes;
    stream.keeps = use.writes;
    std::size_t const room = scratch_of_each(exec, 1) - Rows::box_bytes,
                      kept = kept_bytes * Rows::width * slot_packs * stream.slots;
    if (kept + Rows::slot_bytes > room || (teams > 1 && stream.part * (teams - 1) >= grid.around)) return;
    stream.ring = static_cast<int>((room - kept) / Rows::slot_bytes);
    stream.twice = use.writes ? std::clamp(stream.slots + on_their_way - stream.ring, 0, stream.slots) : 0;
    if (stream.twice > 0 && !use.may_repeat) return;
    stream.at_once = use.writes && stream.twice == 0;
    stream.ahead = stream.at_once && stream.ring > stream.slots + on_their_way ? 1 : 0;
    std::size_t const all = Rows::box_bytes + Rows::slot_bytes * static_cast<std::size_t>(stream.ring) + kept;
    stream.streams = groups_at_once<Rows::threads, 1, Kernel>(exec, teams, all);
    if (stream.streams == 0) return;
    double const cost = streamed_cost<Rows>(grid, stream, multiprocessors, use);
    if (cost >= least) return;
    least = cost;
    best = stream;
    scratch = all;
  };
  for (int teams = 1; teams <= (together ? most_teams_together : 1); teams *= 2) {
    consider(teams, 0);
    if (use.all_column_bytes() > 0) consider(teams, use.all_column_bytes());
  }
  best.streams = static_cast<int>(std::min<std::int64_t>(best.streams, grid.rows));
  return best;
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has: not where something would be copied twice that
/// may not, or rows are too many to count.
template <class Rows, class Exec, class Kernel>
bool launch_streamed(char const* label, Exec const& exec, Kernel kernel, StreamUse const& use = {}) {
  if (kernel.grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return false;
  std::size_t scratch = 0;
  kernel.stream = row_stream<Rows, Kernel>(exec, kernel.grid, use, scratch);
  if (kernel.stream.streams == 0) return false;
  char const* const scheme = !kernel.stream.keeps       ? "rows through scratch, once"
                             : kernel.stream.twice == 0 ? "rows in scratch"
                                                        : "rows in scratch, what has no room read twice";
  launch_together<Rows::threads, 1>(KernelLabel{label, scheme}, exec,
                                    std::int64_t{kernel.stream.streams} * kernel.stream.teams, kernel.stream.teams,
                                    scratch, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
