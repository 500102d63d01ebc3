// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_GRID_ATOMS_HPP
#define TESSERA_CUDA_ASYNC_GRID_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/async_products.hpp>
#include <tessera/cuda/async_team.hpp>
#include <tessera/cuda/lane_flags.hpp>
#include <tessera/cuda/rounding.hpp>

// Ampere's atoms for kernels with several products of one accumulator: warps form a grid of warp_rows x warp_cols, each
// with a rectangle of every accumulator in registers, so that what is read of both factors serves several products.
// What is rounded of an accumulator is a tile in scratch that all warps read.
namespace tessera::detail::async {

/// How many rounded accumulators a team has, in tiles before its rings.
template <class Atoms>
inline constexpr int rounded_tiles = [] {
  if constexpr (requires { Atoms::rounded_tiles; })
    return Atoms::rounded_tiles;
  else
    return 0;
}();
template <class Atoms>
inline constexpr bool has_rounded_tiles = rounded_tiles<Atoms> != 0;
template <class Atoms, int Count = rounded_tiles<Atoms>>
struct RoundedTiles {
  typename Atoms::template Left<Atoms::BN, Atoms::BM> tile[Count];
};
template <class Atoms>
struct RoundedTiles<Atoms, 0> {};

/// The place of this lane's line for loads of a factor's fragments from row `first` on, as in fragment_origin().
template <bool Across, int Pitch>
__device__ __forceinline__ std::uint32_t fragment_offset(int first, int lane, bool low_k_first) {
  using Lines = SwizzledTile<bf16_t, 16, Pitch / 2>;
  int const row = (low_k_first ? lane / 16 : lane / 8 % 2) * 8, k = low_k_first ? lane / 8 % 2 : lane / 16;
  return static_cast<std::uint32_t>(Across ? Lines::place(k * 8 + lane % 8, (first + row) / 8)
                                           : Lines::place(first + row + lane % 8, k));
}

/// Rows x Cols16 blocks of 16 x 16 of an accumulator, which a warp has.
template <int Rows, int Cols16>
struct WarpBlocks {
  static constexpr int rows = Rows, cols = 2 * Cols16;
  float r[Rows][2 * Cols16][4];
};

/// Products of Steps times 16 k. Left fragments are on their way during the step before, right ones, of 16 columns
/// each, `ahead` such before they are needed. `Across`: a factor's lines are its k.
template <class Element, class Left, bool LeftAcross, class Right, bool RightAcross, int Steps, int Ahead, int Rows,
          int Cols16>
__device__ __forceinline__ void multiply_fragments(std::uint32_t left_at, std::uint32_t right_at,
                                                   WarpBlocks<Rows, Cols16>& acc) {
  constexpr int count = Steps * Cols16, ahead = Ahead;
  std::uint32_t left[2][Rows][4], right[ahead + 1][4];
  auto const load_left = [&](int k, int i) { load_fragment<LeftAcross, Left>(left[k % 2][i], left_at, i, k); };
  auto const load_right = [&](int i) {
    load_fragment<RightAcross, Right>(right[i % (ahead + 1)], right_at, i % Cols16, i / Cols16);
  };
  load_right(0);
#pragma unroll
  for (int i = 0; i < Rows; ++i) load_left(0, i);
#pragma unroll
  for (int i = 1; i < ahead; ++i) load_right(i);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    int const k = i / Cols16, j = i % Cols16;
    if (i + ahead < count) load_right(i + ahead);
    if (k + 1 < Steps && j < Rows) load_left(k + 1, j);
    if (k + 1 < Steps && j == Cols16 - 1)
#pragma unroll
      for (int p = Cols16; p < Rows; ++p) load_left(k + 1, p);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int p = 0; p < Rows; ++p) {
        int const row = half == 0 ? p : Rows - 1 - p;
        ptx::mma(ScalarTag<Element>{}, acc.r[row][j * 2 + half], left[k % 2][row], right[i % (ahead + 1)][half * 2],
                 right[i % (ahead + 1)][half * 2 + 1]);
      }
  }
}

