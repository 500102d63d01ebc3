// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_MICRO_KERNEL_WORDS_AVX512_HPP
#define TESSERA_OPENMP_MICRO_KERNEL_WORDS_AVX512_HPP

#include <tessera/openmp/word_panels_avx512.hpp>

namespace {

typedef std::int32_t Word __attribute__((may_alias));

/// Rows x 32 sums of one panel of rows and one of columns. Dot: Vector of 16 sums, add(sums, left words, right words).
template <class Dot, int Rows, class Sum>
inline void multiply_words(char const* a, char const* b, int lines, Sum* c, bool add) {
  typename Dot::Vector acc[Rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
    for (int h = 0; h < 2; ++h) acc[r][h] = add ? Dot::load(c + r * word_panel + h * 16) : Dot::zero();
  for (int l = 0; l < lines; ++l, a += line_panel_bytes)
    for (int w = 0; w < line_words; ++w, b += 2 * line_bytes) {
      __m512i const b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + line_bytes);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        __m512i const left = _mm512_set1_epi32(*reinterpret_cast<Word const*>(a + r * line_bytes + w * 4));
        acc[r][0] = Dot::add(acc[r][0], left, b0);
        acc[r][1] = Dot::add(acc[r][1], left, b1);
      }
    }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
    for (int h = 0; h < 2; ++h) Dot::store(c + r * word_panel + h * 16, acc[r][h]);
}

/// All panels, a part of K after the other: of a right panel as much as half a first-level cache holds.
template <class Dot, class Sum>
void multiply_word_panels(tessera::detail::openmp::WordProduct<Sum> const& p) {
  constexpr int lines_a_part = 8, rows_at_once = 8;
  for (int l0 = 0; l0 < p.lines; l0 += lines_a_part) {
    int const lines = p.lines - l0 < lines_a_part ? p.lines - l0 : lines_a_part;
    for (int j = 0; j * word_panel < p.cols; ++j)
      for (int i = 0; i < p.rows; i += rows_at_once) {
        char const* const a = static_cast<char const*>(p.a) + i / word_panel * p.a_panel +
                              std::int64_t(l0) * line_panel_bytes + i % word_panel * line_bytes;
        char const* const b = static_cast<char const*>(p.b) + j * p.b_panel + std::int64_t(l0) * line_panel_bytes;
        multiply_words<Dot, rows_at_once>(a, b, lines, p.c + j * p.c_panel + i * word_panel, p.add || l0 > 0);
      }
  }
}

}  // namespace

#endif
