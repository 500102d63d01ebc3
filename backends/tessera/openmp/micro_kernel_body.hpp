// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_MICRO_KERNEL_BODY_HPP
#define TESSERA_OPENMP_MICRO_KERNEL_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <cstdint>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

/// Leaves sums + a number times a vector to the compiler.
struct AnyProduct {};

/// Vectors of `Bytes`; `Rows` x 2 of them are accumulated at a time, which the instruction set's registers must hold.
template <class T, int Bytes, int Rows, class Product = AnyProduct>
void multiply_panels(T const* a, T const* b, T* c, int k, bool add) {
  using tessera::detail::openmp::panel_cols;
  using tessera::detail::openmp::panel_rows;
  typedef T Vector __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
  constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
  constexpr int cols = panel_cols<T>;
  static_assert(panel_rows % Rows == 0 && cols % (2 * lanes) == 0);
  for (int j = 0; j < cols; j += 2 * lanes)
    for (int i = 0; i < panel_rows; i += Rows) {
      Vector acc[Rows][2];
#pragma GCC unroll 12
      for (int r = 0; r < Rows; ++r) {
        T* const from = c + (i + r) * cols + j;
        acc[r][0] = add ? *reinterpret_cast<Vector*>(from) : Vector{};
        acc[r][1] = add ? *reinterpret_cast<Vector*>(from + lanes) : Vector{};
      }
      T const* left = a + i;
      T const* right = b + j;
      for (int p = 0; p < k; ++p, left += panel_rows, right += cols) {
        Vector const b0 = *reinterpret_cast<Vector const*>(right), b1 = *reinterpret_cast<Vector const*>(right + lanes);
#pragma GCC unroll 12
        for (int r = 0; r < Rows; ++r) {
          if constexpr (requires { Product::add(acc[r][0], left[r], b0); }) {
            acc[r][0] = Product::add(acc[r][0], left[r], b0);
            acc[r][1] = Product::add(acc[r][1], left[r], b1);
          } else {
            acc[r][0] += left[r] * b0;
            acc[r][1] += left[r] * b1;
          }
        }
      }
#pragma GCC unroll 12
      for (int r = 0; r < Rows; ++r) {
        T* const to = c + (i + r) * cols + j;
        *reinterpret_cast<Vector*>(to) = acc[r][0];
        *reinterpret_cast<Vector*>(to + lanes) = acc[r][1];
      }
    }
}

}  // namespace

#endif
