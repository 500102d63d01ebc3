// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr AttentionShape shape{2, 4, 2, 53, 75, 24, 40};

/// Differentiated by calling it with dual numbers: s / sqrt(1 + (s / 3)^2) + 0.01 (j - i).
struct Squashed {
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int, int i, int j) const {
    using Kokkos::sqrt;
    T const z = s / 3.0f;
    return s / sqrt(1.0f + z * z) + 0.01f * static_cast<float>(j - i);
  }
};
/// With a derivative of its own.
struct Scaled {
  KOKKOS_FUNCTION static float factor(int h) { return 0.5f + 0.25f * static_cast<float>(h); }
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int h, int, int) const {
    return s * T(factor(h));
  }
  template <class T>
  KOKKOS_FUNCTION T slope(T, int, int h, int, int) const {
    return T(factor(h));
  }
};
/// Every query sees itself and every third key.
struct Thirds {
  KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const { return j == i || (b + h + i + j) % 3 == 0; }
};

bool sees(bool is_causal, int i, int j) { return !is_causal || j <= i + shape.keys - shape.queries; }

template <class Exec, class T, class Score>
void check_score(Score const& score, AttentionRules const& rules, bool is_causal) {
  BackwardOperands<Exec, T> const x(
      shape, [=](int, int i, int j) { return sees(is_causal, i, j); }, false, rules);
  x.run(is_causal ? causal() : AttentionBackwardOptions{}, score);
  x.check();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward goes through score functors", Exec, backward_scores_id) {
  AttentionRules capped;
  capped.score = [](double s, int, int, int, int) { return 5 * std::tanh(s / 5); };
  capped.slope = [](double s, int, int, int, int) { return 1 - std::tanh(s / 5) * std::tanh(s / 5); };
  check_score<Exec, float>(score::SoftCap{5}, capped, true);

  ViewOf<Exec, float*> const slopes("slopes", shape.heads);
  std::vector<float> const of_heads = {0.5f, 0.25f, 0.125f, 0.0625f};
  fill(slopes, of_heads);
  AttentionRules linear;
  linear.score = [&](double s, int, int h, int i, int j) {
    return s + double(of_heads[std::size_t(h)]) * (j - i - (shape.keys - shape.queries));
  };
  check_score<Exec, bf16_t>(score::alibi(slopes, shape.keys - shape.queries), linear, true);

  AttentionRules squashed;
  squashed.score = [](double s, int, int, int i, int j) {
    return s / std::sqrt(1 + s * s / 9) + double(0.01f) * (j - i);
  };
  squashed.slope = [](double s, int, int, int, int) { return std::pow(1 + s * s / 9, -1.5); };
  check_score<Exec, float>(Squashed{}, squashed, false);

  AttentionRules scaled;
  scaled.score = [](double s, int, int h, int, int) { return s * Scaled::factor(h); };
  scaled.slope = [](double, int, int h, int, int) { return Scaled::factor(h); };
  check_score<Exec, float>(Scaled{}, scaled, false);
}
TEST_CASE_TEMPLATE_APPLY(backward_scores_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward goes through mask functors", Exec, backward_masks_id) {
  AttentionShape const z{2, 1, 1, 70, 70, 16, 16};  // visible() knows of no heads
  for (bool is_causal : {false, true}) {
    BackwardOperands<Exec, float> const x(
        z, [=](int b, int i, int j) { return (!is_causal || j <= i) && Thirds{}(b, 0, i, j); });
    x.run(is_causal ? causal() : AttentionBackwardOptions{}, score::Identity{}, Thirds{});
    x.check();
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_masks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward drops the weights that attention dropped", Exec, backward_dropout_id) {
  AttentionDropout const dropout{.p = 0.25, .seed = 7, .offset = 3};
  AttentionRules rules;
  rules.kept = [=](int b, int h, int i, int j) { return attention_keeps(dropout, b, h, i, j) ? 1 / 0.75 : 0; };
  AttentionBackwardOptions options = causal();
  options.forward.dropout = dropout;
  BackwardOperands<Exec, float> const x(
      shape, [](int, int i, int j) { return sees(true, i, j); }, true, rules);
  x.run(options);
  x.check();
}
TEST_CASE_TEMPLATE_APPLY(backward_dropout_id, Spaces);

TEST_CASE("the gradients of attention are those of finite differences") {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  AttentionShape const z{1, 2, 1, 9, 12, 5, 7};
  BackwardOperands<Exec, double> const x(z, everything, true);
  score::SoftCap const cap{3};
  AttentionOptions forward{.causal = true};
  forward.lse_fp64 = x.x.lse;
  attention(Exec{}, x.x.ov, x.x.qv, x.x.kv, x.x.vv, forward, cap);
  x.run(causal(), cap);
  auto const loss = [&] {
    attention(Exec{}, x.x.ov, x.x.qv, x.x.kv, x.x.vv, forward, cap);
    double sum = 0;
    auto const o = values(x.x.ov), lse = values(x.x.lse);
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * x.d_o[i];
    for (std::size_t i = 0; i < lse.size(); ++i) sum += lse[i] * x.d_lse[i];
    return sum;
  };
  auto const check = [&](auto const& operand, auto const& gradient) {
    auto const expected = values(gradient);
    for (std::size_t i = 0; i < operand.size(); i += 7)
      CHECK(expected[i] == doctest::Approx(central_difference(operand.data()[i], 1e-5, loss)).epsilon(1e-6).scale(1));
  };
  check(x.x.qv, x.dq);
  check(x.x.kv, x.dk);
  check(x.x.vv, x.dv);
}
