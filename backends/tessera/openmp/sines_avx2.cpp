// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/sines_body.hpp>

namespace {

struct Avx2 {
  using Floats = __m256;
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  static constexpr int lanes = 8;

  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats plus_product(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(y, z, x); }
  static bool all_within(Floats x, float limit) {
    Floats const magnitude = _mm256_andnot_ps(all(-0.0f), x);
    return _mm256_movemask_ps(_mm256_cmp_ps(magnitude, all(limit), _CMP_LT_OQ)) == 0xff;
  }
};

}  // namespace

namespace tessera::detail::openmp {

float sine_avx2(float x) { return sine_of_lanes<Avx2, false>(Avx2::all(x))[0]; }
float cosine_avx2(float x) { return sine_of_lanes<Avx2, true>(Avx2::all(x))[0]; }

}  // namespace tessera::detail::openmp

// For loops of 8 (sines.hpp).
extern "C" __m256 _ZGVdN8v_tessera_sine(__m256 x) { return sine_of_lanes<Avx2, false>(x); }
extern "C" __m256 _ZGVdN8v_tessera_cosine(__m256 x) { return sine_of_lanes<Avx2, true>(x); }
