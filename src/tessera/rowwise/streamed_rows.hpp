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
// reads to do all the time. Of a row that the ring has no room for, the first slots are copied a second time.
namespace tessera::detail {

inline constexpr int streamed_threads = 256;

/// How the rows of a launch are laid out over teams.
struct RowStream {
  int teams = 1;    // that share a row
  int streams = 1;  // such groups of teams: each has every `streams`-th row
  int slots = 1;    // of a team's part of a row
  int ring = 1;     // slots that a team has room for
  int twice = 0;    // slots of a row that are copied twice
  int part = 0;     // packs of a row that a team has
};

/// One thread's part in such a team, for `Operands` operands that are read.
template <class Exec, class T, int Operands>
class StreamedRows {
 public:
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
    int const left = grid.packs - first;
    begins_row = first == 0;
    own = first + Atoms::thread();
    packs = (left < stream.part ? left : stream.part) - Atoms::thread();
    room = static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(slot_bytes * stream.ring, 16)) + Atoms::thread();
    unroll<Operands>([&](auto which) {
      from[which] = operands[which];
      rest[which] = beyond[which];
    });
    row = copied_row = group;
    find_copied();
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring; ++i) copy_next(slot(i));
  }

  KOKKOS_FORCEINLINE_FUNCTION bool there_is_a_row() const { return row < grid.rows; }
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace place() const { return PackedRowPlace(grid, row); }
  KOKKOS_FORCEINLINE_FUNCTION bool there_is_a_next() const { return row + stream.streams < grid.rows; }
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace next_place() const { return PackedRowPlace(grid, row + stream.streams); }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return begins_row && Atoms::thread() == 0; }
  /// Whether a column is one of this thread's.
  KOKKOS_FORCEINLINE_FUNCTION bool has_column(std::int64_t column) const {
    int const pack = static_cast<int>(column) / width - own;
    return pack >= 0 && pack < packs && pack % threads == 0;
  }
  /// The column of this thread's first pack, and its element in an operand.
  KOKKOS_FORCEINLINE_FUNCTION int column() const { return own * width; }
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + place().offset(a) + column();
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
        unroll<Operands>([&](auto which) { raw[which][k] = from_slot[(which * batch + k) * threads]; });
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
    unroll<Operands>([&](auto which) {
      copied[which] = static_cast<T const*>(from[which].data) + place.offset(from[which]) + column();
    });
  }
  /// Begins to copy the slot that comes next, if there is one.
  KOKKOS_FORCEINLINE_FUNCTION void copy_next(Raw* to) {
    if (copied_row < grid.rows) {
      int const at = copied_slot < stream.slots ? copied_slot : copied_slot - stream.slots;
      unroll<batch>([&](auto k) {
        int const pack = (at * batch + k) * threads;
        if (pack < packs)
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
  int own, packs;  // this thread's first pack of a row; packs of the team's part from there on
  bool begins_row;
};

/// Lays rows out over teams: as few teams a row as hold it with something on its way beside it, two of them on a
/// multiprocessor or one, more where rows are few. What the largest group has no room for is copied twice.
template <class Rows, class Kernel, class Exec>
RowStream row_stream(Exec const& exec, PackedGrid const& grid, bool keeps, int& at_once) {
  constexpr int line = 8;  // packs
  constexpr int slot_packs = Rows::threads * Rows::batch;
  bool const together = can_launch_together<Rows::threads, 2, Kernel>(exec);
  int const room[3] = {0, static_cast<int>(scratch_of_each(exec, 1) / Rows::slot_bytes),
                       static_cast<int>(scratch_of_each(exec, 2) / Rows::slot_bytes)};
  RowStream stream;
  auto const lay = [&](int teams, int beside) {
    stream.teams = teams;
    stream.part = (grid.packs + teams * line - 1) / (teams * line) * line;
    stream.slots = (stream.part + slot_packs - 1) / slot_packs;
    at_once = beside;
    stream.ring = room[beside];
    std::size_t const bytes = Rows::slot_bytes * static_cast<std::size_t>(stream.ring);
    stream.streams = together || teams == 1 ? groups_at_once<Rows::threads, 2, Kernel>(exec, teams, bytes) : 0;
    if (teams == 1) stream.streams = beside * Machine<Exec>::concurrency(exec);
    return stream.streams > 0 && (!keeps || stream.slots + 2 <= stream.ring);
  };
  bool const fits = lay(1, 2) || lay(2, 2) || lay(4, 2) || lay(8, 2) || lay(16, 2) || lay(8, 1) || lay(16, 1);
  if (!fits && !lay(16, 1) && stream.streams == 0 && !lay(8, 1) && stream.streams == 0) lay(1, 1);
  while (together && stream.teams < 8 && grid.rows * stream.teams * 2 <= at_once * Machine<Exec>::concurrency(exec))
    lay(stream.teams * 2, at_once);
  stream.twice = keeps ? std::clamp(stream.slots + 2 - stream.ring, 0, stream.slots) : 0;
  stream.streams = static_cast<int>(std::min<std::int64_t>(stream.streams, grid.rows));
  return stream;
}

/// Starts a kernel with the members `grid` and `stream`; one that does not write keeps nothing. Whether it has: not
/// where something would be copied twice that may not.
template <class Rows, class Exec, class Kernel>
bool launch_streamed(char const* label, Exec const& exec, Kernel kernel, bool writes = true, bool may_repeat = true) {
  int at_once = 2;
  kernel.stream = row_stream<Rows, Kernel>(exec, kernel.grid, writes, at_once);
  if (kernel.stream.twice > 0 && !may_repeat) return false;
  launch_together<Rows::threads, 2>(label, exec, std::int64_t{kernel.stream.streams} * kernel.stream.teams,
                                    kernel.stream.teams, Rows::slot_bytes * kernel.stream.ring, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