template <class Element, class Sizes>
struct GridAtoms : TeamAtoms<Sizes> {
  static_assert(sizeof(Element) == 2);
  using Compute = float;
  using Sizes::warp_rows, Sizes::warp_cols;
  static constexpr int warps = warp_rows * warp_cols, team_threads = 32 * warps, rounded_tiles = 2;
  static constexpr bool rounds_for_all = true;
  using Copy = StraightCopy<Element, team_threads>;

  /// Aligned to no more than its lines ask for, so that numbers beside a tile take no kilobyte.
  template <int R, int C>
  using Tile = SwizzledTile<Element, R, C, false, (C < 64 ? 64 : C) * static_cast<int>(sizeof(Element))>;
  template <int M, int K>
  struct Left : Tile<M, K> {};  // (M,K)
  template <int N, int K>
  struct Right : Tile<N, K> {};  // (N,K)
  /// Factors of products along either index: matrix loads read 16 bits both ways.
  template <int R, int C>
  struct LeftEither : Left<R, C> {};  // (R,C)
  template <int R, int C>
  struct RightEither : Tile<R, C> {};  // (R,C)

  template <class Tile>
  static Source source(MatrixStack const& m) {
    return {m, true};
  }

  struct Math;

  /// Of a grid of Rows x Cols warps.
  template <int M, int N, int Rows, int Cols>
  struct Blocks : WarpBlocks<M / Rows / 16, N / Cols / 16> {
    static constexpr int m = M / Rows, n = N / Cols;  // of a warp
    static_assert(Rows * Cols == warps && m % 16 == 0 && n % 16 == 0);
    __device__ __forceinline__ static int row(int thread) { return thread / 32 / Cols * m; }
    __device__ __forceinline__ static int col(int thread) { return thread / 32 % Cols * n; }
  };
  template <int M, int N>
  struct Accumulator : Blocks<M, N, warp_rows, warp_cols> {
    using Base = Blocks<M, N, warp_rows, warp_cols>;
    std::uint32_t left, right;  // tiles of the product that is to come
    bool pending = false;

    // The store goes through lines of scratch, 16 rows and up to 64 columns at a time.
    static constexpr int width = Base::n < 64 ? Base::n : 64, pitch = width + 8;
    static constexpr std::size_t scratch_bytes = sizeof(Compute) * warps * 16 * pitch;
    struct Lines {
      static constexpr int rows = 16;
      static constexpr bool in_order = true;
      __device__ __forceinline__ static int place(int line, int col) { return line * pitch + col; }
      __device__ __forceinline__ static int row(int line) { return line; }
    };
    __device__ __forceinline__ explicit Accumulator(Math& math) { math.clear(*this); }
  };
  /// Flags of a thread's elements of an (M, N) accumulator, a bit each.
  template <int M, int N, class F>
  struct Flags : LaneFlags<Accumulator<M, N>::rows, Accumulator<M, N>::cols> {};
  /// Sums of a product over rows that warps share: as many rows a warp as there are of other accumulators.
  template <int M, int N>
  struct SharedSums : Blocks<M, N, M / 32, warps / (M / 32)> {
    __device__ __forceinline__ explicit SharedSums(Math&) {}
  };
  /// The tiles before the rings in turns.
  template <int M, int K>
  struct Rounded {
    static constexpr std::size_t scratch_bytes = 0;
    Tile<M, K>& tile;  // (M,K)
    __device__ __forceinline__ explicit Rounded(Math& math)
        : tile(static_cast<Left<M, K>*>(math.ring)[math.rounded++]) {}
  };
  /// What has been shared last.
  template <int M, int N>
  struct Shared {
    Tile<M, N> const* tile = nullptr;  // (M,N)
    __device__ __forceinline__ explicit Shared(Math const&) {}
  };
  /// Sums lie in memory by blocks of 16 x 8 side by side, so that it does not matter which warp has a block. Of a block
  /// four numbers a lane: side by side where they can be added at once; else the same number of all lanes, so that what
  /// a warp adds are whole lines.
  template <int, int N>
  struct SumOrder {
    static constexpr bool by_blocks = true;  // one behind the other, whatever tile they are of
    static constexpr int block = 128;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    static constexpr int lane_step = 1, number_step = 32;
#else
    static constexpr int lane_step = 4, number_step = 1;
#endif
    KOKKOS_FUNCTION static constexpr int at(int row, int col) {
      return (row / 16 * (N / 8) + col / 8) * block + (row % 8 * 4 + col % 8 / 2) * lane_step +
             (row % 16 / 8 * 2 + col % 2) * number_step;
    }
  };

