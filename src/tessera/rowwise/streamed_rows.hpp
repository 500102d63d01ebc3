// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STREAMED_ROWS_HPP
#define TESSERA_ROWWISE_STREAMED_ROWS_HPP

#include <algorithm>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

// Long packed rows. Teams stay for the whole launch; one of them, or several that run at the same time and send each
// other what they have found, take one row after the other. Rows come through a ring of slots in scratch, in which each
// thread has a place for its own packs. A slot is read when it has arrived, for the row's sums, and again, when these
// are known, for the result; then it is free for what comes next, most often a part of a later row. So the memory has
// reads to do all the time. Of a row that the ring has no room for, the first slots are copied a second time. The first
// and the last pack of a ragged row are filled up when they are read: a load of their elements alone would wait behind
// all that has been asked for before. Beside the ring there may be room for what all rows have in common.
namespace tessera::detail {

inline constexpr int streamed_threads = 256;

/// How the rows of a launch are laid out over teams.
struct RowStream {
  int teams = 1;               // that share a row
  int streams = 1;             // such groups of teams: each has every `streams`-th row
  int slots = 1;               // of a team's part of a row
  int ring = 1;                // slots that a team has room for
  int twice = 0;               // slots of a row that are copied twice
  int part = 0;                // packs of a row that a team has
  bool keeps_columns = false;  // there is room for what the columns of a team's part have in common
};

/// One thread's part in such a team, for `Operands` operands that are read.
template <class Exec, class T, int Operands, bool Ragged = false>
class StreamedRows {
 public:
  static constexpr bool ragged = Ragged;
  static constexpr int threads = streamed_threads, width = packed_width<T>, batch = 4 / Operands, warps = threads / 32;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Slot = Raw[Operands][batch];
  static constexpr std::size_t slot_bytes = sizeof(Slot) * threads;

  template <class Tag>
  KOKKOS_FORCEINLINE_FUNCTION static void begin(RowStream const& stream) {
    Atoms::template begin_sharing_among_teams<Tag>(stream.teams);
  }

