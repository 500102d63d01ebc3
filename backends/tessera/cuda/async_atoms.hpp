// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_ATOMS_HPP
#define TESSERA_CUDA_ASYNC_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/mma.hpp>
#include <tessera/cuda/ptx.hpp>

// Ampere's atoms (sm_80 and up), so far for fp64: tiles in padded lines of shared memory filled by asynchronous copies,
// products of warps on the tensor cores. Warps form a grid of warp_rows x warp_cols, each with a rectangle of the
// accumulator in registers.
namespace tessera::detail::async {

template <class Element, class Sizes>
struct Atoms : Sizes {
  static_assert(std::is_same_v<Element, double>, "the pipeline of asynchronous copies multiplies fp64");
  using Compute = Element;
  static constexpr bool asynchronous = true;
  static constexpr int team_threads = 32 * Sizes::warp_rows * Sizes::warp_cols;
  static constexpr bool clips_rows = true;

  struct Source {
    MatrixStack m;
    bool packs;  // contiguous along a tile's lines, in multiples of 16 bytes
  };
  using Target = MatrixStack;

  /// Lines with a gap behind each, so that equal places of four lines lie in different banks.
  template <int Lines_, int Cols>
  struct Lines {
    static constexpr int lines = Lines_, cols = Cols, pitch = Cols + 4;
    alignas(16) Element v[lines][pitch];
  };
  template <int M, int K>
  struct Left : Lines<M, K> {};  // (M,K)
  template <int N, int K>
  struct Right : Lines<N, K> {};  // (N,K)

  template <class Tile>
  static Source source(MatrixStack const& m, int = 1) {
    return {m, bulk_copyable(m)};
  }
  template <class>
  static Target target(MatrixStack const& m) {
    return m;
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int warp_m = M / Sizes::warp_rows, warp_n = N / Sizes::warp_cols;
    static constexpr int rows = warp_m / 16, cols = warp_n / 8;
    Compute r[rows][cols][4];  // a grid of 16 x 8 accumulators of mma.sync
    __device__ __forceinline__ explicit Accumulator(Math&) {}
  };

  struct Copy {
    int thread;

    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& to) const {
      MatrixStack const& m = source.m;
      int const lines = held(m.rows - row, Tile::lines), cols = held(m.cols - col, Tile::cols);
      Element const* const from = static_cast<Element const*>(m.data) + m.offset(plane, row, col);
      constexpr int size = static_cast<int>(sizeof(Element));
      if (source.packs) {
        constexpr int pack = 16 / size, packs = Tile::cols / pack;
        static_assert(Tile::lines * packs % team_threads == 0);
        static_assert(team_threads % packs == 0);
        int const c = thread % packs * pack, l = thread / packs;
        int const in_line = held((cols - c) * size, 16);
        Element const* next = from + l * m.row_stride + c;
#pragma unroll
        for (int i = 0; i < Tile::lines; i += team_threads / packs) {
          int const bytes = l + i < lines ? in_line : 0;
          ptx::copy_async<16>(&to.v[l + i][c], bytes > 0 ? next : from, bytes);
          next += team_threads / packs * m.row_stride;
        }
      } else {
        bool const along_cols = m.col_stride == 1;
#pragma unroll 4
        for (int e = thread; e < Tile::lines * Tile::cols; e += team_threads) {
          int const l = along_cols ? e / Tile::cols : e % Tile::lines,
                    c = along_cols ? e % Tile::cols : e / Tile::lines;
          bool const inside = l < lines && c < cols;
          ptx::copy_async<size>(&to.v[l][c], inside ? from + l * m.row_stride + c * m.col_stride : from,
                                inside ? size : 0);
        }
      }
    }

   private:
    template <class T>
    __device__ __forceinline__ static int held(T rest, int most) {
      return rest < 0 ? 0 : (rest < most ? static_cast<int>(rest) : most);
    }
  };

  struct Math {
    int thread;

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
      if (!add) {
        clear(acc);
        // A branch, not a selection of every element in every step, which would wait for the products before.
        asm volatile("");
      }
      sweep<M, N, K>(a, b, acc);
    }
    template <int, class Acc>
    __device__ __forceinline__ void wait_all_but(Acc&) const {}
    template <class Acc>
    __device__ __forceinline__ bool join(Acc&) const {
      return true;  // a tile has one team
    }
    template <class F>
    __device__ __forceinline__ void turn(F const& f) const {
      f();
    }
    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
      for_each(acc, [](Compute& x, int, int) { x = 0; });
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
      int const row0 = row<M, N>() + lane() / 4, col0 = col<M, N>() + lane() % 4 * 2;
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::rows; ++i)
#pragma unroll
        for (int j = 0; j < Accumulator<M, N>::cols; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) f(acc.r[i][j][e], row0 + i * 16 + e / 2 * 8, col0 + j * 8 + e % 2);
    }
    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N>& acc, Target const& m, Plane plane, std::int64_t row0,
                                          std::int64_t col0) const {
      int const rows = m.rows - row0 < M ? static_cast<int>(m.rows - row0) : M;
      int const cols = m.cols - col0 < N ? static_cast<int>(m.cols - col0) : N;
      visit_scalar<Compute>(m.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* const to = static_cast<T*>(const_cast<void*>(m.data)) + m.offset(plane, row0, col0);
        for_each(acc, [&](Compute& x, int i, int j) {
          if (i < rows && j < cols) to[i * m.row_stride + j * m.col_stride] = T(x);
        });
      });
    }

   private:
    /// 16 k at a time; a row of fragments is on its way to registers while the one before is multiplied.
    template <int M, int N, int K>
    __device__ __forceinline__ void sweep(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc) const {
      using Acc = Accumulator<M, N>;
      int const g = lane() / 4, t = lane() % 4, row0 = row<M, N>() + g, col0 = col<M, N>() + g;
      auto const load_left = [&](int step, double(&to)[8]) {
#pragma unroll
        for (int q = 0; q < 8; ++q)
          to[q] = a.v[row0 + step % Acc::rows * 16 + q % 2 * 8][step / Acc::rows * 16 + q / 2 * 4 + t];
      };
      double left[2][8], right[Acc::cols][4];
      load_left(0, left[0]);
#pragma unroll
      for (int step = 0; step < K / 16 * Acc::rows; ++step) {
        if (step % Acc::rows == 0)
#pragma unroll
          for (int j = 0; j < Acc::cols; ++j)
#pragma unroll
            for (int q = 0; q < 4; ++q) right[j][q] = b.v[col0 + j * 8][step / Acc::rows * 16 + q * 4 + t];
        if (step + 1 < K / 16 * Acc::rows) load_left(step + 1, left[(step + 1) % 2]);
#pragma unroll
        for (int j = 0; j < Acc::cols; ++j) ptx::mma(acc.r[step % Acc::rows][j], left[step % 2], right[j]);
      }
    }
  };
};

}  // namespace tessera::detail::async

#endif
