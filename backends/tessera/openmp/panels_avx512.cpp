// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

/// A square as wide as a vector: rows become columns, and what a row or column lacks zero.
template <class T>
struct Square;

template <>
struct Square<float> {
  static constexpr int lanes = 16;
  using Vector = __m512;
  using Mask = __mmask16;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(Mask held, float const* from) { return _mm512_maskz_loadu_ps(held, from); }
  static void store(Mask held, float* to, Vector x) { _mm512_mask_storeu_ps(to, held, x); }
  static void transpose(Vector (&r)[lanes]) {
    Vector t[lanes];
#pragma GCC unroll 8
    for (int i = 0; i < lanes; i += 2) {  // pairs of rows
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += 4) {  // four rows: r[i + c] has columns c, c + 4, c + 8 and c + 12
      auto const low = [](Vector a, Vector b) {
        return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
      };
      auto const high = [](Vector a, Vector b) {
        return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
      };
      r[i] = low(t[i], t[i + 2]);
      r[i + 1] = high(t[i], t[i + 2]);
      r[i + 2] = low(t[i + 1], t[i + 3]);
      r[i + 3] = high(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {  // quarters of 4, 8 and 16 rows
      Vector const low01 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x44),
                   high01 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xee);
      Vector const low23 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x44),
                   high23 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xee);
      t[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
      t[c + 4] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
      t[c + 8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
      t[c + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) r[i] = t[i];
  }
};

template <>
struct Square<double> {
  static constexpr int lanes = 8;
  using Vector = __m512d;
  using Mask = __mmask8;
  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector load(Mask held, double const* from) { return _mm512_maskz_loadu_pd(held, from); }
  static void store(Mask held, double* to, Vector x) { _mm512_mask_storeu_pd(to, held, x); }
  static void transpose(Vector (&r)[lanes]) {
    Vector t[lanes];
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += 2) {  // t[i + c] has columns c, c + 2, c + 4 and c + 6 of two rows
      t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      Vector const low01 = _mm512_shuffle_f64x2(t[c], t[c + 2], 0x44),
                   high01 = _mm512_shuffle_f64x2(t[c], t[c + 2], 0xee);
      Vector const low23 = _mm512_shuffle_f64x2(t[c + 4], t[c + 6], 0x44),
                   high23 = _mm512_shuffle_f64x2(t[c + 4], t[c + 6], 0xee);
      r[c] = _mm512_shuffle_f64x2(low01, low23, 0x88);
      r[c + 2] = _mm512_shuffle_f64x2(low01, low23, 0xdd);
      r[c + 4] = _mm512_shuffle_f64x2(high01, high23, 0x88);
      r[c + 6] = _mm512_shuffle_f64x2(high01, high23, 0xdd);
    }
  }
};

template <class T>
typename Square<T>::Mask first(int n) {
  return static_cast<typename Square<T>::Mask>(n >= Square<T>::lanes ? ~0u : (1u << n) - 1);
}

/// A square of n <= lanes rows and k <= lanes columns, of which as many rows as `held` has are stored.
template <class T>
void one_square(T const* from, std::int64_t row_stride, int n, int k, std::int64_t ahead, T* to, int width,
                typename Square<T>::Mask held) {
  using S = Square<T>;
  typename S::Vector r[S::lanes];
  if (n == S::lanes && k == S::lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < S::lanes; ++i) r[i] = S::load(first<T>(S::lanes), from + i * row_stride);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < S::lanes; ++i) r[i] = i < n ? S::load(first<T>(k), from + i * row_stride) : S::zero();
  }
  if (ahead != 0)
    for (int i = 0; i < n; ++i) _mm_prefetch(reinterpret_cast<char const*>(from + i * row_stride + ahead), _MM_HINT_T1);
  S::transpose(r);
  if (k == S::lanes) {
#pragma GCC unroll 16
    for (int c = 0; c < S::lanes; ++c) S::store(held, to + c * width, r[c]);
  } else {
#pragma GCC unroll 16
    for (int c = 0; c < S::lanes; ++c)
      if (c < k) S::store(held, to + c * width, r[c]);
  }
}

template <class T>
void transpose_panel(T const* from, std::int64_t row_stride, int n, int k, std::int64_t ahead, T* to, int width) {
  constexpr int lanes = Square<T>::lanes;
  for (int c = 0; c < k; c += lanes)
    for (int r = 0; r < width; r += lanes) {
      int const rows = n - r < 0 ? 0 : (n - r < lanes ? n - r : lanes), columns = k - c < lanes ? k - c : lanes;
      one_square(from + r * row_stride + c, row_stride, rows, columns, ahead, to + c * width + r, width,
                 first<T>(width - r));
    }
}

template <class T>
void copy_panels(T const* from, std::int64_t col_stride, int n, int k, T* to, std::int64_t panel, int width) {
  using S = Square<T>;
  constexpr int ahead = 8;  // columns
  for (int c = 0; c < k; ++c, from += col_stride, to += width) {
    T* out = to;
    for (int r0 = 0; r0 < n; r0 += width, out += panel)
      for (int r = 0; r < width; r += S::lanes) {
        int const rows = n - r0 - r < 0 ? 0 : n - r0 - r;
        if (c + ahead < k) _mm_prefetch(reinterpret_cast<char const*>(from + ahead * col_stride + r0 + r), _MM_HINT_T0);
        S::store(first<T>(width - r), out + r, S::load(first<T>(rows), from + r0 + r));
      }
  }
}

}  // namespace

namespace tessera::detail::openmp {

extern PanelPacking<float> const fp32_packing_avx512;
extern PanelPacking<double> const fp64_packing_avx512;
PanelPacking<float> const fp32_packing_avx512{transpose_panel<float>, copy_panels<float>};
PanelPacking<double> const fp64_packing_avx512{transpose_panel<double>, copy_panels<double>};

}  // namespace tessera::detail::openmp
