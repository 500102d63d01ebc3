// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_DOT_PRODUCTS_BODY_HPP
#define TESSERA_OPENMP_DOT_PRODUCTS_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <cstdint>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

/// Rows x Cols dot products by vectors of `Bytes`, `Chains` sums each.
template <class T, int Bytes, int Rows, int Cols, int Chains>
void dot_block(tessera::detail::openmp::DotProducts<T> const& p) {
  typedef T Vector __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
  constexpr int lanes = Bytes / static_cast<int>(sizeof(T)), step = Chains * lanes;
  Vector sum[Rows][Cols][Chains] = {};
  std::int64_t k = 0;
  for (; k + step <= p.k; k += step) {
    Vector a[Rows][Chains];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < Chains; ++i) a[r][i] = *reinterpret_cast<Vector const*>(p.a + r * p.a_row + k + i * lanes);
#pragma GCC unroll 4
    for (int c = 0; c < Cols; ++c)
#pragma GCC unroll 2
      for (int i = 0; i < Chains; ++i) {
        Vector const b = *reinterpret_cast<Vector const*>(p.b + c * p.b_row + k + i * lanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[r][c][i] += a[r][i] * b;
      }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < Cols; ++c) {
      Vector all = sum[r][c][0];
#pragma GCC unroll 2
      for (int i = 1; i < Chains; ++i) all += sum[r][c][i];
      T total = 0;
#pragma GCC unroll 16
      for (int l = 0; l < lanes; ++l) total += all[l];
      for (std::int64_t j = k; j < p.k; ++j) total += p.a[r * p.a_row + j] * p.b[c * p.b_row + j];
      T& to = p.c[r * p.c_row + c * p.c_col];
      to = p.add ? to + total : total;
    }
}

template <class T, int Bytes, int Rows>
void dot_rows(tessera::detail::openmp::DotProducts<T> p) {
  constexpr int cols = 4, chains = Rows == 1 ? 2 : 1;
  for (; p.cols >= cols; p.cols -= cols, p.b += cols * p.b_row, p.c += cols * p.c_col)
    dot_block<T, Bytes, Rows, cols, chains>(p);
  for (; p.cols > 0; --p.cols, p.b += p.b_row, p.c += p.c_col) dot_block<T, Bytes, Rows, 1, 2>(p);
}

/// Two rows at a time: twice four sums are what sixteen registers hold beside what is multiplied.
template <class T, int Bytes>
void dot_products(tessera::detail::openmp::DotProducts<T> p) {
  for (; p.rows >= 2; p.rows -= 2, p.a += 2 * p.a_row, p.c += 2 * p.c_row) dot_rows<T, Bytes, 2>(p);
  if (p.rows > 0) dot_rows<T, Bytes, 1>(p);
}

}  // namespace

#endif
