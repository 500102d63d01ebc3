// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/line_fetcher.hpp>

namespace {

using tessera::detail::openmp::StridedProduct;

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  using Vector = __m256;
  static constexpr int count = 8;
  static Vector load(float const* from) { return _mm256_loadu_ps(from); }
  static Vector load(__m256i held, float const* from) { return _mm256_maskload_ps(from, held); }
  static void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  static void store(__m256i held, float* to, Vector x) { _mm256_maskstore_ps(to, held, x); }
  static Vector all(float const* x) { return _mm256_broadcast_ss(x); }
  static Vector add_product(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};
template <>
struct Lanes<double> {
  using Vector = __m256d;
  static constexpr int count = 4;
  static Vector load(double const* from) { return _mm256_loadu_pd(from); }
  static Vector load(__m256i held, double const* from) { return _mm256_maskload_pd(from, held); }
  static void store(double* to, Vector x) { _mm256_storeu_pd(to, x); }
  static void store(__m256i held, double* to, Vector x) { _mm256_maskstore_pd(to, held, x); }
  static Vector all(double const* x) { return _mm256_broadcast_sd(x); }
  static Vector add_product(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static __m256i first(int n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
};

constexpr int rows_at_once = 6;  // times 2 vectors: what 16 registers hold beside the operands

/// Rows and vectors that the registers hold, of the last vector the lanes that have columns; without Masked all do.
template <class T, class Fetch, int Rows, int Vectors, bool Masked>
void multiply(StridedProduct<T> const& p) {
  using L = Lanes<T>;
  [[maybe_unused]] __m256i const last = L::first(p.cols - (Vectors - 1) * L::count);
  typename L::Vector acc[Rows][Vectors];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      T const* const from = p.c + r * p.c_row + v * L::count;
      if (!p.add)
        acc[r][v] = typename L::Vector{};
      else if (Masked && v == Vectors - 1)
        acc[r][v] = L::load(last, from);
      else
        acc[r][v] = L::load(from);
    }
  // An address for every three rows: the others are one and two strides further, which an instruction adds itself.
  T const *upper = p.a, *lower = p.a + (Rows > 3 ? 3 : 0) * p.a_row, *right = p.b;
  Fetch factor(p.factor), result(p.result);
  for (int k = 0; k < p.k; ++k, right += p.b_k, upper += p.a_k, lower += p.a_k) {
    factor();
    result();
    typename L::Vector b[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (Masked)
        b[v] = v == Vectors - 1 ? L::load(last, right + v * L::count) : L::load(right + v * L::count);
      else
        b[v] = L::load(right + v * L::count);
    }
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      typename L::Vector const left = L::all((r < 3 ? upper : lower) + r % 3 * p.a_row);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) acc[r][v] = L::add_product(left, b[v], acc[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      T* const to = p.c + r * p.c_row + v * L::count;
      if (Masked && v == Vectors - 1)
        L::store(last, to, acc[r][v]);
      else
        L::store(to, acc[r][v]);
    }
}

template <class T, int Rows>
void multiply_rows(StridedProduct<T> const& p) {
  if constexpr (Rows > 0) {
    constexpr int lanes = Lanes<T>::count;
    if (p.rows < Rows) return multiply_rows<T, Rows - 1>(p);
    if (p.cols == 2 * lanes)
      p.factor.rows + p.result.rows > 0 ? multiply<T, Fetcher, Rows, 2, false>(p)
                                        : multiply<T, NoFetcher, Rows, 2, false>(p);
    else if (p.cols > lanes)
      multiply<T, NoFetcher, Rows, 2, true>(p);
    else if (p.cols == lanes)
      multiply<T, NoFetcher, Rows, 1, false>(p);
    else
      multiply<T, NoFetcher, Rows, 1, true>(p);
  }
}

/// In pieces of that, the first of which fetches what comes next.
template <class T>
void multiply_strided(StridedProduct<T> const& p) {
  constexpr int width = 2 * Lanes<T>::count;
  StridedProduct<T> piece = p;
  for (int j = 0; j < p.cols; j += width)
    for (int i = 0; i < p.rows; i += rows_at_once) {
      piece.a = p.a + i * p.a_row;
      piece.b = p.b + j;
      piece.c = p.c + i * p.c_row + j;
      piece.rows = p.rows - i < rows_at_once ? p.rows - i : rows_at_once;
      piece.cols = p.cols - j < width ? p.cols - j : width;
      multiply_rows<T, rows_at_once>(piece);
      piece.factor = piece.result = {};  // on their way
    }
}

}  // namespace

namespace tessera::detail::openmp {

void multiply_strided_avx2(StridedProduct<float> const& p) { multiply_strided(p); }
void multiply_strided_avx2(StridedProduct<double> const& p) { multiply_strided(p); }

}  // namespace tessera::detail::openmp
