// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_scales.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

/// Asks about pairs that there are alone: 0.01 table(i, j), and a factor of its head.
struct Tabled {
  ViewOf<Exec, float**> table;
  static constexpr bool only_adds = false;
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int h, int i, int j) const {
    return s * T(0.5f + 0.25f * static_cast<float>(h)) + table(i, j);
  }
  template <class T>
  KOKKOS_FUNCTION T slope(T, int, int h, int, int) const {
    return T(0.5f + 0.25f * static_cast<float>(h));
  }
};

/// Over features of every kernel, whose tiles hang over the edges.
template <class F>
void for_each_shape(F const& f, AttentionShape z = {2, 4, 2, 150, 203, 0, 0}) {
  for (bool causal : {false, true})
    for (int d : {64, 128, 256})
      for (bool deterministic : {false, true}) {
        z.d = z.d_v = d;
        if (!deterministic || d != 256) f(z, hopper_backward(causal, deterministic));
      }
}

template <class Score>
void check_score(AttentionShape const& z, AttentionBackwardOptions const& options, Score const& score,
                 AttentionRules const& rules) {
  CAPTURE(z.d);
  CAPTURE(options.forward.causal);
  CAPTURE(options.deterministic);
  BackwardOperands<Exec, bf16_t> const x(z, left_by(options.forward, z), true, rules);
  x.run(options, score);
  x.check();
}

void check_alibi(AttentionShape const& z, AttentionBackwardOptions const& options, std::vector<float> const& of_heads) {
  int const offset = z.keys - z.queries;
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  fill(slopes, of_heads);
  AttentionRules linear;
  linear.score = [&](double s, int, int h, int i, int j) {
    return s + double(of_heads[std::size_t(h)]) * (j - i - offset);
  };
  check_score(z, options, score::alibi(slopes, offset), linear);
}

}  // namespace

TEST_CASE("the hopper pipeline forms gradients of scores that a plane is added to") {
  for_each_shape([](AttentionShape const& z, AttentionBackwardOptions const& options) {
    check_alibi(z, options, {0.5f, 0.25f, 0.125f, 0.0625f});
  });
}

TEST_CASE("gradients leave out keys that a linear bias has taken all weight of, and no others") {
  for_each_shape(
      [](AttentionShape const& z, AttentionBackwardOptions const& options) {
        check_alibi(z, options, {0.7f, 0.4f, 0.12f, 0.06f});
      },
      {1, 4, 1, 330, 700, 0, 0});  // whose tiles of keys teams share where sums have an order
}

TEST_CASE("the hopper pipeline goes through capped scores") {
  for_each_shape([](AttentionShape const& z, AttentionBackwardOptions const& options) {
    AttentionRules capped;
    capped.score = [](double s, int, int, int, int) { return 0.5 * std::tanh(s / 0.5); };
    capped.slope = [](double s, int, int, int, int) { return 1 - std::tanh(s / 0.5) * std::tanh(s / 0.5); };
    check_score(z, options, score::SoftCap{0.5}, capped);
  });
}

TEST_CASE("the hopper pipeline adds planes to scores of 8-bit operands") {
  AttentionShape const z{2, 4, 2, 150, 203, 64, 64};
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  std::vector<float> const of_heads = {0.5f, 0.25f, 0.125f, 0.0625f};
  fill(slopes, of_heads);
  AttentionRules linear;
  linear.score = [&](double s, int, int h, int i, int j) { return s + double(of_heads[std::size_t(h)]) * (j - i); };
  check_scaled<Exec, e4m3_t, bf16_t>(z, hopper_backward(true), score::alibi(slopes), linear,
                                     {.scaled = false, .of_weights = 2 * unit_roundoff<bf16_t>()});
}

TEST_CASE("the hopper pipeline asks a score about pairs that there are alone") {
  AttentionShape const z{2, 4, 2, 150, 203, 128, 128};
  ViewOf<Exec, float**> const table("table", z.queries, z.keys);
  auto const entries = uniform<float>(table.size(), 12);
  fill(table, entries);
  AttentionRules rules;
  rules.score = [&](double s, int, int h, int i, int j) {
    return s * (0.5 + 0.25 * h) + double(entries[std::size_t(i) * z.keys + j]);
  };
  rules.slope = [](double, int, int h, int, int) { return 0.5 + 0.25 * h; };
  for (bool causal : {false, true})
    for (bool deterministic : {false, true})
      check_score(z, hopper_backward(causal, deterministic), Tabled{table}, rules);
}

TEST_CASE("the hopper pipeline drops what attention dropped") {
  AttentionDropout const dropout{.p = 0.25, .seed = 7, .offset = 3};
  AttentionRules rules;
  rules.kept = [=](int b, int h, int i, int j) { return attention_keeps(dropout, b, h, i, j) ? 1 / 0.75 : 0; };
  for (AttentionShape const& z : {AttentionShape{2, 4, 2, 150, 203, 0, 0}, AttentionShape{1, 4, 1, 300, 203, 0, 0}})
    for_each_shape(
        [&](AttentionShape const& shape, AttentionBackwardOptions options) {
          options.forward.dropout = dropout;
          check_score(shape, options, score::Identity{}, rules);
        },
        z);
  AttentionBackwardOptions options = hopper_backward(true, false);
  options.forward.dropout = dropout;
  BackwardOperands<Exec, fp16_t> const x({1, 6, 1, 330, 257, 64, 128},
                                         left_by(options.forward, {1, 6, 1, 330, 257, 64, 128}), false, rules);
  x.run(options);
  x.check();
}
