// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

using Bytes = unsigned char;

__mmask16 first(int n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }

/// The first n of 16 elements of 16 or of 8 bits, zero behind them. Without the instructions of AVX-512 BW and VL,
/// which not all have, fewer than 16 are copied.
__m256i load_halves(Bytes const* from, int n) {
  if (n >= 16) return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
  alignas(32) Bytes all[32] = {};
  for (int i = 0; i < 2 * n; ++i) all[i] = from[i];
  return _mm256_load_si256(reinterpret_cast<__m256i const*>(all));
}
__m256i load_bytes_as_halves(Bytes const* from, int n) {
  if (n >= 16) return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from)));
  alignas(16) Bytes all[16] = {};
  for (int i = 0; i < n; ++i) all[i] = from[i];
  return _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<__m128i const*>(all)));
}

// Each gets the address of 16 elements and how many count. vcvtph2ps keeps subnormal numbers in every mode.
struct Fp16 {
  static constexpr int size = 2;
  static __m512 widened(Bytes const* from, int n) { return _mm512_cvtph_ps(load_halves(from, n)); }
};
struct Bf16 {
  static constexpr int size = 2;
  static __m512 widened(Bytes const* from, int n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(from, n)), 16));
  }
};
/// The upper half of an fp16.
struct E5m2 {
  static constexpr int size = 1;
  static __m512 widened(Bytes const* from, int n) {
    return _mm512_cvtph_ps(_mm256_slli_epi16(load_bytes_as_halves(from, n), 8));
  }
};
/// Exponent and mantissa moved to those of an fp16, whose bias is 8 more; its only NaN has all bits set.
struct E4m3 {
  static constexpr int size = 1;
  static __m512 widened(Bytes const* from, int n) {
    __m256i const x = load_bytes_as_halves(from, n), magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
    __m256i const sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    __m256i const nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
    // NaN in fp16 as well: all bits of its exponent and mantissa.
    __m256i const moved = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), _mm256_srli_epi16(nan, 1));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(moved, sign)), _mm512_set1_ps(256.f));
  }
};

template <class T>
void widen(void const* from, int n, float* to) {
  Bytes const* const bytes = static_cast<Bytes const*>(from);
  for (int i = 0; i < n; i += 16) _mm512_mask_storeu_ps(to + i, first(n - i), T::widened(bytes + i * T::size, n - i));
}

/// As storage types round: to nearest, subnormal numbers kept, one NaN. In integers: vcvtneps2bf16 would make subnormal
/// numbers zero.
void round_to_bf16(float const* from, int n, void* to) {
  __m512i const nearest_below = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  for (int i = 0; i < n; i += 16) {
    __m512 const x = _mm512_maskz_loadu_ps(first(n - i), from + i);
    __m512i const bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i const rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(nearest_below, odd)), 16);
    __mmask16 const nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm512_mask_cvtepi32_storeu_epi16(static_cast<Bytes*>(to) + 2 * i, first(n - i),
                                      _mm512_mask_mov_epi32(rounded, nan, nearest_below));
  }
}

void round_to_fp16(float const* from, int n, void* to) {
  for (int i = 0; i < n; i += 16) {
    __m512 const x = _mm512_maskz_loadu_ps(first(n - i), from + i);
    __m512i const rounded = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __mmask16 const nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm512_mask_cvtepi32_storeu_epi16(static_cast<Bytes*>(to) + 2 * i, first(n - i),
                                      _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fff)));
  }
}

}  // namespace

namespace tessera::detail::openmp {

extern Conversions const conversions_avx512;
Conversions const conversions_avx512{widen<Fp16>, widen<Bf16>, widen<E4m3>, widen<E5m2>, round_to_fp16, round_to_bf16};

}  // namespace tessera::detail::openmp
