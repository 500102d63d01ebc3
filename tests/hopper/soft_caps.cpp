// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/scores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Limits with which all scores, some, or none are covered by the polynomials of a soft cap.
template <class T>
void check_caps(HopperAttentionOf<T> const& x) {
  for (bool causal : {false, true})
    for (double limit : {100.0, 15.0, 2.0}) {
      CAPTURE(limit);
      check_score_of(x, {.causal = causal}, score::SoftCap{limit},
                     [=](double s, int, int, int, int) { return limit * std::tanh(s / limit); });
    }
}

}  // namespace

TEST_CASE("the hopper pipeline caps scores of every size") {
  for (AttentionShape z : scored_shapes) check_caps(HopperAttentionOf<bf16_t>(z));
  check_caps(HopperAttentionOf<fp16_t>({1, 2, 1, 150, 300, 128, 128}));
}

TEST_CASE("the hopper pipeline caps rows whose scores are all far below 0") {
  HopperAttentionOf<bf16_t> wide({1, 2, 2, 150, 300, 128, 128});
  wide.make_scores_negative(1, 1);
  check_caps(wide);
  HopperAttentionOf<fp16_t> narrow({1, 2, 2, 150, 300, 128, 128});
  narrow.make_scores_negative(1, 1);
  check_caps(narrow);
  wide.make_scores_negative(2, 3);
  check_caps(wide);
}
