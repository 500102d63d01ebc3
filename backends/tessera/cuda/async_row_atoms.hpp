// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_ROW_ATOMS_HPP
#define TESSERA_CUDA_ASYNC_ROW_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/async_products.hpp>
#include <tessera/cuda/async_team.hpp>
#include <tessera/cuda/lane_flags.hpp>
#include <tessera/cuda/largest.hpp>
#include <tessera/cuda/rounding.hpp>

// Ampere's atoms for kernels that work on rows between two products: every warp has whole rows of the accumulators, in
// registers, and what it rounds of one is its left factor of the next without a way through memory.
namespace tessera::detail::async {

template <class Element, class Sizes>
struct RowAtoms : TeamAtoms<Sizes> {
  static_assert(sizeof(Element) == 2);
  using Compute = float;
  using Sizes::warps;
  static constexpr int team_threads = 32 * warps;
  static constexpr bool draws_late = true;
  using Copy = PackCopy<Element, team_threads>;

  template <int M, int K>
  struct Left : SwizzledTile<Element, M, K> {};  // (M,K)
  template <int N, int K>
  struct Right : SwizzledTile<Element, N, K> {};  // (N,K)
  template <int K, int N>
  struct RightTransposed : SwizzledTile<Element, K, N> {};  // (K,N)
  /// Factors of products along either index: matrix loads read 16 bits both ways.
  template <int R, int C>
  struct RightEither : SwizzledTile<Element, R, C> {};  // (R,C)

  template <class Tile>
  static Source source(MatrixStack const& m) {
    return {m, true};
  }
  template <class Tile>
  static Source paged_source(MatrixStack const& m) {
    return source<Tile>(m);
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    static constexpr int rows = M / (16 * warps), cols = N / 8;  // blocks of 16 x 8 a warp has
    static_assert(rows * 16 * warps == M && N % 16 == 0);
    Compute r[rows][cols][4];
    std::uint32_t left_at, right_at;  // fragments' origins of the product that is to come
    bool pending = false, adds;

    // The store goes through lines of scratch, 16 rows and `width` columns at a time.
    static constexpr int width = N % 64 == 0 ? 64 : 32, pitch = width + 8;
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
  template <int M>
  struct RowValues {
    static constexpr int rows = M / (8 * warps);
    Compute v[rows];  // of the rows this thread has a part in, the same in the four threads that share them
    __device__ __forceinline__ explicit RowValues(Math&, Compute start = {}) {
#pragma unroll
      for (Compute& x : v) x = start;
    }
  };
  template <int M, int K>
  struct Rounded {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int rows = M / (16 * warps);
    std::uint32_t r[rows][K / 16][4];
    __device__ __forceinline__ explicit Rounded(Math&) {}
  };

  struct Math : TeamMath {
    static constexpr bool by_warps = true;  // products need no others
    /// Asked for anew: what depends on it is not kept over the products, which need all registers.
    __device__ __forceinline__ static int lane() { return ptx::lane(); }
    template <int M>
    __device__ __forceinline__ int row() const {
      return thread / 32 * (M / warps);
    }

    /// Begins when it is waited for: until then nothing but two addresses is kept of it. So a product whose left factor
    /// is in registers goes first, and leaves them to this one's.
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, SwizzledTile<Element, N, K> const& b,
                                             Accumulator<M, N>& acc, bool add) const {
      static_assert(K == Sizes::D, "what is waited for must know how long it is");
      acc.left_at = fragment_origin<false>(a, row<M>(), lane(), false);
      acc.right_at = fragment_origin<false>(b, 0, lane(), true);
      acc.adds = add;
      acc.pending = true;
    }
    template <int Pending, int M, int N>
    __device__ __forceinline__ void wait_all_but(Accumulator<M, N>& acc) const {
      if (!acc.pending) return;
      acc.pending = false;
      if (!acc.adds) clear(acc);
      product<Sizes::D>(acc);
    }
    /// An accumulator begins as zero, and a tile has one first product: there is nothing to do where none is added to.
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Rounded<M, K> const& a, SwizzledTile<Element, K, N> const& b,
                                             Accumulator<M, N>& acc, bool) const {
      constexpr int pairs = N / 16, count = K / 16 * pairs, ahead = 3;
      std::uint32_t const at = fragment_origin<true>(b, 0, lane(), true);
      std::uint32_t right[ahead + 1][4];
      auto const load = [&](int i) {
        load_fragment<true, SwizzledTile<Element, K, N>>(right[i % (ahead + 1)], at, i % pairs, i / pairs);
      };
#pragma unroll
      for (int i = 0; i < ahead; ++i) load(i);
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (i + ahead < count) load(i + ahead);
        multiply_pair(
            acc, i % pairs, right[i % (ahead + 1)], [&](int p) -> auto const& { return a.r[p][i / pairs]; });
      }
    }

