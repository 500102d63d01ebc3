// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SHAPES_HPP
#define TESSERA_ROWWISE_SHAPES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/detail/rows.hpp>
#include <tessera/launch.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/streaming.hpp>

// Which shape a row of a given length gets, and how rows become a grid.
namespace tessera::detail {

/// One thread, 256 elements at a time: a few of such strips stay in the first-level cache, and what finding the next
/// one costs is little beside the work on it.
using HostShape = Shape<32, Worker::thread, false, 1, 256>;

/// Calls f(Shape{}) with the shape for rows of n elements. Elsewhere such rows are those that the kernels for packed
/// ones leave: of mixed types, of fp64, with any strides. Every way to load an element is unrolled in every pass, so a
/// lane has few of them: 32 instead of 8 took the compiler ten times as long.
template <class Exec, class Acc, class F>
void with_row_shape(std::int64_t n, F const& f) {
  if constexpr (Machine<Exec>::lanes == 1) {
    f(HostShape{});
  } else if constexpr (std::is_same_v<Acc, double>) {
    if (n <= 128)
      f(Shape<128, Worker::thread, true, 1, 4>{});
    else if (n <= 512)
      f(Shape<128, Worker::team, true, 1, 4>{});
    else
      f(Shape<512, Worker::team, false, 1, 4>{});
  } else {
    if (n <= 256)
      f(Shape<128, Worker::thread, true, 1, 8>{});
    else if (n <= 1024)
      f(Shape<128, Worker::team, true, 1, 8>{});
    else if (n <= 4096)
      f(Shape<512, Worker::team, true, 1, 8>{});
    else
      f(Shape<512, Worker::team, false, 1, 8>{});
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
void launch_tiles(char const* label, Exec const& exec, TileGrid const& grid, Kernel kernel, std::size_t scratch = 0) {
  kernel.tiles = grid.tiles();
  kernel.tiles_a_team = tiles_per_team<Exec, Shape>(grid);
  launch<Shape::threads>(KernelLabel{label, Shape::held   ? "element by element, in registers"
                                            : scratch > 0 ? "element by element, results between passes in scratch"
                                                          : "element by element, in passes"},
                         exec, (kernel.tiles + kernel.tiles_a_team - 1) / kernel.tiles_a_team, scratch, kernel);
}

/// Elements of a CPU's row of which a core keeps the results between passes in its second-level cache; 0 if it has
/// more than that has room for.
template <class Shape>
std::int64_t kept_elements(TileGrid const& grid, std::size_t size) {
  constexpr std::int64_t room = 128 << 10, portion = Shape::packs * Shape::width;
  std::int64_t const elements = (grid.columns + portion - 1) / portion * portion;
  return elements * static_cast<std::int64_t>(size) <= room ? elements : 0;
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

/// Whether a CPU stores this result past its caches: with what is read, it is larger than they are, none of that lies
/// where it goes, and packs are whole lines of memory.
template <class... Array>
bool may_stream(RowArray const& out, TileGrid const& grid, Array const&... in) {
  auto const bytes = [](RowArray const& a) {
    return a.extent[0] * a.extent[1] * a.extent[2] * a.extent[3] * static_cast<std::int64_t>(size_of(a.type));
  };
  auto const lines = [&](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || stride * static_cast<std::int64_t>(size_of(out.type)) % line_of_memory == 0;
  };
  return ((in.data != out.data) && ...) && worth_streaming((bytes(out) + ... + bytes(in))) &&
         reinterpret_cast<std::uintptr_t>(out.data) % line_of_memory == 0 && lines(grid.leading[0], out.stride[0]) &&
         lines(grid.leading[1], out.stride[1]) && lines(grid.rows, out.stride[2]) &&
         lines(grid.column_tiles, grid.tile_columns);
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
