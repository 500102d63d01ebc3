// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/roundings_body.hpp>

namespace {

struct Avx512 {
  typedef std::uint16_t Halves __attribute__((vector_size(64)));
  static constexpr int lanes = 32;

  static Halves all(std::uint16_t x) { return reinterpret_cast<Halves>(_mm512_set1_epi16(static_cast<short>(x))); }
  static Halves nearest(Fp16, float const* from) {
    return joined<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16));
  }
  static Halves nearest(Bf16, float const* from) {
    __m256i const low = upper_half(_mm512_loadu_ps(from)), high = upper_half(_mm512_loadu_ps(from + 16));
    return reinterpret_cast<Halves>(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
  template <int Exponent>
  static Halves cut(float const* from) {
    return joined<_MM_FROUND_TO_ZERO>(sticky<Exponent>(_mm512_loadu_ps(from)),
                                      sticky<Exponent>(_mm512_loadu_ps(from + 16)));
  }
  static Halves smaller(Halves x, Halves y) {
    return reinterpret_cast<Halves>(_mm512_min_epu16(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
  }
  static Halves where_greater(Halves x, std::uint16_t limit, Halves y, Halves z) {
    __mmask32 const greater =
        _mm512_cmpgt_epi16_mask(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(all(limit)));
    return reinterpret_cast<Halves>(
        _mm512_mask_mov_epi16(reinterpret_cast<__m512i>(z), greater, reinterpret_cast<__m512i>(y)));
  }
  static void store_bytes(Halves x, unsigned char* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(reinterpret_cast<__m512i>(x)));
  }
  static void store_int8(float const* from, unsigned char* to) {
    for (int i = 0; i < lanes; i += 16) {
      __m512 const x = _mm512_loadu_ps(from + i);
      __mmask16 const number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
      // Of what is below its numbers, the lowest; of NaN 0.
      __m512i const whole = _mm512_maskz_cvtps_epi32(number, _mm512_min_ps(x, _mm512_set1_ps(127)));
      __m128i const bytes = _mm512_cvtsepi32_epi8(_mm512_max_epi32(whole, _mm512_set1_epi32(-127)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bytes);
    }
  }

 private:
  /// Rounded to bf16: in integers, as vcvtneps2bf16 would make subnormal numbers zero.
  static __m256i upper_half(__m512 x) {
    __m512i const bits = _mm512_castps_si512(x);
    __m512i const odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i const up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 const nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i const rounded = _mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fff0000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  }
  template <int Mode>
  static Halves joined(__m512 low, __m512 high) {
    return reinterpret_cast<Halves>(
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, Mode | _MM_FROUND_NO_EXC)),
                           _mm512_cvtps_ph(high, Mode | _MM_FROUND_NO_EXC), 1));
  }
  template <int Exponent>
  static __m512 sticky(__m512 x) {
    if constexpr (Exponent != 0) x = _mm512_mul_ps(x, _mm512_set1_ps(1.0f / (1 << -Exponent)));
    __m512i const bits = _mm512_castps_si512(x), low = _mm512_set1_epi32(cut_bits);
    __m512i const carry = _mm512_add_epi32(_mm512_and_si512(bits, low), low);
    return _mm512_castsi512_ps(_mm512_andnot_si512(low, _mm512_or_si512(bits, carry)));
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern Roundings const roundings_avx512;
Roundings const roundings_avx512 = all_roundings<Avx512>;

}  // namespace tessera::detail::openmp
