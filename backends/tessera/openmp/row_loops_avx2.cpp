// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/row_loops_body.hpp>

namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int lanes = 8;

  static Vector read(float const* from) { return _mm256_loadu_ps(from); }
  static void write(Vector x, float* to) { _mm256_storeu_ps(to, x); }
  /// The larger of x and y; y where x is NaN.
  static Vector larger(Vector x, Vector y) { return _mm256_max_ps(x, y); }
  /// NaN stays.
  static Vector at_least(Vector x, float low) { return _mm256_max_ps(_mm256_set1_ps(low), x); }
  static Vector nearest(Vector x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// x y - z, rounded once.
  static Vector product_less(Vector x, float y, Vector z) { return _mm256_fmsub_ps(x, _mm256_set1_ps(y), z); }
  /// x 2^k for -170 <= k <= 0, in two factors, of which the last rounds to a subnormal number.
  static Vector times_power(Vector x, Vector k) {
    constexpr int enlarged = 100;  // the first result times 2^100 is normal
    Vector const smallest = _mm256_set1_ps(7.88860905e-31f);
    __m256i const power = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_set1_ps(-226.0f), k));
    __m256i const bits = _mm256_slli_epi32(_mm256_add_epi32(power, _mm256_set1_epi32(127 + enlarged)), 23);
    return x * _mm256_castsi256_ps(bits) * smallest;
  }
  static float largest(Vector x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static float sum(Vector x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
};

struct Fp32 {
  static constexpr int size = 4;
  static constexpr int place(int i) { return i; }
  using Exponential = ::Exponential<Avx2>;
  static Two<Avx2> load(char const* from) {
    return {_mm256_loadu_ps(reinterpret_cast<float const*>(from)),
            _mm256_loadu_ps(reinterpret_cast<float const*>(from + 32))};
  }
  static void store(Two<Avx2> const& x, char* to) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to), x.a);
    _mm256_storeu_ps(reinterpret_cast<float*>(to + 32), x.b);
  }
  static void stream(Two<Avx2> const& x, char* to) {
    _mm256_stream_ps(reinterpret_cast<float*>(to), x.a);
    _mm256_stream_ps(reinterpret_cast<float*>(to + 32), x.b);
  }
  /// What has been stored.
  static Two<Avx2> store_rounded(Two<Avx2> const& x, char* to) {
    store(x, to);
    return x;
  }
};

/// What types of 16 bits have in common: 16 of them are a vector.
template <class Type>
struct SixteenBits {
  static constexpr int size = 2;
  using Exponential = ShortExponential<Avx2>;
  static Two<Avx2> load(char const* from) {
    return Type::widened(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)));
  }
  static void store(Two<Avx2> const& x, char* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Type::narrowed(x));
  }
  static void stream(Two<Avx2> const& x, char* to) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), Type::narrowed(x));
  }
  static Two<Avx2> store_rounded(Two<Avx2> const& x, char* to) {
    auto const bits = Type::narrowed(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
    return Type::widened(bits);
  }
};

/// The elements with even numbers, and those with odd ones, which are upper halves of fp32 already.
struct Bf16 : SixteenBits<Bf16> {
  static constexpr int place(int i) { return i % 2 * Avx2::lanes + i / 2; }
  static __m256i upper_halves() { return _mm256_set1_epi32(static_cast<int>(0xffff0000u)); }
  static Two<Avx2> widened(__m256i x) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), _mm256_castsi256_ps(_mm256_and_si256(x, upper_halves()))};
  }
  /// To nearest, subnormal numbers kept, one NaN. The lower half is left over.
  static __m256i rounded_bits(__m256 x) {
    __m256i const bits = _mm256_castps_si256(x);
    __m256i const odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i const up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256 const nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fff0000), _mm256_castps_si256(nan));
  }
  static __m256i narrowed(Two<Avx2> const& x) {
    return _mm256_blend_epi16(_mm256_srli_epi32(rounded_bits(x.a), 16), rounded_bits(x.b), 0xaa);
  }
};

struct Fp16 : SixteenBits<Fp16> {
  static constexpr int place(int i) { return i; }
  static Two<Avx2> widened(__m256i x) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
  }
  static __m256i narrowed(Two<Avx2> const& x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    __m256i const y =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(x.a, mode)), _mm256_cvtps_ph(x.b, mode), 1);
    // NaN, whose magnitude is beyond that of infinity, becomes the one NaN.
    __m256i const magnitude = _mm256_and_si256(y, _mm256_set1_epi16(0x7fff));
    __m256i const nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
    return _mm256_blendv_epi8(y, _mm256_set1_epi16(0x7fff), nan);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RowLoopsOfTypes const row_loops_avx2;
RowLoopsOfTypes const row_loops_avx2{Loops<Avx2, Fp32>::table, Loops<Avx2, Fp16>::table, Loops<Avx2, Bf16>::table};

}  // namespace tessera::detail::openmp
