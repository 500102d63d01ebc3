// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_BLOCKS_HPP
#define TESSERA_QUANTIZE_HOST_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/byte_moves.hpp>
#include <tessera/element/draws.hpp>
#include <tessera/quantize/blocks.hpp>
#include <tessera/quantize/host_strips.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>
#include <tessera/vector_units.hpp>

// Blocks on a CPU: a core takes several at a time, divides and rounds them row by row, and turns what it has rounded in
// its caches.
namespace tessera::detail {

/// Part of a matrix.
struct HostArea {
  std::int64_t row, column;
  int rows, columns;
};

/// What a core takes at a time: blocks side by side, so that memory is read and written in long runs, and where there
/// is a transposed copy also one below another, for the runs of its rows.
struct HostAreas {
  static constexpr int most_columns = host_strip, most_rows = 256, most_elements = block_side * host_strip;

  std::int64_t rows_of_all, columns_of_all;
  bool in_place;  // the input is read where it lies
  int rows, columns;
  std::int64_t beside, all;  // areas

  HostAreas(BlockProblem const& p, int cores)
      : rows_of_all(p.rows),
        columns_of_all(p.columns),
        in_place(p.in.type != Scalar::fp64 && p.in.column == 1),
        rows(block_side),
        columns(block_side) {
    if (in_place) {
      if (p.transposed.present()) rows = most_rows;
      columns = most_elements / rows;
    }
    count();
    // An area stays in a core's own cache, of which others may have half, beside what is fetched of the next one and
    // what both become; no core has many more than others.
    constexpr int a_core = 4;
    std::int64_t const most_bytes = core_cache_bytes() / 16, bytes = static_cast<std::int64_t>(size_of(p.in.type));
    while (rows * columns > block_side * block_side && (rows * columns * bytes > most_bytes || all < a_core * cores)) {
      (rows > block_side ? rows : columns) /= 2;
      count();
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION HostArea of_team(std::int64_t team) const {
    auto const inside = [](std::int64_t left, int most)
                            TESSERA_INLINE_LAMBDA { return static_cast<int>(left < most ? left : most); };
    std::int64_t const row = team / beside * rows, column = team % beside * columns;
    return {row, column, inside(rows_of_all - row, rows), inside(columns_of_all - column, columns)};
  }

 private:
  void count() {
    beside = (columns_of_all + columns - 1) / columns;
    all = (rows_of_all + rows - 1) / rows * beside;
  }
};

struct HostBlocks {
  static constexpr bool vectorises = true;
  static constexpr int side = block_side, side_shift = 7;
  static_assert(side == 1 << side_shift);

  /// Where a core works on its area.
  struct Room {
    static constexpr int lines = HostAreas::most_elements / side, turned_columns = line_of_memory;

    unsigned char rounded[HostAreas::most_elements];              // (rows, columns), for the transposed copy
    unsigned char turned[turned_columns * HostAreas::most_rows];  // (columns, rows)
    unsigned char row[HostAreas::most_columns];
    float gathered[side * side];    // (rows, columns) of an input that is not read where it lies
    Divisors<lines> rows;           // (rows, tiles)
    ColumnDivisors<lines> columns;  // (tiles, columns), where the transposed copy has its own
    MagnitudeBits row_top[lines], column_top[lines];
  };

  BlockProblem p;
  StripDivision divide;
  HostAreas areas;
  bool streamed;           // results go past the caches
  ByteMoves const* moves;  // may be absent

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    auto& room = *static_cast<Room*>(team.team_shmem().get_shmem_aligned(sizeof(Room), line_of_memory));
    HostArea const at = areas.of_team(team.league_rank());
    void const* first = room.gathered;
    WideTypes::visit(p.in.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      T const* const x = element<T>(at.row, at.column);
      if (areas.in_place) {
        first = x;
      } else {
        for (int c = 0; c < at.columns; ++c)
          for (int r = 0; r < at.rows; ++r)
            room.gathered[r * side + c] = static_cast<float>(x[r * p.in.row + c * p.in.column]);
      }
    });
    NeighbourTypes::visit(areas.in_place ? p.in.type : Scalar::fp32, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      Rows<T> const x{at, static_cast<T const*>(first), areas.in_place ? p.in.row : side};
      find_scales(room, x);
      write(room, x, team.league_rank() + std::int64_t{1});
    });
    if (p.transposed.present()) write_transposed(room, at);
    streaming_done();
  }

