// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/row_loops_body.hpp>

namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int lanes = 16;

  static Vector read(float const* from) { return _mm512_loadu_ps(from); }
  static void write(Vector x, float* to) { _mm512_storeu_ps(to, x); }
  /// The larger of x and y; y where x is NaN.
  static Vector larger(Vector x, Vector y) { return _mm512_max_ps(x, y); }
  /// NaN stays.
  static Vector at_least(Vector x, float low) { return _mm512_max_ps(_mm512_set1_ps(low), x); }
  static Vector nearest(Vector x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// x y - z, rounded once.
  static Vector product_less(Vector x, float y, Vector z) { return _mm512_fmsub_ps(x, _mm512_set1_ps(y), z); }
  /// x 2^k.
  static Vector times_power(Vector x, Vector k) { return _mm512_scalef_ps(x, k); }
  static float largest(Vector x) { return _mm512_reduce_max_ps(x); }
  static float sum(Vector x) { return _mm512_reduce_add_ps(x); }
};

struct Fp32 {
  static constexpr int size = 4;
  static constexpr int place(int i) { return i; }
  using Exponential = ::Exponential<Avx512>;
  static Two<Avx512> load(char const* from) { return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 64)}; }
  static void store(Two<Avx512> const& x, char* to) {
    _mm512_storeu_ps(to, x.a);
    _mm512_storeu_ps(to + 64, x.b);
  }
  static void stream(Two<Avx512> const& x, char* to) {
    _mm512_stream_ps(reinterpret_cast<float*>(to), x.a);
    _mm512_stream_ps(reinterpret_cast<float*>(to + 64), x.b);
  }
  /// What has been stored.
  static Two<Avx512> store_rounded(Two<Avx512> const& x, char* to) {
    store(x, to);
    return x;
  }
};

/// What types of 16 bits have in common: 32 of them are a vector.
template <class Type>
struct SixteenBits {
  static constexpr int size = 2;
  using Exponential = ShortExponential<Avx512>;
  static Two<Avx512> load(char const* from) { return Type::widened(_mm512_loadu_si512(from)); }
  static void store(Two<Avx512> const& x, char* to) { _mm512_storeu_si512(to, Type::narrowed(x)); }
  static void stream(Two<Avx512> const& x, char* to) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), Type::narrowed(x));
  }
  static Two<Avx512> store_rounded(Two<Avx512> const& x, char* to) {
    auto const bits = Type::narrowed(x);
    _mm512_storeu_si512(to, bits);
    return Type::widened(bits);
  }
};

/// The elements with even numbers, and those with odd ones, which are upper halves of fp32 already.
struct Bf16 : SixteenBits<Bf16> {
  static constexpr int place(int i) { return i % 2 * Avx512::lanes + i / 2; }
  static __m512i upper_halves() { return _mm512_set1_epi32(static_cast<int>(0xffff0000u)); }
  static Two<Avx512> widened(__m512i x) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), _mm512_castsi512_ps(_mm512_and_si512(x, upper_halves()))};
  }
  /// To nearest, subnormal numbers kept, one NaN: in integers, since vcvtneps2bf16 would make subnormal numbers zero.
  /// The lower half is left over.
  static __m512i rounded_bits(__m512 x) {
    __m512i const bits = _mm512_castps_si512(x);
    __m512i const odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i const up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fff0000));
  }
  static __m512i narrowed(Two<Avx512> const& x) {
    constexpr int second_where_set_else_first = 0xca;  // of (mask, second, first)
    return _mm512_ternarylogic_epi32(upper_halves(), rounded_bits(x.b), _mm512_srli_epi32(rounded_bits(x.a), 16),
                                     second_where_set_else_first);
  }
};

struct Fp16 : SixteenBits<Fp16> {
  static constexpr int place(int i) { return i; }
  static Two<Avx512> widened(__m512i x) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(x)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1))};
  }
  static __m256i narrowed(__m512 x) {
    __m256i const y = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // NaN, whose magnitude is beyond that of infinity, becomes the one NaN.
    __m256i const magnitude = _mm256_and_si256(y, _mm256_set1_epi16(0x7fff));
    __m256i const nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
    return _mm256_blendv_epi8(y, _mm256_set1_epi16(0x7fff), nan);
  }
  static __m512i narrowed(Two<Avx512> const& x) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(narrowed(x.a)), narrowed(x.b), 1);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RowLoopsOfTypes const row_loops_avx512;
RowLoopsOfTypes const row_loops_avx512{Loops<Avx512, Fp32>::table, Loops<Avx512, Fp16>::table,
                                       Loops<Avx512, Bf16>::table};

}  // namespace tessera::detail::openmp
