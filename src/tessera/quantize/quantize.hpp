// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_QUANTIZE_HPP
#define TESSERA_QUANTIZE_QUANTIZE_HPP

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/quantize.hpp>
#include <tessera/quantize/host_lines.hpp>
#include <tessera/quantize/packed.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/quantize/square.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

template <class Walk>
KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits tile_amax(Walk& tile, Operand const& in) {
  auto const load = [&](std::int64_t p) TESSERA_INLINE_LAMBDA { tile.template load<WideTypes>(in, p, tile.x, 0.0f); };
  return canonical(tile.template reduce<Larger>(MagnitudeBits{0}, load,
                                                [](float x) TESSERA_INLINE_LAMBDA { return magnitude_bits(x); }));
}

/// What kernels then raise and add to; either may be absent.
struct ClearResults {
  float* amax;
  std::int64_t* saturated;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    if (amax != nullptr) *amax = 0;
    if (saturated != nullptr) *saturated = 0;
  }
};

/// Turns the maximum over the matrix into its scale; the two may be the same number.
struct FinishScale {
  float const* amax;
  float* scale;
  float largest;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { *scale = scale_of(magnitude_bits(*amax), largest); }
};

template <class Exec, class Shape>
struct AmaxKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand in;
  float* amax;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, float, Shape>(team, grid, tiles, tiles_a_team, [&](auto& tile) TESSERA_INLINE_LAMBDA {
      MagnitudeBits const bits = tile_amax(tile, in);
      if (tile.is_first_lane()) raise(amax, bits);
    });
  }
};