  /// Where this thread's fragments of two factors begin, from their tiles.
  struct Origins {
    std::uint32_t left, right;
  };
  template <class Acc, bool LeftAcross, int LeftPitch, bool RightAcross, int RightPitch>
  __device__ __forceinline__ static Origins origins(int thread) {
    return {fragment_offset<LeftAcross, LeftPitch>(Acc::row(thread), thread % 32, false),
            fragment_offset<RightAcross, RightPitch>(Acc::col(thread), thread % 32, true)};
  }

  struct Math : TeamMath {
    static constexpr bool by_warps = true;  // products need no others
    static constexpr int wide = Tile<Sizes::BN, Sizes::D>::pitch, narrow = Tile<Sizes::BN, Sizes::BM>::pitch;
    // Found once: whatever is computed for each product the compiler keeps parts of, in more registers than there are.
    Origins of_scores, of_sums, of_shared;
    int rounded = 0;  // accumulators that have a tile

    __device__ __forceinline__ Math(int number, void* memory)
        : TeamMath{number, memory},
          of_scores(origins<Accumulator<Sizes::BN, Sizes::BM>, false, wide, false, wide>(number)),
          of_sums(origins<Accumulator<Sizes::BN, Sizes::D>, false, narrow, true, wide>(number)),
          of_shared(origins<SharedSums<Sizes::BM, Sizes::D>, true, narrow, true, wide>(number)) {}

