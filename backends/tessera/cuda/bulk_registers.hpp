// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_REGISTERS_HPP
#define TESSERA_CUDA_BULK_REGISTERS_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/cuda/bulk_tiles.hpp>

// What Hopper's consumer warpgroups have in registers, and which part of it a thread has: accumulators, 64 rows each,
// the same 64 rows and half of the columns, or, in ping-pong, a tile each; values of their rows; left factors made of
// them.
namespace tessera::detail::bulk {

inline constexpr int warpgroup = 128;

/// A thread's place.
struct ConsumerThread {
  int group, warp, thread;  // of its consumer warpgroup, of its warp and its own in it

  /// With the other threads of its consumer: what all of them have read of a stage may then be given back.
  __device__ __forceinline__ void meet() const { ptx::named_sync(4 + group, warpgroup); }
};

template <class Element, class Sizes>
struct Registers : Sizes {
  using Sizes::consumers;
  using Compute = Sum<Element>;
  /// What weights are rounded to: e5m2 would leave them two bits, and the tensor cores take a factor of each kind.
  using Weight = std::conditional_t<std::is_same_v<Element, e5m2_t>, e4m3_t, Element>;
  /// Weights, at most 1, are rounded times 2 to that power: e4m3 has its 448 as the largest number.
  static constexpr int weight_exponent = sizeof(Weight) == 1 ? 8 : 0;
  /// Weights have the exponents of fp32.
  static constexpr bool wide_weights = std::is_same_v<Element, bf16_t>;

  template <int M, int N>
  struct Accumulator {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr bool by_rows = Sizes::ping_pong || M == 64 * consumers;  // else consumers share the columns
    static constexpr int blocks = Sizes::ping_pong ? M / 64 : 1, columns = by_rows ? N : N / consumers;
    static_assert(M == 64 * blocks * (by_rows && !Sizes::ping_pong ? consumers : 1));
    Compute r[blocks][columns / 2];  // of 64 rows: 8-column groups of four elements, two in each of two rows
    __device__ __forceinline__ explicit Accumulator(ConsumerThread const&) {}

    /// Where a consumer's share of the tile begins.
    __device__ __forceinline__ static int row(ConsumerThread const& at) {
      return by_rows && !Sizes::ping_pong ? at.group * 64 : 0;
    }
    __device__ __forceinline__ static int col(ConsumerThread const& at) { return by_rows ? 0 : at.group * columns; }
    /// Where element i of a thread's part of a block of it lies in the tile.
    __device__ __forceinline__ static int row(ConsumerThread const& at, int i, int block = 0) {
      return row(at) + block * 64 + at.thread / 32 * 16 + at.thread % 32 / 4 + i % 4 / 2 * 8;
    }
    __device__ __forceinline__ static int col(ConsumerThread const& at, int i) {
      return col(at) + at.thread % 4 * 2 + i / 4 * 8 + i % 2;
    }
  };
  template <int M, class T = Compute>
  struct RowValues {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int blocks = Accumulator<M, 64>::blocks;
    T v[2 * blocks];  // of the rows this thread has a part in, the same in the four threads that share them
    __device__ __forceinline__ explicit RowValues(ConsumerThread const&, T start = {}) {
#pragma unroll
      for (T& x : v) x = start;
    }
  };
  template <int M, int K>
  struct Rounded {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int steps = K * static_cast<int>(sizeof(Element)) / 32;  // of the tensor cores along K
    std::uint32_t r[steps][4];
    __device__ __forceinline__ explicit Rounded(ConsumerThread const&) {}
  };

  /// Flags of a thread's elements of an (M, N) accumulator, a bit each. Tiles begin at multiples of 32.
  template <int M, int N, class F>
  struct Flags {
    static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows && N % 64 == 0);
    std::uint32_t bits[N / 64];
  };

  /// Where add_to() adds the elements of an (M, N) accumulator, as warps have them: those of rows r and r + 8 in eight
  /// columns from a multiple of 8 on are 16 numbers side by side, two of the one and two of the other in turns.
  template <int M, int N>
  struct SumOrder {
    KOKKOS_FUNCTION static constexpr int at(int row, int col) {
      constexpr int columns = Accumulator<M, N>::columns;
      static_assert(M == 64 || columns == N);
      int const pack = (col / columns * 4 + row / 16) * (columns / 8) + col % columns / 8;
      return (pack * 32 + row % 8 * 4 + col % 8 / 2) * 4 + row % 16 / 8 * 2 + col % 2;
    }
  };

  template <int M, int N, class Of>
  struct Words {
    static constexpr int ahead = N / 64;  // blocks of 32 columns
    std::uint32_t r[ahead * 8];           // of two elements each, in an accumulator's order
    Of of;

    /// Of both of a thread's rows at once, since what of() computes for columns alone serves both.
    __device__ __forceinline__ void find(ConsumerThread const& at, int block, std::uint32_t* to) const {
      using Acc = Accumulator<M, N>;
      static_assert(Acc::blocks == 1 && N % 32 == 0);
      auto const upper = of(Acc::row(at, 0), Acc::col(at, block * 16)),
                 lower = of(Acc::row(at, 2), Acc::col(at, block * 16));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        to[2 * k] = upper[k];
        to[2 * k + 1] = lower[k];
      }
    }
  };
};

}  // namespace tessera::detail::bulk

#endif
