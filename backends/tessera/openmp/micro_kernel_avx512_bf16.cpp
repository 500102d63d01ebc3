// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/column_loops_avx512.hpp>
#include <tessera/openmp/micro_kernel_words_avx512.hpp>
#include <tessera/openmp/word_weights_body.hpp>

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

struct Avx512Bf16 : Avx512 {
  static Vector first(float const* from, int n) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(n >= lanes ? 0xffff : n > 0 ? (1 << n) - 1 : 0), from);
  }
  static void write_words(Vector x, Vector y, char* to) {
    __m512i const neighbours = _mm512_mullo_epi32(
        _mm512_set1_epi32(0x10001), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __m512i const order = _mm512_add_epi32(neighbours, _mm512_set1_epi32(16 << 16));
    store_line(to, _mm512_permutexvar_epi16(order, rounded(x, y)));
  }
  static void write_line(Vector x, Vector y, char* to) { store_line(to, rounded(x, y)); }

 private:
  static __m512i rounded(Vector x, Vector y) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x)); }
};

}  // namespace

namespace tessera::detail::openmp {

extern WordWeights const weights_avx512_bf16;
WordWeights const weights_avx512_bf16 = ColumnsToWords<Avx512Bf16>::table;

extern Bf16Kernel const bf16_avx512_bf16;
Bf16Kernel const bf16_avx512_bf16{pack_left<std::uint16_t>, pack_right<std::uint16_t>,
                                  multiply_word_panels<DotBf16, float>, 32, &weights_avx512_bf16};

}  // namespace tessera::detail::openmp
