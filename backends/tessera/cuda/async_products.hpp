// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_PRODUCTS_HPP
#define TESSERA_CUDA_ASYNC_PRODUCTS_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/cuda/async_tiles.hpp>
#include <tessera/cuda/mma.hpp>
#include <tessera/portable/pack.hpp>

// What a warp holds of an accumulator, its M x N rectangle, and how it multiplies into it. Each kind names the k of a
// step and the fragments of a step, Lefts by rows and Rights, how row i of the left and part j of the right ones come
// from tiles in shared memory, and how a row is multiplied.
namespace tessera::detail::async {

/// A grid of 16 x 8 accumulators of mma.sync.
template <class Compute_, int M, int N>
struct MatrixShare {
  using Compute = Compute_;
  static constexpr int rows = M / 16, cols = N / 8;
  static constexpr int left_sets = 1;
  static constexpr int unrolled_steps = 16;  // all
  static_assert(is_power_of_two(M) && is_power_of_two(N) && M >= 16 && N >= 16);
  Compute r[rows][cols][4];

  /// f(element, row, column)
  template <class F>
  __device__ __forceinline__ void for_each(int lane, F const& f) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < cols; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(r[i][j][e], i * 16 + lane / 4 + e / 2 * 8, j * 8 + lane % 4 * 2 + e % 2);
  }

  // For the store, in parts of some rows: f(elements, line, column) with `run` elements of a row, which go to a line.
  static constexpr int parts = rows, part_lines = 16, run = 2;
  template <class F>
  __device__ __forceinline__ void for_part(int part, int lane, F const& f) const {
#pragma unroll
    for (int j = 0; j < cols; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) f(&r[part][j][h * 2], h * 8 + lane / 4, j * 8 + lane % 4 * 2);
  }
  __device__ __forceinline__ static int row_of(int line) { return line; }
};

/// The place in a tile of this lane's line for a load of the 16 rows of a factor from `first` on, 32 bytes of K.
/// `low_k_first`: of the four matrices, those of lower k come first; else those of lower rows. `Across`: the tile's
/// lines are the k of a factor of 16 bits.
template <bool Across, class Tile>
__device__ __forceinline__ std::uint32_t fragment_origin(Tile const& tile, int first, int lane, bool low_k_first) {
  int const row = (low_k_first ? lane / 16 : lane / 8 % 2) * 8, k = low_k_first ? lane / 8 % 2 : lane / 16;
  return ptx::shared_address(tile.v) + static_cast<std::uint32_t>(Across
                                                                      ? Tile::place(k * 8 + lane % 8, (first + row) / 8)
                                                                      : Tile::place(first + row + lane % 8, k));
}
/// The fragment that lies 16 * rows16 rows and 32 * k bytes of K behind that.
template <bool Across, class Tile>
__device__ __forceinline__ void load_fragment(std::uint32_t (&v)[4], std::uint32_t at, int rows16, int k) {
  if constexpr (Across)  // 16 rows are two packs, a step is 16 lines
    ptx::load_matrix_x4_transposed(v, (at ^ (rows16 * 32)) + k * 16 * Tile::pitch);
  else
    ptx::load_matrix_x4(v, (at ^ (k * 32)) + rows16 * 16 * Tile::pitch);
}

/// Elements of 16 and 8 bits, and fp32 rounded to tf32: 32 bytes of K a step, by matrix loads. 16-bit factors may lie
/// across.
template <class Element, class Compute, int M, int N>
struct TensorProduct : MatrixShare<Compute, M, N> {
  using Share = MatrixShare<Compute, M, N>;
  static constexpr int step = 32 / static_cast<int>(sizeof(Element));
  struct Lefts {
    std::uint32_t v[Share::rows][4];
  };
  struct Rights {
    std::uint32_t v[Share::cols / 2][4];
  };

  template <class Left, class Right>
  struct Loads {
    std::uint32_t left_at, right_at;
    __device__ __forceinline__ Loads(Left const& a, Right const& b, int row, int col, int lane)
        : left_at(fragment_origin<Left::transposed>(a, row, lane, false)),
          right_at(fragment_origin<Right::transposed>(b, col, lane, true)) {}
    __device__ __forceinline__ void left(int k, int i, Lefts& f) const {
      load_fragment<Left::transposed, Left>(f.v[i], left_at, i, k);
    }
    static constexpr int rights = Share::cols / 2;
    __device__ __forceinline__ void right(int k, int j, Rights& f) const {
      load_fragment<Right::transposed, Right>(f.v[j], right_at, j, k);
    }
  };

