// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_COLUMN_LOOPS_AVX512_HPP
#define TESSERA_OPENMP_COLUMN_LOOPS_AVX512_HPP

#include <immintrin.h>

#include <tessera/openmp/column_loops_body.hpp>

namespace {

struct Avx512 {
  using Vector = __m512;
  typedef int Words __attribute__((vector_size(64)));
  static constexpr int lanes = 16, registers = 32;

  static Vector read(float const* from) { return _mm512_loadu_ps(from); }
  static void write(Vector x, float* to) { _mm512_storeu_ps(to, x); }
  /// The larger of x and y; y where x is NaN.
  static Vector larger(Vector x, Vector y) { return _mm512_max_ps(x, y); }
  /// y, but 0 where x is below a limit.
  static Vector unless_below(float limit, Vector x, Vector y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), y);
  }
};

}  // namespace

#endif
