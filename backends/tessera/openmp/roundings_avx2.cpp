// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/quotient_steps_body.hpp>

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
  static Halves alternating(Bf16, Floats x, Floats y) {
    constexpr int odd = 0xaa;
    return reinterpret_cast<Halves>(_mm256_blend_epi16(upper_half(x), rounded(y), odd));
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

  typedef unsigned char Bytes __attribute__((vector_size(32)));
  struct Table {
    Bytes steps;  // in both halves
    Halves offset;
  };
  static Bytes joined(Halves low, Halves high) {
    return reinterpret_cast<Bytes>(
        _mm256_packus_epi16(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high)));
  }
  static Bytes signs(Halves low, Halves high) {
    return reinterpret_cast<Bytes>(_mm256_packs_epi16(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high)));
  }
  static Bytes with_signs(Bytes x, Bytes y) { return x | (y & 0x80); }
  static Bytes in_order(Bytes x) {
    return reinterpret_cast<Bytes>(_mm256_permute4x64_epi64(reinterpret_cast<__m256i>(x), 0xd8));
  }
  static Bytes out_of_order(Bytes x) { return in_order(x); }
  static bool any_above(Bytes x, unsigned char limit) {
    __m256i const above = _mm256_subs_epu8(reinterpret_cast<__m256i>(x), bytes(limit));
    return _mm256_testz_si256(above, above) == 0;
  }
  static Bytes smaller(Bytes x, Bytes y) {
    return reinterpret_cast<Bytes>(_mm256_min_epu8(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
  }
  static Bytes difference(Bytes x, Bytes y) {
    return reinterpret_cast<Bytes>(_mm256_subs_epu8(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
  }
  static Bytes one_more_above(Bytes x, Bytes y, Bytes z) {
    return z - reinterpret_cast<Bytes>(_mm256_cmpgt_epi8(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
  }
  /// Cut to integers after what rounds all but these up.
  static Thresholds reached(Eight const& x, Eight const& y) {
    __m256d factors[2], others[2];
    __builtin_memcpy(factors, &x, sizeof x);
    __builtin_memcpy(others, &y, sizeof y);
    auto const words = [&](int half) {
      return _mm256_cvttpd_epi32(_mm256_fmsub_pd(factors[half], others[half], _mm256_set1_pd(127 + 0x1p-44)));
    };
    __m128i const m = _mm_packs_epi32(words(0), words(1));
    return reinterpret_cast<Thresholds>(_mm_packus_epi16(m, m));
  }
  /// The sums of 8 bytes each for every fourth j, those of the next ones in the bytes behind.
  template <int Weight>
  static Table table(Thresholds thresholds, std::uint16_t offset) {
    constexpr unsigned char bias = 64;
    __m256i const t = _mm256_broadcastq_epi64(reinterpret_cast<__m128i>(thresholds));
    constexpr char w = Weight - 8;
    __m256i const weights = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, w + 1, w + 2, w + 3, w + 4, w + 5, w + 6, w + 7, w + 8, 0, 0, 0, 0, 0, 0, 0));
    auto const sums = [&](int j) {
      auto const top = [&](int i) { return static_cast<long long>((8 * i + 8) * 0x0101010101010101u); };
      __m256i const tops = _mm256_setr_epi64x(top(j), top(j + 4), top(j + 8), top(j + 12));
      __m256i const steps = _mm256_min_epu8(_mm256_subs_epu8(tops, t), bytes(8));
      return _mm256_sad_epu8(_mm256_shuffle_epi8(weights, steps), _mm256_setzero_si256());
    };
    __m256i const joined_sums =
        _mm256_or_si256(_mm256_or_si256(sums(0), _mm256_slli_epi64(sums(1), 8)),
                        _mm256_or_si256(_mm256_slli_epi64(sums(2), 16), _mm256_slli_epi64(sums(3), 24)));
    Bytes x =
        reinterpret_cast<Bytes>(_mm256_permutevar8x32_epi32(joined_sums, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
    Bytes const j = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                     0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    x = x + x - j * 16 + bias;
    // The upper bytes of elements look for what j = 0 has.
    __m256i const beside = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(x), _mm256_set1_epi16(0x0080));
    return {x, all(static_cast<std::uint16_t>(offset - bias)) - reinterpret_cast<Halves>(beside)};
  }
  static Halves stepped(Halves x, Table const& table) {
    Halves const j = (x >> 3) & 15;
    Halves const y = reinterpret_cast<Halves>(
        _mm256_shuffle_epi8(reinterpret_cast<__m256i>(table.steps), reinterpret_cast<__m256i>(j)));
    return (x + x) + (y + table.offset);
  }

 private:
  static __m256i bytes(unsigned char x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static __m128i loaded(unsigned char const* from) { return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from)); }
  /// Rounded to bf16, the upper half of each.
  static __m256i rounded(__m256 x) {
    __m256i const bits = _mm256_castps_si256(x);
    __m256i const odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i const up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i const nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fff0000), nan);
  }
  static __m256i upper_half(__m256 x) { return _mm256_srli_epi32(rounded(x), 16); }
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
Roundings const roundings_avx2 = with_steps<Avx2>;

}  // namespace tessera::detail::openmp