  /// Before the first row.
  __device__ __forceinline__ static void prepare(Rights& right) {
    if constexpr (std::is_same_v<Element, float>) {
#pragma unroll
      for (int j = 0; j < Share::cols / 2; ++j)
#pragma unroll
        for (std::uint32_t& x : right.v[j]) x = ptx::round_to_tf32(x);
    }
  }
  __device__ __forceinline__ void multiply(Lefts& left, Rights const& right, int i, int j) {
    if constexpr (std::is_same_v<Element, float>) {
      if (j == 0) {
#pragma unroll
        for (std::uint32_t& x : left.v[i]) x = ptx::round_to_tf32(x);
      }
    }
    ptx::mma(ScalarTag<Element>{}, this->r[i][j], left.v[i], right.v[j / 2][j % 2 * 2], right.v[j / 2][j % 2 * 2 + 1]);
  }
};

/// fp64, Step k a step.
template <int M, int N, int Step, int Unrolled>
struct DoubleProduct : MatrixShare<double, M, N> {
  using Share = MatrixShare<double, M, N>;
  static constexpr int step = Step, unrolled_steps = Unrolled;
  struct Lefts {
    double v[Share::rows][step / 2];
  };
  struct Rights {
    double v[Share::cols][step / 4];
  };

  /// A factor's elements as a lane reads them: of rows lane / 4, eight rows on and so forth, of k lane % 4 of each
  /// four.
  template <class Tile>
  struct Elements {
    Tile const& tile;
    int at;
    __device__ __forceinline__ Elements(Tile const& of, int row, int lane)
        : tile(of),
          at((Tile::transposed ? Tile::place(lane % 4, (row + lane / 4) / 2)
                               : Tile::place(row + lane / 4, lane % 4 / 2)) +
             (Tile::transposed ? lane / 4 : lane) % 2 * 8) {}
    /// Of the rows 8 * rows8 on, and the four k from 4 * k4 on.
    __device__ __forceinline__ double operator()(int rows8, int k4) const {
      // Eight rows are four packs, four k are two packs or four lines.
      int const first = Tile::transposed ? Tile::place(k4 * 4, rows8 * 4) : Tile::place(rows8 * 8, k4 * 2);
      constexpr int bank = Tile::bank_bytes;
      return *reinterpret_cast<double const*>(tile.v + (at ^ (first % bank)) + first / bank * bank);
    }
  };
  template <class Left, class Right>
  struct Loads {
    Elements<Left> of_a;
    Elements<Right> of_b;
    __device__ __forceinline__ Loads(Left const& a, Right const& b, int row, int col, int lane)
        : of_a(a, row, lane), of_b(b, col, lane) {}
    __device__ __forceinline__ void left(int k, int i, Lefts& f) const {
#pragma unroll
      for (int q = 0; q < step / 2; ++q) f.v[i][q] = of_a(i * 2 + q % 2, k * step / 4 + q / 2);
    }
    static constexpr int rights = Share::cols;
    __device__ __forceinline__ void right(int k, int j, Rights& f) const {
#pragma unroll
      for (int q = 0; q < step / 4; ++q) f.v[j][q] = of_b(j, k * step / 4 + q);
    }
  };

  __device__ __forceinline__ static void prepare(Rights const&) {}
  __device__ __forceinline__ void multiply(Lefts const& left, Rights const& right, int i, int j) {
    ptx::mma(this->r[i][j], left.v[i], right.v[j]);
  }
};

