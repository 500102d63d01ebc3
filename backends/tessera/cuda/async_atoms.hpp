// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_ATOMS_HPP
#define TESSERA_CUDA_ASYNC_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/async_products.hpp>
#include <tessera/cuda/async_team.hpp>

// Ampere's atoms (sm_80 and up): tiles in shared memory filled by asynchronous copies, products of warps, on the tensor
// cores or, fp32 that may not be rounded, without them. Warps form a grid of warp_rows x warp_cols, each with a
// rectangle of the accumulator in registers.
namespace tessera::detail::async {

template <class Element, class Sizes>
struct Atoms : TeamAtoms<Sizes> {
  using Kind = async::Kind<Element, Sizes>;
  using Compute = typename Kind::template Product<32, 32>::Compute;
  static constexpr int warps = Sizes::warp_rows * Sizes::warp_cols, team_threads = 32 * warps;
  using Copy = TileCopy<Element, team_threads>;

  template <int M, int K>
  struct Left : Kind::template Tile<M, K, Sizes::left_across> {};  // (M,K)
  template <int N, int K>
  struct Right : Kind::template Tile<N, K, Sizes::right_across> {};  // (N,K)

  template <class Tile>
  static Source source(MatrixStack const& m, int = 1) {
    return {m, bulk_copyable(Tile::transposed ? m.transposed() : m)};
  }
  static constexpr bool comes_one_by_one = sizeof(Element) == 8;  // where packs do not fit
  /// Whether tiles that hang over no edge are copied without asking about each.
  template <class Tile>
  static bool follows(Source const& source) {
    return Copy::template follows<Tile>(source);
  }
  /// Whether a tile may begin in any row, so that the last one need not hang over an edge: packs must not lie askew.
  template <class Tile>
  static bool begins_anywhere(Source const& source) {
    return !Tile::transposed || !source.packs || source.m.rows % Tile::pack == 0;
  }
  /// The same for what is stored, and any column: not by packs where the last tile would begin between two.
  static void begin_anywhere(Target& target) {
    if (target.m.cols % target.at_once != 0) target.at_once = 1;
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    static constexpr int warp_m = M / Sizes::warp_rows, warp_n = N / Sizes::warp_cols;
    using Product = typename Kind::template Product<warp_m, warp_n>;
    Product product;
    /// Fragments of a step that is multiplied while those of the next are on their way: two sets, or of left ones a
    /// single one, each row of which is followed by that of the next step when it is done.
    typename Product::Lefts left[Product::left_sets];
    typename Product::Rights right[2];

    // The store goes through lines of scratch, a part of a warp's rectangle at a time. Eight elements more than there
    // are keep the writes of eight lines free of bank conflicts.
    static constexpr int pitch = warp_n + 8;
    static constexpr std::size_t scratch_bytes = sizeof(Compute) * warps * Product::part_lines * pitch;
    struct Lines {
      static constexpr int rows = Product::part_lines;
      static constexpr bool in_order = false;
      __device__ __forceinline__ static int place(int line, int col) { return line * pitch + col; }
      __device__ __forceinline__ static int row(int line) { return Product::row_of(line); }
    };
    __device__ __forceinline__ explicit Accumulator(Math& math) : left{}, right{} { math.clear(*this); }
  };

