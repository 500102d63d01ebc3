// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients behind scores and masks of the caller's own, by the pipeline of asynchronous copies, where there is one.
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Every query sees itself and every third key.
struct Thirds {
  KOKKOS_FUNCTION bool operator()(int b, int, int i, int j) const { return j == i || (b + i + j) % 3 == 0; }
};

/// Over features of every kernel, whose tiles hang over the edges.
template <class Exec, class F>
void for_each_shape(F const& f, AttentionShape z = {2, 4, 2, 150, 203, 0, 0}) {
  for (bool causal : {false, true})
    for (int d : {64, 128, 256})
      for (bool deterministic : {false, true}) {
        if (!has_tensor_cores<Exec>() && causal != deterministic) continue;  // half, where others stand in
        z.d = z.d_v = d;
        f(z, tensor_core_backward<Exec>(causal, deterministic));
      }
}

template <class Exec, class T, class Score, class Mask = mask::All>
void check(AttentionShape const& z, AttentionBackwardOptions const& options, Score const& score,
           AttentionRules const& rules, Mask const& mask = {},
           std::function<bool(int, int, int)> const& shows = everything) {
  CAPTURE(z.d);
  CAPTURE(options.forward.causal);
  CAPTURE(options.deterministic);
  auto const sees = left_by(options.forward, z);
  BackwardOperands<Exec, T> const x(
      z, [&](int b, int i, int j) { return sees(b, i, j) && shows(b, i, j); }, true, rules);
  x.run(options, score, mask);
  x.check();
}

template <class Exec, class T>
void check_alibi(AttentionShape const& z, AttentionBackwardOptions const& options, std::vector<float> const& of_heads) {
  int const offset = z.keys - z.queries;
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  fill(slopes, of_heads);
  AttentionRules linear;
  linear.score = [&](double s, int, int h, int i, int j) {
    return s + double(of_heads[std::size_t(h)]) * (j - i - offset);
  };
  check<Exec, T>(z, options, score::alibi(slopes, offset), linear);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores of scores that a plane is added to", Exec,
                          backward_tensor_core_planes_id) {
  for_each_shape<Exec>([](AttentionShape const& z, AttentionBackwardOptions const& options) {
    check_alibi<Exec, bf16_t>(z, options, {0.5f, 0.25f, 0.125f, 0.0625f});
  });
  for_each_shape<Exec>(  // keys that the bias has taken all weight of are left out, and no others
      [](AttentionShape const& z, AttentionBackwardOptions const& options) {
        check_alibi<Exec, bf16_t>(z, options, {0.7f, 0.4f, 0.12f, 0.06f});
      },
      {1, 4, 1, 330, 700, 0, 0});
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_planes_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores of capped scores", Exec, backward_tensor_core_caps_id) {
  AttentionRules capped;
  capped.score = [](double s, int, int, int, int) { return 0.5 * std::tanh(s / 0.5); };
  capped.slope = [](double s, int, int, int, int) { return 1 - std::tanh(s / 0.5) * std::tanh(s / 0.5); };
  for_each_shape<Exec>([&](AttentionShape const& z, AttentionBackwardOptions const& options) {
    check<Exec, fp16_t>(z, options, score::SoftCap{0.5}, capped);
  });
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_caps_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores behind masks of pairs", Exec, backward_tensor_core_pairs_id) {
  for_each_shape<Exec>(
      [](AttentionShape const& z, AttentionBackwardOptions const& options) {
        check<Exec, bf16_t>(z, options, score::Identity{}, {}, Thirds{},
                            [](int b, int i, int j) { return Thirds{}(b, 0, i, j); });
      },
      {2, 2, 1, 210, 210, 0, 0});
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_pairs_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores of documents, with dropout too", Exec,
                          backward_tensor_core_documents_id) {
  constexpr int tokens = 410;
  constexpr AttentionDropout dropout{.p = 0.25, .seed = 7, .offset = 3};
  std::vector<int> ids;
  for (int b = 0; b < 2; ++b)
    for (int i = 0; i < tokens; ++i) ids.push_back(b == 0 ? (i < 1 ? 3 : i < 130 ? 4 : i < 389 ? 7 : 8) : i / 64);
  ViewOf<Exec, int**> const view("ids", 2, tokens);
  fill(view, ids);
  auto const same = [&](int b, int i, int j) {
    return ids[std::size_t(b) * tokens + i] == ids[std::size_t(b) * tokens + j];
  };
  AttentionRules rules;
  rules.kept = [=](int b, int h, int i, int j) { return attention_keeps(dropout, b, h, i, j) ? 1 / 0.75 : 0; };
  for_each_shape<Exec>(
      [&](AttentionShape const& z, AttentionBackwardOptions options) {
        options.forward.dropout = dropout;
        check<Exec, bf16_t>(z, options, score::with_dropout(), rules, mask::consecutive_documents(view), same);
      },
      {2, 2, 1, tokens, tokens, 0, 0});
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_documents_id, Spaces);