/// fp32 without tensor cores, one k a step: 8 x 4 lanes, or 4 x 8 of fewer rows, each with groups of 4 x 4 elements.
/// Lanes that differ in the lowest bit share rows and those that differ in the next share columns, so that reads of 16
/// bytes a lane take two passes through shared memory and not four.
template <int M, int N, int Unrolled>
struct CoreProduct {
  using Compute = float;
  static constexpr int lane_rows = M % 32 == 0 ? 8 : 4, lane_cols = 32 / lane_rows;
  static constexpr int rows = M / lane_rows, cols = N / lane_cols, step = 1;
  static constexpr int left_sets = 2;
  static constexpr int unrolled_steps = Unrolled;  // all 16 do not fit the cache of instructions
  static_assert(rows % 4 == 0 && cols % 4 == 0);
  float r[rows][cols];
  struct Lefts {
    float v[rows];
  };
  struct Rights {
    float v[cols];
  };

  __device__ __forceinline__ static int lane_row(int lane) { return lane / 2 % lane_rows; }
  __device__ __forceinline__ static int lane_col(int lane) { return lane % 2 + lane / (2 * lane_rows) * 2; }

  template <class F>
  __device__ __forceinline__ void for_each(int lane, F const& f) {
    int const row = lane_row(lane) * 4, col = lane_col(lane) * 4;
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < cols; ++j)
        f(r[i][j], i / 4 * (4 * lane_rows) + row + i % 4, j / 4 * (4 * lane_cols) + col + j % 4);
  }
  // Lines of a part are sorted so that lanes write neighbouring ones.
  static constexpr int parts = rows / 4, part_lines = 4 * lane_rows, run = 4;
  template <class F>
  __device__ __forceinline__ void for_part(int part, int lane, F const& f) const {
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int j = 0; j < cols; j += 4)
        f(&r[part * 4 + e][j], e * lane_rows + lane_row(lane), j * lane_cols + lane_col(lane) * 4);
  }
  __device__ __forceinline__ static int row_of(int line) { return line % lane_rows * 4 + line / lane_rows; }

  template <class Left, class Right>
  struct Loads {
    float const *left_at, *right_at;
    __device__ __forceinline__ Loads(Left const& a, Right const& b, int row, int col, int lane)
        : left_at(&a.v[0][row + lane_row(lane) * 4]), right_at(&b.v[0][col + lane_col(lane) * 4]) {}
    __device__ __forceinline__ void left(int k, int i, Lefts& f) const {
      load(left_at + k * Left::pitch + i * (4 * lane_rows), f.v + i * 4);
    }
    static constexpr int lefts = rows / 4, rights = cols / 4;
    __device__ __forceinline__ void right(int k, int j, Rights& f) const {
      load(right_at + k * Right::pitch + j * (4 * lane_cols), f.v + j * 4);
    }
    __device__ __forceinline__ static void load(float const* from, float* to) {
      float4 const x = *reinterpret_cast<float4 const*>(from);
      to[0] = x.x;
      to[1] = x.y;
      to[2] = x.z;
      to[3] = x.w;
    }
  };

  __device__ __forceinline__ static void prepare(Rights const&) {}
  __device__ __forceinline__ void multiply(Lefts const& left, Rights const& right, int i, int j) {
    r[i][j] += left.v[i] * right.v[j];
  }
};

/// What products of an element are summed in.
template <class Element>
using SumOf = std::conditional_t<std::is_integral_v<Element>, std::int32_t,
                                 std::conditional_t<std::is_same_v<Element, double>, double, float>>;

/// Which of them, and which tiles, an element takes.
template <class Element, class Sizes>
struct Kind {
  template <int M, int N>
  using Product = TensorProduct<Element, SumOf<Element>, M, N>;
  template <int Rows, int K, bool Across>
  using Tile = std::conditional_t<Across, SwizzledTile<Element, K, Rows, true>, SwizzledTile<Element, Rows, K>>;
};
template <class Sizes>
struct Kind<double, Sizes> {
  template <int M, int N>
  using Product = DoubleProduct<M, N, Sizes::mma_k, Sizes::unrolled>;
  template <int Rows, int K, bool Across>
  using Tile = std::conditional_t<Across, SwizzledTile<double, K, Rows, true>, SwizzledTile<double, Rows, K>>;
};
template <class Sizes>
requires(!Sizes::tensor_cores) struct Kind<float, Sizes> {
  template <int M, int N>
  using Product = CoreProduct<M, N, Sizes::unrolled>;
  template <int Rows, int K, bool>
  using Tile = PaddedTile<float, K, Rows>;
};

}  // namespace tessera::detail::async

#endif
