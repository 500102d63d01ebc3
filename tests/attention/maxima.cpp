// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What rows' largest scores do as tiles of keys go by: kernels may keep the maximum that weights are relative to until
// scores are far above it, and look for it only then.
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int keys = 700;

/// What a key adds to all scores, in natural exponents.
using Ramp = double (*)(int key);
constexpr Ramp ramps[] = {
    [](int j) { return 0.1 * j; },                     // the last keys matter, which tiles may have first
    [](int j) { return 70 - 0.1 * j; },                // the first keys do
    [](int j) { return -90 + 0.05 * j; },              // no score is positive
    [](int j) { return j % 130 == 77 ? 12.0 : -3.0; }  // a few above all others
};

template <class Exec, class T>
void check_ramp(Ramp ramp, int d, bool causal) {
  CAPTURE(d);
  CAPTURE(causal);
  AttentionShape const z{1, 2, 1, causal ? keys : 70, keys, d, d};
  Operands<Exec, T> x(z);
  for (std::size_t i = 0; i < x.q.size(); i += d) x.q[i] = T(8.0f);
  for (int j = 0; j < keys; ++j) x.k[std::size_t(j) * d] = T(static_cast<float>(ramp(j) * std::sqrt(double(d)) / 8));
  fill(x.qv, x.q);
  fill(x.kv, x.k);
  x.attend({.causal = causal});
  x.check(seen_by(z, causal), unchanged, x.scale());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention follows maxima that rise and fall along the keys", Exec, rise_id) {
  for (Ramp const ramp : ramps) {
    CAPTURE(ramp(0));
    CAPTURE(ramp(keys - 1));
    for (int d : {64, 96, 128, 192, 200}) check_ramp<Exec, bf16_t>(ramp, d, false);
    check_ramp<Exec, bf16_t>(ramp, 64, true);
    check_ramp<Exec, fp16_t>(ramp, 128, true);
    check_ramp<Exec, float>(ramp, 40, false);
  }
}
TEST_CASE_TEMPLATE_APPLY(rise_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention hides keys with larger scores than all others", Exec, hidden_id) {
  AttentionShape const z{1, 1, 1, 300, 300, 64, 64};
  Operands<Exec, bf16_t> x(z);
  for (std::size_t i = 0; i < x.q.size(); i += 64) x.q[i] = bf16_t(8.0f);
  for (int j = 0; j < 300; ++j) x.k[std::size_t(j) * 64] = bf16_t(static_cast<float>(j));  // the hidden ones
  fill(x.qv, x.q);
  fill(x.kv, x.k);
  x.attend({.causal = true});
  x.check(seen_by(z, true), unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(hidden_id, Spaces);
