// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_BACKWARD_SCALES_HPP
#define TESSERA_TESTS_ATTENTION_BACKWARD_SCALES_HPP

#include "attention/backward_packed.hpp"

namespace tessera::test {

/// Powers of 2 from 1/4 on: what elements of 8 bits are times them is exact in fp32.
inline std::vector<float> some_scales(std::size_t n) {
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = std::ldexp(1.0f, static_cast<int>(i * 5 % 4) - 2);
  return all;
}

/// Elements of T, and what they are times the scales of heads, as fp32; unless `scaled`, these are 1. Packed sequences
/// have scales of their own.
template <class Exec, class T>
struct Scaled {
  ViewOf<Exec, T****> view;
  std::vector<float> numbers, scales;
  ViewOf<Exec, float**> scales_view;

  Scaled(char const* name, int batch, int heads, int rows, int width, int scale_batch, int scale_heads, unsigned seed,
         bool scaled, Starts const& starts)
      : view(std::string(name), batch, heads, rows, width),
        scales(scaled ? some_scales(std::size_t(scale_batch) * scale_heads)
                      : std::vector<float>(std::size_t(scale_batch) * scale_heads, 1.0f)),
        scales_view("scales", scale_batch, scale_heads) {
    auto const elements = uniform<T>(view.size(), seed, -2, 2);
    fill(view, elements);
    fill(scales_view, scales);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      std::size_t const row = i / width, plane = row / rows, h = plane % heads;
      int const entry = starts.empty() ? static_cast<int>(plane / heads)
                                       : std::max(0, sequence_of(starts, static_cast<int>(row % rows)));
      numbers.push_back(float(to_double(elements[i])) *
                        scales[(scale_batch > 1 ? std::size_t(entry) : 0) * scale_heads + (scale_heads > 1 ? h : 0)]);
    }
  }
};

/// What is asked of a backward with scales: without them, of packed sequences, with weights rounded by so much.
struct ScaledCase {
  bool scaled = true;
  double of_weights = 0;
  Starts query_starts = {}, key_starts = {};
};

/// Gradients are those of the products of elements and scales: the reference has those in fp32. dO is of TO, gradients
/// are of TG.
template <class Exec, class T, class TO = float, class TG = float, class Score = score::Identity>
void check_scaled(AttentionShape z, AttentionBackwardOptions options, Score const& score = {},
                  AttentionRules const& rules = {}, ScaledCase const& of = {}) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(options.forward.causal);
  CAPTURE(options.deterministic);
  bool const packed = !of.query_starts.empty();
  int const batch = packed ? static_cast<int>(of.query_starts.size()) - 1 : z.batch;
  Scaled<Exec, T> const q("Q", z.batch, z.heads, z.queries, z.d, batch, z.heads, 1, of.scaled, of.query_starts),
      k("K", z.batch, z.kv_heads, z.keys, z.d, 1, z.kv_heads, 2, of.scaled, of.key_starts),
      v("V", z.batch, z.kv_heads, z.keys, z.d_v, batch, z.kv_heads, 3, of.scaled, of.key_starts);
  auto const sight = [&]() -> std::function<bool(int, int, int)> {
    if (packed) return packed_sight(options.forward, of.query_starts, of.key_starts);
    return left_by(options.forward, z);
  }();
  BackwardOperands<Exec, float, TG> x(z, sight, true, rules);
  x.x.q = q.numbers, x.x.k = k.numbers, x.x.v = v.numbers;
  x.forward = attention_reference(z, x.x.q, x.x.k, x.x.v, x.scale, x.visible, rules.score, 0, 0);
  fill(x.x.ov, std::vector<float>(x.forward.o.begin(), x.forward.o.end()));
  fill(x.x.lse, std::vector<float>(x.forward.lse.begin(), x.forward.lse.end()));
  std::vector<TO> d_o(x.d_o.size());
  for (std::size_t i = 0; i < d_o.size(); ++i) d_o[i] = TO(x.d_o[i]), x.d_o[i] = float(to_double(d_o[i]));
  ViewOf<Exec, TO****> const dov("dO", z.batch, z.heads, z.queries, z.d_v);
  fill(dov, d_o);
  options.d_lse = x.options().d_lse;
  if (of.scaled) {
    options.forward.q_scale = q.scales_view;
    options.forward.k_scale = k.scales_view;
    options.forward.v_scale = v.scales_view;
  }
  auto const query_starts = on_device<Exec>(of.query_starts), key_starts = on_device<Exec>(of.key_starts);
  if (packed) options.forward.query_starts = query_starts, options.forward.key_starts = key_starts;
  ViewOf<Exec, char*> const workspace(
      "workspace", attention_backward_workspace_size(Exec{}, x.dq, x.dk, x.dv, q.view, k.view, v.view, x.x.ov, x.x.lse,
                                                     dov, options, score));
  Kokkos::deep_copy(workspace, '\xff');  // NaN
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(Exec{}, x.dq, x.dk, x.dv, q.view, k.view, v.view, x.x.ov, x.x.lse, dov, options, score);
  Exec{}.fence();
  if (packed) {
    expect_rest_untouched(x.dq, of.query_starts, z.queries, z.d, TG(0.0f));
    expect_rest_untouched(x.dk, of.key_starts, z.keys, z.d, TG(0.0f));
    expect_rest_untouched(x.dv, of.key_starts, z.keys, z.d_v, TG(0.0f));
  }
  x.check(of.of_weights);
}

}  // namespace tessera::test

#endif
