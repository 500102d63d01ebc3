// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/sines_body.hpp>

namespace {

struct Avx512 {
  using Floats = __m512;
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  static constexpr int lanes = 16;

  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats plus_product(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(y, z, x); }
  static bool all_within(Floats x, float limit) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), all(limit), _CMP_LT_OQ) == 0xffff;
  }
};

}  // namespace

// For loops of 16 (sines.hpp).
extern "C" __m512 _ZGVeN16v_tessera_sine(__m512 x) { return sine_of_lanes<Avx512, false>(x); }
extern "C" __m512 _ZGVeN16v_tessera_cosine(__m512 x) { return sine_of_lanes<Avx512, true>(x); }
