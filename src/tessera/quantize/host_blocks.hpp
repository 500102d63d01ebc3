// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_BLOCKS_HPP
#define TESSERA_QUANTIZE_HOST_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstring>

#include <tessera/element/draws.hpp>
#include <tessera/quantize/blocks.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>

// Blocks on a CPU: a core widens one into its second-level cache, and from there divides, rounds and turns it.
namespace tessera::detail {

/// Turns 8 x 8 bytes, each word a row with its first byte lowest, by exchanging ever smaller quarters.
KOKKOS_FORCEINLINE_FUNCTION void transpose_bytes(std::uint64_t (&x)[8]) {
  auto const exchange_parts = [&](int distance, std::uint64_t low) TESSERA_INLINE_LAMBDA {
    for (int i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      int const shift = 8 * distance;
      std::uint64_t const changed = ((x[i] >> shift) ^ x[i + distance]) & low;
      x[i] ^= changed << shift;
      x[i + distance] ^= changed;
    }
  };
  exchange_parts(4, 0x00000000ffffffffu);
  exchange_parts(2, 0x0000ffff0000ffffu);
  exchange_parts(1, 0x00ff00ff00ff00ffu);
}

struct HostBlocks {
  static constexpr bool vectorises = true;
  static constexpr int side = block_side;

  /// Where a core works on its block.
  struct Room {
    float x[side * side];                // (rows, columns)
    unsigned char rounded[side * side];  // the same
    unsigned char turned[side * side];   // (columns, rows)
    float row_scale[side], column_scale[side];
    MagnitudeBits row_top[side], column_top[side];
  };

