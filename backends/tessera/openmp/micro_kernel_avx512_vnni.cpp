// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_words_avx512.hpp>

namespace {

/// vpdpbusd: four products a word, exact. Its first factor is unsigned: the right one, packed 128 larger than it is.
struct DotInt8 {
  using Vector = __m512i;
  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector load(std::int32_t const* from) { return _mm512_loadu_si512(from); }
  static void store(std::int32_t* to, Vector x) { _mm512_storeu_si512(to, x); }
  static Vector add(Vector sum, __m512i left, __m512i right) { return _mm512_dpbusd_epi32(sum, right, left); }
};

/// What the sums of a row are too large by: 128 times the sum of its left factors.
std::int32_t excess(char const* row, int lines) {
  __m512i sum = _mm512_setzero_si512();
  for (int l = 0; l < lines; ++l)
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(row + std::int64_t(l) * line_panel_bytes));
  return 128 * _mm512_reduce_add_epi32(sum);
}

void multiply(tessera::detail::openmp::WordProduct<std::int32_t> const& p) {
  // Before the products, which then add to it.
  for (int i = 0; i < p.rows; ++i) {
    __m512i const less = _mm512_set1_epi32(
        -excess(static_cast<char const*>(p.a) + i / word_panel * p.a_panel + i % word_panel * line_bytes, p.lines));
    for (int j = 0; j * word_panel < p.cols; ++j)
      for (int h = 0; h < 2; ++h) {
        std::int32_t* const c = p.c + j * p.c_panel + i * word_panel + h * 16;
        DotInt8::store(c, p.add ? _mm512_add_epi32(DotInt8::load(c), less) : less);
      }
  }
  auto all = p;
  all.add = true;
  multiply_word_panels<DotInt8>(all);
}

}  // namespace

namespace tessera::detail::openmp {

extern Int8Kernel const int8_avx512_vnni;
Int8Kernel const int8_avx512_vnni{pack_left<std::int8_t>, pack_right<std::int8_t, 0x80>, multiply, 16};

}  // namespace tessera::detail::openmp
