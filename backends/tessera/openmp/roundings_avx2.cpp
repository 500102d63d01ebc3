// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/roundings_body.hpp>

namespace {

struct Avx2 {
  typedef std::uint16_t Halves __attribute__((vector_size(32)));
  typedef float Floats __attribute__((vector_size(32)));
  static constexpr int lanes = 16;
  static constexpr bool divides_slowly = false;

  static Halves all(std::uint16_t x) { return reinterpret_cast<Halves>(_mm256_set1_epi16(static_cast<short>(x))); }
  static Floats number(float x) { return _mm256_set1_ps(x); }
  static Floats load(Fp32, unsigned char const* from) { return _mm256_loadu_ps(reinterpret_cast<float const*>(from)); }
  static Floats load(Fp16, unsigned char const* from) { return _mm256_cvtph_ps(loaded(from)); }
  static Floats load(Bf16, unsigned char const* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loaded(from)), 16));
  }
  static Floats load(Int8, unsigned char const* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<__m128i const*>(from))));
  }
  static Halves load_bytes(unsigned char const* from) {
    return reinterpret_cast<Halves>(_mm256_cvtepu8_epi16(loaded(from)));
  }
  static Floats half_of(Halves x, int half) {
    __m256i const bits = reinterpret_cast<__m256i>(x);
    return _mm256_cvtph_ps(half == 0 ? _mm256_castsi256_si128(bits) : _mm256_extracti128_si256(bits, 1));
  }
  static Halves nearest(Fp16, Floats low, Floats high) { return joined<_MM_FROUND_TO_NEAREST_INT>(low, high); }
  static Halves nearest(Bf16, Floats low, Floats high) {
    __m256i const halves = _mm256_packus_epi32(upper_half(low), upper_half(high));
    return reinterpret_cast<Halves>(_mm256_permute4x64_epi64(halves, 0xd8));
  }
  static Halves cut(Floats low, Floats high) { return joined<_MM_FROUND_TO_ZERO>(sticky(low), sticky(high)); }
  static Halves smaller(Halves x, Halves y) {
    return reinterpret_cast<Halves>(_mm256_min_epu16(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
  }
  static Halves where_greater(Halves x, std::uint16_t limit, Halves y, Halves z) {
    __m256i const greater = _mm256_cmpgt_epi16(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(all(limit)));
    return reinterpret_cast<Halves>(
        _mm256_blendv_epi8(reinterpret_cast<__m256i>(z), reinterpret_cast<__m256i>(y), greater));
  }
  static void stream(Halves x, unsigned char* to) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(x));
  }
  static void store_bytes(Halves x, unsigned char* to) {
    __m256i const bytes = _mm256_packus_epi16(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(_mm256_permute4x64_epi64(bytes, 0x08)));
  }
  static void store_int8(Floats low, Floats high, unsigned char* to) {
    __m256i const halves = _mm256_packs_epi32(whole(low), whole(high));
    __m256i const bytes = _mm256_max_epi8(_mm256_packs_epi16(halves, halves), _mm256_set1_epi8(-127));
    __m256i const order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, order)));
  }

 private:
  static __m128i loaded(unsigned char const* from) { return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from)); }
  /// Rounded to bf16.
  static __m256i upper_half(__m256 x) {
    __m256i const bits = _mm256_castps_si256(x);
    __m256i const odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i const up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i const nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fff0000), nan), 16);
  }
  /// Of what is below its numbers, the lowest, which saturates as well; of NaN 0.
  static __m256i whole(__m256 x) {
    __m256 const number = _mm256_cmp_ps(x, x, _CMP_ORD_Q);
    return _mm256_cvtps_epi32(_mm256_and_ps(_mm256_min_ps(x, _mm256_set1_ps(127)), number));
  }
  template <int Mode>
  static Halves joined(__m256 low, __m256 high) {
    return reinterpret_cast<Halves>(
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(low, Mode | _MM_FROUND_NO_EXC)),
                                _mm256_cvtps_ph(high, Mode | _MM_FROUND_NO_EXC), 1));
  }
  static __m256 sticky(__m256 x) {
    __m256i const bits = _mm256_castps_si256(x), low = _mm256_set1_epi32(cut_bits);
    __m256i const carry = _mm256_add_epi32(_mm256_and_si256(bits, low), low);
    return _mm256_castsi256_ps(_mm256_andnot_si256(low, _mm256_or_si256(bits, carry)));
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern Roundings const roundings_avx2;
Roundings const roundings_avx2 = all_roundings<Avx2>;

}  // namespace tessera::detail::openmp