  /// Begins to copy. `rest` is what lies beyond a row.
  KOKKOS_FORCEINLINE_FUNCTION StreamedRows(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                           Operand const (&operands)[Operands], T const (&beyond)[Operands])
      : grid(all), stream(layout) {
    int const group = team.league_rank() / stream.teams,
              first = (team.league_rank() - group * stream.teams) * stream.part;
    int const left = grid.around - first;
    begins_row = first == 0;
    own = first + Atoms::thread();
    packs = (left < stream.part ? left : stream.part) - Atoms::thread();
    room = static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(slot_bytes * stream.ring, 16)) + Atoms::thread();
    unroll<Operands>([&](auto which) {
      from[which] = operands[which];
      rest[which] = beyond[which];
    });
    row = copied_row = group;
    if constexpr (ragged) shift = place().shift(grid.phase, width);
    find_copied();
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring; ++i) copy_next(slot(i));
  }

  KOKKOS_FORCEINLINE_FUNCTION bool there_is_a_row() const { return row < grid.rows; }
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace place() const { return PackedRowPlace(grid, row); }
  /// Whether there is the row that comes `later` rows after this one, and its place.
  KOKKOS_FORCEINLINE_FUNCTION bool is_row(int later) const { return row + later * stream.streams < grid.rows; }
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace place(int later) const {
    return PackedRowPlace(grid, row + later * stream.streams);
  }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return begins_row && Atoms::thread() == 0; }
  /// Whether a column is one of this thread's.
  KOKKOS_FORCEINLINE_FUNCTION bool has_column(std::int64_t column) const {
    int const pack = (static_cast<int>(column) + shift) / width - own;
    return pack >= 0 && pack < packs && pack % threads == 0;
  }
  /// The column of this thread's first pack, and its element in an operand; of a ragged row it may lie before the row.
  KOKKOS_FORCEINLINE_FUNCTION int column() const { return own * width - shift; }
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + place().offset(a) + column();
  }

  /// Whether element j of the pack that begins `first` elements behind this thread's first one is in the row.
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(int first, int j) const {
    return !ragged || is_in_row(column() + first + j);
  }
  /// Stores what is in the row of that pack, `to` being the first one's place.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* to, int first, Pack<To, width> const& x) const {
    if (!ragged || is_whole(column() + first))
      store_pack<width>(to + first, x);
    else
      unroll<width>([&](auto j) {
        if (has_element(first, j)) to[first + j] = x[j];
      });
  }

  /// Where this thread's first column of something with `size` bytes a column is kept, behind what has `before` bytes.
  KOKKOS_FORCEINLINE_FUNCTION std::byte* columns_room(std::size_t before, std::size_t size) const {
    auto* const behind_ring = reinterpret_cast<std::byte*>(slot(stream.ring) - Atoms::thread());
    auto const columns = static_cast<std::size_t>(stream.slots * batch * threads * width);
    return behind_ring + before * columns + size * static_cast<std::size_t>(Atoms::thread() * width);
  }
  /// f(elements behind this thread's first one) for each of its packs.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_pack(F const& f) const {
    TESSERA_ROLLED
    for (int at = 0; at < packs; at += threads) f(at * width);
  }

  /// take(raw, first, has) for every slot of the row: pack k begins `first(k)` elements behind this thread's first one,
  /// if has(k), and is filled up with what lies beyond a row. Unless it `keeps` them slots are free then.
  template <class Take>
  KOKKOS_FORCEINLINE_FUNCTION void arriving(bool keeps, Take const& take) {
    int at = begins;
    TESSERA_ROLLED
    for (int i = 0; i < stream.slots; ++i) {
      bool const frees = !keeps || i < stream.twice;
      Atoms::wait_for_copies(stream.ring - 1 - (frees ? 0 : i - stream.twice));
      Raw* const from_slot = slot(at);
      Slot raw;
      auto const has = [&](int k) { return (i * batch + k) * threads < packs; };
      unroll<batch>([&](auto k) {
        unroll<Operands>([&](auto which) {
          raw[which][k] = from_slot[(which * batch + k) * threads];
          fill_up(raw[which][k], column() + (i * batch + k) * (threads * width), rest[which]);
        });
      });
      take(
          raw, [&](int k) { return (i * batch + k) * (threads * width); }, has);
      if (frees) copy_next(from_slot);
      at = after(at);
    }
    if (!keeps) begins = at;
  }

  /// write(raw, first, has) for every slot of the row, in some order.
  template <class Write>
  KOKKOS_FORCEINLINE_FUNCTION void again(Write const& write) {
    int at = begins + stream.twice;
    while (at >= stream.ring) at -= stream.ring;
    TESSERA_ROLLED
    for (int i = 0; i < stream.slots; ++i) {
      int const which_slot = i + stream.twice < stream.slots ? i + stream.twice : i + stream.twice - stream.slots;
      if (stream.twice > 0) Atoms::wait_for_copies(stream.ring - 1);
      Raw* const from_slot = slot(at);
      Slot raw;
      unroll<batch>([&](auto k) {
        unroll<Operands>([&](auto which) { raw[which][k] = from_slot[(which * batch + k) * threads]; });
      });
      write(
          raw, [&](int k) { return (which_slot * batch + k) * (threads * width); },
          [&](int k) { return (which_slot * batch + k) * threads < packs; });
      copy_next(from_slot);
      at = after(at);
    }
    begins = at;
  }
  KOKKOS_FORCEINLINE_FUNCTION void go_on() {
    row += stream.streams;
    ++rows_before;
    if constexpr (ragged) shift = place().shift(grid.phase, width);
  }

  /// merge(x, join), where join(y, f) is f over the y of all that merge, for the lanes of a warp, then the warps of the
  /// team, then the teams of the row. X{} has no weight.
  template <class Tag, class X, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION X merged(X x, Merge const& merge) const {
    x = merge(x, [](auto y, auto const& f) { return Atoms::template join<32>(y, f); });
    x = merge(Atoms::template share_in_turn<Tag, warps>(x, rows_before & 1),
              [](auto y, auto const& f) { return Atoms::template join<warps>(y, f); });
    if (stream.teams == 1) return x;
    x = Atoms::template share_among_teams_in_turn<Tag>(x, stream.teams, rows_before);
    if (Atoms::thread() % most_teams_together >= stream.teams) x = X{};
    return merge(x, [](auto y, auto const& f) { return Atoms::template join<most_teams_together>(y, f); });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Raw* slot(int at) const { return room + at * (Operands * batch * threads); }
  KOKKOS_FORCEINLINE_FUNCTION int after(int at) const { return at + 1 == stream.ring ? 0 : at + 1; }
  KOKKOS_FORCEINLINE_FUNCTION void find_copied() {
    if (copied_row >= grid.rows) return;
    PackedRowPlace const place(grid, copied_row);
    if constexpr (ragged) copied_shift = place.shift(grid.phase, width);
    unroll<Operands>([&](auto which) {
      copied[which] =
          static_cast<T const*>(from[which].data) + place.offset(from[which]) + (own * width - copied_shift);
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION bool is_in_row(int column) const { return column >= 0 && column < grid.columns; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_whole(int column) const { return column >= 0 && column + width <= grid.columns; }
  /// What of a pack is not in the row becomes `beyond`.
  KOKKOS_FORCEINLINE_FUNCTION void fill_up(Raw& x, int column, T beyond) const {
    if (!ragged || is_whole(column)) return;
    unroll<width>([&](auto j) {
      if (!is_in_row(column + j)) x[j] = beyond;
    });
  }
  /// Nothing is read behind the row: it may be the last one. The elements before it lie in the same 16 bytes.
  KOKKOS_FORCEINLINE_FUNCTION void copy_part(Raw* to, T const* pack, int column) const {
    int const left = grid.columns - column;
    if (left > 0) Atoms::copy_ahead_part(to, pack, left < width ? left : width);
  }
  /// Begins to copy the slot that comes next, if there is one.
  KOKKOS_FORCEINLINE_FUNCTION void copy_next(Raw* to) {
    if (copied_row < grid.rows) {
      int const at = copied_slot < stream.slots ? copied_slot : copied_slot - stream.slots;
      unroll<batch>([&](auto k) {
        int const pack = (at * batch + k) * threads;
        int const column = (own + pack) * width - copied_shift;
        if (ragged && pack < packs && !is_whole(column))
          unroll<Operands>(
              [&](auto which) { copy_part(to + (which * batch + k) * threads, copied[which] + pack * width, column); });
        else if (pack < packs)
          unroll<Operands>(
              [&](auto which) { Atoms::copy_ahead(to + (which * batch + k) * threads, copied[which] + pack * width); });
        else
          unroll<Operands>([&](auto which) {
            Raw beyond;
            for (int j = 0; j < width; ++j) beyond[j] = rest[which];
            to[(which * batch + k) * threads] = beyond;
          });
      });
      if (++copied_slot == stream.slots + stream.twice) {
        copied_slot = 0;
        copied_row += stream.streams;
        find_copied();
      }
    }
    Atoms::end_copies();
  }

  PackedGrid const& grid;
  RowStream const& stream;
  Operand from[Operands];
  T rest[Operands];
  T const* copied[Operands];  // this thread's first packs of the row that is copied
  Raw* room;                  // (ring, Operands, batch, threads), this thread's place in it
  std::int64_t row, copied_row;
  int copied_slot = 0, begins = 0, rows_before = 0;
  int shift = 0, copied_shift = 0;  // elements of the first pack before the row, and before that which is copied
  int own, packs;                   // this thread's first pack of a row; packs of the team's part from there on
  bool begins_row;
};

/// Lays rows out over teams: as few teams a row as hold it with something on its way beside it, two of them on a
/// multiprocessor or one, more where rows are few. What the largest group has no room for is copied twice. If two teams
/// have room for it beside that, they keep `column_bytes` of each column of their part.
template <class Rows, class Kernel, class Exec>
RowStream row_stream(Exec const& exec, PackedGrid const& grid, bool keeps, std::size_t column_bytes, int& at_once,
                     std::size_t& scratch) {
  constexpr int line = 8;  // packs
  constexpr int slot_packs = Rows::threads * Rows::batch;
  bool const together = can_launch_together<Rows::threads, 2, Kernel>(exec);
  RowStream stream;
  auto const lay = [&](int teams, int beside, bool keeps_columns = false) {
    stream.teams = teams;
    stream.part = (grid.around + teams * line - 1) / (teams * line) * line;
    stream.slots = (stream.part + slot_packs - 1) / slot_packs;
    stream.keeps_columns = keeps_columns;
    at_once = beside;
    std::size_t const room = scratch_of_each(exec, beside),
                      kept = keeps_columns ? column_bytes * Rows::width * slot_packs * stream.slots : 0;
    stream.ring = kept < room ? static_cast<int>((room - kept) / Rows::slot_bytes) : 0;
    scratch = Rows::slot_bytes * static_cast<std::size_t>(stream.ring) + kept;
    stream.streams = 0;
    if (keeps_columns && stream.slots + 2 > stream.ring) return false;
    if (together || teams == 1) stream.streams = groups_at_once<Rows::threads, 2, Kernel>(exec, teams, scratch);
    if (teams == 1) stream.streams = beside * Machine<Exec>::concurrency(exec);
    return stream.streams > 0 && (!keeps || stream.slots + 2 <= stream.ring);
  };
  bool fits = false;
  if (column_bytes > 0)
    fits = lay(1, 2, true) || lay(2, 2, true) || lay(4, 2, true) || lay(8, 2, true) || lay(16, 2, true);
  if (!fits) fits = lay(1, 2) || lay(2, 2) || lay(4, 2) || lay(8, 2) || lay(16, 2) || lay(8, 1) || lay(16, 1);
  if (!fits && !lay(16, 1) && stream.streams == 0 && !lay(8, 1) && stream.streams == 0) lay(1, 1);
  while (together && stream.teams < 8 && grid.rows * stream.teams * 2 <= at_once * Machine<Exec>::concurrency(exec))
    lay(stream.teams * 2, at_once, stream.keeps_columns);
  stream.twice = keeps ? std::clamp(stream.slots + 2 - stream.ring, 0, stream.slots) : 0;
  stream.streams = static_cast<int>(std::min<std::int64_t>(stream.streams, grid.rows));
  return stream;
}

/// What a streamed kernel does with its rows: one that does not write keeps nothing.
struct StreamUse {
  bool writes = true, may_repeat = true;
  std::size_t column_bytes = 0;  // that all rows have in common
};

/// Starts a kernel with the members `grid` and `stream`. Whether it has: not where something would be copied twice that
/// may not.
template <class Rows, class Exec, class Kernel>
bool launch_streamed(char const* label, Exec const& exec, Kernel kernel, StreamUse const& use = {}) {
  int at_once = 2;
  std::size_t scratch = 0;
  kernel.stream = row_stream<Rows, Kernel>(exec, kernel.grid, use.writes, use.column_bytes, at_once, scratch);
  if (kernel.stream.twice > 0 && !use.may_repeat) return false;
  launch_together<Rows::threads, 2>(label, exec, std::int64_t{kernel.stream.streams} * kernel.stream.teams,
                                    kernel.stream.teams, scratch, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
