// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/arranged_values.hpp"

using namespace tessera;
using namespace tessera::test;

// Scores and masks of the caller's own.

namespace {

/// Every third key is hidden, but for a query's own: nothing is told about tiles.
struct TwoOfThree {
  KOKKOS_FUNCTION bool operator()(int, int, int i, int j) const { return j % 3 != 0 || j == i; }
};

template <class T, class TO>
void run_linear_biases(int d, int d_v) {
  std::vector<float> const slopes_h = {0.05f, 0, 0.3f, -0.1f};
  ViewOf<Exec, float*> const slopes("slopes", 4);
  fill(slopes, slopes_h);
  auto const check = [&](AttentionShape z, Setting const& setting) {
    int const offset = z.keys - z.queries;
    run_case<T, TO>(z, setting, score::alibi(slopes, offset),
                    [=](double s, int, int h, int i, int j) { return s + double(slopes_h[h]) * (j - i - offset); });
  };
  for (bool causal : {false, true}) {
    check({1, 4, 2, 300, 700, d, d_v}, {.causal = causal, .scaled = true});
    check({2, 4, 2, 5, 411, d, d_v}, {.causal = causal, .lengths = {411, 200}});
    check({1, 4, 4, 300, 520, d, d_v}, {.causal = causal, .left = 200});
    if (sizeof(T) == 1) check({1, 4, 2, 200, 700, d, d_v}, {.causal = causal, .scale_keys = 128});
  }
}

}  // namespace

TEST_CASE("the hopper pipeline adds linear biases to scores of e4m3") {
  run_linear_biases<e4m3_t, bf16_t>(128, 128);
  run_linear_biases<e4m3_t, float>(64, 40);
  run_linear_biases<e4m3_t, bf16_t>(256, 200);
}

TEST_CASE("the hopper pipeline adds linear biases to scores in tf32") { run_linear_biases<float, float>(128, 96); }

TEST_CASE("the hopper pipeline takes scores and masks of the caller's own with e5m2") {
  auto const capped = [](double s, int, int, int, int) { return 3 * std::tanh(s / 3); };
  for (bool causal : {false, true})
    for (AttentionShape z : {AttentionShape{1, 2, 1, 300, 300, 128, 128}, AttentionShape{2, 2, 2, 9, 260, 64, 64}}) {
      run_case<e5m2_t, bf16_t>(z, {.causal = causal}, score::SoftCap{3}, capped);
      run_case<e5m2_t, bf16_t>(z, {.causal = causal}, score::SoftCap{3}, capped, TwoOfThree{});
    }
}
