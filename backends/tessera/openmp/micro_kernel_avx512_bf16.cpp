// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_words_avx512.hpp>

namespace {

/// vdpbf16ps: two products a word, each added in fp32, to nearest; subnormal factors and sums count as zero.
struct DotBf16 {
  using Vector = __m512;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(float const* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector add(Vector sum, __m512i left, __m512i right) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
  }
};

/// See WordKernel. Two sums of each of 16 columns become their words.
void round_columns(float const* from, int k, void* to) {
  __m512i const neighbours = _mm512_mullo_epi32(
      _mm512_set1_epi32(0x10001), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i const order = _mm512_add_epi32(neighbours, _mm512_set1_epi32(16 << 16));
  char* at = static_cast<char*>(to);
  int const words = (k + 2 * line_words - 1) / (2 * line_words) * line_words;
  for (int w = 0; w < words; ++w, from += 2 * word_panel)
    for (int half = 0; half < word_panel; half += 16, at += line_bytes) {
      __m512 const even = 2 * w < k ? _mm512_loadu_ps(from + half) : _mm512_setzero_ps();
      __m512 const odd = 2 * w + 1 < k ? _mm512_loadu_ps(from + word_panel + half) : _mm512_setzero_ps();
      auto const rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
      store_line(at, _mm512_permutexvar_epi16(order, rounded));
    }
}

}  // namespace

namespace tessera::detail::openmp {

void round_columns_avx512_bf16(float const* from, int k, void* to) { round_columns(from, k, to); }

extern Bf16Kernel const bf16_avx512_bf16;
Bf16Kernel const bf16_avx512_bf16{pack_left<std::uint16_t>, pack_right<std::uint16_t>,
                                  multiply_word_panels<DotBf16, float>, 32, round_columns};

}  // namespace tessera::detail::openmp
