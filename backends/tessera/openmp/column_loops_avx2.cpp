// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/column_loops_body.hpp>

namespace {

struct Avx2 {
  using Vector = __m256;
  typedef int Words __attribute__((vector_size(32)));
  static constexpr int lanes = 8, registers = 16;

  static Vector read(float const* from) { return _mm256_loadu_ps(from); }
  static void write(Vector x, float* to) { _mm256_storeu_ps(to, x); }
  /// The larger of x and y; y where x is NaN.
  static Vector larger(Vector x, Vector y) { return _mm256_max_ps(x, y); }
  /// y, but 0 where x is below a limit.
  static Vector unless_below(float limit, Vector x, Vector y) {
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ), y);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern ColumnLoopsOfPanels const column_loops_avx2;
ColumnLoopsOfPanels const column_loops_avx2 = columns_of_panels<Avx2>;

}  // namespace tessera::detail::openmp