/// With `scale_is_given` (per_tensor) the scale is read, otherwise it is the tile's own and written. Without an output
/// that is all.
template <class Exec, class Shape>
struct QuantizeKernel {
  TileGrid grid;
  Operand out, in, scales;
  float* amax;  // may be absent
  float largest;
  bool scale_is_given;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, float, Shape>(team, grid, tiles, tiles_a_team,
                                      [&](auto& tile) TESSERA_INLINE_LAMBDA { one_tile(tile); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_tile(Walk& tile) const {
    auto const load = [&](std::int64_t p) TESSERA_INLINE_LAMBDA { tile.template load<WideTypes>(in, p, tile.x, 0.0f); };
    auto const already_loaded = [](std::int64_t) TESSERA_INLINE_LAMBDA {};
    float scale;
    if (scale_is_given) {
      scale = tile.value(scales);
      if constexpr (Shape::held) load(0);
    } else {
      MagnitudeBits const bits = tile_amax(tile, in);
      scale = scale_of(bits, largest);
      if (tile.is_first_lane()) {
        tile.store_value(scales, scale);
        if (amax != nullptr) raise(amax, bits);
      }
    }
    if (!out.present()) return;
    auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      tile.map([&](float x) TESSERA_INLINE_LAMBDA { return x / scale; });
      tile.template store<QuantizedTypes>(out, p);
    };
    if constexpr (Shape::held)
      tile.for_each_portion(already_loaded, write);
    else
      tile.for_each_portion(load, write);
  }
};

template <class Exec, class Shape>
struct DequantizeKernel {
  TileGrid grid;
  Operand out, in, scales;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, float, Shape>(team, grid, tiles, tiles_a_team,
                                      [&](auto& tile) TESSERA_INLINE_LAMBDA { one_tile(tile); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_tile(Walk& tile) const {
    float const scale = tile.value(scales);
    tile.for_each_portion([&](std::int64_t p)
                              TESSERA_INLINE_LAMBDA { tile.template load<QuantizedTypes>(in, p, tile.x, 0.0f); },
                          [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
                            tile.map([&](float x) TESSERA_INLINE_LAMBDA { return x * scale; });
                            tile.template store<WideTypes>(out, p);
                          });
  }
};

/// What takes blocks (blocks.hpp): a problem with given scales, a transposed copy, counts or stochastic rounding.
/// Scales that are not given, of tiles only, and amax are found on the way where finds_scales_of_blocks() says so;
/// elsewhere all scales are there. Compiled apart.
template <class Exec>
bool finds_scales_of_blocks(Exec const& exec, QuantizeProblem const& problem);
template <class Exec>
void run_quantize_blocks(Exec const& exec, QuantizeProblem const& problem);

// ---- from a problem to a grid and a shape

using WarpShape = Shape<128, Worker::thread, true, 4, 8>;     // up to 1024 elements
using TeamShape = Shape<256, Worker::team, true, 4, 8>;       // up to 8192
using LongShape = Shape<512, Worker::team, false, 4, 8>;      // any number
using Tile128Shape = Shape<128, Worker::thread, true, 1, 4>;  // 128: four elements a lane

inline constexpr std::int64_t warp_elements = 1024, team_elements = 8192;

/// f(Shape{}) for tiles of one row and n elements.
template <class Exec, class F>
void with_line_shape(std::int64_t n, F const& f) {
  if constexpr (Machine<Exec>::lanes == 1) {
    f(HostShape{});
  } else {
    if (n <= warp_elements)
      f(WarpShape{});
    else if (n <= team_elements)
      f(TeamShape{});
    else
      f(LongShape{});
  }
}

/// The grid of tiles of one row and at most 8192 elements, for work in which tiles are independent.
inline TileGrid segment_grid(RowArray const& a) {
  TileGrid grid = row_grid(a);
  grid.tile_columns = grid.columns <= team_elements ? grid.columns : team_elements;
  grid.column_tiles = grid.columns == 0 ? 0 : (grid.columns + grid.tile_columns - 1) / grid.tile_columns;
  return grid;
}

/// The grid of the tiles that have a scale each.
inline TileGrid scale_grid(RowArray const& in, RowArray const& scales, Granularity granularity) {
  TileGrid grid = row_grid(in);
  if (granularity == Granularity::tile_128x128) grid.tile_rows = quantized_tile;
  if (granularity != Granularity::per_row) grid.tile_columns = quantized_tile;
  grid.row_tiles = scales.extent[2];
  grid.column_tiles = scales.extent[3];
  return grid;
}

/// f(Shape{}) for the tiles of scale_grid but those of 128 x 128, which have kernels of their own.
template <class Exec, class F>
void with_tile_shape(Granularity granularity, std::int64_t columns, F const& f) {
  if (granularity == Granularity::tile_1x128)
    f(Tile128Shape{});
  else
    with_line_shape<Exec>(columns, f);
}

/// Elements in any order will do: puts the smaller strides last and makes one row of what is contiguous.
inline void flatten(RowArray& a, RowArray& b) {
  if (a.stride[2] < a.stride[3] && b.stride[2] < b.stride[3]) {
    for (RowArray* x : {&a, &b}) {
      std::swap(x->stride[2], x->stride[3]);
      std::swap(x->extent[2], x->extent[3]);
    }
  }
  auto const contiguous = [](RowArray const& x) { return x.stride[2] == x.extent[3] * x.stride[3]; };
  if (contiguous(a) && contiguous(b)) {
    for (RowArray* x : {&a, &b}) {
      x->extent[3] *= x->extent[2];
      x->extent[2] = 1;
    }
  }
}

template <class Shape, class Exec>
void start_quantize(char const* label, Exec const& exec, QuantizeProblem const& problem, TileGrid const& grid,
                    bool scale_is_given) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  QuantizeKernel<KernelSpace<Exec>, Shape> kernel{grid,
                                                  operand(problem.out, grid, Shape::width, wide),
                                                  operand(problem.in, grid, Shape::width, wide),
                                                  operand(problem.scales, grid, Shape::width, wide),
                                                  problem.amax,
                                                  largest_of(problem.out.type),
                                                  scale_is_given};
  launch_tiles<Shape>(label, exec, grid, kernel);
}

/// A CPU's rows, whose scales are given or their own.
template <class Exec>
void start_host_lines(char const* label, Exec const& exec, QuantizeProblem const& problem, LineScales which) {
  TileGrid const grid = row_grid(problem.in);
  HostQuantizeLines kernel{operand(problem.out, grid, 1, false),
                           operand(problem.in, grid, 1, false),
                           scale_map(problem.scales, problem.granularity),
                           which,
                           problem.amax,
                           largest_of(problem.out.type),
                           StripDivision(problem.in.type, problem.out.type),
                           HostSegments(grid.rows, grid.columns, which == LineScales::of_rows)};
  kernel.out.streamed = problem.out.present() && may_stream(problem.out, grid, problem.in);
  launch<32>(label, exec, kernel.segments.teams(), 0, kernel);
}

template <class Exec>
void clear_results(Exec const& exec, float* amax, std::int64_t* saturated) {
  if (amax != nullptr || saturated != nullptr)
    for_each_index("tessera::quantize::clear", exec, 1, ClearResults{amax, saturated});
}

/// Raises problem.amax.
template <class Exec>
void find_amax(Exec const& exec, QuantizeProblem problem) {
  constexpr char const* label = "tessera::quantize::amax";
  problem.granularity = Granularity::per_tensor;
  flatten(problem.in, problem.out);
  if (start_packed_quantize(label, exec, problem, QuantizePart::amax)) return;
  TileGrid const grid = segment_grid(problem.in);
  with_line_shape<Exec>(grid.tile_columns, [&](auto shape) {
    using Shape = decltype(shape);
    constexpr bool wide = Machine<Exec>::lanes > 1;
    launch_tiles<Shape>(
        label, exec, grid,
        AmaxKernel<KernelSpace<Exec>, Shape>{grid, operand(problem.in, grid, Shape::width, wide), problem.amax});
  });
}

template <class Exec>
void quantize_per_tensor(Exec const& exec, QuantizeProblem problem) {
  constexpr char const* label = "tessera::quantize::round";
  auto* const scale = static_cast<float*>(const_cast<void*>(problem.scales.data));
  if (problem.amax == nullptr) problem.amax = scale;
  clear_results(exec, problem.amax, nullptr);
  find_amax(exec, problem);
  for_each_index("tessera::quantize::scale", exec, 1, FinishScale{problem.amax, scale, largest_of(problem.out.type)});
  if (!problem.out.present()) return;
  flatten(problem.in, problem.out);
  if (start_packed_quantize(label, exec, problem, QuantizePart::rounding)) return;
  if constexpr (Machine<Exec>::is_host) {
    problem.amax = nullptr;
    start_host_lines(label, exec, problem, LineScales::given);
  } else {
    TileGrid const grid = segment_grid(problem.in);
    with_line_shape<Exec>(grid.tile_columns,
                          [&](auto shape) { start_quantize<decltype(shape)>(label, exec, problem, grid, true); });
  }
}

/// The scales, amax and, if present, the output: all that many problems ask for.
template <class Exec>
void quantize_groups(Exec const& exec, QuantizeProblem const& problem) {
  if (problem.granularity == Granularity::per_tensor) return quantize_per_tensor(exec, problem);
  clear_results(exec, problem.amax, nullptr);
  if (start_packed_quantize("tessera::quantize", exec, problem, QuantizePart::all)) return;
  if constexpr (Machine<Exec>::is_host) {
    if (problem.granularity == Granularity::tile_128x128) return run_quantize_blocks(exec, problem);
    start_host_lines("tessera::quantize", exec, problem,
                     problem.granularity == Granularity::per_row ? LineScales::of_rows : LineScales::of_tiles);
  } else {
    TileGrid const grid = scale_grid(problem.in, problem.scales, problem.granularity);
    if (problem.granularity == Granularity::tile_128x128)
      return launch<square_threads>(
          "tessera::quantize", exec, grid.tiles(), 0,
          SquareQuantize<Exec>{grid, operand(problem.out, grid, 1, true), operand(problem.in, grid, 1, true),
                               operand(problem.scales, grid, 1, true), problem.amax, largest_of(problem.out.type)});
    with_tile_shape<Exec>(problem.granularity, grid.columns, [&](auto shape) {
      start_quantize<decltype(shape)>("tessera::quantize", exec, problem, grid, false);
    });
  }
}

/// Nothing but scales and amax. (An absent output has the layout of the input, so as not to decide on the kernel.)
template <class Exec>
void find_scales(Exec const& exec, QuantizeProblem problem) {
  Scalar const type = problem.out.type;
  problem.out = problem.in;
  problem.out.data = nullptr;
  problem.out.type = type;
  quantize_groups(exec, problem);
}
template <class Exec>
void find_transposed_scales(Exec const& exec, QuantizeProblem problem) {
  std::swap(problem.in.extent[2], problem.in.extent[3]);
  std::swap(problem.in.stride[2], problem.in.stride[3]);
  problem.scales = problem.transposed_scales;
  problem.amax = nullptr;
  find_scales(exec, problem);
}

template <class Exec>
void run_quantize(Exec const& exec, QuantizeProblem const& given) {
  if (!given.given_scales && !given.transposed.present() && given.saturated == nullptr && !given.stochastic)
    return quantize_groups(exec, given);
  QuantizeProblem problem = given;
  clear_results(exec, problem.amax, problem.saturated);
  if constexpr (Machine<Exec>::is_host)
    if (!problem.transposed.present() && problem.saturated == nullptr && !problem.stochastic) {
      if (problem.granularity == Granularity::per_tensor) flatten(problem.in, problem.out);
      return start_host_lines("tessera::quantize", exec, problem, LineScales::given);
    }
  bool const tiles = problem.granularity == Granularity::tile_1x128 || problem.granularity == Granularity::tile_128x128;
  bool const in_blocks = finds_scales_of_blocks(exec, problem);
  if (problem.given_scales) {
    if (problem.amax != nullptr && !in_blocks) find_amax(exec, problem);
  } else if (!tiles || !in_blocks) {
    find_scales(exec, problem);
    if (problem.transposed_scales.present()) find_transposed_scales(exec, problem);
    problem.given_scales = true;
    problem.amax = nullptr;
  }
  run_quantize_blocks(exec, problem);
}

template <class Exec>
void run_dequantize(Exec const& exec, QuantizeProblem const& given) {
  QuantizeProblem problem = given;
  if (problem.granularity == Granularity::per_tensor) flatten(problem.in, problem.out);
  if (start_packed_dequantize(exec, problem)) return;
  if constexpr (Machine<Exec>::is_host) {
    TileGrid const grid = row_grid(problem.in);
    HostDequantizeLines kernel{operand(problem.out, grid, 1, false), operand(problem.in, grid, 1, false),
                               scale_map(problem.scales, problem.granularity),
                               StripProduct(problem.in.type, problem.out.type),
                               HostSegments(grid.rows, grid.columns, false)};
    kernel.out.streamed = may_stream(problem.out, grid, problem.in);
    launch<32>("tessera::dequantize", exec, kernel.segments.teams(), 0, kernel);
  } else {
    bool const tiled =
        problem.granularity == Granularity::tile_1x128 || problem.granularity == Granularity::tile_128x128;
    TileGrid const grid =
        tiled ? scale_grid(problem.in, problem.scales, problem.granularity) : segment_grid(problem.in);
    if (problem.granularity == Granularity::tile_128x128)
      return launch<square_threads>(
          "tessera::dequantize", exec, grid.tiles(), 0,
          SquareDequantize<Exec>{grid, operand(problem.out, grid, 1, true), operand(problem.in, grid, 1, true),
                                 operand(problem.scales, grid, 1, true)});
    with_tile_shape<Exec>(problem.granularity, grid.tile_columns, [&](auto shape) {
      using Shape = decltype(shape);
      auto const tiles = [&](RowArray const& a) { return operand(a, grid, Shape::width, true); };
      launch_tiles<Shape>("tessera::dequantize", exec, grid,
                          DequantizeKernel<KernelSpace<Exec>, Shape>{grid, tiles(problem.out), tiles(problem.in),
                                                                     tiles(problem.scales)});
    });
  }
}

}  // namespace tessera::detail

#endif
