// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_HELD_ROWS_HPP
#define TESSERA_ROWWISE_HELD_ROWS_HPP

#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/passing.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/row_exchange.hpp>
#include <tessera/rowwise/row_stream.hpp>
#include <tessera/unroll.hpp>

// Long packed rows that several teams hold in registers. Teams are small, so that a multiprocessor has two or three:
// while one waits for its part of a row or for the other teams, the next reads or writes.
namespace tessera::detail {

inline constexpr int held_threads = 256, held_packs = 8;

/// One thread's part in such a team, `Batch` packs of each of `Operands` operands that are read. Its members are those
/// of StreamedRows.
template <class Exec, class T, int Operands, bool Ragged = false, int Batch = held_packs>
class HeldRows {
 public:
  using Space = Exec;
  static constexpr bool ragged = Ragged;
  static constexpr int operands = Operands, threads = held_threads, width = packed_width<T>, batch = Batch,
                       packs_with_parameters = 2, step = threads * width, teams_at_once = Operands == 1 ? 3 : 2;
  using Atoms = WarpAtoms<Exec>;
  using Element = T;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Words = Pack<std::uint32_t, 4>;  // of a pack: a compiler takes packs of small elements apart
  using Exchange = RowExchange<Exec, threads, most_teams_together * threads / 32>;
  static constexpr std::size_t operand_bytes = sizeof(Raw) * Operands, room_bytes = sizeof(Raw) * threads,
                               scratch_bytes = Exchange::box_bytes + room_bytes;

  /// A thread's packs: pack k begins k * step elements behind the first one, if it has(k).
  template <int Count>
  struct PacksOf {
    static constexpr int batch = Count, first = 0;
    Words words[Operands][batch];
    int left;    // packs of the row's part from the first one on
    int column;  // of the first one

    template <class K>
    KOKKOS_FORCEINLINE_FUNCTION bool has(K k) const {
      return k * threads < left;
    }
    KOKKOS_FORCEINLINE_FUNCTION int count() const {
      int all = 0;
      unroll<batch>([&](auto k) { all += has(k) ? 1 : 0; });
      return all;
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Raw raw(K k) const {
      return __builtin_bit_cast(Raw, words[Operand][k]);
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Values values(K k) const {
      return Atoms::widened(raw<Operand>(k));
    }
  };
  using Packs = PacksOf<batch>;
  /// What of a ragged row begins before its first pack, or ends behind its last one: one thread has each.
  using End = PacksOf<1>;

  template <class Tag>
  KOKKOS_FORCEINLINE_FUNCTION static void begin(RowStream const&) {}

  /// `beyond` is what lies beyond a row.
  KOKKOS_FORCEINLINE_FUNCTION HeldRows(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                       Operand const (&operands)[Operands], T const (&beyond)[Operands])
      : grid(all), stream(layout) {
    int const group = static_cast<int>(stream.by_teams.quotient(team.league_rank(), true)),
              first = (team.league_rank() - group * stream.teams) * stream.part;
    int const left = grid.around - first;
    begins_row = first == 0;
    own = first + Atoms::thread();
    packs = left < stream.part ? left : stream.part;
    unroll<Operands>([&](auto which) {
      from[which] = operands[which];
      rest[which] = beyond[which];
    });
    row = group;
    find();
    load();
    auto* const scratch =
        static_cast<std::byte*>(team.team_scratch(0).get_shmem_aligned(std::size_t{scratch_bytes}, 16));
    exchange = {scratch, stream.teams};
    room = reinterpret_cast<Raw*>(scratch + Exchange::box_bytes) + Atoms::thread();
  }

  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace place(int = 0) const { return {grid, row}; }
  /// As of StreamedRows: there are no later rows.
  KOKKOS_FORCEINLINE_FUNCTION bool is_row(int later) const { return later == 0; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return begins_row && Atoms::thread() == 0; }
  /// The column of this thread's first pack of the row; of a ragged row it may begin before the row.
  KOKKOS_FORCEINLINE_FUNCTION int first_column() const { return held.column; }
  /// Where that pack is.
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + place().offset(a) + held.column;
  }
  KOKKOS_FORCEINLINE_FUNCTION T* data_of_read(Operand const& a) const { return data<T>(a); }
  /// Whether element j of pack k is in the row.
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(Packs const& x, int k, int) const { return x.has(k); }
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(End const& x, int, int j) const { return is_in_row(x.column + j); }
  /// Element j of pack k of the first operand.
  template <int Count>
  KOKKOS_FORCEINLINE_FUNCTION T element(PacksOf<Count> const& x, int k, int j) const {
    unroll<Count>([&](auto i) {
      if (int{i} == k) *room = __builtin_bit_cast(Raw, x.words[0][i]);
    });
    return reinterpret_cast<T const*>(room)[j];
  }
  /// Stores pack k, `to` being the place of this thread's first one.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* to, Packs const& at, int k, Pack<To, width> const& x) const {
    if (at.has(k)) store_pack<width>(to + k * step, x);
  }
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* to, End const& at, int, Pack<To, width> const& x) const {
    for (int j = 0; j < width; ++j)
      if (is_in_row(at.column + j)) to[at.column - held.column + j] = x[j];
  }
  template <class To, class Some>
  KOKKOS_FORCEINLINE_FUNCTION void store_now(To* to, Some const& at, int k, Pack<To, width> const& x) const {
    store(to, at, k, x);
  }
  template <class To, class Some>
  KOKKOS_FORCEINLINE_FUNCTION void store_ends(To*, Some const&) const {}  // as of StreamedRows