  struct Math : TeamMath {
    __device__ __forceinline__ int lane() const { return thread % 32; }
    /// Where this warp's rectangle begins.
    template <int M, int N>
    __device__ __forceinline__ int row() const {
      return thread / 32 / Sizes::warp_cols * Accumulator<M, N>::warp_m;
    }
    template <int M, int N>
    __device__ __forceinline__ int col() const {
      return thread / 32 % Sizes::warp_cols * Accumulator<M, N>::warp_n;
    }

    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc,
                                             bool add) const {
      multiply(a, b, acc, add, [](auto, int, auto, int) {});
    }
    /// The last step of a stage stays in registers, to be multiplied while the first fragments of the next stage are on
    /// their way: a warp that comes from the barrier has work at once. The products are a loop over `parts` of some
    /// unrolled `steps`; under(parts, part, steps, i) is done beside step i. Returns `parts`.
    /// An accumulator begins as zero, and a tile has one first product: there is nothing to do where none is added to.
    /// A question in every step would be a place where all products before are waited for.
    template <int M, int N, int K, class Under>
    __device__ __forceinline__ auto multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc, bool,
                                             Under const& under) const {
      using Product = typename Accumulator<M, N>::Product;
      constexpr int steps = K / Product::step;
      static_assert(K % Product::step == 0 && steps % 2 == 0, "two sets of right fragments take turns");
      typename Product::template Loads<Left<M, K>, Right<N, K>> const loads(a, b, row<M, N>(), col<M, N>(), lane());
      constexpr int chunk = Product::unrolled_steps < steps ? Product::unrolled_steps : steps;
      static_assert(steps % chunk == 0 && chunk % 2 == 0);
#pragma unroll 1
      for (int begin = 0; begin < steps; begin += chunk)
#pragma unroll
        for (int k = 0; k < chunk; ++k)
          advance(acc, loads, begin + k, k % 2,
                  [&] { under(Constant<steps / chunk>{}, begin / chunk, Constant<chunk>{}, k); });
      return Constant<steps / chunk>{};
    }
    template <int Pending, int M, int N>
    __device__ __forceinline__ void wait_all_but(Accumulator<M, N>& acc) const {
      if constexpr (Pending == 0) multiply_all(acc, acc.left[Accumulator<M, N>::Product::left_sets - 1], acc.right[1]);
    }
    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
      acc.product.for_each(0, [](Compute& x, int, int) { x = 0; });
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
      int const row0 = row<M, N>(), col0 = col<M, N>();
      acc.product.for_each(lane(), [&](Compute& x, int i, int j) { f(x, row0 + i, col0 + j); });
    }
    /// alpha * acc + beta * matrix straight from registers, where a run of elements is 16 bytes of the matrix and the
    /// tile hangs over no edge: what small products take the longest for would be to go through scratch. Returns
    /// whether it is so.
    template <int M, int N>
    requires(Accumulator<M, N>::Product::run * sizeof(Compute) == 16) __device__ __forceinline__
        bool store_whole(Accumulator<M, N> const& acc, Target const& target, Plane plane, std::int64_t row0,
                         std::int64_t col0, Compute alpha, Compute beta) const {
      using Product = typename Accumulator<M, N>::Product;
      constexpr int run = Product::run;
      MatrixStack const& m = target.m;
      if (target.at_once < run || m.type != scalar_of<Compute> || m.rows - row0 < M || m.cols - col0 < N) return false;
      Compute* const to =
          static_cast<Compute*>(const_cast<void*>(m.data)) + m.offset(plane, row0 + row<M, N>(), col0 + col<M, N>());
#pragma unroll
      for (int part = 0; part < Product::parts; ++part)
        acc.product.for_part(part, lane(), [&](Compute const* from, int line, int col) {
          Compute* const at = to + (part * Product::part_lines + Product::row_of(line)) * m.row_stride + col;
          Pack<Compute, run> some;
#pragma unroll
          for (int e = 0; e < run; ++e) some[e] = alpha * from[e];
          if (beta != Compute(0)) {
            Pack<Compute, run> const before = load_pack<run>(at);
#pragma unroll
            for (int e = 0; e < run; ++e) some[e] += beta * before[e];
          }
          store_words(at, some);
        });
      return true;
    }
    /// Any type, address and strides.
    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                          std::int64_t row0, std::int64_t col0) const {
      store_finished(acc, target, plane, row0, col0, Compute(1), Compute(0), Unchanged{});
    }
    /// What f makes of alpha * acc + beta * matrix: a part at a time through the ring.
    template <int M, int N, class F>
    __device__ __forceinline__ void store_finished(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                                   std::int64_t row0, std::int64_t col0, Compute alpha, Compute beta,
                                                   F const& f) const {
      using Acc = Accumulator<M, N>;
      using Product = typename Acc::Product;
      using Layout = typename Acc::Lines;
      Compute* const memory = static_cast<Compute*>(ring) + thread / 32 * Product::part_lines * Acc::pitch;
      ptx::named_sync(0, team_threads);  // all warps have read the last stage
#pragma unroll 1
      for (int part = 0; part < Product::parts; ++part) {
        __syncwarp();  // the part before is stored
        Compute const factor = ptx::anew(alpha);
#pragma unroll
        for (int p = 0; p < Product::parts; ++p)  // registers have no index
          if (p == part)
            acc.product.for_part(p, lane(), [&](Compute const* from, int line, int col) {
              Pack<Compute, Product::run> some;
#pragma unroll
              for (int e = 0; e < Product::run; ++e) some[e] = factor * from[e];
              store_pack(memory + Layout::place(line, col), some);
            });
        __syncwarp();
        WarpLines<Compute, 4, 8, Product::part_lines, Acc::warp_n, Layout> const lines(
            memory, target.m, plane, row0 + row<M, N>() + part * Layout::rows, col0 + col<M, N>(), target.m.rows);
        lines.template store<1>(Compute(1), beta, f, target.at_once, [](auto) {});
      }
    }

   private:
    /// The products of the step before k, and under them the fragments of step k, which go to set k % 2.
    template <int M, int N, class Loads, class Under>
    __device__ __forceinline__ static void advance(Accumulator<M, N>& acc, Loads const& loads, int k, int set,
                                                   Under const& under) {
      using Product = typename Accumulator<M, N>::Product;
      auto& now = acc.right[1 - set];
      if constexpr (Product::left_sets > 1) {
#pragma unroll
        for (int i = 0; i < Loads::lefts; ++i) loads.left(k, i, acc.left[set]);
#pragma unroll
        for (int j = 0; j < Loads::rights; ++j) loads.right(k, j, acc.right[set]);
        under();
        multiply_all(acc, acc.left[1 - set], now);
      } else {
        constexpr int rows = Product::rows, rights = Loads::rights;
        acc.product.prepare(now);
#pragma unroll
        for (int i = 0; i < rows; ++i) {
#pragma unroll
          for (int j = 0; j < Product::cols; ++j) {
            acc.product.multiply(acc.left[0], now, i, j);
            if (j > 0) continue;
            // A fragment is replaced when a product of the next row has been begun: none waits for its registers.
            if (i > 0) loads.left(k, i - 1, acc.left[0]);
#pragma unroll
            for (int l = i * rights / rows; l < (i + 1) * rights / rows; ++l) loads.right(k, l, acc.right[set]);
            if (i == 0) under();
          }
        }
        loads.left(k, rows - 1, acc.left[0]);
      }
    }
    /// Down a column and up the next: a product shares a factor with the one before it, which saves a read of the
    /// register file. The compiler keeps this order more or less; along rows it does not.
    template <int M, int N, class Lefts, class Rights>
    __device__ __forceinline__ static void multiply_all(Accumulator<M, N>& acc, Lefts& left, Rights& right) {
      using Product = typename Accumulator<M, N>::Product;
      acc.product.prepare(right);
#pragma unroll
      for (int j = 0; j < Product::cols; ++j)
#pragma unroll
        for (int p = 0; p < Product::rows; ++p)
          acc.product.multiply(left, right, j % 2 == 0 ? p : Product::rows - 1 - p, j);
    }
  };
};

}  // namespace tessera::detail::async

#endif
