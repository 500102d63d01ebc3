// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/roundings_avx512.hpp>

namespace {

/// The instruction makes subnormal numbers zero and leaves NaN its bits: vectors with such go through integers.
struct Avx512Bf16 : Avx512 {
  using Avx512::nearest;
  static Halves nearest(Bf16 type, Floats low, Floats high) {
    if (__builtin_expect(any_others(low, high), 0)) return Avx512::nearest(type, low, high);
    return (Halves)_mm512_cvtne2ps_pbh(high, low);
  }
  static Halves alternating(Bf16 type, Floats x, Floats y) {
    if (__builtin_expect(any_others(x, y), 0)) return Avx512::alternating(type, x, y);
    __m512i const order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (Halves)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(y, x));
  }

 private:
  static bool any_others(Floats x, Floats y) {
    constexpr int nan_or_subnormal = 0x01 | 0x80 | 0x20;
    return _mm512_kortestz(_mm512_fpclass_ps_mask(x, nan_or_subnormal), _mm512_fpclass_ps_mask(y, nan_or_subnormal)) ==
           0;
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RoundingsOfType const bf16_roundings_avx512_bf16;
RoundingsOfType const bf16_roundings_avx512_bf16 = to_bf16<Avx512Bf16>;

}  // namespace tessera::detail::openmp
