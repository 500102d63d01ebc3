// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_WORD_PANELS_AVX512_HPP
#define TESSERA_OPENMP_WORD_PANELS_AVX512_HPP

// How narrow elements become panels of words, with AVX-512 (F and BW). Included by the sources of the instruction sets
// that multiply words, each compiled for its own: what is here stays in the source.
#include <immintrin.h>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

using tessera::detail::openmp::line_bytes;
using tessera::detail::openmp::line_panel_bytes;
using tessera::detail::openmp::line_words;
using tessera::detail::openmp::word_panel;

/// r[i] word j becomes r[j] word i.
inline void transpose_words(__m512i (&r)[16]) {
  __m512i t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Quarter q of u[4 i + j] holds word 4 q + j of the rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    __m512i const even_low = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88),
                  even_high = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x88),
                  odd_low = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xdd),
                  odd_high = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xdd);
    r[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    r[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

/// The first `bytes` bytes of 64, zero behind them. Nothing else is read.
inline __m512i load_bytes(void const* from, std::int64_t bytes) {
  if (bytes >= line_bytes) return _mm512_loadu_si512(from);
  return bytes <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8((1ull << bytes) - 1, from);
}

/// Elements in memory, rows n and k columns.
template <class Storage>
struct Elements {
  Storage const* from;
  std::int64_t row_stride, col_stride;
  int n, k;
  static constexpr int size = sizeof(Storage), a_word = 4 / size, a_line = line_bytes / size;

  int lines() const { return (k + a_line - 1) / a_line; }
  /// Of a row that is contiguous.
  __m512i line(int row, int l) const {
    if (row >= n) return _mm512_setzero_si512();
    return load_bytes(from + row * row_stride + l * a_line, std::int64_t(k - l * a_line) * size);
  }
  /// Word w of all rows, where columns are contiguous.
  void words(int w, __m512i& low, __m512i& high) const {
    if constexpr (size == 2) {
      __m512i const even = column(2 * w), odd = column(2 * w + 1);
      // Of four rows a quarter, which begin at the rows 0, 8, 16, 24, and 4 later.
      __m512i const first = _mm512_unpacklo_epi16(even, odd), second = _mm512_unpackhi_epi16(even, odd);
      low = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), second);
      high = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), second);
    } else {
      __m256i const c0 = _mm512_castsi512_si256(column(4 * w)), c1 = _mm512_castsi512_si256(column(4 * w + 1)),
                    c2 = _mm512_castsi512_si256(column(4 * w + 2)), c3 = _mm512_castsi512_si256(column(4 * w + 3));
      __m256i const low01 = _mm256_unpacklo_epi8(c0, c1), high01 = _mm256_unpackhi_epi8(c0, c1),
                    low23 = _mm256_unpacklo_epi8(c2, c3), high23 = _mm256_unpackhi_epi8(c2, c3);
      // Rows 0 to 3 and 16 to 19, then 4 to 7 and 20 to 23, and so on.
      __m512i const first = pair(_mm256_unpacklo_epi16(low01, low23), _mm256_unpackhi_epi16(low01, low23)),
                    second = pair(_mm256_unpacklo_epi16(high01, high23), _mm256_unpackhi_epi16(high01, high23));
      low = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), second);
      high = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15), second);
    }
  }

 private:
  __m512i column(int c) const {
    if (c >= k) return _mm512_setzero_si512();
    int const rows = n < word_panel ? n : word_panel;
    return load_bytes(from + c * col_stride, rows * size);
  }
  static __m512i pair(__m256i low, __m256i high) { return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1); }
};

inline void store_line(char* to, __m512i x) { _mm512_storeu_si512(to, x); }

/// See WordKernel.
template <class Storage>
void pack_left(Storage const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, void* to) {
  Elements<Storage> const x{from, row_stride, col_stride, n, k};
  char* const panel = static_cast<char*>(to);
  int const lines = x.lines();
  if (col_stride == 1) {
    constexpr int together = 4;  // of a row, so that few pages and many lines of each are on their way
    for (int l0 = 0; l0 < lines; l0 += together)
      for (int r = 0; r < word_panel; ++r)
        for (int l = l0; l < lines && l < l0 + together; ++l)
          store_line(panel + l * line_panel_bytes + r * line_bytes, x.line(r, l));
    return;
  }
  for (int l = 0; l < lines; ++l) {
    __m512i low[line_words], high[line_words];
    for (int w = 0; w < line_words; ++w) x.words(l * line_words + w, low[w], high[w]);
    transpose_words(low);
    transpose_words(high);
    char* const at = panel + l * line_panel_bytes;
    for (int r = 0; r < line_words; ++r) {
      store_line(at + r * line_bytes, low[r]);
      store_line(at + (r + line_words) * line_bytes, high[r]);
    }
  }
}

/// Every byte is stored xor `Changed`.
template <class Storage, int Changed = 0>
void pack_right(Storage const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, void* to) {
  Elements<Storage> const x{from, row_stride, col_stride, n, k};
  char* const panel = static_cast<char*>(to);
  __m512i const change = _mm512_set1_epi8(static_cast<char>(Changed));
  auto const store = [&](char* at, __m512i words) {
    store_line(at, Changed != 0 ? _mm512_xor_si512(words, change) : words);
  };
  for (int l = 0; l < x.lines(); ++l)
    for (int half = 0; half < 2; ++half) {
      char* const at = panel + l * line_panel_bytes + half * line_bytes;
      if (col_stride == 1) {
        __m512i r[16];
        for (int i = 0; i < 16; ++i) r[i] = x.line(half * 16 + i, l);
        transpose_words(r);
        for (int w = 0; w < line_words; ++w) store(at + w * 2 * line_bytes, r[w]);
      } else if (half == 0) {
        for (int w = 0; w < line_words; ++w) {
          __m512i low, high;
          x.words(l * line_words + w, low, high);
          store(at + w * 2 * line_bytes, low);
          store(at + w * 2 * line_bytes + line_bytes, high);
        }
      }
    }
}

}  // namespace

#endif