 private:
  /// An area's rows.
  template <class T>
  struct Rows {
    HostArea at;
    T const* first;
    std::int64_t stride;

    KOKKOS_FORCEINLINE_FUNCTION T const* operator()(int r) const { return first + r * stride; }
    KOKKOS_FORCEINLINE_FUNCTION int tiles() const { return (at.columns + side - 1) / side; }
    /// f(tile, first column, columns) for those side by side.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION void for_tiles(F const& f) const {
      for (int c = 0, tile = 0; c < at.columns; c += side, ++tile)
        f(tile, c, at.columns - c < side ? at.columns - c : side);
    }
  };

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T const* element(std::int64_t row, std::int64_t column) const {
    return static_cast<T const*>(p.in.data) + row * p.in.row + column * p.in.column;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool finds_columns() const {
    return p.source == ScaleSource::line && p.transposed_scales.present();
  }

  /// Of the tiles of rows and, where the transposed copy has its own scales, of those of columns.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void find_tops(Room& room, Rows<T> const& x) const {
    if (finds_columns()) {
      for (int r = 0; r < x.at.rows; r += side) find_tops_of_blocks(room, x, r);
      return;
    }
    for (int r = 0; r < x.at.rows; ++r)
      x.for_tiles([&](int tile, int c, int n) TESSERA_INLINE_LAMBDA {
        room.row_top[r * x.tiles() + tile] =
            n == side ? largest_magnitude(x(r) + c, side) : largest_magnitude(x(r) + c, n);
      });
  }
  /// Of both in blocks side by side, from row `first` on.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void find_tops_of_blocks(Room& room, Rows<T> const& x, int first) const {
    using Stored = StoredMagnitude<T>;
    constexpr int together = 4;
    typename Stored::Bits tops[HostAreas::most_columns] = {};
    int const end = x.at.rows - first < side ? x.at.rows : first + side, tiles = x.tiles();
    for (int r = first; r < end; r += together) {
      auto const row = [&](int i) TESSERA_INLINE_LAMBDA { return r + i < end ? r + i : end - 1; };
      x.for_tiles([&](int tile, int c, int n) TESSERA_INLINE_LAMBDA {
        T const* const rows[together] = {x(row(0)) + c, x(row(1)) + c, x(row(2)) + c, x(row(3)) + c};
        MagnitudeBits of_row[together];
        if (n == side)
          tops_of_rows(rows, side, tops + c, of_row);
        else
          tops_of_rows(rows, n, tops + c, of_row);
        for (int i = 0; i < together; ++i) room.row_top[row(i) * tiles + tile] = of_row[i];
      });
    }
    for (int c = 0; c < x.at.columns; ++c) room.column_top[first / side * areas.columns + c] = Stored::widened(tops[c]);
  }
  /// Of each row, and what is larger in a column than its `tops`.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static void tops_of_rows(T const* const (&row)[4], int n,
                                                       typename StoredMagnitude<T>::Bits* tops,
                                                       MagnitudeBits (&of_row)[4]) {
    using Stored = StoredMagnitude<T>;
    using Bits = typename Stored::Bits;
    auto const larger = [](Bits a, Bits b) TESSERA_INLINE_LAMBDA { return a > b ? a : b; };
    T const *const row0 = row[0], *const row1 = row[1], *const row2 = row[2], *const row3 = row[3];
    Bits top0 = 0, top1 = 0, top2 = 0, top3 = 0;
    for (int c = 0; c < n; ++c) {
      Bits const x0 = Stored::of(row0[c]), x1 = Stored::of(row1[c]), x2 = Stored::of(row2[c]), x3 = Stored::of(row3[c]);
      top0 = larger(x0, top0);
      top1 = larger(x1, top1);
      top2 = larger(x2, top2);
      top3 = larger(x3, top3);
      tops[c] = larger(larger(larger(x0, x1), larger(x2, x3)), tops[c]);
    }
    of_row[0] = Stored::widened(top0);
    of_row[1] = Stored::widened(top1);
    of_row[2] = Stored::widened(top2);
    of_row[3] = Stored::widened(top3);
  }

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void find_scales(Room& room, Rows<T> const& x) const {
    int const lines = x.at.rows * x.tiles();
    if (p.source != ScaleSource::given || p.amax != nullptr) find_tops(room, x);
    if (p.source == ScaleSource::block) {
      for (int r = 0; r < x.at.rows; r += side)
        x.for_tiles([&](int tile, int c, int)
                        TESSERA_INLINE_LAMBDA { find_block_scale(room, x.at, r, tile, c, x.tiles()); });
    } else {
      if (p.source == ScaleSource::line) find_scales_of(room.row_top, lines, p.largest, room.rows.divisor);
      for (int r = 0; r < x.at.rows; ++r)
        x.for_tiles([&](int tile, int c, int) TESSERA_INLINE_LAMBDA {
          exchange(p.scales(x.at.row + r, x.at.column + c), room.rows.divisor[r * x.tiles() + tile]);
        });
    }
    room.rows.prepare(lines);
    if (p.amax != nullptr) raise(p.amax, canonical(largest_of_lines(room.row_top, 0, lines, 1)));
    if (p.transposed_scales.present()) find_column_scales(room, x.at);
  }
  /// What has been found is stored, and what is given read.
  KOKKOS_FORCEINLINE_FUNCTION void exchange(float& outside, float& divisor) const {
    if (p.source == ScaleSource::line)
      outside = divisor;
    else
      divisor = outside;
  }
  KOKKOS_FORCEINLINE_FUNCTION static MagnitudeBits largest_of_lines(MagnitudeBits const* tops, int first, int end,
                                                                    int step) {
    MagnitudeBits top = 0;
    for (int i = first; i < end; i += step) top = tops[i] > top ? tops[i] : top;
    return top;
  }
  KOKKOS_FORCEINLINE_FUNCTION void find_block_scale(Room& room, HostArea const& at, int first, int tile, int c,
                                                    int tiles) const {
    int const end = at.rows - first < side ? at.rows : first + side;
    MagnitudeBits const top = largest_of_lines(room.row_top, first * tiles + tile, end * tiles, tiles);
    float const scale = scale_of(canonical(top), p.largest);
    p.scales(at.row + first, at.column + c) = scale;
    for (int r = first; r < end; ++r) room.rows.divisor[r * tiles + tile] = scale;
  }
  KOKKOS_FORCEINLINE_FUNCTION void find_column_scales(Room& room, HostArea const& at) const {
    int const blocks = (at.rows + side - 1) / side;
    for (int block = 0; block < blocks; ++block) {
      float* const divisor = room.columns.divisor + block * areas.columns;
      if (p.source == ScaleSource::line)
        find_scales_of(room.column_top + block * areas.columns, at.columns, p.largest, divisor);
      for (int c = 0; c < at.columns; ++c)
        exchange(p.transposed_scales(at.column + c, at.row + block * side), divisor[c]);
      for (int c = at.columns; c < areas.columns; ++c) divisor[c] = 1.0f;
    }
    if (!p.rounding.stochastic) divide.prepare(room.columns, blocks * areas.columns);
  }

  /// Row r, divided by the scales of its tiles and, unless `by_columns` is nullptr, by those of its columns.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void round_row(Room& room, Rows<T> const& x, int r, unsigned char* to,
                                             unsigned char* by_columns) const {
    int const first = r * x.tiles(), first_column = r / side * areas.columns;
    if (p.rounding.stochastic)
      return x.for_tiles([&](int tile, int c, int n) TESSERA_INLINE_LAMBDA {
        SharedDraws<side> draws;
        std::uint32_t const* const words =
            draws(p.rounding.seed, p.rounding.offset, p.rounding.index(x.at.row + r, x.at.column + c), n);
        float quotients[side];
        float const divisor = room.rows.divisor[first + tile];
        for (int i = 0; i < n; ++i) quotients[i] = static_cast<float>(x(r)[c + i]) / divisor;
        draw(quotients, words, n, to + c);
        if (by_columns == nullptr) return;
        for (int i = 0; i < n; ++i)
          quotients[i] = static_cast<float>(x(r)[c + i]) / room.columns.divisor[first_column + c + i];
        draw(quotients, words, n, by_columns + c);
      });
    divide(x(r), x.at.columns, room.rows, first, side_shift, to);
    if (by_columns != nullptr) divide(x(r), x.at.columns, room.columns, first_column, by_columns);
  }
  KOKKOS_FORCEINLINE_FUNCTION void draw(float const* quotients, std::uint32_t const* words, int n,
                                        unsigned char* to) const {
    QuantizedTypes::visit(p.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      for (int i = 0; i < n; ++i)
        reinterpret_cast<To*>(to)[i] = p.rounding.template with_word<To>(quotients[i], words[i]);
    });
  }

  /// `count` neighbours, as many of which may be stored at once as the output's layout allows.
  KOKKOS_FORCEINLINE_FUNCTION void put(unsigned char* to, std::int64_t stride, unsigned char const* from,
                                       int count) const {
    if (stride != 1) {
      for (int i = 0; i < count; ++i) to[i * stride] = from[i];
    } else if (streamed) {
      stream(moves, to, from, static_cast<std::size_t>(count));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(count));
    }
  }

  /// How many elements of a row were cut off.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION int count_cut_off(Room const& room, Rows<T> const& x, int r) const {
    int count = 0;
    x.for_tiles([&](int tile, int c, int n) TESSERA_INLINE_LAMBDA {
      float const scale = room.rows.divisor[r * x.tiles() + tile];
      for (int i = 0; i < n; ++i) {
        float const element = static_cast<float>(x(r)[c + i]);
        count += p.rounding.cuts_off(element, element / scale);
      }
    });
    return count;
  }

  /// The rows, and in the room those of the transposed copy; meanwhile the memory is asked for the area of team `next`,
  /// which this core most likely takes next.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void write(Room& room, Rows<T> const& x, std::int64_t next) const {
    HostArea const after =
        areas.in_place && next < areas.all ? areas.of_team(next) : HostArea{x.at.row, x.at.column, 0, 0};
    T const* const ahead = element<T>(after.row, after.column);
    auto* const first =
        static_cast<unsigned char*>(const_cast<void*>(p.out.data)) + x.at.row * p.out.row + x.at.column * p.out.column;
    bool const keeps = p.transposed.present(), keeps_others = p.transposed_scales.present();
    std::int64_t cut_off = 0;
    for (int r = 0; r < x.at.rows; ++r) {
      if (r < after.rows) fetch_ahead(ahead + r * p.in.row, static_cast<std::size_t>(after.columns) * sizeof(T));
      unsigned char* const kept = keeps ? room.rounded + r * areas.columns : nullptr;
      unsigned char* const rounded = keeps && !keeps_others ? kept : room.row;
      round_row(room, x, r, rounded, keeps_others ? kept : nullptr);
      put(first + r * p.out.row, p.out.column, rounded, x.at.columns);
      if (p.saturated != nullptr) cut_off += count_cut_off(room, x, r);
    }
    if (cut_off > 0) Kokkos::atomic_add(p.saturated, cut_off);
  }

  /// So many columns from `begin` on, and a few rows and columns more, for which there is room.
  KOKKOS_FORCEINLINE_FUNCTION void turn(Room& room, int begin, int rows, int columns) const {
    static_assert(side % transposed_rows == 0 && Room::turned_columns % transposed_columns == 0);
    unsigned char const* const from = room.rounded + begin;
    auto const whole = [](int n, int of) TESSERA_INLINE_LAMBDA { return (n + of - 1) / of * of; };
    if (moves != nullptr)
      return moves->transpose(from, areas.columns, whole(rows, transposed_rows), whole(columns, transposed_columns),
                              room.turned, areas.rows);
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) room.turned[c * areas.rows + r] = from[r * areas.columns + c];
  }

  KOKKOS_FORCEINLINE_FUNCTION void write_transposed(Room& room, HostArea const& at) const {
    constexpr int together = Room::turned_columns;
    Operand const& t = p.transposed;
    auto* const first = static_cast<unsigned char*>(const_cast<void*>(t.data)) + at.column * t.row + at.row * t.column;
    for (int begin = 0; begin < at.columns; begin += together) {
      int const columns = at.columns - begin < together ? at.columns - begin : together;
      turn(room, begin, at.rows, columns);
      for (int c = 0; c < columns; ++c)
        put(first + (begin + c) * t.row, t.column, room.turned + c * areas.rows, at.rows);
    }
  }
};

}  // namespace tessera::detail

#endif
