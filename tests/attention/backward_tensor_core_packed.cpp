// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of packed sequences, and behind dropout, by the pipeline of asynchronous copies, where there is one.
#include "attention/backward_packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Some longer than a tile of keys and of queries, and ends in the middle of both.
Starts const long_queries = {0, 130, 131, 131, 387, 700}, long_keys = {2, 258, 300, 333, 461, 790};
constexpr AttentionDropout dropout{.p = 0.25, .seed = 7, .offset = 3};

AttentionBackwardOptions dropping(AttentionBackwardOptions options) {
  options.forward.dropout = dropout;
  return options;
}

template <class Exec, class T, class TG = T>
void check_dropping(AttentionShape z, AttentionBackwardOptions const& options) {
  CAPTURE(z.d);
  CAPTURE(z.keys);
  CAPTURE(options.forward.causal);
  CAPTURE(options.deterministic);
  AttentionRules rules;
  rules.kept = [](int b, int h, int i, int j) { return attention_keeps(dropout, b, h, i, j) ? 1 / 0.75 : 0; };
  BackwardOperands<Exec, T, TG> const x(z, left_by(options.forward, z), true, rules);
  x.run(dropping(options));
  x.check();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients of packed sequences on tensor cores", Exec, backward_tensor_core_packed_id) {
  for (bool deterministic : {false, true})
    for (bool causal : {false, true}) {
      if (!has_tensor_cores<Exec>() && causal != deterministic) continue;  // half, where others stand in
      auto const o = tensor_core_backward<Exec>(causal, deterministic);
      check_packed_backward<Exec, bf16_t>({1, 4, 2, 340, 400, 128, 128}, query_starts, key_starts, o, true);
      check_packed_backward<Exec, bf16_t>({1, 2, 1, 700, 800, 128, 128}, long_queries, long_keys, o);
      check_packed_backward<Exec, bf16_t>({1, 2, 2, 700, 800, 64, 64}, long_queries, long_keys, o);
      check_packed_backward<Exec, fp16_t>({1, 6, 1, 340, 400, 64, 64}, query_starts, query_starts, o);
      check_packed_backward<Exec, fp16_t, float>({1, 2, 1, 340, 400, 96, 112}, query_starts, key_starts, o);
      check_packed_backward<Exec, bf16_t, fp16_t>({1, 2, 2, 340, 400, 40, 24}, query_starts, key_starts, o);
      check_packed_backward<Exec, fp16_t>({1, 2, 1, 340, 400, 256, 192}, query_starts, key_starts, o);
      auto windowed = o;
      windowed.forward.window_left = 30;
      check_packed_backward<Exec, bf16_t>({1, 2, 1, 700, 800, 64, 128}, long_queries, long_keys, windowed);
    }
  Starts const starts = many_short_starts();
  check_packed_backward<Exec, bf16_t>({1, 4, 2, 340, 340, 64, 64}, starts, starts, tensor_core_backward<Exec>(true));
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("packed sequences know nothing of each other's gradients on tensor cores", Exec,
                          backward_tensor_core_apart_id) {
  for (int spoiled : {3, 4})
    for (int d : {64, 128})
      check_packed_apart<Exec, bf16_t>({1, 4, 2, 340, 400, d, d}, tensor_core_backward<Exec>(false), spoiled);
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_apart_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores drop what attention dropped", Exec,
                          backward_tensor_core_dropout_id) {
  for (bool deterministic : {false, true})
    for (bool causal : {false, true}) {
      if (!has_tensor_cores<Exec>() && causal != deterministic) continue;  // half, where others stand in
      auto const o = tensor_core_backward<Exec>(causal, deterministic);
      check_dropping<Exec, bf16_t>({2, 4, 2, 150, 203, 64, 64}, o);
      check_dropping<Exec, bf16_t>({1, 4, 1, 300, 333, 128, 128}, o);
      check_dropping<Exec, fp16_t>({1, 6, 1, 330, 257, 64, 40}, o);
      check_dropping<Exec, fp16_t, float>({1, 2, 2, 77, 500, 96, 128}, o);
      check_dropping<Exec, bf16_t>({1, 2, 1, 130, 203, 256, 200}, o);
    }
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_dropout_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores drop weights of packed sequences and mind their lengths", Exec,
                          backward_tensor_core_packed_dropout_id) {
  Starts const lengths = {200, 20, 0, 100, 300};
  AttentionRules rules;
  rules.kept = [&](int, int h, int i, int j) {
    auto const s = static_cast<std::size_t>(sequence_of(long_queries, i));
    bool const kept = attention_keeps(dropout, static_cast<int>(s), h, i - long_queries[s], j - long_keys[s]);
    return kept ? 1 / 0.75 : 0;
  };
  auto const check = [&]<class T>(T, int d, bool deterministic) {
    CAPTURE(d);
    CAPTURE(deterministic);
    PackedBackward<Exec, T> const x({1, 2, 1, 700, 800, d, 64}, long_queries, long_keys,
                                    dropping(tensor_core_backward<Exec>(true, deterministic)), lengths, false, rules);
    x.run();
    x.check();
  };
  for (bool deterministic : {false, true})
    for (int d : {64, 128, 256}) {
      check(bf16_t(), d, deterministic);
      check(fp16_t(), d, deterministic);
    }
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_packed_dropout_id, Spaces);
