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

}  // namespace

namespace tessera::detail::openmp {

extern Bf16Kernel const bf16_avx512_bf16;
Bf16Kernel const bf16_avx512_bf16{pack_left<std::uint16_t>, pack_right<std::uint16_t>,
                                  multiply_word_panels<DotBf16, float>, 32};

}  // namespace tessera::detail::openmp
