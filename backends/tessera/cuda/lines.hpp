// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_LINES_HPP
#define TESSERA_CUDA_LINES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/atoms.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/portable/pack.hpp>

// The way of accumulators to a matrix of any type, address and strides: a warp's lines in shared memory, where a lane
// finds neighbours of a row instead of what the tensor cores gave it. What is done with an element is compiled once for
// a loop over lines, not once for every register.
namespace tessera::detail {

/// Whether Count neighbours of a row, the first at a multiple of Count, can be stored at once.
template <int Count>
bool stores_packs(MatrixStack const& m) {
  auto const size = static_cast<std::int64_t>(size_of(m.type)), whole = Count * size, pack = whole < 16 ? whole : 16;
  auto const fits = [&](std::int64_t extent, std::int64_t stride) { return extent <= 1 || stride * size % pack == 0; };
  return m.col_stride == 1 && reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uintptr_t>(pack) == 0 &&
         fits(m.rows, m.row_stride) && fits(m.inner, m.inner_stride) && fits(m.outer, m.outer_stride);
}

/// Lines of Width accumulators, Count neighbours a lane at a time; `AtOnce` elements are read from memory before the
/// first of them is used. Layout has place(line, column), where Count neighbours are together, and row(line), the row
/// of the block that a line holds.
template <class Compute, int Count, int AtOnce, int Lines, int Width, class Layout>
struct WarpLines {
  static constexpr int lanes_a_line = Width / Count, together = 32 / lanes_a_line, steps = Lines / together;
  static_assert(32 % lanes_a_line == 0 && Lines % together == 0);
  static constexpr int batch = AtOnce / Count < steps ? AtOnce / Count : steps;
  static_assert(steps % batch == 0);

  Compute* lines;
  MatrixStack const& to;
  Plane plane;
  std::int64_t row, col;  // of the block in the matrix
  int rows, cols;         // of the block, that are stored

  __device__ __forceinline__ WarpLines(Compute* memory, MatrixStack const& matrix, Plane in, std::int64_t row0,
                                       std::int64_t col0, std::int64_t end)
      : lines(memory),
        to(matrix),
        plane(in),
        row(row0),
        col(col0),
        rows(held(end - row0)),
        cols(held(matrix.cols - col0)) {}

  /// matrix = f(lines + beta * matrix, row, column) for what is inside the matrix. `packs`: Count neighbours can be
  /// stored at once.
  template <class F>
  __device__ __forceinline__ void store(Compute beta, F const& f, bool packs) const {
    int const line = lane() / lanes_a_line, c = lane() % lanes_a_line * Count;
    bool const whole = rows >= Layout::rows && cols >= Width;
    Batch x;
#pragma unroll 1
    for (int begin = line; begin < Lines; begin += batch * together) {
#pragma unroll
      for (int i = 0; i < batch; ++i) x.v[i] = load_pack<Count>(lines + Layout::place(begin + i * together, c));
      if (beta != Compute(0)) add(x, begin, c, beta);
      if constexpr (!std::is_same_v<F, Unchanged>) {
        // Without conditions what f reads is on its way for a whole batch.
        if (whole)
          each(begin, c, [&](int i, int e, int r, int k) { x.v[i][e] = f(x.v[i][e], row + r, col + k); });
        else
          each(begin, c, [&](int i, int e, int r, int k) {
            if (r < rows && k < cols) x.v[i][e] = f(x.v[i][e], row + r, col + k);
          });
      }
      visit_scalar<Compute>(to.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* const first = static_cast<T*>(const_cast<void*>(to.data)) + to.offset(plane, row, col + c);
        if (whole && packs) {
#pragma unroll
          for (int i = 0; i < batch; ++i)
            store_pack(first + Layout::row(begin + i * together) * to.row_stride, rounded<T>(x.v[i]));
        } else {
          each(begin, c, [&](int i, int e, int r, int k) {
            if (r < rows && k < cols) first[r * to.row_stride + e * to.col_stride] = rounded<T>(x.v[i][e]);
          });
        }
      });
    }
  }

 private:
  struct Batch {
    Pack<Compute, Count> v[batch];
  };
  __device__ __forceinline__ static int held(std::int64_t rest) {
    return rest < (1 << 30) ? static_cast<int>(rest) : 1 << 30;
  }
  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

  /// x += beta * matrix
  __device__ __forceinline__ void add(Batch& x, int begin, int c, Compute beta) const {
    visit_scalar<Compute>(to.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T const* const first = static_cast<T const*>(to.data) + to.offset(plane, row, col + c);
      T read[batch][Count] = {};
      each(begin, c, [&](int i, int e, int r, int k) {
        if (r < rows && k < cols) read[i][e] = first[r * to.row_stride + e * to.col_stride];
      });
      each(begin, c, [&](int i, int e, int, int) { x.v[i][e] += beta * static_cast<Compute>(read[i][e]); });
    });
  }
  /// f(i, e, row, column) for every element of a batch that begins in column c of a line.
  template <class F>
  __device__ __forceinline__ void each(int begin, int c, F const& f) const {
#pragma unroll
    for (int i = 0; i < batch; ++i)
#pragma unroll
      for (int e = 0; e < Count; ++e) f(i, e, Layout::row(begin + i * together), c + e);
  }
};

}  // namespace tessera::detail

#endif
