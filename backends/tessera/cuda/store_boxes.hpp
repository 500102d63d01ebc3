// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_STORE_BOXES_HPP
#define TESSERA_CUDA_STORE_BOXES_HPP

#include <cstdint>

#include <tessera/cuda/ptx.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/cuda/tensor_map.hpp>

// Boxes of 64 lines in shared memory that bulk stores take away, and bulk loads bring where something is added to them:
// lines of 128 bytes or shorter ones, swizzled, between them and the accumulators of a warpgroup.
namespace tessera::detail::bulk {

/// Boxes that the columns of a consumer fill, side by side: first those with lines of 128 bytes, then those with
/// lines of `line`.
struct StoreBoxes {
  int whole, shorter, line;
  bool all;  // no column is left over
};
template <class Accumulator>
constexpr StoreBoxes store_boxes_of(int element_bytes) {
  int const bytes = Accumulator::columns * element_bytes, rest = bytes % line_bytes, line = rest % 64 == 0 ? 64 : 32;
  return {bytes / line_bytes, rest / line, line, rest % line == 0};
}

/// Where a thread's pairs of neighbours are in a box of 64 lines: 16 bytes of line r are in place c ^ (r % 8) of lines
/// of 128 bytes, c ^ (r / 2 % 4) of 64. The one at element i of its accumulator is of column i / 4 * 8 behind the
/// first, in its first or second line; columns of a line differ by exclusive or.
template <class T, int Line>
struct PlacesOfPairs {
  int first;
  __device__ __forceinline__ explicit PlacesOfPairs(int warp) {
    unsigned const lane = static_cast<unsigned>(ptx::lane()), line = warp * 16 + lane / 4;
    first = static_cast<int>(line * Line + (lane % 4 * 2 * sizeof(T) ^ (lane / 4 / (line_bytes / Line)) << 4));
  }
  __device__ __forceinline__ int operator[](int i) const {
    return (first ^ i / 4 * 8 * static_cast<int>(sizeof(T))) + i % 4 / 2 * 8 * Line;
  }
};

/// One box of 64 lines from the accumulators of its columns.
template <class T, int Line, class Compute>
__device__ __forceinline__ void fill_box(Compute const* r, char* box, int warp) {
  if constexpr (sizeof(T) == 2) {                              // 16 x 16 elements at a time
    unsigned const lane = static_cast<unsigned>(ptx::lane()),  // no address is kept through the products
        line = warp * 16 + lane % 16, swizzle = lane % 8 / (line_bytes / Line);
    unsigned const first = line * Line + ((lane / 16 ^ swizzle) << 4);
#pragma unroll
    for (int j = 0; j < Line / 32; ++j) {
      std::uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = packed_pair<T>(r[j * 8 + i * 2], r[j * 8 + i * 2 + 1]);
      ptx::store_matrix_x4(ptx::shared_address(box) + (first ^ j * 32), x);
    }
  } else {  // two neighbours at a time
    PlacesOfPairs<T, Line> const places(warp);
#pragma unroll
    for (int i = 0; i < Line / static_cast<int>(sizeof(T)) / 2; i += 2)
      *reinterpret_cast<Pair<T>*>(box + places[i]) = rounded_pair<T>(r[i], r[i + 1]);
  }
}

/// r = alpha r + beta times what a box has in their places, in the order of two neighbours that fill_box() has.
template <class T, int Line, class Compute>
__device__ __forceinline__ void add_box(Compute* r, char const* box, int warp, Compute alpha, Compute beta) {
  PlacesOfPairs<T, Line> const places(warp);
#pragma unroll
  for (int i = 0; i < Line / static_cast<int>(sizeof(T)) / 2; i += 2) {
    float2 const c = widened_pair(*reinterpret_cast<Pair<T> const*>(box + places[i]));
    r[i] = alpha * r[i] + beta * c.x;
    r[i + 1] = alpha * r[i + 1] + beta * c.y;
  }
}

}  // namespace tessera::detail::bulk

#endif
