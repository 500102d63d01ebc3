// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_BLOCKS_HPP
#define TESSERA_QUANTIZE_HOST_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/byte_squares.hpp>
#include <tessera/element/draws.hpp>
#include <tessera/quantize/blocks.hpp>
#include <tessera/quantize/host_strips.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>

// Blocks on a CPU: a core divides and rounds one, row by row, and turns what it has rounded in its caches.
namespace tessera::detail {

struct HostBlocks {
  static constexpr bool vectorises = true;
  static constexpr int side = block_side, side_shift = 7;
  static_assert(side == 1 << side_shift);

  /// Where a core works on its block.
  struct Room {
    unsigned char rounded[side * side];  // (rows, columns)
    unsigned char turned[side * side];   // (columns, rows)
    float gathered[side * side];         // (rows, columns) of an input whose columns are no neighbours
    Divisors<side> rows, columns;        // the latter where the transposed copy has its own
    MagnitudeBits row_top[side], column_top[side];
  };

  BlockProblem p;
  StripDivision divide;
  bool streamed;  // results go past the caches

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    auto& room = *static_cast<Room*>(team.team_shmem().get_shmem_aligned(sizeof(Room), line_of_memory));
    BlockPlace const at(p, team.league_rank());
    auto const inside = [](std::int64_t left)
                            TESSERA_INLINE_LAMBDA { return static_cast<int>(left < side ? left : side); };
    int const rows = inside(p.rows - at.row()), columns = inside(p.columns - at.column());
    void const* first = room.gathered;
    Scalar type = Scalar::fp32;
    std::int64_t stride = side;
    WideTypes::visit(p.in.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      T const* const x = static_cast<T const*>(p.in.data) + at.row() * p.in.row + at.column() * p.in.column;
      if (!std::is_same_v<T, double> && p.in.column == 1) {
        first = x;
        type = p.in.type;
        stride = p.in.row;
      } else {
        for (int c = 0; c < columns; ++c)
          for (int r = 0; r < rows; ++r)
            room.gathered[r * side + c] = static_cast<float>(x[r * p.in.row + c * p.in.column]);
      }
    });
    NeighbourTypes::visit(type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      work(room, at, Block<T>{static_cast<T const*>(first), stride, rows, columns});
    });
    streaming_done();
  }

 private:
  template <class T>
  struct Block {
    T const* first;
    std::int64_t stride;
    int rows, columns;
    KOKKOS_FORCEINLINE_FUNCTION T const* row(int r) const { return first + r * stride; }
  };

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void work(Room& room, BlockPlace const& at, Block<T> const& block) const {
    find_scales(room, at, block);
    write(room, at, block);
    if (p.transposed.present()) write_transposed(room, at, block);
  }

  /// Of rows and, where the transposed copy has its own scales, of columns; the largest of all of them.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits find_tops(Room& room, Block<T> const& block) const {
    MagnitudeBits top = 0;
    for (int r = 0; r < block.rows; ++r) {
      room.row_top[r] = block.columns == side ? largest_magnitude(block.row(r), side)
                                              : largest_magnitude(block.row(r), block.columns);
      top = room.row_top[r] > top ? room.row_top[r] : top;
    }
    if (p.source != ScaleSource::line || !p.transposed_scales.present()) return top;
    find_column_tops(room, block);
    return top;
  }
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static void find_column_tops(Room& room, Block<T> const& block) {
    std::conditional_t<sizeof(T) == 2, std::int16_t, MagnitudeBits> tops[side] = {};
    for (int r = 0; r < block.rows; ++r) {
      T const* const x = block.row(r);
      for (int c = 0; c < block.columns; ++c) {
        if constexpr (sizeof(T) == 2) {  // as it is stored, as largest_magnitude() does
          auto const bits = static_cast<std::int16_t>(x[c].bits() & 0x7fff);
          tops[c] = bits > tops[c] ? bits : tops[c];
        } else {
          MagnitudeBits const bits = magnitude_bits(x[c]);
          tops[c] = bits > tops[c] ? bits : tops[c];
        }
      }
    }
    for (int c = 0; c < block.columns; ++c) {
      if constexpr (sizeof(T) == 2)
        room.column_top[c] = magnitude_bits(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(tops[c]))));
      else
        room.column_top[c] = tops[c];
    }
  }

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void find_scales(Room& room, BlockPlace const& at, Block<T> const& block) const {
    MagnitudeBits top = 0;
    if (p.source != ScaleSource::given || p.amax != nullptr) {
      top = find_tops(room, block);
      if (p.amax != nullptr) raise(p.amax, canonical(top));
    }
    for (int r = 0; r < block.rows; ++r) {
      float& scale = p.scales(at.row() + r, at.column());
      if (p.source == ScaleSource::line) scale = scale_of(canonical(room.row_top[r]), p.largest);
      if (p.source == ScaleSource::block && r == 0) scale = scale_of(canonical(top), p.largest);
      room.rows.divisor[r] = scale;
    }
    room.rows.prepare(block.rows);
    if (!p.transposed_scales.present()) return;
    for (int c = 0; c < side; ++c) {
      room.columns.divisor[c] = 1.0f;
      if (c >= block.columns) continue;
      float& scale = p.transposed_scales(at.column() + c, at.row());
      if (p.source == ScaleSource::line) scale = scale_of(canonical(room.column_top[c]), p.largest);
      room.columns.divisor[c] = scale;
    }
    room.columns.prepare(side);
  }

  /// A row divided by the first-th scale or, with `shift` 0, by those from there on.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void round_row(Room& room, BlockPlace const& at, Block<T> const& block, int r,
                                             Divisors<side> const& by, int first, int shift) const {
    T const* const x = block.row(r);
    unsigned char* const to = room.rounded + r * side;
    if (!p.rounding.stochastic) return divide(x, block.columns, by, first, shift, to);
    Draws<side> draws;
    std::uint32_t const* const words =
        draws(p.rounding.seed, p.rounding.offset, p.rounding.index(at.row() + r, at.column()), block.columns);
    float quotients[side];
    float const shared = by.divisor[first];
    if (shift == 0)
      for (int c = 0; c < block.columns; ++c) quotients[c] = static_cast<float>(x[c]) / by.divisor[first + c];
    else
      for (int c = 0; c < block.columns; ++c) quotients[c] = static_cast<float>(x[c]) / shared;
    QuantizedTypes::visit(p.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      for (int c = 0; c < block.columns; ++c)
        reinterpret_cast<To*>(to)[c] = p.rounding.template with_word<To>(quotients[c], words[c]);
    });
  }

  /// `count` neighbours, as many of which may be stored at once as the output's layout allows.
  KOKKOS_FORCEINLINE_FUNCTION void put(unsigned char* to, std::int64_t stride, unsigned char const* from,
                                       int count) const {
    if (stride != 1) {
      for (int i = 0; i < count; ++i) to[i * stride] = from[i];
    } else if (streamed) {
      stream(to, from, static_cast<std::size_t>(count));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(count));
    }
  }

  /// How many elements of a row were cut off.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION int count_cut_off(Block<T> const& block, int r, float scale) const {
    int count = 0;
    for (int c = 0; c < block.columns; ++c) {
      float const x = static_cast<float>(block.row(r)[c]);
      count += p.rounding.cuts_off(x, x / scale);
    }
    return count;
  }

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void write(Room& room, BlockPlace const& at, Block<T> const& block) const {
    auto* const first =
        static_cast<unsigned char*>(const_cast<void*>(p.out.data)) + at.row() * p.out.row + at.column() * p.out.column;
    bool const is_last = at.column() + 2 * side > p.columns;
    std::int64_t cut_off = 0;
    for (int r = 0; r < block.rows; ++r) {
      if (!is_last) fetch_ahead(block.row(r) + side, side * sizeof(T));  // of the next block, which this core takes
      round_row(room, at, block, r, room.rows, r, side_shift);
      if (p.saturated != nullptr) cut_off += count_cut_off(block, r, room.rows.divisor[r]);
      put(first + r * p.out.row, p.out.column, room.rounded + r * side, block.columns);
    }
    if (cut_off > 0) Kokkos::atomic_add(p.saturated, cut_off);
  }

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void write_transposed(Room& room, BlockPlace const& at, Block<T> const& block) const {
    int const rows = block.rows, columns = block.columns;
    if (p.transposed_scales.present())
      for (int r = 0; r < rows; ++r) round_row(room, at, block, r, room.columns, 0, 0);
    for (int r = 0; r < rows; r += byte_square)
      for (int c = 0; c < columns; c += byte_square)
        transpose_byte_square(room.rounded + r * side + c, side, room.turned + c * side + r, side);
    Operand const& t = p.transposed;
    auto* const first =
        static_cast<unsigned char*>(const_cast<void*>(t.data)) + at.column() * t.row + at.row() * t.column;
    for (int c = 0; c < columns; ++c) put(first + c * t.row, t.column, room.turned + c * side, rows);
  }
};

}  // namespace tessera::detail

#endif
