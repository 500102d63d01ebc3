// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Powers of 2 from 1/4 on: what elements of 8 bits are times them is exact in fp32.
std::vector<float> some_scales(std::size_t n) {
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = std::ldexp(1.0f, static_cast<int>(i * 5 % 4) - 2);
  return all;
}

/// Elements of T, and what they are times the scales of heads, as fp32.
template <class Exec, class T>
struct Scaled {
  ViewOf<Exec, T****> view;
  std::vector<float> numbers, scales;
  ViewOf<Exec, float**> scales_view;

  Scaled(char const* name, int batch, int heads, int rows, int width, int scale_batch, int scale_heads, unsigned seed)
      : view(std::string(name), batch, heads, rows, width),
        scales(some_scales(std::size_t(scale_batch) * scale_heads)),
        scales_view("scales", scale_batch, scale_heads) {
    auto const elements = uniform<T>(view.size(), seed, -2, 2);
    fill(view, elements);
    fill(scales_view, scales);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      std::size_t const plane = i / (std::size_t(rows) * width), b = plane / heads, h = plane % heads;
      numbers.push_back(float(to_double(elements[i])) *
                        scales[(scale_batch > 1 ? b : 0) * scale_heads + (scale_heads > 1 ? h : 0)]);
    }
  }
};

/// Gradients are those of the products of elements and scales: the reference has those in fp32.
template <class Exec, class T, class Score = score::Identity>
void check_scaled(AttentionShape z, AttentionBackwardOptions options, Score const& score = {},
                  AttentionRules const& rules = {}) {
  CAPTURE(z.d);
  CAPTURE(options.forward.causal);
  Scaled<Exec, T> const q("Q", z.batch, z.heads, z.queries, z.d, z.batch, z.heads, 1),
      k("K", z.batch, z.kv_heads, z.keys, z.d, 1, z.kv_heads, 2),
      v("V", z.batch, z.kv_heads, z.keys, z.d_v, z.batch, z.kv_heads, 3);
  BackwardOperands<Exec, float> x(z, left_by(options.forward, z), true, rules);
  x.x.q = q.numbers, x.x.k = k.numbers, x.x.v = v.numbers;
  x.forward = attention_reference(z, x.x.q, x.x.k, x.x.v, x.scale, x.visible, rules.score, 0, 0);
  fill(x.x.ov, std::vector<float>(x.forward.o.begin(), x.forward.o.end()));
  fill(x.x.lse, std::vector<float>(x.forward.lse.begin(), x.forward.lse.end()));
  options.d_lse = x.options().d_lse;
  options.forward.q_scale = q.scales_view;
  options.forward.k_scale = k.scales_view;
  options.forward.v_scale = v.scales_view;
  ViewOf<Exec, char*> const workspace(
      "workspace", attention_backward_workspace_size(Exec{}, x.dq, x.dk, x.dv, q.view, k.view, v.view, x.x.ov, x.x.lse,
                                                     x.dov, options, score));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(Exec{}, x.dq, x.dk, x.dv, q.view, k.view, v.view, x.x.ov, x.x.lse, x.dov, options, score);
  x.check();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes 8-bit operands with scales of heads", Exec, backward_scales_id) {
  check_scaled<Exec, e4m3_t>({2, 4, 2, 33, 65, 16, 24}, {});
  check_scaled<Exec, e4m3_t>({1, 6, 2, 130, 97, 64, 72}, causal());
  check_scaled<Exec, e5m2_t>({2, 2, 1, 40, 50, 130, 200}, causal());
  check_scaled<Exec, bf16_t>({2, 4, 2, 70, 90, 64, 64}, {});  // which the hopper pipeline leaves to the portable kernel
}
TEST_CASE_TEMPLATE_APPLY(backward_scales_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("scales of heads go with scores, planes and pairs", Exec, backward_scales_scores_id) {
  AttentionShape const z{2, 4, 2, 50, 70, 24, 16};
  std::vector<float> const of_heads{0.5f, 0.25f, 0.125f, 0.0625f};
  ViewOf<Exec, float*> const slopes("slopes", 4);
  fill(slopes, of_heads);
  AttentionRules linear;
  linear.score = [&](double s, int, int h, int i, int j) { return s + double(of_heads[std::size_t(h)]) * (j - i); };
  check_scaled<Exec, e4m3_t>(z, causal(), score::alibi(slopes), linear);
  AttentionRules capped;
  capped.score = [](double s, int, int, int, int) { return 3 * std::tanh(s / 3); };
  capped.slope = [](double s, int, int, int, int) { return 1 - std::pow(std::tanh(s / 3), 2); };
  if constexpr (detail::Machine<Exec>::is_host) check_scaled<Exec, e4m3_t>(z, {}, score::SoftCap{3.0}, capped);
}
TEST_CASE_TEMPLATE_APPLY(backward_scales_scores_id, Spaces);
