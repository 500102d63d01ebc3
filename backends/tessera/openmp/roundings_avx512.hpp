// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROUNDINGS_AVX512_HPP
#define TESSERA_OPENMP_ROUNDINGS_AVX512_HPP

#include <immintrin.h>

#include <tessera/openmp/quotient_steps_body.hpp>

namespace {

struct Avx512 {
  typedef std::uint16_t Halves __attribute__((vector_size(64)));
  typedef float Floats __attribute__((vector_size(64)));
  static constexpr int lanes = 32;
  static constexpr bool divides_slowly = true;

  static Halves all(std::uint16_t x) { return reinterpret_cast<Halves>(_mm512_set1_epi16(static_cast<short>(x))); }
  static Floats number(float x) { return _mm512_set1_ps(x); }
  static Floats load(Fp32, unsigned char const* from) { return _mm512_loadu_ps(from); }
  static Floats load(Fp16, unsigned char const* from) { return _mm512_cvtph_ps(loaded(from)); }
  static Floats load(Bf16, unsigned char const* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(loaded(from)), 16));
  }
  static Floats load(Int8, unsigned char const* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from))));
  }
  static Halves load_bytes(unsigned char const* from) {
    return reinterpret_cast<Halves>(_mm512_cvtepu8_epi16(loaded(from)));
  }
  static Floats half_of(Halves x, int half) {
    __m512i const bits = reinterpret_cast<__m512i>(x);
    return _mm512_cvtph_ps(half == 0 ? _mm512_castsi512_si256(bits) : _mm512_extracti64x4_epi64(bits, 1));
  }
  static Floats remainder(Floats x, Floats y, Floats z) { return _mm512_fmsub_ps(x, y, z); }
  static Floats corrected(Floats x, Floats y, Floats z) { return _mm512_fnmadd_ps(y, z, x); }
  /// Of a NaN and a number, the instructions give the second.
  static Floats within(Floats x, Floats limit) { return _mm512_max_ps(-limit, _mm512_min_ps(limit, x)); }
  static Halves nearest(Fp16, Floats low, Floats high) { return joined<_MM_FROUND_TO_NEAREST_INT>(low, high); }
  static Halves nearest(Bf16, Floats low, Floats high) {
    return reinterpret_cast<Halves>(_mm512_inserti64x4(_mm512_castsi256_si512(upper_half(low)), upper_half(high), 1));
  }
  static Halves alternating(Bf16, Floats x, Floats y) {
    constexpr __mmask32 odd = 0xaaaaaaaa;
    return reinterpret_cast<Halves>(_mm512_mask_mov_epi16(_mm512_srli_epi32(rounded(x), 16), odd, rounded(y)));
  }
  static Halves cut(Floats low, Floats high) { return joined<_MM_FROUND_TO_ZERO>(sticky(low), sticky(high)); }
  static Halves smaller(Halves x, Halves y) {
    return reinterpret_cast<Halves>(_mm512_min_epu16(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
  }
  static Halves where_greater(Halves x, std::uint16_t limit, Halves y, Halves z) {
    __mmask32 const greater =
        _mm512_cmpgt_epi16_mask(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(all(limit)));
    return reinterpret_cast<Halves>(
        _mm512_mask_mov_epi16(reinterpret_cast<__m512i>(z), greater, reinterpret_cast<__m512i>(y)));
  }
  static void stream(Halves x, unsigned char* to) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(x));
  }
  static void store_bytes(Halves x, unsigned char* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(reinterpret_cast<__m512i>(x)));
  }
  static void store_int8(Floats low, Floats high, unsigned char* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), int8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), int8(high));
  }

  typedef unsigned char Bytes __attribute__((vector_size(64)));
  using Table = Halves;
  static Bytes joined(Halves low, Halves high) {
    return reinterpret_cast<Bytes>(
        _mm512_packus_epi16(reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high)));
  }
  static Bytes signs(Halves low, Halves high) {
    return reinterpret_cast<Bytes>(_mm512_packs_epi16(reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high)));
  }
  static Bytes with_signs(Bytes x, Bytes y) {
    constexpr int a_or_b_and_c = 0xf8;
    return reinterpret_cast<Bytes>(_mm512_ternarylogic_epi32(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y),
                                                             bytes(0x80), a_or_b_and_c));
  }
  static Bytes in_order(Bytes x) {
    __m512i const order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return reinterpret_cast<Bytes>(_mm512_permutexvar_epi64(order, reinterpret_cast<__m512i>(x)));
  }
  static Bytes out_of_order(Bytes x) {
    __m512i const order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    return reinterpret_cast<Bytes>(_mm512_permutexvar_epi64(order, reinterpret_cast<__m512i>(x)));
  }
  static bool any_above(Bytes x, unsigned char limit) {
    return _mm512_cmpgt_epu8_mask(reinterpret_cast<__m512i>(x), bytes(limit)) != 0;
  }
  static Bytes smaller(Bytes x, Bytes y) {
    return reinterpret_cast<Bytes>(_mm512_min_epu8(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
  }
  static Bytes difference(Bytes x, Bytes y) {
    return reinterpret_cast<Bytes>(_mm512_subs_epu8(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
  }
  static Bytes one_more_above(Bytes x, Bytes y, Bytes z) {
    __mmask64 const above = _mm512_cmpgt_epi8_mask(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y));
    __m512i const to = reinterpret_cast<__m512i>(z);
    return reinterpret_cast<Bytes>(_mm512_mask_sub_epi8(to, above, to, bytes(255)));
  }
  /// To the last bit before the point of numbers of 2^52.
  static Thresholds reached(Eight const& x, Eight const& y) {
    __m512d const sums = _mm512_fmadd_round_pd(reinterpret_cast<__m512d>(x), reinterpret_cast<__m512d>(y),
                                               _mm512_set1_pd(0x1p52 - 128), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return reinterpret_cast<Thresholds>(_mm512_cvtepi64_epi8(_mm512_castpd_si512(sums)));
  }
  /// The sums of 8 bytes each for the values of j; the instruction takes 32 elements, so each is there twice.
  template <int Weight>
  static Table table(Thresholds thresholds, std::uint16_t offset) {
    __m512i const t = _mm512_broadcastq_epi64(reinterpret_cast<__m128i>(thresholds));
    constexpr char w = Weight - 8;
    __m512i const weights = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, w + 1, w + 2, w + 3, w + 4, w + 5, w + 6, w + 7, w + 8, 0, 0, 0, 0, 0, 0, 0));
    auto const sums = [&](Eight j) {
      __m512i const top = reinterpret_cast<__m512i>((j * 8 + 8) * 0x0101010101010101u);
      __m512i const steps = _mm512_min_epu8(_mm512_subs_epu8(top, t), bytes(8));
      return _mm512_sad_epu8(_mm512_shuffle_epi8(weights, steps), _mm512_setzero_si512());
    };
    Halves const i = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
                      0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60};
    Halves const x = reinterpret_cast<Halves>(_mm512_permutex2var_epi16(
        sums(Eight{0, 1, 2, 3, 4, 5, 6, 7}), reinterpret_cast<__m512i>(i), sums(Eight{8, 9, 10, 11, 12, 13, 14, 15})));
    return x + x - i * 4 + offset;
  }
  static Halves stepped(Halves x, Table const& table) {
    Halves const m = x >> 3;
    return x + x +
           reinterpret_cast<Halves>(
               _mm512_permutexvar_epi16(reinterpret_cast<__m512i>(m), reinterpret_cast<__m512i>(table)));
  }

 private:
  static __m512i bytes(unsigned char x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static __m256i loaded(unsigned char const* from) {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
  }
  static __m128i int8(__m512 x) {
    __mmask16 const number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    // Of what is below its numbers, the lowest; of NaN 0.
    __m512i const whole = _mm512_maskz_cvtps_epi32(number, _mm512_min_ps(x, _mm512_set1_ps(127)));
    return _mm512_cvtsepi32_epi8(_mm512_max_epi32(whole, _mm512_set1_epi32(-127)));
  }
  /// Rounded to bf16, the upper half of each: in integers, as vcvtneps2bf16 would make subnormal numbers zero.
  static __m512i rounded(__m512 x) {
    __m512i const bits = _mm512_castps_si512(x);
    __m512i const odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i const up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 const nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fff0000));
  }
  static __m256i upper_half(__m512 x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(x), 16)); }
  template <int Mode>
  static Halves joined(__m512 low, __m512 high) {
    return reinterpret_cast<Halves>(
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, Mode | _MM_FROUND_NO_EXC)),
                           _mm512_cvtps_ph(high, Mode | _MM_FROUND_NO_EXC), 1));
  }
  static __m512 sticky(__m512 x) {
    __m512i const bits = _mm512_castps_si512(x), low = _mm512_set1_epi32(cut_bits);
    __m512i const carry = _mm512_add_epi32(_mm512_and_si512(bits, low), low);
    return _mm512_castsi512_ps(_mm512_andnot_si512(low, _mm512_or_si512(bits, carry)));
  }
};

}  // namespace

#endif
