// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_TILES_HPP
#define TESSERA_CUDA_BULK_TILES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/atoms.hpp>
#include <tessera/cuda/tensor_map.hpp>
#include <tessera/cuda/wgmma.hpp>
#include <tessera/types.hpp>

// Tiles in shared memory, as the copy engine writes them and as the tensor cores read them.
namespace tessera::detail::bulk {

/// What the tensor cores take an element of memory for.
template <class Element>
struct Factor;
template <>
struct Factor<bf16_t> : ptx::Bf16 {};
template <>
struct Factor<fp16_t> : ptx::Fp16 {};
template <>
struct Factor<e4m3_t> : ptx::E4m3 {};
template <>
struct Factor<e5m2_t> : ptx::E5m2 {};
template <>
struct Factor<float> : ptx::Tf32 {};
template <>
struct Factor<std::int8_t> : ptx::Int8 {};

/// What the tensor cores add up in.
template <class Element>
using Sum = std::conditional_t<std::is_same_v<Element, std::int8_t>, std::int32_t, float>;

/// The rows of a right factor that lies with them contiguous, so that a lane's columns of an accumulator are its
/// columns of a left one: an accumulator's lane has two neighbours of every eight, a factor's four neighbouring bytes
/// of every sixteen, or words four apart of every eight.
template <int ElementBytes>
struct RowOrder {
  static constexpr int rows = ElementBytes == 1 ? 16 : 8;  // that change places with each other
  /// Which of them is in a place.
  KOKKOS_FUNCTION static constexpr int row(int place) {
    return ElementBytes == 1 ? place % 4 / 2 * 8 + place / 4 * 2 + place % 2 : place % 4 * 2 + place / 4;
  }
};

/// What a team loads of the tiles that it and `teams` of its cluster, bit by bit, need: as many lines as each of the
/// others, for all of them.
struct Share {
  int shift = 0, part = 0;  // of 2^shift parts
  std::uint16_t teams = 1;
};
/// The shares of a team in the tiles of its row and of its column of a cluster.
struct Neighbours {
  Share left, right;
  Neighbours() = default;
  __device__ __forceinline__ Neighbours(Share const& l, Share const& r) : left(l), right(r) {}
  __device__ __forceinline__ Neighbours(Cluster const& cluster, int team) {
    int const row = cluster.row(team), col = cluster.col(team);
    left = {cluster.cols / 2, col, static_cast<std::uint16_t>(((1 << cluster.cols) - 1) << (team - col))};
    // A column's teams are every first, second or fourth of the cluster.
    int const every = (cluster.cols == 1 ? 0xff : (cluster.cols == 2 ? 0x55 : 0x11)) & ((1 << cluster.teams()) - 1);
    right = {cluster.rows / 2, row, static_cast<std::uint16_t>(every << col)};
  }
};

/// Lines of 128 bytes, swizzled, a box for every line's worth of columns. `Transposed`: a tile of the transpose of
/// the matrix it is copied from. Teams that need the same tile may load as many of its lines each, for all.
template <class Element, int Lines, int Cols, bool Transposed = false>
struct Boxes {
  static constexpr int line = line_bytes / static_cast<int>(sizeof(Element));  // elements
  static constexpr int lines = Lines, boxes = (Cols + line - 1) / line;  // what a last one has too much is not read
  static constexpr bool transposed = Transposed;
  alignas(1024) unsigned char v[boxes][Lines][line_bytes];
};

/// Step k of a factor from its line (or, across, column) `first` on.
template <bool IsAcross, class Tile>
__device__ __forceinline__ std::uint64_t factor(Tile const& tile, int first, int k) {
  std::uint32_t const address = ptx::shared_address(tile.v);
  if constexpr (IsAcross)  // a step is 16 lines
    return ptx::wgmma_descriptor(address + first / Tile::line * (Tile::lines * line_bytes), Tile::lines * line_bytes,
                                 k * (16 * line_bytes / 16) + first % Tile::line * (line_bytes / Tile::line) / 16);
  else
    return ptx::wgmma_descriptor(address + (k / 4 * Tile::lines + first) * line_bytes, 16, k % 4 * 2);
}

}  // namespace tessera::detail::bulk

#endif
