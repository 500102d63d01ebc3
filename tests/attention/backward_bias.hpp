// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_BACKWARD_BIAS_HPP
#define TESSERA_TESTS_ATTENTION_BACKWARD_BIAS_HPP

#include "attention/backward.hpp"

namespace tessera::test {

/// Which extents of (B, H, S_q, S_k) a bias has; the others are 1.
struct BiasShape {
  bool batches, heads, queries;
};
template <class Exec, class T>
struct Bias {
  using View = ViewOf<Exec, T****>;
  int extent[4];
  std::vector<T> numbers;
  View values;

  Bias(AttentionShape z, BiasShape has)
      : extent{has.batches ? z.batch : 1, has.heads ? z.heads : 1, has.queries ? z.queries : 1, z.keys},
        numbers(uniform<T>(std::size_t(extent[0]) * extent[1] * extent[2] * extent[3], 31)),
        values("bias", extent[0], extent[1], extent[2], extent[3]) {
    fill(values, numbers);
  }
  std::size_t at(int b, int h, int i, int j) const {
    auto const own = [&](int k, int x) { return extent[k] == 1 ? 0 : x; };
    return ((std::size_t(own(0, b)) * extent[1] + own(1, h)) * extent[2] + own(2, i)) * extent[3] + j;
  }
  AttentionRules rules() const {
    AttentionRules r;
    r.score = [this](double s, int b, int h, int i, int j) { return s + to_double(numbers[at(b, h, i, j)]); };
    return r;
  }
};

/// dS of the reference, summed as the bias is shared, with (n + 4)·u for each of n terms.
template <class Exec, class T>
void check_bias(BackwardOperands<Exec, T> const& x, Bias<Exec, T> const& bias,
                ViewOf<Exec, typename BackwardOperands<Exec, T>::Compute****> const& d_bias) {
  using Compute = typename BackwardOperands<Exec, T>::Compute;
  AttentionShape const z = x.x.z;
  double const u = unit_roundoff<T>(), u_sum = unit_roundoff<Compute>();
  GradientReference ds(std::size_t(z.batch) * z.heads * z.queries * z.keys), summed(bias.numbers.size());
  attention_backward_reference(z, x.x.q, x.x.k, x.x.v, x.d_o, x.d_lse, x.forward, x.scale, x.visible,
                               {u_sum, 0, u, u_sum}, x.rules, &ds);
  double const terms = double(ds.value.size()) / double(bias.numbers.size()) + 4;
  for (int b = 0; b < z.batch; ++b)
    for (int h = 0; h < z.heads; ++h)
      for (int i = 0; i < z.queries; ++i)
        for (int j = 0; j < z.keys; ++j) {
          std::size_t const from = ((std::size_t(b) * z.heads + h) * z.queries + i) * z.keys + j;
          summed.add(bias.at(b, h, i, j), ds.value[from],
                     ds.allowed[from] + terms * u_sum * (std::fabs(ds.value[from]) + ds.allowed[from]));
        }
  check_gradient(summed, values(d_bias));
}

/// `Drops`: with dropout, which is kernels more to compile.
template <class Exec, class T, bool Drops = false>
void run_bias(AttentionShape z, BiasShape has, AttentionBackwardOptions options, bool with_d_lse = false) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(has.batches);
  CAPTURE(has.heads);
  CAPTURE(has.queries);
  CAPTURE(options.forward.causal);
  using Compute = typename BackwardOperands<Exec, T>::Compute;
  Bias<Exec, T> const bias(z, has);
  AttentionRules rules = bias.rules();
  AttentionDropout const dropout = options.forward.dropout;
  if (dropout.p > 0)
    rules.kept = [=](int b, int h, int i, int j) {
      return attention_keeps(dropout, b, h, i, j) ? 1 / (1 - dropout.p) : 0;
    };
  BackwardOperands<Exec, T> const x(z, left_by(options.forward, z), with_d_lse, rules);
  ViewOf<Exec, Compute****> const d_bias("d_bias", bias.extent[0], bias.extent[1], bias.extent[2], bias.extent[3]);
  poison(d_bias);
  if constexpr (std::is_same_v<T, double>)
    options.d_bias_fp64 = d_bias;
  else
    options.d_bias = d_bias;
  auto const score = score::additive_bias(bias.values);
  if constexpr (Drops)
    x.run(options, score::with_dropout(score));
  else
    x.run(options, score);
  x.check();
  check_bias(x, bias, d_bias);
}

}  // namespace tessera::test

#endif
