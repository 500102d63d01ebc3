// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/roundings_avx512.hpp>

namespace {

struct Avx512Bf16 : Avx512 {
  using Avx512::nearest;
  /// The instruction makes subnormal numbers zero and leaves NaN its bits: vectors with such go through integers.
  static Halves nearest(Bf16 type, Floats low, Floats high) {
    constexpr int nan_or_subnormal = 0x01 | 0x80 | 0x20;
    __mmask16 const others =
        _mm512_fpclass_ps_mask(low, nan_or_subnormal) | _mm512_fpclass_ps_mask(high, nan_or_subnormal);
    if (__builtin_expect(others != 0, 0)) return Avx512::nearest(type, low, high);
    return (Halves)_mm512_cvtne2ps_pbh(high, low);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RoundingsOfType const bf16_roundings_avx512_bf16;
RoundingsOfType const bf16_roundings_avx512_bf16 = to_sixteen_bits<Avx512Bf16, Bf16>;

}  // namespace tessera::detail::openmp
