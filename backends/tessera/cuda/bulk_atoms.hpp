// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_ATOMS_HPP
#define TESSERA_CUDA_BULK_ATOMS_HPP

#include <cuda_bf16.h>
#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/tensor_map.hpp>
#include <tessera/cuda/wgmma.hpp>

// Hopper's atoms (sm_90a): tiles in swizzled shared memory filled by the bulk copy engine, warpgroup products on bf16,
// accumulators in the registers of two consumer warpgroups, 64 rows each.
namespace tessera::detail::bulk {

inline constexpr int warpgroup = 128, consumers = 2;
using bf16 = __nv_bfloat16;

template <class Element, class Sizes>
struct Atoms : Sizes {
  static_assert(std::is_same_v<Element, bf16_t>, "the bulk pipeline multiplies bf16");
  using Compute = float;
  static constexpr int team_threads = warpgroup * (1 + consumers);
  /// Rows inside an operand but past a limit of the caller's are copied as they are.
  static constexpr bool clips_rows = false;

  using Source = CUtensorMap;
  struct Target {
    CUtensorMap map;      // for the staged store
    bf16* data;           // for the direct one
    MatrixStack strides;  // extents and strides
  };

  /// Columns in groups of 64: each a box of 128-byte rows, swizzled.
  template <int Rows, int Cols>
  struct Boxes {
    static_assert(Cols % 64 == 0);
    static constexpr int rows = Rows;
    alignas(1024) bf16 v[Cols / 64][Rows][64];
  };
  template <int M, int K>
  struct Left : Boxes<M, K> {};  // (M,K)
  template <int N, int K>
  struct Right : Boxes<N, K> {};  // (N,K)
  template <int K, int N>
  struct RightTransposed : Boxes<K, N> {};  // (K,N)

  template <class Tile>
  static Source source(MatrixStack const& m) {
    return tensor_map(m, Tile::rows);
  }
  template <class>
  static Target target(MatrixStack const& m) {
    Target t{{}, static_cast<bf16*>(const_cast<void*>(m.data)), m};
    if constexpr (Sizes::staged_store) t.map = tensor_map(m, 64);
    return t;
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    static_assert(M == 64 * consumers);
    static constexpr std::size_t scratch_bytes = 0;
    float r[N / 2];  // this warpgroup's 64 rows: 8-column groups of four elements, two in each of two rows
    __device__ __forceinline__ explicit Accumulator(Math&) {}
  };
  template <int M>
  struct RowValues {
    static constexpr std::size_t scratch_bytes = 0;
    float v[2];  // of the two rows this thread has a part in, the same in the four threads that share them
    __device__ __forceinline__ explicit RowValues(Math&, float start = 0) : v{start, start} {}
  };
  template <int M, int K>
  struct Rounded {
    static constexpr std::size_t scratch_bytes = 0;
    std::uint32_t r[K / 16][4];
    __device__ __forceinline__ explicit Rounded(Math&) {}
  };

  struct Copy {
    std::uint64_t* full;  // completes when the bytes have landed
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& to) const {
#pragma unroll
      for (int box = 0; box < static_cast<int>(sizeof(to.v) / sizeof(to.v[0])); ++box)
        ptx::bulk_load_4d(to.v[box], &source, full, static_cast<int>(col) + box * 64, static_cast<int>(row),
                          static_cast<int>(plane.inner), static_cast<int>(plane.outer));
    }
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& to, std::int64_t) const {
      (*this)(source, plane, row, col, to);
    }
  };

  /// One consumer's stage for the store: 64 rows, two boxes of 64 columns.
  using Staging = bf16[2][64][64];

  struct Math {
    int group, thread;  // of this consumer warpgroup, of this thread in it
    Staging* staging;

    __device__ __forceinline__ int row() const { return group * 64 + thread / 32 * 16 + thread % 32 / 4; }
    __device__ __forceinline__ int col() const { return thread % 4 * 2; }

    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc,
                                             bool add) const {
      ptx::pin(acc.r);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < K / 16; ++k)  // 16 columns are 32 bytes, 2 in the descriptor's units
        ptx::wgmma(acc.r, ptx::wgmma_descriptor(a.v[k / 4][group * 64], 16) + (k % 4) * 2,
                   ptx::wgmma_descriptor(b.v[k / 4], 16) + (k % 4) * 2, add || k > 0);
      ptx::wgmma_commit();
    }
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Rounded<M, K> const& a, RightTransposed<K, N> const& b,
                                             Accumulator<M, N>& acc, bool add) const {
      ptx::pin(acc.r);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < K / 16; ++k)  // 16 rows are 2048 bytes
        ptx::wgmma(acc.r, a.r[k], ptx::wgmma_descriptor(b.v, K * 128) + k * 128, add || k > 0);
      ptx::wgmma_commit();
    }
    template <int Pending, class Acc>
    __device__ __forceinline__ void wait_all_but(Acc& acc) const {
      ptx::wgmma_wait<Pending>();
      if constexpr (Pending == 0 || Sizes::take_turns) ptx::pin(acc.r);
    }
    /// The two consumers take turns at the tensor cores: one multiplies while the other does its row work.
    template <class F>
    __device__ __forceinline__ void turn(F const& f) const {
      if constexpr (Sizes::take_turns) ptx::named_sync(1 + group, 2 * warpgroup);
      f();
      if constexpr (Sizes::take_turns) ptx::named_arrive(2 - group, 2 * warpgroup);
    }

    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
