// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_LANE_FLAGS_HPP
#define TESSERA_CUDA_LANE_FLAGS_HPP

#include <cstdint>

#include <tessera/cuda/ptx.hpp>
#include <tessera/flags.hpp>

// Flags of what a lane has of the accumulators of matrix products: of Rows x Cols blocks of 16 x 8 two rows each, 8
// apart, and two neighbouring columns. A bit an element: of block (i, j) those from 4 (j Rows + i) on, row by row.
namespace tessera::detail {

/// Of the 32 first elements, or all if there are fewer, from (row, col) on, words being for rows, of which 32 from a
/// multiple of 32 on are the team's where Rows is 2. Neighbours of a column are in lanes 4 apart and have words in
/// common: either finds those of every other column, for both.
template <int Rows, int Cols, class F>
__device__ __forceinline__ std::uint32_t lane_flags_of_rows(F const& f, int row, int col) {
  static_assert(Rows == 1 || Rows == 2);
  constexpr int cols = Rows * Cols < 8 ? Cols : 8 / Rows;
  bool const odd = row % 2 != 0;
  std::uint32_t of_even = 0, of_odd = 0;
#pragma unroll
  for (int j = 0; j < cols; ++j) {
    auto const four = f.words(row, col + j * 8 + odd);
#pragma unroll
    for (int k = 0; k < 2 * Rows; ++k) {
      std::uint32_t const word = Rows == 2 ? four[k] : word_of(four, row + k * 8);
      of_even |= std::uint32_t(f.flag(word, false)) << (j * Rows * 4 + k * 2);
      of_odd |= std::uint32_t(f.flag(word, true)) << (j * Rows * 4 + k * 2);
    }
  }
  std::uint32_t const own = odd ? of_odd << 1 : of_even, others = odd ? of_even << 1 : of_odd;
  return own | __shfl_xor_sync(~0u, others, 4);
}
/// g(i, j, e, flag) for element e of each of Rows x Cols blocks (i, j) from (row, col) on, words being for columns, of
/// which 32 from a multiple of 32 on are four blocks': a lane has both neighbours, in all words.
template <int Rows, int Cols, class F, class G>
__device__ __forceinline__ void each_flag_of_columns(F const& f, int row, int col, G const& g) {
  static_assert(!F::words_for_rows && Cols % 4 == 0);
#pragma unroll
  for (int quarter = 0; quarter < Cols / 4; ++quarter)
#pragma unroll
    for (int h = 0; h < 2 * Rows; ++h) {
      auto const four = f.words(row + h * 8, col + quarter * 32);
#pragma unroll
      for (int i = 0; i < 8; ++i) g(h / 2, quarter * 4 + i / 2, h % 2 * 2 + i % 2, f.flag(four[i / 2], i % 2 != 0));
    }
}
/// Of the 32 first elements, or all if there are fewer.
template <int Rows, int Cols, class F>
__device__ __forceinline__ std::uint32_t lane_flags_of_columns(F const& f, int row, int col) {
  constexpr int cols = Rows * Cols < 8 ? Cols : 8 / Rows;
  std::uint32_t bits = 0;
  each_flag_of_columns<Rows, cols>(
      f, row, col, [&](int i, int j, int e, bool flag) { bits |= std::uint32_t(flag) << ((j * Rows + i) * 4 + e); });
  return bits;
}

/// Of a lane's elements of Rows x Cols blocks.
template <int Rows, int Cols>
struct LaneFlags {
  std::uint32_t bits[(Rows * Cols * 4 + 31) / 32];

  template <class F>
  __device__ __forceinline__ void find(F const& f, int row, int col) {
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(bits) / sizeof(bits[0])); ++part) {
      int const first = col + part * (64 / Rows);
      if constexpr (F::words_for_rows)
        bits[part] = lane_flags_of_rows<Rows, Cols>(f, row, first);
      else
        bits[part] = lane_flags_of_columns<Rows, Cols>(f, row, first);
    }
  }
  /// Of element e of block (i, j).
  __device__ __forceinline__ bool operator()(int i, int j, int e) const {
    int const at = (j * Rows + i) * 4 + e;
    return (bits[at / 32] >> at % 32 & 1) != 0;
  }
  /// From here on the compiler looks at bits anew. Else it keeps what it has taken apart before, a register each.
  __device__ __forceinline__ LaneFlags anew() const {
    LaneFlags own = *this;
    for (std::uint32_t& x : own.bits) x = static_cast<std::uint32_t>(ptx::anew(static_cast<int>(x)));
    return own;
  }
};
/// All are set.
struct LaneFlagsSet {
  __device__ __forceinline__ bool operator()(int, int, int) const { return true; }
};
__device__ __forceinline__ LaneFlagsSet lane_flags(NoFlags) { return {}; }
template <int Rows, int Cols>
__device__ __forceinline__ LaneFlags<Rows, Cols> lane_flags(LaneFlags<Rows, Cols> const& flags) {
  return flags.anew();
}

}  // namespace tessera::detail

#endif
