// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REFERENCE_GEMM_HPP
#define TESSERA_TESTS_REFERENCE_GEMM_HPP

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/support.hpp"

namespace tessera::test {

/// alpha·A·B + beta·C in fp64, and |alpha|·|A|·|B| + |beta·C|, what the error of any order of summation scales with.
struct GemmReference {
  std::vector<double> c, magnitude;
};

/// A (m, k), B (k, n), C (m, n), all stored by rows.
template <class TA, class TB, class TC>
GemmReference gemm_reference(int m, int n, int k, double alpha, std::vector<TA> const& a, std::vector<TB> const& b,
                             double beta, std::vector<TC> const& c) {
  std::size_t const size = std::size_t(m) * n;
  GemmReference r{std::vector<double>(size), std::vector<double>(size)};
  for (int i = 0; i < m; ++i)
    for (int p = 0; p < k; ++p) {
      double const x = alpha * to_double(a[std::size_t(i) * k + p]);
      for (int j = 0; j < n; ++j) {
        double const y = x * to_double(b[std::size_t(p) * n + j]);
        r.c[std::size_t(i) * n + j] += y;
        r.magnitude[std::size_t(i) * n + j] += std::fabs(y);
      }
    }
  if (beta != 0)
    for (std::size_t i = 0; i < size; ++i) {
      r.c[i] += beta * to_double(c[i]);
      r.magnitude[i] += std::fabs(beta * to_double(c[i]));
    }
  return r;
}

/// Unit roundoff of a type: half its epsilon.
template <class T>
double unit_roundoff() {
  if constexpr (std::is_same_v<T, double>) return std::ldexp(1.0, -53);
  if constexpr (std::is_same_v<T, float>) return std::ldexp(1.0, -24);
  if constexpr (std::is_same_v<T, fp16_t>) return std::ldexp(1.0, -11);
  if constexpr (std::is_same_v<T, bf16_t>) return std::ldexp(1.0, -8);
  if constexpr (std::is_same_v<T, e4m3_t>) return std::ldexp(1.0, -4);
  return std::ldexp(1.0, -3);
}

/// Half the distance between subnormals: what rounding costs below the normal range.
template <class T>
double subnormal_roundoff() {
  if constexpr (std::is_same_v<T, fp16_t>) return std::ldexp(1.0, -25);
  if constexpr (std::is_same_v<T, e4m3_t>) return std::ldexp(1.0, -10);
  if constexpr (std::is_same_v<T, e5m2_t>) return std::ldexp(1.0, -17);
  return 0;
}

/// Checks every element against the bound of recursive summation, (K + 3)·u·Σ|terms| with u of the accumulator (Higham,
/// Accuracy and Stability, §3.1; products of narrow types are exact in fp32), plus one rounding to C's type. `extra`:
/// what the arithmetic may lose beside that, as a fraction of Σ|terms|.
template <class Compute, class TC>
void check_gemm(GemmReference const& r, std::vector<TC> const& c, int k, double extra = 0) {
  double const u = unit_roundoff<Compute>(), u_c = unit_roundoff<TC>();
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    double const bound = ((k + 3) * u + extra) * r.magnitude[i];
    double const allowed = bound + u_c * (std::fabs(r.c[i]) + bound) + subnormal_roundoff<TC>();
    double const error = std::fabs(to_double(c[i]) - r.c[i]);
    double const ratio =
        error == 0 ? 0 : (error <= allowed ? error / allowed : (allowed > 0 ? error / allowed : INFINITY));
    if (std::isnan(ratio) || ratio > worst) worst = std::isnan(ratio) ? INFINITY : ratio, at = i;
  }
  CAPTURE(at);
  CHECK(worst <= 1.0);
}

}  // namespace tessera::test

#endif
