// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_scales.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes 8-bit operands with scales of heads", Exec, backward_scales_id) {
  check_scaled<Exec, e4m3_t>({2, 4, 2, 33, 65, 16, 24}, {});
  check_scaled<Exec, e4m3_t>({1, 6, 2, 130, 97, 64, 72}, causal());
  check_scaled<Exec, e5m2_t>({2, 2, 1, 40, 50, 130, 200}, causal());
  check_scaled<Exec, bf16_t>({2, 4, 2, 70, 90, 64, 64}, {});
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
