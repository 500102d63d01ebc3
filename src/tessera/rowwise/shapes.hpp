// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SHAPES_HPP
#define TESSERA_ROWWISE_SHAPES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/detail/rows.hpp>
#include <tessera/launch.hpp>
#include <tessera/rowwise/walk.hpp>

// Which shape a row of a given length gets, and how rows become a grid.
namespace tessera::detail {

/// One thread, 64 elements at a time: a few vector registers' worth, small enough for the L1 cache.
using HostShape = Shape<32, Worker::thread, false, 1, 64>;

/// Calls f(Shape{}) with the shape for rows of n elements. Lanes hold 32 numbers at most: with the temporaries of a
/// kernel that stays within the 128 registers a thread has at 512 threads.
template <class Exec, class Acc, class F>
void with_row_shape(std::int64_t n, F const& f) {
  if constexpr (Machine<Exec>::lanes == 1) {
    f(HostShape{});
  } else if constexpr (std::is_same_v<Acc, double>) {
    if (n <= 512)
      f(Shape<128, Worker::thread, true, 4, 4>{});
    else
      f(Shape<512, Worker::team, false, 2, 4>{});
  } else {
    if (n <= 256)
      f(Shape<128, Worker::thread, true, 1, 8>{});
    else if (n <= 1024)
      f(Shape<128, Worker::thread, true, 4, 8>{});
    else if (n <= 4096)
      f(Shape<256, Worker::team, true, 2, 8>{});
    else if (n <= 16384)
      f(Shape<512, Worker::team, true, 4, 8>{});
    else
      f(Shape<512, Worker::team, false, 4, 8>{});
  }
}

/// How many tiles a team takes: one a worker, but on a CPU enough elements to be worth a team's start.
template <class Exec, class Shape>
std::int64_t tiles_per_team(TileGrid const& grid) {
  std::int64_t const workers = Shape::template workers<Exec>;
  if (Machine<Exec>::lanes > 1) return workers;
  constexpr std::int64_t elements_a_team = 16384;
  std::int64_t const elements = grid.tile_rows * grid.tile_columns;
  return elements >= elements_a_team ? 1 : elements_a_team / (elements + 1) + 1;
}

/// Starts `kernel` over the grid. A kernel has the members `tiles` and `tiles_a_team`.
template <class Shape, class Exec, class Kernel>
void launch_tiles(char const* label, Exec const& exec, TileGrid const& grid, Kernel kernel) {
  kernel.tiles = grid.tiles();
  kernel.tiles_a_team = tiles_per_team<Exec, Shape>(grid);
  launch<Shape::threads>(label, exec, (kernel.tiles + kernel.tiles_a_team - 1) / kernel.tiles_a_team, 0, kernel);
}

/// The rows of an operand, as tiles of the grid.
inline TileGrid row_grid(RowArray const& a) {
  TileGrid grid;
  grid.leading[0] = a.extent[0];
  grid.leading[1] = a.extent[1];
  grid.rows = grid.row_tiles = a.extent[2];
  grid.columns = grid.tile_columns = a.extent[3];
  grid.column_tiles = 1;
  return grid;
}

inline Operand operand(RowArray const& a, TileGrid const& grid, int width, bool wide) {
  Operand o{a.data, a.type, false, a.stride[0], a.stride[1], a.stride[2], a.stride[3]};
  o.packed = is_packed(o, grid, width, wide);
  return o;
}

/// Merges leading extents that follow one another without a gap in every operand, so that kernels divide less.
template <class... Array>
void collapse(RowArray& first, Array&... rest) {
  for (int outer : {1, 0}) {
    int const inner = 2;
    auto const merges = [&](RowArray const& a) {
      return !a.present() || a.extent[outer] == 1 || first.extent[outer] == 1 ||
             a.stride[outer] == a.stride[inner] * first.extent[inner];
    };
    if (first.extent[outer] == 1) continue;
    bool const alone = first.extent[inner] == 1;
    if (!alone && !(merges(first) && ... && merges(rest))) return;
    std::int64_t const merged = first.extent[outer] * first.extent[inner];
    auto const merge = [&](RowArray& a) {
      if (!a.present()) return;
      if (alone) a.stride[inner] = a.stride[outer];
      a.stride[outer] = 0;
    };
    merge(first);
    (merge(rest), ...);
    first.extent[outer] = 1;
    first.extent[inner] = merged;
  }
}

}  // namespace tessera::detail

#endif
