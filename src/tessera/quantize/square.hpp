// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_SQUARE_HPP
#define TESSERA_QUANTIZE_SQUARE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/quantize/scale.hpp>
#include <tessera/rowwise/walk.hpp>

// Tiles of 128 x 128 on machines with wide teams: a team a tile, its threads side by side along the rows, the tile read
// twice (the second time from cache).
namespace tessera::detail {

inline constexpr int square_threads = 512;

/// The part of a tile that lies in the matrix, and its first element in an operand.
struct SquareTile {
  TileIndex at;
  int rows, columns;

  KOKKOS_FUNCTION SquareTile(TileGrid const& grid, int tile) : at(tile_index(grid, tile)) {
    std::int64_t const below = grid.rows - at.row * grid.tile_rows,
                       beside = grid.columns - at.column * grid.tile_columns;
    rows = static_cast<int>(below < grid.tile_rows ? below : grid.tile_rows);
    columns = static_cast<int>(beside < grid.tile_columns ? beside : grid.tile_columns);
  }
  KOKKOS_FUNCTION int size() const { return rows * columns; }
  KOKKOS_FUNCTION std::int64_t element(Operand const& a, TileGrid const& grid, int e) const {
    int const row = e / columns;
    return a.offset(grid, at) + row * a.row + (e - row * columns) * a.column;
  }
};

template <class Exec>
struct SquareQuantize {
  TileGrid grid;
  Operand out, in, scales;
  float* amax;  // may be absent
  float largest;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    SquareTile const tile(grid, team.league_rank());
    WideTypes::visit(in.type, [&](auto in_tag) {
      using In = typename decltype(in_tag)::type;
      In const* const from = static_cast<In const*>(in.data);
      MagnitudeBits bits = 0;
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, tile.size()),
          [&](int e, MagnitudeBits& top) {
            MagnitudeBits const x = magnitude_bits(static_cast<float>(from[tile.element(in, grid, e)]));
            top = x > top ? x : top;
          },
          Kokkos::Max<MagnitudeBits>(bits));
      bits = canonical(bits);
      float const scale = scale_of(bits, largest);
      Kokkos::single(Kokkos::PerTeam(team), [&] {
        static_cast<float*>(const_cast<void*>(scales.data))[scales.value_offset(tile.at)] = scale;
        if (amax != nullptr) raise(amax, bits);
      });
      if (!out.present()) return;
      QuantizedTypes::visit(out.type, [&](auto out_tag) {
        using Out = typename decltype(out_tag)::type;
        Out* const to = static_cast<Out*>(const_cast<void*>(out.data));
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile.size()), [&](int e) {
          to[tile.element(out, grid, e)] = stored<Out>(static_cast<float>(from[tile.element(in, grid, e)]) / scale);
        });
      });
    });
  }
};

template <class Exec>
struct SquareDequantize {
  TileGrid grid;
  Operand out, in, scales;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    SquareTile const tile(grid, team.league_rank());
    float const scale = static_cast<float const*>(scales.data)[scales.value_offset(tile.at)];
    QuantizedTypes::visit(in.type, [&](auto in_tag) {
      using In = typename decltype(in_tag)::type;
      In const* const from = static_cast<In const*>(in.data);
      WideTypes::visit(out.type, [&](auto out_tag) {
        using Out = typename decltype(out_tag)::type;
        Out* const to = static_cast<Out*>(const_cast<void*>(out.data));
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile.size()), [&](int e) {
          to[tile.element(out, grid, e)] =
              static_cast<Out>(static_cast<float>(from[tile.element(in, grid, e)]) * scale);
        });
      });
    });
  }
};

}  // namespace tessera::detail

#endif
