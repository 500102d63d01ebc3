// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REFERENCE_ATTENTION_HPP
#define TESSERA_TESTS_REFERENCE_ATTENTION_HPP

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "reference/gemm.hpp"

namespace tessera::test {

struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, d, d_v;
};

struct AttentionReference {
  std::vector<double> o, lse;
  std::vector<double> allowed;      // absolute error of each element of O before its rounding
  std::vector<double> lse_allowed;  // of each row's LSE
};

/// Attention in fp64, row by row, with everything stored; Q (B,H,S_q,d), K, V (B,H_kv,S_k,·) listed last index first.
/// `visible(b, i, j)` says whether query i sees key j; `score(s, b, h, i, j)` changes a score.
///
/// `u` is the unit roundoff of the accumulator, `u_p` of the weights (0 when they are not rounded). Bounds: a score's
/// recursive sum errs by (d + 3)·u·scale·Σ|q||k| and its exponent's argument by a few u·|s|; twice that, for numerator
/// and denominator, is the relative error of a weight; sums over the keys add (S_k + 8)·u, and a rounded weight u_p.
template <class T>
AttentionReference attention_reference(AttentionShape z, std::vector<T> const& q, std::vector<T> const& k,
                                       std::vector<T> const& v, double scale,
                                       std::function<bool(int, int, int)> const& visible,
                                       std::function<double(double, int, int, int, int)> const& score, double u,
                                       double u_p) {
  std::size_t const rows = std::size_t(z.batch) * z.heads * z.queries;
  AttentionReference r{std::vector<double>(rows * z.d_v), std::vector<double>(rows), std::vector<double>(rows * z.d_v),
                       std::vector<double>(rows)};
  std::vector<double> s(z.keys);
  for (int b = 0; b < z.batch; ++b)
    for (int h = 0; h < z.heads; ++h)
      for (int i = 0; i < z.queries; ++i) {
        std::size_t const row = (std::size_t(b) * z.heads + h) * z.queries + i;
        std::size_t const kv = std::size_t(b) * z.kv_heads + h / (z.heads / z.kv_heads);
        double largest = -INFINITY, spread = 0, size = 0;
        for (int j = 0; j < z.keys; ++j) {
          s[j] = -INFINITY;
          if (!visible(b, i, j)) continue;
          double dot = 0, magnitude = 0;
          for (int c = 0; c < z.d; ++c) {
            double const x = to_double(q[row * z.d + c]) * to_double(k[(kv * z.keys + j) * z.d + c]);
            dot += x;
            magnitude += std::fabs(x);
          }
          s[j] = score(dot * scale, b, h, i, j);
          largest = std::max(largest, s[j]);
          spread = std::max(spread, magnitude * scale);
          if (std::isfinite(s[j])) size = std::max(size, std::fabs(s[j]));
        }
        double l = 0;
        for (double& x : s) l += x = largest == -INFINITY ? 0 : std::exp(x - largest);
        double const error_s = (z.d + 3) * u * spread + 8 * u * (size + 1);
        r.lse[row] = l == 0 ? -INFINITY : largest + std::log(l);
        r.lse_allowed[row] = 2 * error_s + (z.keys + 8) * u * (1 + std::fabs(r.lse[row] == -INFINITY ? 0 : r.lse[row]));
        for (int c = 0; c < z.d_v; ++c) {
          double o = 0, magnitude = 0;
          for (int j = 0; j < z.keys; ++j) {
            if (s[j] == 0) continue;
            double const x = s[j] / l * to_double(v[(kv * z.keys + j) * z.d_v + c]);
            o += x;
            magnitude += std::fabs(x);
          }
          r.o[row * z.d_v + c] = o;
          r.allowed[row * z.d_v + c] = (2 * error_s + (z.keys + 8) * u + u_p) * magnitude;
        }
      }
  return r;
}

/// O within the bound and one rounding to its type.
template <class TO>
void check_attention(AttentionReference const& r, std::vector<TO> const& o) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    double const allowed =
        r.allowed[i] + unit_roundoff<TO>() * (std::fabs(r.o[i]) + r.allowed[i]) + subnormal_roundoff<TO>() + 1e-300;
    double const error = std::fabs(to_double(o[i]) - r.o[i]), ratio = std::isnan(error) ? INFINITY : error / allowed;
    if (ratio > worst) worst = ratio, at = i;
  }
  CAPTURE(at);
  CHECK(worst <= 1.0);
}

template <class TL>
void check_lse(AttentionReference const& r, std::vector<TL> const& lse) {
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (r.lse[i] == -INFINITY) {
      CHECK(lse[i] == -INFINITY);
    } else if (!(std::fabs(lse[i] - r.lse[i]) <= r.lse_allowed[i])) {
      CAPTURE(i);
      CHECK(std::fabs(lse[i] - r.lse[i]) <= r.lse_allowed[i]);
    }
  }
}

}  // namespace tessera::test

#endif
