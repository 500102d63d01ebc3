// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

/// Some longer than a tile of keys and of queries, and ends in the middle of both.
Starts const long_queries = {0, 130, 131, 131, 387, 700}, long_keys = {2, 258, 300, 333, 461, 790};

}  // namespace

TEST_CASE("the hopper pipeline forms gradients of packed sequences") {
  for (bool deterministic : {false, true})
    for (bool causal : {false, true}) {
      auto const o = hopper_backward(causal, deterministic);
      check_packed_backward<Exec, bf16_t>({1, 4, 2, 340, 400, 128, 128}, query_starts, key_starts, o, true);
      check_packed_backward<Exec, bf16_t>({1, 2, 1, 700, 800, 128, 128}, long_queries, long_keys, o);
      check_packed_backward<Exec, bf16_t>({1, 2, 2, 700, 800, 64, 64}, long_queries, long_keys, o);
      check_packed_backward<Exec, fp16_t>({1, 6, 1, 340, 400, 64, 64}, query_starts, query_starts, o);
      check_packed_backward<Exec, fp16_t, float>({1, 2, 1, 340, 400, 96, 112}, query_starts, key_starts, o);
      check_packed_backward<Exec, bf16_t, fp16_t>({1, 2, 2, 340, 400, 40, 24}, query_starts, key_starts, o);
      auto windowed = o;
      windowed.forward.window_left = 30;
      check_packed_backward<Exec, bf16_t>({1, 2, 1, 700, 800, 64, 128}, long_queries, long_keys, windowed);
    }
}

TEST_CASE("the hopper pipeline forms gradients of packed sequences of many features") {
  for (bool causal : {false, true}) {
    check_packed_backward<Exec, bf16_t>({1, 2, 1, 700, 800, 256, 256}, long_queries, long_keys, hopper_backward(causal),
                                        true);
    check_packed_backward<Exec, fp16_t>({1, 2, 2, 340, 400, 136, 200}, query_starts, key_starts,
                                        hopper_backward(causal));
    check_packed_backward<Exec, bf16_t, float>({1, 2, 2, 340, 400, 256, 64}, query_starts, key_starts,
                                               hopper_backward(causal));
  }
}

TEST_CASE("packed sequences know nothing of each other's gradients in the hopper pipeline") {
  for (int spoiled : {3, 4})
    for (int d : {64, 128, 256})
      check_packed_apart<Exec, bf16_t>({1, 4, 2, 340, 400, d, d}, hopper_backward(false), spoiled);
}

TEST_CASE("the hopper pipeline drops weights of packed sequences and minds their lengths") {
  AttentionDropout const dropout{.p = 0.25, .seed = 7, .offset = 3};
  Starts const lengths = {200, 20, 0, 100, 300};
  AttentionRules rules;
  rules.kept = [&](int, int h, int i, int j) {
    int const s = sequence_of(long_queries, i);
    return attention_keeps(dropout, s, h, i - long_queries[std::size_t(s)], j - long_keys[std::size_t(s)]) ? 1 / 0.75
                                                                                                           : 0;
  };
  for (int d : {64, 128, 256})
    for (bool deterministic : {false, true}) {
      auto o = hopper_backward(true, deterministic);
      o.forward.dropout = dropout;
      PackedBackward<Exec, bf16_t> const x({1, 2, 1, 700, 800, d, 64}, long_queries, long_keys, o, lengths, false,
                                           rules);
      x.run();
      x.check();
    }
}
