// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/micro_kernel_body.hpp>

namespace tessera::detail::openmp {

void multiply_panels_avx512(float const* a, float const* b, float* c, int k, bool add) {
  multiply_panels<float, 64, 12>(a, b, c, k, add);
}

void multiply_panels_avx512(double const* a, double const* b, double* c, int k, bool add) {
  multiply_panels<double, 64, 12>(a, b, c, k, add);
}

void multiply_panels_avx512(std::int32_t const* a, std::int32_t const* b, std::int32_t* c, int k, bool add) {
  multiply_panels<std::int32_t, 64, 12>(a, b, c, k, add);
}

/// In integers: vcvtneps2bf16 would make subnormal numbers zero, and keeps the sign and payload of a NaN.
void round_to_bf16_avx512(float const* from, int n, std::uint16_t* to) {
  __m512i const half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  for (int i = 0; i < n; i += 16) {
    __mmask16 const held = n - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (n - i)) - 1);
    __m512 const x = _mm512_maskz_loadu_ps(held, from + i);
    __m512i const bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    __m512i const nearest = _mm512_add_epi32(bits, _mm512_add_epi32(half, _mm512_and_si512(upper, one)));
    __m512i const rounded = _mm512_srli_epi32(nearest, 16);
    __mmask16 const nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm512_mask_cvtepi32_storeu_epi16(to + i, held, _mm512_mask_mov_epi32(rounded, nan, half));
  }
}

}  // namespace tessera::detail::openmp
