// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STREAMED_ROWS_HPP
#define TESSERA_ROWWISE_STREAMED_ROWS_HPP

#include <cstddef>
#include <type_traits>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/row_exchange.hpp>
#include <tessera/rowwise/row_stream.hpp>
#include <tessera/unroll.hpp>

// Long packed rows. Teams stay for the whole launch; one of them, or several that run at the same time and send each
// other what they have found, take one row after the other. Rows come through a ring of slots in scratch, in which each
// thread has a place for its own packs. A slot is read when it has arrived, for the row's sums, and again, when these
// are known, for the result; then it is free for what comes next, most often a part of a later row. So the memory has
// reads to do all the time. Of a row that the ring has no room for, the first slots are copied a second time. Beside
// the ring there may be room for what all rows have in common.
//
// Where the ring has room for a row and more, each step writes a slot of one row and reads one of the next, whose
// arithmetic goes together, so that reads and writes never wait for each other's turn. A row's sums are posted a slot
// before the row ahead of it is done, and have come when that is:
//
//     slot written     row r: 0    1    2    3         row r + 1: 0    1   ...
//     slot read    row r + 1: 1    2    3 | row r + 2: 0          1    2   ...
//                                         | the sums of row r + 1 are posted
//
// A thread's packs of a slot are worked on together, most often without a question about each of them: what is missing
// of the last slot, and of the first and the last pack of a ragged row, is filled up in scratch when it has arrived. A
// load of single elements would wait behind all that has been asked for before.
namespace tessera::detail {

/// One such team on a multiprocessor is 16 warps of 128 registers a thread, which hold two sets of four packs: of the
/// row that is written and of the one that is read.
inline constexpr int streamed_threads = 512, streamed_packs = 4;

/// One thread's part in such a team, for `Operands` operands that are read.
template <class Exec, class T, int Operands, bool Ragged = false>
class StreamedRows {
 public:
  using Space = Exec;
  static constexpr bool ragged = Ragged;
  static constexpr int operands = Operands, threads = streamed_threads, width = packed_width<T>,
                       batch = streamed_packs / Operands, packs_with_parameters = batch;
  static constexpr int step = threads * width;  // elements from a thread's pack to its next one
  using Atoms = WarpAtoms<Exec>;
  using Element = T;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Exchange = RowExchange<Exec, threads>;
  static constexpr std::size_t operand_bytes = sizeof(Raw) * Operands, slot_bytes = operand_bytes * batch * threads,
                               box_bytes = Exchange::box_bytes;

  /// A thread's packs of a slot: pack k begins `first` + k * step elements behind the thread's first one of the row, if
  /// it has(k). Of `Full` ones, which ragged rows tell apart, all are there, and whole but for what lies before the
  /// row.
  template <bool Full>
  struct Packs {
    static constexpr int batch = streamed_packs / Operands;
    Raw packs[Operands][batch];
    Raw* place;       // in scratch
    int first, left;  // packs of the team from the thread's first one on
    int column;       // of the thread's first pack of the row

    template <class K>
    KOKKOS_FORCEINLINE_FUNCTION bool has(K k) const {
      return Full || k * threads < left;
    }
    KOKKOS_FORCEINLINE_FUNCTION int count() const {
      int all = 0;
      unroll<batch>([&](auto k) { all += has(k) ? 1 : 0; });
      return all;
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Raw raw(K k) const {
      return packs[Operand][k];
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Values values(K k) const {
      return Atoms::widened(packs[Operand][k]);
    }
  };

  template <class Tag>
  KOKKOS_FORCEINLINE_FUNCTION static void begin(RowStream const& stream) {
    Atoms::template begin_posting<Tag>(stream.teams);
    Atoms::template wait_for_posters<Tag>(stream.teams);
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
    exchange = {team.team_scratch(0).get_shmem_aligned(std::size_t{box_bytes}, 16), stream.teams};
    room = static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(slot_bytes * stream.ring, 16)) + Atoms::thread();
    unroll<Operands>([&](auto which) {
      from[which] = operands[which];
      rest[which] = beyond[which];
    });
    written.row = read.row = copied.row = group;
    find(written);
    read = copied = written;
    find_copied();
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring; ++i) copy_next(slot(i));
  }

