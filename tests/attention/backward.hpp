// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_BACKWARD_HPP
#define TESSERA_TESTS_ATTENTION_BACKWARD_HPP

#include <tessera/attention_backward.hpp>

#include "attention/operands.hpp"
#include "reference/attention_backward.hpp"
#include "support/tensor_cores.hpp"

namespace tessera::test {

/// Operands with O and LSE as fp64 gives them, rounded, a random dO, and poisoned gradients.
template <class Exec, class T, class TG = T>
struct BackwardOperands {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Operands<Exec, T> x;
  std::vector<T> d_o;
  std::vector<double> d_lse;
  ViewOf<Exec, T****> dov;
  ViewOf<Exec, Compute***> d_lse_view;
  ViewOf<Exec, TG****> dq, dk, dv;
  AttentionReference forward;
  std::function<bool(int, int, int)> visible;
  AttentionRules rules;
  double scale;

  BackwardOperands(AttentionShape z, std::function<bool(int, int, int)> const& sees, bool with_d_lse = false,
                   AttentionRules const& changes = {})
      : x(z),
        d_o(uniform<T>(x.ov.size(), 9)),
        dov("dO", z.batch, z.heads, z.queries, z.d_v),
        d_lse_view("dLSE", z.batch, z.heads, z.queries),
        dq("dQ", z.batch, z.heads, z.queries, z.d),
        dk("dK", z.batch, z.kv_heads, z.keys, z.d),
        dv("dV", z.batch, z.kv_heads, z.keys, z.d_v),
        visible(sees),
        rules(changes),
        scale(x.scale()) {
    forward = attention_reference(z, x.q, x.k, x.v, scale, sees, rules.score, 0, 0);
    drop();
    std::vector<T> o(forward.o.size());
    std::vector<Compute> lse(forward.lse.size());
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = T(forward.o[i]);
    for (std::size_t i = 0; i < lse.size(); ++i) lse[i] = Compute(forward.lse[i]);
    fill(x.ov, o);
    fill(x.lse, lse);
    fill(dov, d_o);
    if (with_d_lse) {
      auto const g = uniform<Compute>(lse.size(), 10);
      d_lse.assign(g.begin(), g.end());
      fill(d_lse_view, g);
    }
    poison(dq), poison(dk), poison(dv);
  }
  AttentionBackwardOptions options() const {
    AttentionBackwardOptions o;
    if (d_lse.empty()) return o;
    if constexpr (std::is_same_v<T, double>)
      o.d_lse_fp64 = d_lse_view;
    else
      o.d_lse = d_lse_view;
    return o;
  }
  template <class Score = score::Identity, class Mask = mask::All>
  void run(AttentionBackwardOptions options, Score const& score = {}, Mask const& mask = {}) const {
    auto const own = this->options();
    options.d_lse = own.d_lse;
    options.d_lse_fp64 = own.d_lse_fp64;
    ViewOf<Exec, char*> const workspace(
        "workspace", attention_backward_workspace_size(Exec{}, dq, dk, dv, x.qv, x.kv, x.vv, x.ov, x.lse, dov, options,
                                                       score, mask));
    Kokkos::deep_copy(workspace, '\xff');  // NaN
    options.workspace = workspace.data();
    options.workspace_bytes = workspace.size();
    attention_backward(Exec{}, dq, dk, dv, x.qv, x.kv, x.vv, x.ov, x.lse, dov, options, score, mask);
    Exec{}.fence();
  }
  /// Whether one run after the other gives the same gradients.
  void check_repeats(AttentionBackwardOptions const& options) const {
    auto const gradients = [&] {
      poison(dq), poison(dk), poison(dv);
      run(options);
      auto all = values(dq);
      for (auto const& more : {values(dk), values(dv)}) all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    auto const once = gradients();
    for (int again = 0; again < 3; ++again) CHECK(gradients() == once);
  }
  /// Only 16-bit paths round weights, and only on some machines; the bound covers them.
  void check() const { check(sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0); }
  void check(double of_weights) const {
    double const u = unit_roundoff<T>(), u_sum = unit_roundoff<Compute>();
    auto const r = attention_backward_reference(x.z, x.q, x.k, x.v, d_o, d_lse, forward, scale, visible,
                                                {u_sum, of_weights, u, u_sum}, rules);
    check_gradient(r.dq, values(dq));
    check_gradient(r.dk, values(dk));
    check_gradient(r.dv, values(dv));
  }

 private:
  /// O of weights that are times something behind the softmax.
  void drop() {
    AttentionShape const z = x.z;
    for (int b = 0; b < z.batch; ++b)
      for (int h = 0; h < z.heads; ++h)
        for (int i = 0; i < z.queries; ++i) {
          std::size_t const row = (std::size_t(b) * z.heads + h) * z.queries + i;
          for (int c = 0; c < z.d_v; ++c) forward.o[row * z.d_v + c] = 0;
          for (int j = 0; j < z.keys; ++j) {
            if (!visible(b, i, j)) continue;
            std::size_t const key = (std::size_t(b) * z.kv_heads + h / (z.heads / z.kv_heads)) * z.keys + j;
            double s = 0;
            for (int c = 0; c < z.d; ++c) s += scale * to_double(x.q[row * z.d + c]) * to_double(x.k[key * z.d + c]);
            double const weight = std::exp(rules.score(s, b, h, i, j) - forward.lse[row]) * rules.kept(b, h, i, j);
            for (int c = 0; c < z.d_v; ++c) forward.o[row * z.d_v + c] += weight * to_double(x.v[key * z.d_v + c]);
          }
        }
  }
};

/// Where the keys of a batch entry end at its length; those behind it are NaN, their values infinite.
template <class Exec, class T>
void check_backward_lengths(AttentionShape z, std::vector<int> const& lengths, AttentionBackwardOptions options) {
  ViewOf<Exec, int*> lengths_view("lengths", lengths.size());
  fill(lengths_view, lengths);
  bool const is_causal = options.forward.causal;
  auto const visible = [=](int b, int i, int j) {
    return j < lengths[std::size_t(b)] && (!is_causal || j <= i + lengths[std::size_t(b)] - z.queries);
  };
  BackwardOperands<Exec, T> x(z, visible);
  auto k = x.x.k, v = x.x.v;
  for (int plane = 0; plane < z.batch * z.kv_heads; ++plane)
    for (int j = lengths[std::size_t(plane / z.kv_heads)]; j < z.keys; ++j) {
      for (int c = 0; c < z.d; ++c) k[(std::size_t(plane) * z.keys + j) * z.d + c] = T(NAN);
      for (int c = 0; c < z.d_v; ++c) v[(std::size_t(plane) * z.keys + j) * z.d_v + c] = T(INFINITY);
    }
  fill(x.x.kv, k);
  fill(x.x.vv, v);
  options.forward.key_lengths = lengths_view;
  x.run(options);
  x.check();
}

/// By the Hopper pipeline and nothing else.
inline AttentionBackwardOptions hopper_backward(bool causal, bool deterministic = false) {
  AttentionBackwardOptions o;
  o.forward.causal = causal;
  o.deterministic = deterministic;
  o.algorithm = AttentionAlgorithm::hopper;
  o.allow_fallback = false;
  return o;
}

/// By the pipeline of asynchronous copies and, where there is one, nothing else.
template <class Exec>
AttentionBackwardOptions tensor_core_backward(bool causal, bool deterministic = false) {
  AttentionBackwardOptions o = hopper_backward(causal, deterministic);
  o.algorithm = AttentionAlgorithm::tensor_core;
  o.allow_fallback = !has_tensor_cores<Exec>();
  return o;
}

template <class Exec, class T, class TG = T>
void check_backward(AttentionShape z, AttentionBackwardOptions const& options, bool with_d_lse = false) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(options.forward.causal);
  BackwardOperands<Exec, T, TG> x(z, left_by(options.forward, z), with_d_lse);
  x.run(options);
  x.check();
}

inline AttentionBackwardOptions causal() {
  AttentionBackwardOptions o;
  o.forward.causal = true;
  return o;
}

/// By how much a loss grows with an element, which stays as it is: a difference of the second order, which errs by the
/// square of the step, and by the rounding of the loss over the step.
template <class T, class Loss>
double central_difference(T& element, double step, Loss const& loss) {
  T const before = element;
  element = static_cast<T>(before + step);
  double const above = loss(), up = element;
  element = static_cast<T>(before - step);
  double const below = loss(), down = element;
  element = before;
  return (above - below) / (up - down);
}

}  // namespace tessera::test

#endif