    static constexpr bool few_registers = requires { requires Sizes::few_registers; };
    static constexpr bool fewest_registers = requires { requires Sizes::fewest_registers; };
    static constexpr int sums_ahead = fewest_registers ? 1 : 2;  // fragments of right factors along their columns
    /// This thread; asked for anew where what depends on it is not to be kept.
    __device__ __forceinline__ int own() const {
      if constexpr (!few_registers) return thread;
      int const t = ptx::thread();
      if constexpr (fewest_registers) __builtin_assume(t >= 0 && t < team_threads);  // else dividing it takes some
      return t;
    }
    /// Asked for anew: what depends on it is not kept over the products, which need all registers.
    __device__ __forceinline__ static int lane() { return ptx::lane(); }
    __device__ __forceinline__ static void meet() { ptx::named_sync(0, team_threads); }
    /// For all threads.
    __device__ __forceinline__ static bool holds_for_team(bool own) { return ptx::named_all(0, team_threads, own); }
    /// The same place, of which the compiler does not know it: what depends on it is not computed ahead and kept.
    template <class T>
    __device__ __forceinline__ static T* anew(T* place) {
      return ptx::anew(place);
    }

    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, Tile<N, K> const& b, Accumulator<M, N>& acc,
                                             bool add) const {
      if (!add) clear(acc);
      multiply_fragments<Element, Tile<M, K>, false, Tile<N, K>, false, K / 16, 1>(at(a, of_scores.left),
                                                                                   at(b, of_scores.right), acc);
    }
    /// With what was rounded into a, the rows of b contracted: when it is waited for, behind the meeting at which all
    /// warps share what they have rounded. Until then nothing but the tiles is kept of it.
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Rounded<M, K> const& a, Tile<K, N> const& b, Accumulator<M, N>& acc,
                                             bool) const {
      acc.left = ptx::shared_address(a.tile.v);
      acc.right = ptx::shared_address(b.v);
      acc.pending = true;
    }
    template <int Pending, int M, int N>
    __device__ __forceinline__ void wait_all_but(Accumulator<M, N>& acc) const {
      if (!acc.pending) return;
      acc.pending = false;
      multiply_fragments<Element, Tile<M, Sizes::BM>, false, Tile<Sizes::BM, N>, true, Sizes::BM / 16, sums_ahead>(
          acc.left + of_sums.left, acc.right + of_sums.right, acc);
    }
    template <int Pending, class Acc>
    __device__ __forceinline__ void wait_for(Acc& acc) const {
      if constexpr (requires { acc.pending; }) wait_all_but<Pending>(acc);
    }

    /// What has been rounded is there for all warps once they have met.
    __device__ __forceinline__ static void share() { meet(); }
    template <int M, int N>
    __device__ __forceinline__ void share(Rounded<M, N> const& from, Shared<M, N>& to) const {
      to.tile = &from.tile;
      meet();
    }
    /// acc = (what is shared)^T b: the rows of both are contracted.
    template <int K, int M, int N>
    __device__ __forceinline__ void multiply(Shared<K, M> const& a, LeftEither<K, N> const& b,
                                             SharedSums<M, N>& acc) const {
      each(acc, [](Compute& x, int, int, int) { x = 0; });
      multiply_fragments<Element, Tile<K, M>, true, Tile<K, N>, true, K / 16, sums_ahead>(at(*a.tile, of_shared.left),
                                                                                          at(b, of_shared.right), acc);
    }
    /// Numbers in memory, in SumOrder, grow by acc's, in no particular order.
    template <int M, int N, int Rows, int Cols>
    __device__ __forceinline__ void add_to(Blocks<M, N, Rows, Cols> const& acc, Compute* sums) const {
      using Order = SumOrder<M, N>;
      int const t = Order::number_step == 1 ? ptx::thread() : thread;
      each_block_in_order<Order>(acc, t, sums, [](Compute* block, Compute const(&x)[4]) {
        if constexpr (Order::number_step == 1)
          ptx::add_four(block, x);
        else
#pragma unroll
          for (int e = 0; e < 4; ++e) ptx::add_one(block + e * Order::number_step, x[e]);
      });
    }
    /// They become acc's.
    template <int M, int N, int Rows, int Cols>
    __device__ __forceinline__ void write_to(Blocks<M, N, Rows, Cols> const& acc, Compute* numbers) const {
      using Order = SumOrder<M, N>;
      each_block_in_order<Order>(acc, own(), numbers, [](Compute* block, Compute const(&x)[4]) {
        if constexpr (Order::number_step == 1)
          *reinterpret_cast<float4*>(block) = {x[0], x[1], x[2], x[3]};
        else
#pragma unroll
          for (int e = 0; e < 4; ++e) block[e * Order::number_step] = x[e];
      });
    }

    /// Of N columns.
    template <int N>
    struct ColumnValues {
      Compute const* from;  // of a lane's first ones in a tile of as many
    };
    template <int N>
    __device__ __forceinline__ ColumnValues<N> columns(Compute const (&cols)[N]) const {
      return {cols + lane() % 4 * 2};
    }
    /// f(element, its column's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_with_column(Accumulator<M, N>& acc, ColumnValues<N> const& cols,
                                                         F const& f) const {
      with_columns(acc, cols, [&](Compute& x, Compute column, int, int, int) { f(x, column); });
    }
    /// f(element of one, element of the other, its column's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    ColumnValues<N> const& cols, F const& f) const {
      with_columns(acc, cols, [&](Compute& x, Compute column, int i, int j, int e) { f(x, other.r[i][j][e], column); });
    }
    /// f(element of one, element of the other, its column's value, flag)
    template <int M, int N, class Flags, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    Compute const (&cols)[N], Flags const& flags, F const& f) const {
      auto const set = lane_flags(flags);
      with_columns(acc, columns(cols), [&](Compute& x, Compute column, int i, int j, int e) {
        f(x, other.r[i][j][e], column, set(i, j, e));
      });
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void find_flags(F const& f, Flags<M, N, F>& flags) const {
      using Acc = Accumulator<M, N>;
      static_assert(F::words_for_rows && (Acc::m == 16 || Acc::m % 32 == 0));
      int const t = own();
      flags.find(f, Acc::row(t) + t % 32 / 4, Acc::col(t) + t % 4 * 2);
    }
    /// acc = acc scale + at + row per_row + col per_col: a number of a thread's own and multiples of constants.
    template <int M, int N>
    __device__ __forceinline__ void add_plane(Accumulator<M, N>& acc, Compute scale, Compute at, Compute per_row,
                                              Compute per_col) const {
      int const t = own();
      Compute const first = at + per_row * Compute(acc.row(t) + t % 32 / 4) + per_col * Compute(acc.col(t) + t % 4 * 2);
      each(acc, [&](Compute& x, int i, int j, int e) {
        x = x * scale + (first + per_row * Compute(i * 16 + e / 2 * 8) + per_col * Compute(j * 8 + e % 2));
      });
    }
    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
      each(acc, [](Compute& x, int, int, int) { x = 0; });
    }
    /// f(element, row, column)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
      int const t = own(), row0 = acc.row(t) + t % 32 / 4, col0 = acc.col(t) + t % 4 * 2;
      each(acc, [&](Compute& x, int i, int j, int e) { f(x, row0 + i * 16 + e / 2 * 8, col0 + j * 8 + e % 2); });
    }
    __device__ __forceinline__ static float exp2(float x) { return ptx::exp2_approximate(x); }

    /// Into this warp's rectangle of the tile: pairs of four lanes in eight rows lie in all banks.
    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Rounded<M, K> const& to) const {
      using To = Tile<M, K>;
      std::uint32_t const at = pairs_of(from, to);
#pragma unroll
      for (int i = 0; i < from.rows; ++i)
#pragma unroll
        for (int j = 0; j < from.cols; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            ptx::store_shared((at ^ (j * 16)) + (i * 16 + h * 8) * To::pitch,
                              packed_pair<Element>(from.r[i][j][h * 2], from.r[i][j][h * 2 + 1]));
    }
    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, NoFlags, Rounded<M, K> const& to) const {
      round(from, to);
    }
    /// Those whose flag is not set as 0.
    template <int M, int K, class F>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Flags<M, K, F> const& flags,
                                          Rounded<M, K> const& to) const {
      using To = Tile<M, K>;
      std::uint32_t const at = pairs_of(from, to);
#pragma unroll
      for (int i = 0; i < from.rows; ++i)
#pragma unroll
        for (int j = 0; j < from.cols; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            auto const kept = [&](int e) { return flags(i, j, e) ? from.r[i][j][e] : Compute(0); };
            ptx::store_shared((at ^ (j * 16)) + (i * 16 + h * 8) * To::pitch,
                              packed_pair<Element>(kept(h * 2), kept(h * 2 + 1)));
          }
    }
    /// to = what f(element, its column's value, row, column, flag) returns, which may change the element.
    template <int M, int K, class Flags, class F>
    __device__ __forceinline__ void round_each(Accumulator<M, K>& from, Compute const (&cols)[K], Flags const& flags,
                                               Rounded<M, K> const& to, F const& f) const {
      using To = Tile<M, K>;
      auto const set = lane_flags(flags);
      int const t = own(), row0 = from.row(t) + t % 32 / 4, col0 = from.col(t) + t % 4 * 2;
      std::uint32_t const at = pairs_of(from, to);
#pragma unroll
      for (int j = 0; j < from.cols; ++j) {
        float2 const values = *reinterpret_cast<float2 const*>(cols + col0 + j * 8);
#pragma unroll
        for (int i = 0; i < from.rows; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            auto& pair = from.r[i][j];
            int const row = row0 + i * 16 + h * 8, col = col0 + j * 8, e = h * 2;
            Compute const x = f(pair[e], values.x, row, col, set(i, j, e)),
                          y = f(pair[e + 1], values.y, row, col + 1, set(i, j, e + 1));
            ptx::store_shared((at ^ (j * 16)) + (i * 16 + h * 8) * To::pitch, packed_pair<Element>(x, y));
          }
      }
    }

    /// Any type, address and strides, through the ring.
    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                          std::int64_t row0, std::int64_t col0) const {
      using Acc = Accumulator<M, N>;
      using Layout = typename Acc::Lines;
      int const t = fewest_registers ? own() : thread;
      Compute* const memory = static_cast<Compute*>(ring) + t / 32 * 16 * Acc::pitch;
      meet();  // all warps have read the last stage
#pragma unroll
      for (int i = 0; i < Acc::rows; ++i) {
        WarpLines<Compute, 4, 8, 16, Acc::width, Layout> const lines(
            memory, target.m, plane, row0 + acc.row(t) + i * 16, col0 + acc.col(t), target.m.rows);
        lines.template store<Acc::n / Acc::width>(Compute(1), Compute(0), Unchanged{}, target.at_once, [&](auto part) {
          constexpr int blocks = Acc::width / 8;
#pragma unroll
          for (int j = 0; j < blocks; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              *reinterpret_cast<Pair<Compute>*>(memory + Layout::place(lane() / 4 + h * 8, lane() % 4 * 2 + j * 8)) = {
                  acc.r[i][part * blocks + j][h * 2], acc.r[i][part * blocks + j][h * 2 + 1]};
        });
        __syncwarp();  // the lines are read
      }
    }

   private:
    /// Where this thread's first pair of what is rounded lies.
    template <int M, int K>
    __device__ __forceinline__ std::uint32_t pairs_of(Accumulator<M, K> const& from, Rounded<M, K> const& to) const {
      int const t = own();
      return ptx::shared_address(to.tile.v) + t % 4 * 4 + Tile<M, K>::place(from.row(t) + t % 32 / 4, from.col(t) / 8);
    }
    template <class T>
    __device__ __forceinline__ static std::uint32_t at(T const& tile, std::uint32_t offset) {
      return ptx::shared_address(tile.v) + offset;
    }
    template <class Acc, class F>
    __device__ __forceinline__ static void each(Acc& acc, F const& f) {
#pragma unroll
      for (int i = 0; i < acc.rows; ++i)
#pragma unroll
        for (int j = 0; j < acc.cols; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) f(acc.r[i][j][e], i, j, e);
    }
    /// f(where thread t's first number of a block lies, its four numbers), for all blocks of acc.
    template <class Order, int M, int N, int Rows, int Cols, class F>
    __device__ __forceinline__ static void each_block_in_order(Blocks<M, N, Rows, Cols> const& acc, int t,
                                                               Compute* numbers, F const& f) {
      Compute* const to = numbers + Order::at(acc.row(t), acc.col(t)) + t % 32 * Order::lane_step;
#pragma unroll
      for (int i = 0; i < acc.rows; ++i)
#pragma unroll
        for (int j = 0; j < acc.cols; ++j) f(to + (i * (N / 8) + j) * Order::block, acc.r[i][j]);
    }
    /// f(element, its column's value, i, j, e)
    template <int M, int N, class F>
    __device__ __forceinline__ void with_columns(Accumulator<M, N>& acc, ColumnValues<N> const& cols,
                                                 F const& f) const {
      Compute const* const first = cols.from + acc.col(own());
      float2 v[Accumulator<M, N>::cols];
#pragma unroll
      for (int j = 0; j < acc.cols; ++j) v[j] = *reinterpret_cast<float2 const*>(first + j * 8);
      each(acc, [&](Compute& x, int i, int j, int e) { f(x, e % 2 ? v[j].y : v[j].x, i, j, e); });
    }
  };
};

}  // namespace tessera::detail::async

#endif
