// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

AttentionBackwardOptions forced(bool causal, std::optional<std::int64_t> left = {}) {
  AttentionBackwardOptions o = hopper_backward(causal);
  o.forward.window_left = left;
  return o;
}

}  // namespace

TEST_CASE("teams share the last tiles of keys of the hopper pipeline") {
  // Of few keys and many queries: tiles that two and four teams share, with and without heads that share keys.
  for (bool with_d_lse : {false, true}) {
    check_backward<Exec, bf16_t>({1, 1, 1, 1100, 300, 128, 128}, forced(false), with_d_lse);
    check_backward<Exec, bf16_t>({2, 1, 1, 2100, 150, 128, 112}, forced(false), with_d_lse);
    check_backward<Exec, bf16_t>({1, 4, 2, 700, 200, 64, 64}, forced(false), with_d_lse);
    check_backward<Exec, fp16_t>({1, 3, 1, 400, 129, 128, 128}, forced(false), with_d_lse);
    check_backward<Exec, bf16_t, float>({1, 2, 2, 1030, 257, 64, 40}, forced(false), with_d_lse);
  }
  for (auto const& o : {forced(true), forced(false, 250), forced(true, 250)}) {
    check_backward<Exec, bf16_t>({1, 1, 1, 1100, 1300, 128, 128}, o);
    check_backward<Exec, bf16_t>({1, 4, 1, 700, 600, 64, 64}, o, true);
  }
  BackwardOperands<Exec, bf16_t> const few({1, 1, 1, 1100, 300, 128, 128}, everything);
  auto const bytes = [&](bool deterministic) {
    return attention_backward_workspace_size(Exec{}, few.dq, few.dk, few.dv, few.x.qv, few.x.kv, few.x.vv, few.x.ov,
                                             few.x.lse, few.dov, hopper_backward(false, deterministic));
  };
  std::size_t const dq_sums = 1152 * 128 * sizeof(float), key_sums = 3 * 2 * 128 * 128 * sizeof(float);
  CHECK(bytes(true) + dq_sums == bytes(false) + key_sums);  // of two parts, each in a place of its own
}

TEST_CASE("teams share tiles of keys where sums are formed in one order") {
  auto const check = [](AttentionShape const& z, AttentionBackwardOptions o, bool with_d_lse = false) {
    o.deterministic = true;
    check_backward<Exec, bf16_t>(z, o, with_d_lse);
  };
  check({1, 1, 1, 1100, 300, 128, 128}, forced(false));
  check({2, 1, 1, 1030, 150, 256, 200}, forced(false), true);
  check({1, 4, 2, 700, 200, 64, 64}, forced(false));
  check({1, 6, 1, 300, 129, 256, 256}, forced(false));
  for (auto const& o : {forced(true), forced(false, 250), forced(true, 250)}) {
    check({1, 1, 1, 1100, 700, 256, 256}, o);
    check({1, 4, 1, 400, 600, 128, 64}, o, true);
  }
  AttentionBackwardOptions o = forced(false);
  o.deterministic = true;
  check_backward<Exec, fp16_t, float>({1, 6, 1, 300, 129, 256, 64}, o);
}

TEST_CASE("the hopper pipeline forms gradients of attention") {
  for (bool causal : {false, true}) {
    check_backward<Exec, bf16_t>({1, 1, 1, 64, 128, 128, 128}, forced(causal));
    check_backward<Exec, bf16_t>({1, 2, 2, 128, 128, 64, 64}, forced(causal));
    check_backward<Exec, bf16_t>({2, 4, 2, 300, 333, 128, 128}, forced(causal), true);
    check_backward<Exec, bf16_t>({1, 6, 1, 130, 257, 64, 64}, forced(causal));
    check_backward<Exec, fp16_t>({1, 2, 1, 257, 129, 96, 112}, forced(causal));
    check_backward<Exec, fp16_t>({1, 2, 2, 77, 500, 40, 64}, forced(causal), true);
    check_backward<Exec, bf16_t, float>({1, 2, 2, 190, 70, 128, 72}, forced(causal));
  }
}