  /// The row that is written.
  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace place() const { return {grid, written.row}; }
  /// Whether there is the row that comes `later` rows after the one that is read, and its place.
  KOKKOS_FORCEINLINE_FUNCTION bool is_row(int later) const { return read.row + later * stream.streams < rows(); }
  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace place(int later) const { return {grid, read.row + later * stream.streams}; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return begins_row && Atoms::thread() == 0; }
  /// The column of this thread's first pack of the row that is read; of a ragged row it may begin before the row.
  KOKKOS_FORCEINLINE_FUNCTION int first_column() const { return column_in(read); }
  /// Where this thread's first pack of the row that is written is, or of that which is read.
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return data_of<To>(a, written);
  }
  KOKKOS_FORCEINLINE_FUNCTION T* data_of_read(Operand const& a) const { return data_of<T>(a, read); }
  /// Whether element j of pack k is in the row.
  template <bool Full>
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(Packs<Full> const& x, int k, int j) const {
    if (!ragged || (Full && k > 0)) return x.has(k);
    return x.has(k) && is_in_row(x.column + x.first + k * step + j);
  }
  /// Element j of pack k of the first operand.
  template <bool Full>
  KOKKOS_FORCEINLINE_FUNCTION T element(Packs<Full> const& x, int k, int j) const {
    return reinterpret_cast<T const*>(x.place + k * threads)[j];
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
      if ((Full && k > 0) || is_whole(at.column + at.first + k * step))
        Atoms::store_at_once(to, x);
      else
        store_pack<width>(reinterpret_cast<To*>(at.place + k * threads), x);
    }
  }
  /// The same at once, while the pack in scratch is still needed: with more instructions.
  template <bool Full, class To>
  KOKKOS_FORCEINLINE_FUNCTION void store_now(To* to, Packs<Full> const& at, int k, Pack<To, width> const& x) const {
    int const column = at.column + at.first + k * step;
    if (!ragged || (Full && k > 0) || is_whole(column)) {
      store(to, at, k, x);
    } else if (at.has(k)) {
      to += at.first + k * step;
      for (int j = 0; j < width; ++j)
        if (is_in_row(column + j)) to[j] = x[j];
    }
  }
  /// What is in the row of packs that are not whole, which store() has left in scratch.
  template <bool Full, class To>
  KOKKOS_FORCEINLINE_FUNCTION void store_ends(To* to, Packs<Full> const& at) const {
    if constexpr (ragged) {
      int first = at.column + at.first;
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

  /// Of something that all rows have in common, from this thread's first column on: a copy of it in scratch, behind
  /// what has `before` bytes a column, where there is room. wait_for_kept() comes before it is read.
  template <class Parameter>
  KOKKOS_FORCEINLINE_FUNCTION Parameter const* keep(Parameter const* from, std::size_t before) const {
    if (before + sizeof(Parameter) > stream.kept_bytes) return from;
    auto const columns = static_cast<std::size_t>(stream.slots * batch * step);
    auto* const to = reinterpret_cast<Parameter*>(reinterpret_cast<std::byte*>(slot(stream.ring) - Atoms::thread()) +
                                                  before * columns) +
                     Atoms::thread() * width;
    TESSERA_ROLLED
    for (int at = 0; at < packs_from_here(); at += threads)
      store_pack<width>(to + at * width, load_pack<width>(from + at * width));
    return to;
  }
  KOKKOS_FORCEINLINE_FUNCTION void wait_for_kept() const {}  // a thread reads its own

  /// For every row of the team: begin() gives the state of a row that is read, which has a `part`; take(state, packs)
  /// adds packs to it, filled up with what lies beyond a row; and write(all, run) is called with the joined
  /// parts of all threads that share the row. There run(put, fuses) is put(packs) for all packs of the row, in some
  /// order; if it `fuses` them (std::true_type), while later ones are taken. merge() is as of RowExchange; of ragged
  /// rows it does not count elements.
  template <class Tag, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Begin const& begin, Take const& take, Merge const& merge,
                                            Write const& write) {
    using State = decltype(begin());
    State now = begin();
    auto const taking = [&](auto const& packs) TESSERA_INLINE_LAMBDA { take(now, packs); };
    // Calls step(i, slot) for what is left of the row that is read, and for the first slots of the next one.
    auto const take_on = [&](int first, int turn, auto const& step) TESSERA_INLINE_LAMBDA {
      int slot = first + stream.ahead;
      TESSERA_ROLLED
      for (int i = first;; ++i, ++slot) {
        if (i + stream.ahead == stream.slots) {
          if (is_row(0))
            exchange.template post<Tag>(now.part, merge, turn, elements_of_warp<threads, width>(packs, Atoms::thread()),
                                        width * packs);
          next(read);
          if (is_row(0)) now = begin();
          slot = 0;
        }
        if (i == stream.slots) break;
        step(i, slot);
      }
    };
    TESSERA_ROLLED
    for (int i = -1; written.row < rows(); ++i) {
      bool taken = false;
      if (i >= 0) {
        write(exchange.template collected<Tag, decltype(State::part)>(merge, i, grid.columns),
              [&](auto const& put, auto fuses) TESSERA_INLINE_LAMBDA {
                if constexpr (decltype(fuses)::value) {
                  if (stream.at_once) {
                    take_on(0, i + 1, [&](int at, int slot) TESSERA_INLINE_LAMBDA { both(put, at, taking, slot); });
                    taken = true;
                    return;
                  }
                }
                again(put);
              });
        next(written);
      }
      if (!taken)
        take_on(i < 0 ? -stream.ahead : 0, i + 1, [&](int, int slot) TESSERA_INLINE_LAMBDA { arriving(slot, taking); });
    }
  }

 private:
  /// A row, and of a ragged one the column of this thread's first pack and how many slots are full.
  struct Spot {
    int row = 0, column = 0, full = 0;
  };

  /// take(packs) for a slot of the row that is read, if there is one. If it is not kept the slot is free then.
  template <class Take>
  KOKKOS_FORCEINLINE_FUNCTION void arriving(int which, Take const& take) {
    if (!is_row(0)) return;
    Atoms::wait_for_copies(stream.ring - 1 - lead);
    with_packs<true>(read, slot(arrives), which, take);
    arrives = after(arrives);
    ++lead;
    if (!stream.keeps || which < stream.twice) free_slot();
  }
  /// put(packs) for the slots of a row that has been kept, of which those that are copied twice come last.
  template <class Put>
  KOKKOS_FORCEINLINE_FUNCTION void again(Put const& put) {
    TESSERA_ROLLED
    for (int i = 0; i < stream.slots; ++i) {
      int which = i + stream.twice;
      if (which >= stream.slots) {
        which -= stream.slots;
        Atoms::wait_for_copies(stream.ring - 1);
        arrives = after(arrives);
        ++lead;
      }
      with_packs<false>(written, slot(begins), which, put);
      free_slot();
    }
  }
  /// A slot of the one and a slot of the other, together.
  template <class Put, class Take>
  KOKKOS_FORCEINLINE_FUNCTION void both(Put const& put, int which_put, Take const& take, int which_taken) {
    bool const reads = is_row(0);
    if (reads) Atoms::wait_for_copies(stream.ring - 1 - lead);
    if constexpr (ragged) {
      with_packs<false>(written, slot(begins), which_put, put);
      free_slot();
      if (reads) with_packs<true>(read, slot(arrives), which_taken, take);
    } else {
      int const first = own * width, left = left_in(which_taken, first);
      if (reads && left > 0) {
        if (left <= (batch - 1) * threads) fill_up(slot(arrives), left, first + which_taken * batch * step);
        auto const a = packs_at<false>(slot(begins), which_put, left_in(which_put, first), first),
                   b = packs_at<false>(slot(arrives), which_taken, left, first);
        put(a);
        take(b);
      } else {
        put(packs_at<false>(slot(begins), which_put, left_in(which_put, first), first));
      }
      free_slot();
    }
    if (reads) {
      arrives = after(arrives);
      ++lead;
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void free_slot() {
    copy_next(slot(begins));
    begins = after(begins);
    --lead;
  }

  KOKKOS_FORCEINLINE_FUNCTION int rows() const { return static_cast<int>(grid.rows); }
  KOKKOS_FORCEINLINE_FUNCTION Raw* slot(int at) const { return room + at * (Operands * batch * threads); }
  KOKKOS_FORCEINLINE_FUNCTION int after(int at) const { return at + 1 == stream.ring ? 0 : at + 1; }
  KOKKOS_FORCEINLINE_FUNCTION int packs_from_here() const { return packs - Atoms::thread(); }
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
  KOKKOS_FORCEINLINE_FUNCTION void find(Spot& spot) const {
    if constexpr (ragged) {
      spot.column = column_of(spot.row);
      spot.full = full_slots(spot.column);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void next(Spot& spot) const {
    spot.row += stream.streams;
    find(spot);
  }
  KOKKOS_FORCEINLINE_FUNCTION int column_in(Spot const& spot) const { return ragged ? spot.column : own * width; }
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION To* data_of(Operand const& a, Spot const& spot) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + LongRowPlace{grid, spot.row}.offset(a) + column_in(spot);
  }

  template <bool Full>
  KOKKOS_FORCEINLINE_FUNCTION Packs<Full> packs_at(Raw* place, int which, int left, int column) const {
    Packs<Full> x;
    unroll<batch>([&](auto k) { unroll<Operands>([&](auto i) { x.packs[i][k] = place[(i * batch + k) * threads]; }); });
    x.place = place;
    x.first = which * batch * step;
    x.left = left;
    x.column = column;
    return x;
  }
  template <bool Arrives, class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_packs(Spot const& spot, Raw* place, int which, F const& f) const {
    int const column = column_in(spot);
    if (ragged && which < spot.full) {
      if (Arrives && column < 0 && which == 0) fill_up(place, batch * threads, column);
      f(packs_at<true>(place, which, batch * threads, column));
    } else if (int const left = left_in(which, column); left > 0) {
      if (Arrives && (ragged || left <= (batch - 1) * threads)) fill_up(place, left, column + which * batch * step);
      f(packs_at<false>(place, which, left, column));
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
    if (copied.row >= rows()) return;
    find(copied);
    unroll<Operands>([&](auto which) { source[which] = data_of<T const>(from[which], copied); });
  }
  /// Nothing is read behind the last row. What lies before a row is in the same 16 bytes.
  KOKKOS_FORCEINLINE_FUNCTION void copy_part(Raw* to, int first, int packs_left) const {
    TESSERA_ROLLED
    for (int k = 0; k < batch && k * threads < packs_left; ++k) {
      int const at = first + k * step, left = grid.columns - (column_in(copied) + at);
      unroll<Operands>([&](auto i) {
        Raw* const place = to + (i * batch + k) * threads;
        if (left >= width || copied.row < grid.apart)
          Atoms::copy_ahead(place, source[i] + at, grid.once);
        else
          Atoms::copy_ahead_part(place, source[i] + at, left);
      });
    }
  }
  /// Begins to copy the slot that comes next, if there is one.
  KOKKOS_FORCEINLINE_FUNCTION void copy_next(Raw* to) {
    if (copied.row < rows()) {
      int const which = copied_slot < stream.slots ? copied_slot : copied_slot - stream.slots,
                first = which * batch * step;
      int const left = left_in(which, column_in(copied));
      if (!ragged || which < copied.full)
        unroll<batch>([&](auto k) {
          if (ragged || k * threads < left)
            unroll<Operands>([&](auto i) {
              Atoms::copy_ahead(to + (i * batch + k) * threads, source[i] + first + k * step, grid.once);
            });
        });
      else
        copy_part(to, first, left);
      if (++copied_slot == stream.slots + stream.twice) {
        copied_slot = 0;
        copied.row += stream.streams;
        find_copied();
      }
    }
    Atoms::end_copies();
  }

  PackedGrid const& grid;
  RowStream const& stream;
  Operand from[Operands];
  T rest[Operands];
  T const* source[Operands];  // this thread's first packs of the row that is copied
  Exchange exchange;
  Raw* room;  // (ring, Operands, batch, threads), this thread's place in it
  Spot written, read, copied;
  int copied_slot = 0;                    // of the row that is copied
  int begins = 0, arrives = 0, lead = 0;  // slots of the ring: of what is kept the first; the next that is read, so
                                          // many behind it
  int own, packs;                         // this thread's first pack of a row; packs of the team's part
  bool begins_row;
};

}  // namespace tessera::detail

#endif
