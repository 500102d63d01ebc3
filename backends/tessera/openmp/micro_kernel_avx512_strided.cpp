// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/line_fetcher.hpp>

namespace {

using tessera::detail::openmp::panel_rows;
using tessera::detail::openmp::StridedProduct;

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  using Vector = __m512;
  using Mask = __mmask16;
  static constexpr int count = 16;
  static Vector load(Mask held, float const* from) { return _mm512_maskz_loadu_ps(held, from); }
  static void store(Mask held, float* to, Vector x) { _mm512_mask_storeu_ps(to, held, x); }
  static Vector all(float x) { return _mm512_set1_ps(x); }
};
template <>
struct Lanes<double> {
  using Vector = __m512d;
  using Mask = __mmask8;
  static constexpr int count = 8;
  static Vector load(Mask held, double const* from) { return _mm512_maskz_loadu_pd(held, from); }
  static void store(Mask held, double* to, Vector x) { _mm512_mask_storeu_pd(to, held, x); }
  static Vector all(double x) { return _mm512_set1_pd(x); }
};

/// Rows and vectors that the registers hold; of the last vector the lanes that are in the mask.
template <class T, class Fetch, int Rows, int Vectors>
void multiply(StridedProduct<T> const& p) {
  using L = Lanes<T>;
  constexpr int groups = (Rows + 2) / 3;
  constexpr auto everything = static_cast<typename L::Mask>(~0u);
  auto const last = static_cast<typename L::Mask>((1u << (p.cols - (Vectors - 1) * L::count)) - 1);
  typename L::Vector acc[Rows][Vectors];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      acc[r][v] =
          p.add ? L::load(v == Vectors - 1 ? last : everything, p.c + r * p.c_row + v * L::count) : L::all(T(0));
  // An address for every three rows: the others are one and two strides further, which an instruction adds itself.
  T const* group[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) group[g] = p.a + 3 * g * p.a_row;
  T const* right = p.b;
  Fetch factor(p.factor), result(p.result);
  for (int k = 0; k < p.k; ++k, right += p.b_k) {
    factor();
    result();
    typename L::Vector b[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) b[v] = L::load(v == Vectors - 1 ? last : everything, right + v * L::count);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      typename L::Vector const left = L::all(group[r / 3][r % 3 * p.a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) acc[r][v] += left * b[v];
    }
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) group[g] += p.a_k;
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      L::store(v == Vectors - 1 ? last : everything, p.c + r * p.c_row + v * L::count, acc[r][v]);
}

template <class T, int Rows>
void multiply_rows(StridedProduct<T> const& p) {
  if constexpr (Rows > 0) {
    if (p.rows < Rows) return multiply_rows<T, Rows - 1>(p);
    bool const fetches = p.factor.rows + p.result.rows > 0;
    if (p.cols > Lanes<T>::count)
      fetches ? multiply<T, Fetcher, Rows, 2>(p) : multiply<T, NoFetcher, Rows, 2>(p);
    else
      fetches ? multiply<T, Fetcher, Rows, 1>(p) : multiply<T, NoFetcher, Rows, 1>(p);
  }
}

}  // namespace

namespace tessera::detail::openmp {

void multiply_strided_avx512(StridedProduct<float> const& p) { multiply_rows<float, panel_rows>(p); }
void multiply_strided_avx512(StridedProduct<double> const& p) { multiply_rows<double, panel_rows>(p); }

}  // namespace tessera::detail::openmp