TEST_CASE("the hopper pipeline forms gradients in one order") {
  for (bool causal : {false, true}) {
    AttentionBackwardOptions o = forced(causal);
    o.deterministic = true;
    check_backward<Exec, bf16_t>({1, 2, 2, 128, 128, 64, 64}, o);
    check_backward<Exec, bf16_t>({2, 4, 2, 300, 333, 128, 128}, o, true);
    check_backward<Exec, fp16_t>({1, 6, 1, 130, 257, 96, 112}, o);
    check_backward<Exec, fp16_t>({1, 2, 2, 77, 500, 40, 64}, o);
  }
}

TEST_CASE("the hopper pipeline forms gradients of many features") {
  for (bool causal : {false, true}) {
    check_backward<Exec, bf16_t>({1, 1, 1, 64, 128, 256, 256}, forced(causal));
    check_backward<Exec, bf16_t>({2, 4, 2, 300, 333, 256, 256}, forced(causal), true);
    check_backward<Exec, fp16_t>({1, 2, 1, 190, 70, 136, 200}, forced(causal));
    check_backward<Exec, bf16_t, float>({1, 2, 2, 77, 130, 256, 64}, forced(causal));
  }
}

TEST_CASE("gradients of many features that the hopper pipeline cannot store are formed elsewhere") {
  AttentionShape const z{1, 2, 1, 77, 130, 256, 256};
  check_backward<Exec, bf16_t, fp16_t>(z, {});
  BackwardOperands<Exec, bf16_t, fp16_t> x(z, [](int, int, int) { return true; });
  CHECK_THROWS_WITH_AS(x.run(forced(false)), doctest::Contains("as Q's type or fp32"), Error);
}

TEST_CASE("the hopper pipeline repeats gradients in one order bit by bit") {
  for (int d : {64, 128, 256}) {
    CAPTURE(d);
    BackwardOperands<Exec, bf16_t, float> x({2, 2, 1, 1100, 900, d, d}, [](int, int, int) { return true; });
    AttentionBackwardOptions o = forced(false);
    o.deterministic = true;
    x.check_repeats(o);
  }
}

TEST_CASE("the hopper pipeline forms gradients of windows") {
  for (int left : {0, 100})
    for (bool causal : {false, true})
      for (bool deterministic : {false, true}) {
        AttentionBackwardOptions o = forced(causal, left);
        o.deterministic = deterministic;
        check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 64, 64}, o);
        check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 128, 128}, o);
      }
}

TEST_CASE("the hopper pipeline leaves keys behind a length without gradient, whatever they are") {
  auto const check = [](int d, bool deterministic, int queries = 150) {
    std::vector<int> const lengths{70, 0, 129, 200};
    AttentionShape const z{4, 2, 1, queries, 200, d, 128};
    ViewOf<Exec, int*> lengths_view("lengths", lengths.size());
    fill(lengths_view, lengths);
    BackwardOperands<Exec, bf16_t> x(z, [&](int b, int i, int j) {
      return j < lengths[std::size_t(b)] && j <= i + lengths[std::size_t(b)] - z.queries;
    });
    auto k = x.x.k, v = x.x.v;
    for (int b = 0; b < z.batch; ++b)
      for (int j = lengths[std::size_t(b)]; j < z.keys; ++j) {
        for (int c = 0; c < z.d; ++c) k[(std::size_t(b) * z.keys + j) * z.d + c] = bf16_t(NAN);
        for (int c = 0; c < z.d_v; ++c) v[(std::size_t(b) * z.keys + j) * z.d_v + c] = bf16_t(INFINITY);
      }
    fill(x.x.kv, k);
    fill(x.x.vv, v);
    AttentionBackwardOptions o = forced(true);
    o.deterministic = deterministic;
    o.forward.key_lengths = lengths_view;
    x.run(o);
    x.check();
  };
  check(64, false);
  check(64, true);
  check(256, true);
  check(128, true, 600);  // whose tiles teams share
  check(256, true, 600);
}