#pragma unroll
      for (float& x : acc.r) x = 0;
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[i], row() + i % 4 / 2 * 8, col() + i / 4 * 8 + i % 2);
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[i], rows.v[i % 4 / 2]);
    }
    template <class F, int M, class... Rows>
    __device__ __forceinline__ void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) f(first.v[h], rest.v[h]...);
    }
    template <int M, class F>
    __device__ __forceinline__ void once_per_row(RowValues<M> const& rows, F const& f) const {
      if (thread % 4 == 0)
#pragma unroll
        for (int h = 0; h < 2; ++h) f(rows.v[h], row() + h * 8);
    }
    template <int M, int N>
    __device__ __forceinline__ void row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float m = rows.v[h];
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) m = fmaxf(m, fmaxf(acc.r[i], acc.r[i + 1]));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        rows.v[h] = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      }
    }
    template <int M, int N>
    __device__ __forceinline__ void row_add_partial(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = 0;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) sum += acc.r[i] + acc.r[i + 1];
        rows.v[h] += sum;
      }
    }
    template <int M>
    __device__ __forceinline__ void row_combine(RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 1);
        rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 2);
      }
    }
    __device__ __forceinline__ static float exp2(float x) { return ptx::exp2_approximate(x); }

    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Rounded<M, K>& to) const {
#pragma unroll
      for (int i = 0; i < K / 4; ++i) to.r[i / 4][i % 4] = pair(from.r[i * 2], from.r[i * 2 + 1]);
    }

    template <int M, int N>
    __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                          std::int64_t row0, std::int64_t col0) const {
      if constexpr (Sizes::staged_store)
        store_staged(acc, target, plane, static_cast<int>(row0), static_cast<int>(col0));
      else
        store_direct(acc, target, plane, row0, col0);
    }
    /// Stores still under way are done: before the team ends.
    __device__ __forceinline__ void drain() const {
      if constexpr (Sizes::staged_store)
        if (thread == 0) ptx::bulk_wait();
    }

   private:
    __device__ __forceinline__ static std::uint32_t pair(float low, float high) {
      __nv_bfloat162 const x = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<std::uint32_t const*>(&x);
    }
    /// Straight from registers, two columns at a time; columns come in pairs.
    template <int M, int N>
    __device__ __forceinline__ void store_direct(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                                 std::int64_t row0, std::int64_t col0) const {
      MatrixStack const& m = target.strides;
      int const cols = static_cast<int>(m.cols - col0);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        std::int64_t const r = row0 + row() + h * 8;
        bf16* const line = target.data + m.offset(plane, r, col0);
        bool const inside = r < m.rows;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) {
          int const c = col() + i / 4 * 8;
          if (inside && c < cols) *reinterpret_cast<std::uint32_t*>(line + c) = pair(acc.r[i], acc.r[i + 1]);
        }
      }
    }
    /// 16 x 16 elements at a time into two swizzled boxes, then one bulk store that runs on under the next tile's
    /// products.
    template <int M, int N>
    __device__ __forceinline__ void store_staged(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                                 int row0, int col0) const {
      std::uint32_t x[N / 4];
#pragma unroll
      for (int i = 0; i < N / 4; ++i) x[i] = pair(acc.r[i * 2], acc.r[i * 2 + 1]);
      int const lane = thread % 32, at = thread / 32 * 16 + lane % 16;
#pragma unroll
      for (int h = 0; h < N / 128; ++h) {
        if (thread == 0) ptx::bulk_wait_read();
        ptx::named_sync(4 + group, warpgroup);
#pragma unroll
        for (int j = 0; j < 8; ++j)
          ptx::store_matrix_x4(
              ptx::shared_address(&staging[group][j / 4][at][0]) + ((((j % 4) * 2 + lane / 16) ^ (at & 7)) << 4),
              x + h * 32 + j * 4);
        ptx::async_proxy_fence();
        ptx::named_sync(4 + group, warpgroup);
        if (thread == 0) {
#pragma unroll
          for (int b = 0; b < 2; ++b)
            ptx::bulk_store_4d(&target.map, staging[group][b], col0 + h * 128 + b * 64, row0 + group * 64,
                               static_cast<int>(plane.inner), static_cast<int>(plane.outer));
          ptx::bulk_commit();
        }
      }
    }
  };
};

}  // namespace tessera::detail::bulk

#endif
