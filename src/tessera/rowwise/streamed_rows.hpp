// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STREAMED_ROWS_HPP
#define TESSERA_ROWWISE_STREAMED_ROWS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

// Long packed rows. Teams stay for the whole launch; one of them, or several that run at the same time and send each
// other what they have found, take one row after the other. Rows come through a ring of slots in scratch, in which each
// thread has a place for its own packs. A slot is read when it has arrived, for the row's sums, and again, when these
// are known, for the result; then it is free for what comes next, most often a part of a later row. So the memory has
// reads to do all the time. Of a row that the ring has no room for, the first slots are copied a second time. Beside
// the ring there may be room for what all rows have in common.
//
// A thread's packs of a slot are worked on together, most often without a question about each of them: what is missing
// of the last slot, and of the first and the last pack of a ragged row, is filled up in scratch when it has arrived. A
// load of single elements would wait behind all that has been asked for before.
namespace tessera::detail {

/// Two such teams on a multiprocessor are 32 warps of 64 registers a thread, which hold two packs: 16 warps with twice
/// as many are too few to hide what each of them waits for.
inline constexpr int streamed_threads = 512, streamed_packs = 2, streamed_teams_at_once = 2;

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

/// A row of a launch: PackedRowPlace where rows are few enough to count in 31 bits, and most often of one matrix.
struct StreamedPlace {
  PackedGrid const& grid;
  int row;

  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return grid.flat ? row * a.row : PackedRowPlace(grid, row).offset(a);
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value& value(Operand const& a) const {
    return static_cast<Value*>(const_cast<void*>(a.data))[offset(a)];
  }
};

/// One thread's part in such a team, for `Operands` operands that are read.
template <class Exec, class T, int Operands, bool Ragged = false>
class StreamedRows {
 public:
  static constexpr bool ragged = Ragged;
  static constexpr int threads = streamed_threads, width = packed_width<T>, batch = streamed_packs / Operands,
                       warps = threads / 32;
  static constexpr int step = threads * width;  // elements from a thread's pack to its next one
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  static constexpr std::size_t operand_bytes = sizeof(Raw) * Operands, slot_bytes = operand_bytes * batch * threads;

  /// A thread's packs of a slot: pack k begins `first` + k * step elements behind the thread's first one of the row, if
  /// it has(k). Of `Full` ones, which ragged rows tell apart, all are there, and whole but for what lies before the
  /// row.
  template <bool Full>
  struct Packs {
    Raw raw[Operands][batch];
    Raw* place;       // in scratch
    int first, left;  // packs of the team from the thread's first one on

    template <class K>
    KOKKOS_FORCEINLINE_FUNCTION bool has(K k) const {
      return Full || k * threads < left;
    }
    KOKKOS_FORCEINLINE_FUNCTION int count() const {
      int all = 0;
      unroll<batch>([&](auto k) { all += has(k) ? 1 : 0; });
      return all;
    }
  };

  template <class Tag>
  KOKKOS_FORCEINLINE_FUNCTION static void begin(RowStream const& stream) {
    Atoms::template begin_sharing_among_teams<Tag>(stream.teams);
  }