  BlockProblem p;
  bool streamed;  // results go past the caches

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    auto& room = *static_cast<Room*>(team.team_shmem().get_shmem_aligned(sizeof(Room), line_of_memory));
    BlockPlace const at(p, team.league_rank());
    auto const inside = [](std::int64_t left)
                            TESSERA_INLINE_LAMBDA { return static_cast<int>(left < side ? left : side); };
    int const rows = inside(p.rows - at.row()), columns = inside(p.columns - at.column());
    load(room, at, rows, columns);
    find_scales(room, at, rows, columns);
    QuantizedTypes::visit(p.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      write<To>(room, at, rows, columns);
      if (p.transposed.present()) write_transposed<To>(room, at, rows, columns);
    });
    streaming_done();
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void load(Room& room, BlockPlace const& at, int rows, int columns) const {
    WideTypes::visit(p.in.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      T const* const first = static_cast<T const*>(p.in.data) + at.row() * p.in.row + at.column() * p.in.column;
      if (p.in.column == 1) {
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < columns; ++c) room.x[r * side + c] = static_cast<float>(first[r * p.in.row + c]);
      } else {
        for (int c = 0; c < columns; ++c)
          for (int r = 0; r < rows; ++r)
            room.x[r * side + c] = static_cast<float>(first[r * p.in.row + c * p.in.column]);
      }
    });
  }

  /// Those of rows and, where the transposed copy has its own, of columns.
  KOKKOS_FORCEINLINE_FUNCTION void find_scales(Room& room, BlockPlace const& at, int rows, int columns) const {
    MagnitudeBits top = 0;
    if (p.source != ScaleSource::given || p.amax != nullptr) {
      for (int c = 0; c < columns; ++c) room.column_top[c] = 0;
      for (int r = 0; r < rows; ++r) {
        MagnitudeBits row_top = 0;
        for (int c = 0; c < columns; ++c) {
          MagnitudeBits const x = magnitude_bits(room.x[r * side + c]);
          row_top = x > row_top ? x : row_top;
          room.column_top[c] = x > room.column_top[c] ? x : room.column_top[c];
        }
        room.row_top[r] = row_top;
        top = row_top > top ? row_top : top;
      }
      if (p.amax != nullptr) raise(p.amax, canonical(top));
    }
    for (int r = 0; r < rows; ++r) {
      float& scale = p.scales(at.row() + r, at.column());
      if (p.source == ScaleSource::line) scale = scale_of(canonical(room.row_top[r]), p.largest);
      if (p.source == ScaleSource::block && r == 0) scale = scale_of(canonical(top), p.largest);
      room.row_scale[r] = scale;
    }
    if (!p.transposed_scales.present()) return;
    for (int c = 0; c < columns; ++c) {
      float& scale = p.transposed_scales(at.column() + c, at.row());
      if (p.source == ScaleSource::line) scale = scale_of(canonical(room.column_top[c]), p.largest);
      room.column_scale[c] = scale;
    }
  }

  /// Elements of a row divided by scale(column).
  template <class To, class Scale>
  KOKKOS_FORCEINLINE_FUNCTION void round_row(Room& room, BlockPlace const& at, int r, int columns,
                                             Scale const& scale) const {
    float const* const x = room.x + r * side;
    To* const to = reinterpret_cast<To*>(room.rounded + r * side);
    if (p.rounding.stochastic) {
      Draws<side> draws;
      std::uint32_t const* const words =
          draws(p.rounding.seed, p.rounding.offset, p.rounding.index(at.row() + r, at.column()), columns);
      for (int c = 0; c < columns; ++c) to[c] = p.rounding.template with_word<To>(x[c] / scale(c), words[c]);
    } else {
      float quotients[side];
      for (int c = 0; c < columns; ++c) quotients[c] = x[c] / scale(c);
      store_neighbours(quotients, columns, to);
    }
  }

  /// `count` neighbours, as many of which may be stored at once as the output's layout allows.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void put(To* to, std::int64_t stride, unsigned char const* from, int count) const {
    auto const* const rounded = reinterpret_cast<To const*>(from);
    if (stride != 1) {
      for (int i = 0; i < count; ++i) to[i * stride] = rounded[i];
    } else if (streamed) {
      stream(to, from, static_cast<std::size_t>(count));
    } else {
      std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count));
    }
  }

  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write(Room& room, BlockPlace const& at, int rows, int columns) const {
    To* const first =
        static_cast<To*>(const_cast<void*>(p.out.data)) + at.row() * p.out.row + at.column() * p.out.column;
    std::int64_t cut_off = 0;
    for (int r = 0; r < rows; ++r) {
      float const scale = room.row_scale[r];
      round_row<To>(room, at, r, columns, [&](int) TESSERA_INLINE_LAMBDA { return scale; });
      if (p.saturated != nullptr) {
        int in_row = 0;
        for (int c = 0; c < columns; ++c) {
          float const x = room.x[r * side + c];
          in_row += p.rounding.cuts_off(x, x / scale);
        }
        cut_off += in_row;
      }
      put(first + r * p.out.row, p.out.column, room.rounded + r * side, columns);
    }
    if (cut_off > 0) Kokkos::atomic_add(p.saturated, cut_off);
  }

  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write_transposed(Room& room, BlockPlace const& at, int rows, int columns) const {
    if (p.transposed_scales.present())
      for (int r = 0; r < rows; ++r)
        round_row<To>(room, at, r, columns, [&](int c) TESSERA_INLINE_LAMBDA { return room.column_scale[c]; });
    for (int r = 0; r < rows; r += 8)
      for (int c = 0; c < columns; c += 8) {
        std::uint64_t bytes[8];
        for (int i = 0; i < 8; ++i) std::memcpy(&bytes[i], room.rounded + (r + i) * side + c, 8);
        transpose_bytes(bytes);
        for (int i = 0; i < 8; ++i) std::memcpy(room.turned + (c + i) * side + r, &bytes[i], 8);
      }
    Operand const& t = p.transposed;
    To* const first = static_cast<To*>(const_cast<void*>(t.data)) + at.column() * t.row + at.row() * t.column;
    for (int c = 0; c < columns; ++c) put(first + c * t.row, t.column, room.turned + c * side, rows);
  }
};

}  // namespace tessera::detail

#endif