    template <int Pending, class Acc>
    __device__ __forceinline__ void wait_for(Acc& acc) const {
      wait_all_but<Pending>(acc);
    }

    /// f(element of one, element of the other, its row's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    RowValues<M> const& rows, F const& f) const {
      each(acc, [&](Compute& x, int i, int j, int e) { f(x, other.r[i][j][e], rows.v[i * 2 + e / 2]); });
    }
    /// f(element of one, element of the other, its row's value, flag)
    template <int M, int N, class Flags, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    RowValues<M> const& rows, Flags const& flags, F const& f) const {
      auto const set = lane_flags(flags);
      each(acc, [&](Compute& x, int i, int j, int e) { f(x, other.r[i][j][e], rows.v[i * 2 + e / 2], set(i, j, e)); });
    }
    /// Elements whose flag is not set become 0, each found where it is needed: kept for a whole step, flags take
    /// instructions to put together or, as words, registers.
    template <int M, int N, class F>
    __device__ __forceinline__ void clear_unset(Accumulator<M, N>& acc, F const& f) const {
      using Acc = Accumulator<M, N>;
      each_flag_of_columns<Acc::rows, Acc::cols>(
          f, row<M>() + lane() / 4, lane() % 4 * 2,
          [&](int i, int j, int e, bool flag) { acc.r[i][j][e] = flag ? acc.r[i][j][e] : Compute(0); });
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void find_flags(F const& f, Flags<M, N, F>& flags) const {
      flags.find(f, row<M>() + lane() / 4, lane() % 4 * 2);
    }

    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
      each(acc, [](Compute& x, int, int, int) { x = 0; });
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
      int const row0 = row<M>() + lane() / 4, col0 = lane() % 4 * 2;
      each(acc, [&](Compute& x, int i, int j, int e) { f(x, row0 + i * 16 + e / 2 * 8, col0 + j * 8 + e % 2); });
    }
    /// f(element, the row's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      each(acc, [&](Compute& x, int i, int, int e) { f(x, rows.v[i * 2 + e / 2]); });
    }
    /// f(element, its row's value, row, column)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_placed(Accumulator<M, N>& acc, RowValues<M> const& rows,
                                                    F const& f) const {
      int const row0 = row<M>() + lane() / 4, col0 = lane() % 4 * 2;
      each(acc, [&](Compute& x, int i, int j, int e) {
        f(x, rows.v[i * 2 + e / 2], row0 + i * 16 + e / 2 * 8, col0 + j * 8 + e % 2);
      });
    }
    template <class F, int M, class... Rows>
    __device__ __forceinline__ void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
