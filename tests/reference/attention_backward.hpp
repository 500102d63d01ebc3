// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REFERENCE_ATTENTION_BACKWARD_HPP
#define TESSERA_TESTS_REFERENCE_ATTENTION_BACKWARD_HPP

#include "reference/attention.hpp"

namespace tessera::test {

/// A gradient, and the absolute error that each element may have before its rounding.
struct GradientReference {
  std::vector<double> value, allowed;
  explicit GradientReference(std::size_t n) : value(n), allowed(n) {}
  void add(std::size_t at, double x, double error) {
    value[at] += x;
    allowed[at] += error;
  }
};
struct AttentionBackwardReference {
  GradientReference dq, dk, dv;
};

/// What the roundings of a backward are: of the accumulator, of the operands of the second products (0 when they are
/// not rounded), and of O and LSE as they were given.
struct BackwardRoundoff {
  double sum, weight, output, lse;
};

/// What happens to a score, its derivative, and what its weight is times behind the softmax, each of (…, b, h, i, j).
struct AttentionRules {
  std::function<double(double, int, int, int, int)> score = [](double s, int, int, int, int) { return s; };
  std::function<double(double, int, int, int, int)> slope = [](double, int, int, int, int) { return 1; };
  std::function<double(int, int, int, int)> kept = [](int, int, int, int) { return 1; };
};

/// Gradients in fp64 with everything stored. With x = S − LSE, P = exp(x) errs relatively by
///
///     e_P = ((d + 4)·u·scale·Σ|q||k| + 4·u·|s|)·|score'| + 8·u·(|score(s)| + |LSE| + 1) + u_L·|LSE|,
///
/// and by all of it below the normal range of the accumulator, where it may be 0;
/// dP by (d_v + 2)·u·Σ|dO||v|, δ by (d_v + 2)·u·Σ|O||dO| + u_O·Σ|O||dO|, and dS = P (dP − δ) by P times the sum of
/// these two and of (e_P + 2u + u_w)·(|dP| + |δ|); sums over n terms add (n + 4)·u of their magnitudes. dS itself,
/// (B, H, S_q, S_k), is added to `of_scores`.
template <class T>
AttentionBackwardReference attention_backward_reference(AttentionShape z, std::vector<T> const& q,
                                                        std::vector<T> const& k, std::vector<T> const& v,
                                                        std::vector<T> const& d_o, std::vector<double> const& d_lse,
                                                        AttentionReference const& forward, double scale,
                                                        std::function<bool(int, int, int)> const& visible,
                                                        BackwardRoundoff u, AttentionRules const& rules = {},
                                                        GradientReference* of_scores = nullptr) {
  std::size_t const rows = std::size_t(z.batch) * z.heads * z.queries,
                    kv_rows = std::size_t(z.batch) * z.kv_heads * z.keys;
  AttentionBackwardReference r{GradientReference(rows * z.d), GradientReference(kv_rows * z.d),
                               GradientReference(kv_rows * z.d_v)};
  int const shared = z.heads / z.kv_heads;
  double const least_weight = std::ldexp(1.0, u.sum < unit_roundoff<float>() ? -1022 : -126);
  double const own_sums = (z.keys + 4) * u.sum, key_sums = (double(shared) * z.queries + 4) * u.sum;
  for (int b = 0; b < z.batch; ++b)
    for (int h = 0; h < z.heads; ++h)
      for (int i = 0; i < z.queries; ++i) {
        std::size_t const row = (std::size_t(b) * z.heads + h) * z.queries + i;
        double const lse = forward.lse[row];
        if (lse == -INFINITY) continue;
        double delta = d_lse.empty() ? 0 : -d_lse[row], delta_size = std::fabs(delta);
        for (int c = 0; c < z.d_v; ++c) {
          double const x = forward.o[row * z.d_v + c] * to_double(d_o[row * z.d_v + c]);
          delta += x;
          delta_size += std::fabs(x);
        }
        double const delta_error = ((z.d_v + 2) * u.sum + u.output) * delta_size;
        for (int j = 0; j < z.keys; ++j) {
          if (!visible(b, i, j)) continue;
          std::size_t const key = (std::size_t(b) * z.kv_heads + h / shared) * z.keys + j;
          double s = 0, s_size = 0, dp = 0, dp_size = 0;
          for (int c = 0; c < z.d; ++c) {
            double const x = to_double(q[row * z.d + c]) * to_double(k[key * z.d + c]) * scale;
            s += x;
            s_size += std::fabs(x);
          }
          for (int c = 0; c < z.d_v; ++c) {
            double const x = to_double(d_o[row * z.d_v + c]) * to_double(v[key * z.d_v + c]);
            dp += x;
            dp_size += std::fabs(x);
          }
          double const kept = rules.kept(b, h, i, j), slope = rules.slope(s, b, h, i, j);
          double const given = rules.score(s, b, h, i, j);
          dp *= kept, dp_size *= kept;
          double const p = std::exp(given - lse), ds = p * (dp - delta) * slope;
          double const p_error = (z.d + 4) * u.sum * s_size + 4 * u.sum * (std::fabs(s) + std::fabs(lse) + 1) +
                                 u.lse * std::fabs(lse) + (p < least_weight ? 1 : 0);
          double const ds_error = p * std::max(1.0, std::fabs(slope)) *
                                  ((z.d_v + 2) * u.sum * dp_size + delta_error +
                                   (p_error + 2 * u.sum + u.weight) * (std::fabs(dp) + std::fabs(delta)));
          if (of_scores != nullptr) of_scores->add(row * z.keys + j, ds, ds_error);
          for (int c = 0; c < z.d_v; ++c) {
            double const x = to_double(d_o[row * z.d_v + c]);
            r.dv.add(key * z.d_v + c, p * kept * x, p * kept * std::fabs(x) * (p_error + u.sum + u.weight + key_sums));
          }
          for (int c = 0; c < z.d; ++c) {
            double const a = scale * to_double(k[key * z.d + c]), x = scale * to_double(q[row * z.d + c]);
            r.dq.add(row * z.d + c, ds * a, (ds_error + std::fabs(ds) * own_sums) * std::fabs(a));
            r.dk.add(key * z.d + c, ds * x, (ds_error + std::fabs(ds) * key_sums) * std::fabs(x));
          }
        }
      }
  return r;
}

/// Within the bound and one rounding to its type.
template <class T>
void check_gradient(GradientReference const& r, std::vector<T> const& x) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const allowed =
        r.allowed[i] + unit_roundoff<T>() * (std::fabs(r.value[i]) + r.allowed[i]) + subnormal_roundoff<T>() + 1e-300;
    double const error = std::fabs(to_double(x[i]) - r.value[i]),
                 ratio = std::isnan(error) ? INFINITY : error / allowed;
    if (ratio > worst) worst = ratio, at = i;
  }
  CAPTURE(at);
  CHECK(worst <= 1.0);
}

}  // namespace tessera::test

#endif