  /// Of something that all rows have in common, from this thread's first column on: a copy of it in scratch, behind
  /// what has `before` bytes a column, where there is room. wait_for_kept() comes before it is read.
  template <class Parameter>
  KOKKOS_FORCEINLINE_FUNCTION Parameter const* keep(Parameter const* from, std::size_t before) const {
    if (before + sizeof(Parameter) > stream.kept_bytes) return from;
    auto const columns = static_cast<std::size_t>(stream.slots * step);
    auto* const to = reinterpret_cast<Parameter*>(reinterpret_cast<std::byte*>(room - Atoms::thread()) + room_bytes +
                                                  before * columns) +
                     Atoms::thread() * width;
    constexpr int of_copy = pack_bytes / sizeof(Parameter);
    TESSERA_ROLLED
    for (int k = 0; k * threads < held.left; ++k)
      for (int j = 0; j < width; j += of_copy)
        Atoms::copy_ahead(reinterpret_cast<Pack<Parameter, of_copy>*>(to + k * step + j), from + k * step + j);
    Atoms::end_copies();
    return to;
  }
  KOKKOS_FORCEINLINE_FUNCTION void wait_for_kept() const { Atoms::wait_for_copies(0); }

  /// As of StreamedRows, for the team's only row.
  template <class Tag, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Begin const& begin, Take const& take, Merge const& merge,
                                            Write const& write) {
    Atoms::template begin_posting<Tag>(stream.teams);
    auto now = begin();
    if (held.left > 0) take(now, held);
    if (has_end()) take(now, end);
    Atoms::template wait_for_posters<Tag>(stream.teams);
    exchange.template post<Tag>(now.part, merge, 0, elements_of_warp<threads, width>(packs, Atoms::thread()),
                                width * packs);
    write(exchange.template collected<Tag, decltype(now.part)>(merge, 0, grid.columns),
          [&](auto const& put, auto) TESSERA_INLINE_LAMBDA {
            forget();
            if (held.left > 0) put(held);
            if (has_end()) put(end);
          });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION bool is_in_row(int at) const { return at >= 0 && at < grid.columns; }
  KOKKOS_FORCEINLINE_FUNCTION bool has_end() const { return ragged && end.left > 0; }
  KOKKOS_FORCEINLINE_FUNCTION void find() {
    held.column = own * width;
    end.left = 0;
    if constexpr (ragged) {
      int const before = PackedRowPlace(grid, row).shift(grid.phase, width);
      int head = (width - before) % width;
      if (head > grid.columns) head = grid.columns;
      int const of_row = (grid.columns - head) / width, tail = head + of_row * width,
                left = of_row - (own - Atoms::thread());
      if (left < packs) packs = left;
      held.column += head;
      bool const is_head = Atoms::thread() == 0;
      end.column = is_head ? -before : tail;
      end.left = begins_row && (is_head ? before > 0 : Atoms::thread() == 1 && tail < grid.columns) ? 1 : 0;
    }
    held.left = packs - Atoms::thread();
  }
  KOKKOS_FORCEINLINE_FUNCTION void load() {
    bool const all = held.has(batch - 1);
    unroll<Operands>([&](auto i) {
      T const* const source = grid.once(data<T const>(from[i]));
      if (all) {
        unroll<batch>([&](auto k) { load_one(held.words[i][k], source, k); });
      } else {
        Words const rest_of_pack = beyond(i);
        unroll<batch>([&](auto k) {
          held.words[i][k] = rest_of_pack;
          if (held.has(k)) load_one(held.words[i][k], source, k);
        });
      }
      if (has_end()) {
        Raw pack;
        for (int j = 0; j < width; ++j)
          pack[j] = is_in_row(end.column + j) ? source[end.column - held.column + j] : rest[i];
        end.words[i][0] = __builtin_bit_cast(Words, pack);
      }
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION static void load_one(Words& pack, T const* source, int k) {
    pack = __builtin_bit_cast(Words, load_pack<width>(source + k * step));
  }
  KOKKOS_FORCEINLINE_FUNCTION Words beyond(int i) const {
    Raw pack;
    for (int j = 0; j < width; ++j) pack[j] = rest[i];
    return __builtin_bit_cast(Words, pack);
  }
  /// What has been made of the packs takes no registers from here on: it is made anew. A compiler that sees that they
  /// are the same would keep it, so that there is a way on which they are not, which is never taken.
  KOKKOS_FORCEINLINE_FUNCTION void forget() {
    if (held.left != std::numeric_limits<int>::min()) return;
    unroll<batch>(
        [&](auto k) { unroll<Operands>([&](auto i) { held.words[i][k] = __builtin_bit_cast(Words, *room); }); });
  }

  PackedGrid const& grid;
  RowStream const& stream;
  Operand from[Operands];
  T rest[Operands];
  Packs held;
  End end;
  Exchange exchange;
  Raw* room;  // this thread's place in scratch
  int row;
  int own, packs;  // this thread's first pack of a row; packs of the team's part
  bool begins_row;
};

/// Rows laid out over teams that hold them. No teams: another way is better.
struct HeldLayout {
  RowStream stream{.teams = 0};
  std::size_t scratch = 0;
  double held = 0;  // packs of all teams that run at the same time
};

/// Over as few teams as can hold a row. No teams: rows are too long for as many as can share one, or so many packs of
/// the teams that run at the same time would be nobody's that it is better to stream them; fp32 bears more of that,
/// having less arithmetic for its bytes. One parameter of the columns is copied ahead if rows are so long, or have a
/// second operand; of two, the second would take room that what is on its way needs.
template <class Rows, class Kernel, class Exec>
HeldLayout held_layout(Exec const& exec, PackedGrid const& grid, StreamUse const& use) {
  constexpr int of_team = Rows::threads * Rows::batch;  // packs
  RowStream stream{.teams = (grid.around + of_team - 1) / of_team, .streams = 0};
  if (stream.teams > most_teams_together) return {};
  stream.by_teams = Divisor(stream.teams);
  stream.part = part_of_team(grid.around, stream.teams);
  stream.slots = (stream.part + Rows::threads - 1) / Rows::threads;
  std::size_t scratch = Rows::scratch_bytes;
  constexpr int longest_alone = 32768;  // columns
  if ((use.column_bytes[0] == 0 || use.column_bytes[1] == 0) && (Rows::operands > 1 || grid.columns > longest_alone)) {
    stream.kept_bytes = use.all_column_bytes();
    scratch += stream.kept_bytes * static_cast<std::size_t>(Rows::step * stream.slots);
  }
  if (scratch > scratch_of_each(exec, Rows::teams_at_once)) return {};
  int const groups = groups_at_once<Rows::threads, Rows::teams_at_once, Kernel>(exec, stream.teams, scratch);
  double const held = static_cast<double>(grid.around) * groups,
               room = static_cast<double>(of_team * Rows::teams_at_once) * Machine<Exec>::concurrency(exec),
               least = sizeof(typename Rows::Element) == 4 ? 0.65 : 0.8;
  if (held < least * room) return {};
  return {stream, scratch, held};
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has.
template <class Rows, class Exec, class Kernel>
bool launch_held(char const* label, Exec const& exec, Kernel kernel, HeldLayout const& layout) {
  kernel.stream = layout.stream;
  std::int64_t const league = kernel.grid.rows * kernel.stream.teams;
  if (league == 0 || league > std::numeric_limits<std::int32_t>::max() / 4) return false;
  constexpr char const* scheme =
      Rows::ragged ? "unaligned rows in the registers of several teams" : "rows in the registers of several teams";
  launch_together<Rows::threads, Rows::teams_at_once>(KernelLabel{label, scheme}, exec, league, kernel.stream.teams,
                                                      layout.scratch, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