#pragma unroll
      for (int h = 0; h < RowValues<M>::rows; ++h) f(first.v[h], rest.v[h]...);
    }
    /// f(value, row) by every thread that has a part in the row
    template <int M, class F>
    __device__ __forceinline__ void each_row(RowValues<M>& rows, F const& f) const {
#pragma unroll
      for (int h = 0; h < RowValues<M>::rows; ++h) f(rows.v[h], row<M>() + lane() / 4 + h * 8);
    }
    template <int M, class F>
    __device__ __forceinline__ void once_per_row(RowValues<M> const& rows, F const& f) const {
      if (lane() % 4 == 0)
#pragma unroll
        for (int h = 0; h < RowValues<M>::rows; ++h) f(rows.v[h], row<M>() + lane() / 4 + h * 8);
    }
    template <int M, int N>
    __device__ __forceinline__ void row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < RowValues<M>::rows; ++h) {
        Compute m = rows.v[h];
#pragma unroll
        for (auto const& block : acc.r[h / 2]) m = fmaxf(m, fmaxf(block[h % 2 * 2], block[h % 2 * 2 + 1]));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        rows.v[h] = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      }
    }
    /// Whether, in all rows of a warp, no element is above its row's limit; false where a limit is negative.
    template <int M, int N>
    __device__ __forceinline__ bool none_above(Accumulator<M, N> const& acc, RowValues<M> const& limits) const {
      bool none = true;
#pragma unroll
      for (int h = 0; h < RowValues<M>::rows; ++h) {
        LargestOf<2> top;
#pragma unroll
        for (int j = 0; j < Accumulator<M, N>::cols; ++j)
          top.join(j, acc.r[h / 2][j][h % 2 * 2], acc.r[h / 2][j][h % 2 * 2 + 1]);
        none = none && top.within(limits.v[h]);
      }
      return holds_for_all(none);
    }
    /// For all threads that share rows with this one.
    __device__ __forceinline__ bool holds_for_all(bool own) const { return __all_sync(~0u, own); }
    /// For all threads.
    __device__ __forceinline__ static bool holds_for_team(bool own) { return ptx::named_all(0, team_threads, own); }
    template <int M, int N>
    __device__ __forceinline__ void row_add_partial(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < RowValues<M>::rows; ++h) {
        Compute sum = 0;
#pragma unroll
        for (auto const& block : acc.r[h / 2]) sum += block[h % 2 * 2] + block[h % 2 * 2 + 1];
        rows.v[h] += sum;
      }
    }
    template <int M>
    __device__ __forceinline__ void row_combine(RowValues<M>& rows) const {
#pragma unroll
      for (Compute& x : rows.v) {
        x += __shfl_xor_sync(~0u, x, 1);
        x += __shfl_xor_sync(~0u, x, 2);
      }
    }
    __device__ __forceinline__ static float exp2(float x) { return ptx::exp2_approximate(x); }

    /// Two blocks of 16 x 8 side by side are a left fragment.
    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Rounded<M, K>& to) const {
#pragma unroll
      for (int i = 0; i < Rounded<M, K>::rows; ++i)
#pragma unroll
        for (int k = 0; k < K / 16; ++k)
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            auto const& block = from.r[i][k * 2 + q / 2];
            to.r[i][k][q] = packed_pair<Element>(block[q % 2 * 2], block[q % 2 * 2 + 1]);
          }
    }

    /// Any type, address and strides, through the ring.
    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                          std::int64_t row0, std::int64_t col0) const {
      store(acc, target, plane, row0, col0, target.m.rows);
    }
    /// In the rows before `end`.
    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                          std::int64_t row0, std::int64_t col0, std::int64_t end) const {
      using Acc = Accumulator<M, N>;
      using Layout = typename Acc::Lines;
      Compute* const memory = static_cast<Compute*>(ring) + thread / 32 * 16 * Acc::pitch;
      ptx::named_sync(0, team_threads);  // all warps have read the last stage
#pragma unroll
      for (int i = 0; i < Acc::rows; ++i) {
        WarpLines<Compute, 4, 8, 16, Acc::width, Layout> const lines(memory, target.m, plane, row0 + row<M>() + i * 16,
                                                                     col0, end);
        lines.template store<N / Acc::width>(Compute(1), Compute(0), Unchanged{}, target.at_once, [&](auto part) {
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
    template <int M, int N, class F>
    __device__ __forceinline__ static void each(Accumulator<M, N>& acc, F const& f) {
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::rows; ++i)
#pragma unroll
        for (int j = 0; j < Accumulator<M, N>::cols; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) f(acc.r[i][j][e], i, j, e);
    }
    /// With 16 columns of the right factor.
    template <int M, int N, class LeftAt>
    __device__ __forceinline__ static void multiply_pair(Accumulator<M, N>& acc, int pair,
                                                         std::uint32_t const (&right)[4], LeftAt const& left) {
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < Accumulator<M, N>::rows; ++i) {
          int const p = j == 0 ? i : Accumulator<M, N>::rows - 1 - i;
          ptx::mma(ScalarTag<Element>{}, acc.r[p][pair * 2 + j], left(p), right[j * 2], right[j * 2 + 1]);
        }
    }
    /// Both factors from the ring: the left fragments of a step of 16 k are on their way during the step before, right
    /// ones `ahead` products before they are needed.
    template <int K, int M, int N>
    __device__ __forceinline__ static void product(Accumulator<M, N>& acc) {
      constexpr int rows = Accumulator<M, N>::rows, pairs = N / 16, steps = K / 16, count = steps * pairs, ahead = 1;
      std::uint32_t left[2][rows][4], right[ahead + 1][4];
      auto const load_left = [&](int k, int i) { load_fragment<false, Left<M, K>>(left[k % 2][i], acc.left_at, i, k); };
      auto const load_right = [&](int i) {
        load_fragment<false, Right<N, K>>(right[i % (ahead + 1)], acc.right_at, i % pairs, i / pairs);
      };
#pragma unroll
      for (int i = 0; i < rows; ++i) load_left(0, i);
#pragma unroll
      for (int i = 0; i < ahead; ++i) load_right(i);
#pragma unroll
      for (int i = 0; i < count; ++i) {
        int const k = i / pairs, pair = i % pairs;
        if (i + ahead < count) load_right(i + ahead);
        if (k + 1 < steps && pair < rows) load_left(k + 1, pair);
        multiply_pair(
            acc, pair, right[i % (ahead + 1)], [&](int p) -> auto const& { return left[k % 2][p]; });
      }
    }
  };
};

}  // namespace tessera::detail::async

#endif