  /// Begins to copy. `beyond` is what lies beyond a row.
  KOKKOS_FORCEINLINE_FUNCTION StreamedRows(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                           Operand const (&operands)[Operands], T const (&beyond)[Operands])
      : grid(all), stream(layout) {
    int const group = team.league_rank() / stream.teams,
              first = (team.league_rank() - group * stream.teams) * stream.part;
    int const left = grid.around - first;
    begins_row = first == 0;
    own = first + Atoms::thread();
    packs = left < stream.part ? left : stream.part;
    room = static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(slot_bytes * stream.ring, 16)) + Atoms::thread();
    unroll<Operands>([&](auto which) {
      from[which] = operands[which];
      rest[which] = beyond[which];
    });
    row = copied_row = group;
    find_row();
    copied_column = column;
    copied_full = full;
    find_copied();
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring; ++i) copy_next(slot(i));
  }

  KOKKOS_FORCEINLINE_FUNCTION StreamedPlace place() const { return {grid, row}; }
  /// Whether there is the row that comes `later` rows after this one, and its place.
  KOKKOS_FORCEINLINE_FUNCTION bool is_row(int later) const { return row + later * stream.streams < rows(); }
  KOKKOS_FORCEINLINE_FUNCTION StreamedPlace place(int later) const { return {grid, row + later * stream.streams}; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return begins_row && Atoms::thread() == 0; }
  /// The column of this thread's first pack; of a ragged row it may begin before the row.
  KOKKOS_FORCEINLINE_FUNCTION int first_column() const { return column; }
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + place().offset(a) + column;
  }
  /// Whether element j of pack k is in the row.
  template <bool Full>
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(Packs<Full> const& x, int k, int j) const {
    if (!ragged || (Full && k > 0)) return x.has(k);
    return x.has(k) && is_in_row(column + x.first + k * step + j);
  }
  /// Stores pack k, `to` being the place of this thread's first one: what is in the row of it, with store_ends().
  template <bool Full, class To>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* to, Packs<Full> const& at, int k, Pack<To, width> const& x) const {
    if (!at.has(k)) return;
    to += at.first + k * step;
    if constexpr (!ragged) {
      store_pack<width>(to, x);
    } else {
      static_assert(sizeof(To) == sizeof(T));
      if ((Full && k > 0) || is_whole(column + at.first + k * step))
        Atoms::store_at_once(to, x);
      else
        store_pack<width>(reinterpret_cast<To*>(at.place + k * threads), x);
    }
  }
  /// What is in the row of packs that are not whole, which store() has left in scratch.
  template <bool Full, class To>
  KOKKOS_FORCEINLINE_FUNCTION void store_ends(To* to, Packs<Full> const& at) const {
    if constexpr (ragged) {
      int first = column + at.first;
      if (Full && first >= 0) return;
      TESSERA_ROLLED
      for (int k = 0; k < (Full ? 1 : batch); ++k, first += step) {
        if (!at.has(k) || is_whole(first)) continue;
        auto const* const elements = reinterpret_cast<To const*>(at.place + k * threads);
        TESSERA_ROLLED
        for (int j = 0; j < width; ++j)
          if (is_in_row(first + j)) to[at.first + k * step + j] = elements[j];
      }
    }
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
    for (int at = 0; at < packs_from_here(); at += threads) f(at * width);
  }

  /// For every row of the team: read() gives what is found of a thread's part of it, and write(all) is called with
  /// what all have found. merge(x, join, elements), where join(y, f) is f over the y of all that merge and `elements`
  /// how many those have (of rows that are whole packs), is called for the lanes of a warp, then for the warps of the
  /// team, then for the teams of the row; an X{} has no weight.
  template <class Tag, class Read, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Read const& read, Merge const& merge, Write const& write) {
    TESSERA_ROLLED
    for (int i = 0; row < rows(); ++i) {
      auto x = merge(
          read(), [](auto y, auto const& f) { return Atoms::template join<32>(y, f); }, elements_of_warp());
      x = merge(
          Atoms::template share_in_turn<Tag, warps>(x, i & 1),
          [](auto y, auto const& f) { return Atoms::template join<warps>(y, f); }, width * packs);
      if (stream.teams > 1) {
        x = Atoms::template share_among_teams_in_turn<Tag>(x, stream.teams, i);
        if (Atoms::thread() % most_teams_together >= stream.teams) x = decltype(x){};
        x = merge(
            x, [](auto y, auto const& f) { return Atoms::template join<most_teams_together>(y, f); }, grid.columns);
      }
      write(x);
      row += stream.streams;
      if constexpr (ragged) find_row();
    }
  }

  /// For read(): take(packs) for every slot that this thread has something of, filled up with what lies beyond a row.
  /// Unless it `keeps` them slots are free then.
  template <class Take>
  KOKKOS_FORCEINLINE_FUNCTION void arriving(bool keeps, Take const& take) {
    int at = begins;
    TESSERA_ROLLED
    for (int i = 0; i < stream.slots; ++i) {
      bool const frees = !keeps || i < stream.twice;
      Atoms::wait_for_copies(stream.ring - 1 - (frees ? 0 : i - stream.twice));
      with_packs<true>(slot(at), i, take);
      if (frees) copy_next(slot(at));
      at = after(at);
    }
    if (!keeps) begins = at;
  }

  /// For write(), if arriving() has kept them: put(packs) for the slots of the row, in some order.
  template <class Put>
  KOKKOS_FORCEINLINE_FUNCTION void again(Put const& put) {
    begins += stream.twice;
    while (begins >= stream.ring) begins -= stream.ring;
    TESSERA_ROLLED
    for (int i = 0; i < stream.slots; ++i) {
      int const which = i + stream.twice < stream.slots ? i + stream.twice : i + stream.twice - stream.slots;
      if (stream.twice > 0) Atoms::wait_for_copies(stream.ring - 1);
      with_packs<false>(slot(begins), which, put);
      copy_next(slot(begins));
      begins = after(begins);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION int rows() const { return static_cast<int>(grid.rows); }
  KOKKOS_FORCEINLINE_FUNCTION Raw* slot(int at) const { return room + at * (Operands * batch * threads); }
  KOKKOS_FORCEINLINE_FUNCTION int after(int at) const { return at + 1 == stream.ring ? 0 : at + 1; }
  KOKKOS_FORCEINLINE_FUNCTION int packs_from_here() const { return packs - Atoms::thread(); }
  /// Of rows that are whole packs.
  KOKKOS_FORCEINLINE_FUNCTION int elements_of_warp() const {
    int const left = packs % threads - Atoms::thread() / 32 * 32;
    return width * (packs / threads * 32 + (left < 0 ? 0 : left < 32 ? left : 32));
  }
  KOKKOS_FORCEINLINE_FUNCTION int column_of(int which) const {
    if constexpr (ragged) return own * width - PackedRowPlace(grid, which).shift(grid.phase, width);
    return own * width;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool is_in_row(int at) const { return at >= 0 && at < grid.columns; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_whole(int at) const { return at >= 0 && at + width <= grid.columns; }
  /// How many packs there are in a slot, and behind it, of a row whose first one begins at column `first`, from this
  /// thread's on.
  KOKKOS_FORCEINLINE_FUNCTION int left_in(int which, int first) const {
    int left = packs_from_here();
    if constexpr (ragged) {
      int const in_row = (grid.columns - first + width - 1) / width;
      left = left < in_row ? left : in_row;
    }
    return left - which * (batch * threads);
  }
  /// How many slots of a ragged row are full: the thread has all packs of them, and the last does not end behind the
  /// row. Others have one text for every slot, which takes less room among the instructions at hand.
  KOKKOS_FORCEINLINE_FUNCTION int full_slots(int first) const {
    if (!ragged) return 0;
    int whole = packs_from_here();
    int const in_row = (grid.columns - first) / width;
    whole = whole < in_row ? whole : in_row;
    int const beyond_first = whole - (batch - 1) * threads;  // packs after which one more makes a slot full
    return beyond_first <= 0 ? 0 : (beyond_first + batch * threads - 1) / (batch * threads);
  }
  KOKKOS_FORCEINLINE_FUNCTION void find_row() {
    column = column_of(row);
    full = full_slots(column);
  }

  template <bool Arrives, class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_packs(Raw* place, int which, F const& f) const {
    auto const call = [&](auto is_full, int left) {
      Packs<decltype(is_full)::value> x;
      unroll<batch>([&](auto k) { unroll<Operands>([&](auto i) { x.raw[i][k] = place[(i * batch + k) * threads]; }); });
      x.place = place;
      x.first = which * batch * step;
      x.left = left;
      f(x);
    };
    if (ragged && which < full) {
      if (Arrives && column < 0 && which == 0) fill_up(place, batch * threads, column);
      call(std::true_type{}, batch * threads);
    } else if (int const left = left_in(which, column); left > 0) {
      if (Arrives && (ragged || left <= (batch - 1) * threads)) fill_up(place, left, column + which * batch * step);
      call(std::false_type{}, left);
    }
  }
  /// What of a slot is not in the row becomes what lies beyond it.
  KOKKOS_FORCEINLINE_FUNCTION void fill_up(Raw* place, int left, int first) const {
    TESSERA_ROLLED
    for (int k = 0; k < batch; ++k, first += step)
      unroll<Operands>([&](auto i) {
        Raw* const pack = place + (i * batch + k) * threads;
        if (k * threads >= left) {
          Raw beyond;
          for (int j = 0; j < width; ++j) beyond[j] = rest[i];
          *pack = beyond;
        } else if (ragged && !is_whole(first)) {
          TESSERA_ROLLED
          for (int j = 0; j < width; ++j)
            if (!is_in_row(first + j)) reinterpret_cast<T*>(pack)[j] = rest[i];
        }
      });
  }

  KOKKOS_FORCEINLINE_FUNCTION void find_copied() {
    if (copied_row >= rows()) return;
    if constexpr (ragged) {
      copied_column = column_of(copied_row);
      copied_full = full_slots(copied_column);
    }
    StreamedPlace const place{grid, copied_row};
    unroll<Operands>([&](auto which) {
      copied[which] = static_cast<T const*>(from[which].data) + place.offset(from[which]) + copied_column;
    });
  }
  /// Nothing is read behind the last row. What lies before a row is in the same 16 bytes.
  KOKKOS_FORCEINLINE_FUNCTION void copy_part(Raw* to, int first, int packs_left) const {
    TESSERA_ROLLED
    for (int k = 0; k < batch && k * threads < packs_left; ++k) {
      int const at = first + k * step, left = grid.columns - (copied_column + at);
      unroll<Operands>([&](auto i) {
        Raw* const place = to + (i * batch + k) * threads;
        if (left >= width || copied_row < grid.apart)
          Atoms::copy_ahead(place, copied[i] + at);
        else
          Atoms::copy_ahead_part(place, copied[i] + at, left);
      });
    }
  }
  /// Begins to copy the slot that comes next, if there is one.
  KOKKOS_FORCEINLINE_FUNCTION void copy_next(Raw* to) {
    if (copied_row < rows()) {
      int const which = copied_slot < stream.slots ? copied_slot : copied_slot - stream.slots,
                first = which * batch * step;
      int const left = left_in(which, copied_column);
      if (!ragged || which < copied_full)
        unroll<batch>([&](auto k) {
          if (ragged || k * threads < left)
            unroll<Operands>(
                [&](auto i) { Atoms::copy_ahead(to + (i * batch + k) * threads, copied[i] + first + k * step); });
        });
      else
        copy_part(to, first, left);
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
  int row, copied_row;
  int copied_slot = 0, begins = 0;  // slots: of the row that is copied; of the ring, where the row begins
  int column, copied_column;        // of this thread's first pack of the row, and of that which is copied
  int full, copied_full;            // slots of both
  int own, packs;                   // this thread's first pack of a row; packs of the team's part
  bool begins_row;
};

/// What a streamed kernel does with its rows: one that does not write keeps nothing.
struct StreamUse {
  bool writes = true, may_repeat = true;
  std::size_t column_bytes = 0;   // that all rows have in common
  double row = 1.8, alone = 0.7;  // for streamed_cost()
};

/// How long a launch takes, in times of a slot that is read and written by one of two teams on a multiprocessor. What
/// was measured on an H200: a row costs a team more than a slot besides (what the teams find out together, a row's
/// addresses), and a ragged one much more; a slot that is copied twice nearly one more; parameters that come from L2
/// a third of what is read; and a team that is alone gets along with a slot in two thirds of the time.
template <class Rows>
double streamed_cost(PackedGrid const& grid, RowStream const& stream, int beside, StreamUse const& use) {
  double const a_row = use.row + (Rows::ragged ? 1 : 0), twice = 0.9, parameters = 0.3;
  double const read =
      stream.keeps_columns ? 0 : static_cast<double>(use.column_bytes * Rows::width) / Rows::operand_bytes;
  auto const rounds = static_cast<double>((grid.rows + stream.streams - 1) / stream.streams);
  return rounds * (a_row + stream.slots * (1 + parameters * read) + stream.twice * twice) *
         (beside == 1 ? use.alone : 1);
}

/// Lays rows out over teams: one or several a row, one or two of them on a multiprocessor. Of what they have no room
/// for, with two slots on their way, something is copied twice. If there is room beside that they may keep the
/// parameters of their columns. No streams: there is no way.
template <class Rows, class Kernel, class Exec>
RowStream row_stream(Exec const& exec, PackedGrid const& grid, StreamUse const& use, int& at_once,
                     std::size_t& scratch) {
  constexpr int line = 8;  // packs
  constexpr int slot_packs = Rows::threads * Rows::batch, on_their_way = 2;
  bool const together = can_launch_together<Rows::threads, streamed_teams_at_once, Kernel>(exec);
  RowStream best{.streams = 0};
  double least = HUGE_VAL;
  auto const consider = [&](int teams, int beside, bool keeps_columns) {
    RowStream stream;
    stream.teams = teams;
    stream.part = (grid.around + teams * line - 1) / (teams * line) * line;
    stream.slots = (stream.part + slot_packs - 1) / slot_packs;
    stream.keeps_columns = keeps_columns;
    std::size_t const room = scratch_of_each(exec, beside),
                      kept = keeps_columns ? use.column_bytes * Rows::width * slot_packs * stream.slots : 0;
    if (kept + Rows::slot_bytes > room || (teams > 1 && stream.part * (teams - 1) >= grid.around)) return;
    stream.ring = static_cast<int>((room - kept) / Rows::slot_bytes);
    stream.twice = use.writes ? std::clamp(stream.slots + on_their_way - stream.ring, 0, stream.slots) : 0;
    if (stream.twice > 0 && !use.may_repeat) return;
    std::size_t const all = Rows::slot_bytes * static_cast<std::size_t>(stream.ring) + kept;
    stream.streams = teams == 1 ? beside * Machine<Exec>::concurrency(exec)
                                : groups_at_once<Rows::threads, streamed_teams_at_once, Kernel>(exec, teams, all);
    if (stream.streams == 0) return;
    double const cost = streamed_cost<Rows>(grid, stream, beside, use);
    if (cost >= least) return;
    least = cost;
    best = stream;
    at_once = beside;
    scratch = all;
  };
  for (int teams = 1; teams <= (together ? most_teams_together : 1); teams *= 2)
    for (int beside = streamed_teams_at_once; beside > 0; --beside) {
      consider(teams, beside, false);
      if (use.column_bytes > 0) consider(teams, beside, true);
    }
  best.streams = static_cast<int>(std::min<std::int64_t>(best.streams, grid.rows));
  return best;
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has: not where something would be copied twice that
/// may not, or rows are too many to count.
template <class Rows, class Exec, class Kernel>
bool launch_streamed(char const* label, Exec const& exec, Kernel kernel, StreamUse const& use = {}) {
  if (kernel.grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return false;
  int at_once = streamed_teams_at_once;
  std::size_t scratch = 0;
  kernel.stream = row_stream<Rows, Kernel>(exec, kernel.grid, use, at_once, scratch);
  if (kernel.stream.streams == 0) return false;
  launch_together<Rows::threads, streamed_teams_at_once>(
      label, exec, std::int64_t{kernel.stream.streams} * kernel.stream.teams, kernel.stream.teams, scratch, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
