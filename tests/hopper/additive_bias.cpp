// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/scores.hpp"

using namespace tessera;
using namespace tessera::test;
using Exec = Kokkos::Cuda;

TEST_CASE("the hopper pipeline adds a bias from a View, by pairs where rows of it are aligned") {
  for (AttentionShape z : scored_shapes)
    for (int heads : {1, z.heads})
      for (int queries : {1, z.queries}) {
        CAPTURE(heads);
        CAPTURE(queries);
        auto const bias_h = uniform<bf16_t>(std::size_t(heads) * queries * z.keys, 9, -2, 2);
        ViewOf<Exec, bf16_t****> const bias("bias", 1, heads, queries, z.keys);
        fill(bias, bias_h);
        check_score_on_hopper(z, score::additive_bias(bias), [&](double s, int, int h, int i, int j) {
          std::size_t const row = std::size_t(heads == 1 ? 0 : h) * queries + (queries == 1 ? 0 : i);
          return s + to_double(bias_h[row * z.keys + j]);
        });
      }
}

namespace {

/// By tiles: every pair has its bias in rows that the copy engine can read.
template <class Bias>
void check_tiles(AttentionShape z, int batches, int heads, AttentionOptions const& options) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(batches);
  CAPTURE(heads);
  HopperAttention const x(z);
  auto const bias_h = uniform<Bias>(std::size_t(batches) * heads * z.queries * z.keys, 9, -2, 2);
  ViewOf<Exec, Bias****> const bias("bias", batches, heads, z.queries, z.keys);
  fill(bias, bias_h);
  check_score_of(x, options, score::additive_bias(bias), [&](double s, int b, int h, int i, int j) {
    std::size_t const plane = std::size_t(batches == 1 ? 0 : b) * heads + (heads == 1 ? 0 : h);
    return s + to_double(bias_h[(plane * z.queries + i) * z.keys + j]);
  });
}

}  // namespace

TEST_CASE("the hopper pipeline adds tiles of biases of each type, for each batch entry and head or for all") {
  for (bool causal : {false, true}) {
    check_tiles<bf16_t>({2, 4, 2, 200, 328, 64, 64}, 2, 4, {.causal = causal});
    check_tiles<fp16_t>({2, 2, 2, 200, 328, 128, 128}, 2, 1, {.causal = causal});
    check_tiles<fp16_t>({2, 2, 1, 130, 400, 128, 72}, 1, 2, {.causal = causal});
    check_tiles<bf16_t>({1, 2, 1, 264, 264, 96, 96}, 1, 1, {.causal = causal});
  }
  check_tiles<bf16_t>({1, 1, 1, 140, 1024, 64, 64}, 1, 1, {.splits = 3});
  check_tiles<bf16_t>({1, 1, 1, 140, 1024, 128, 128}, 1, 1, {.splits = 3});
}

TEST_CASE("tiles of biases go with windows") {
  AttentionShape const z{1, 2, 1, 200, 400, 128, 128};
  HopperAttention const x(z);
  auto const bias_h = uniform<bf16_t>(std::size_t(z.heads) * z.queries * z.keys, 9, -2, 2);
  ViewOf<Exec, bf16_t****> const bias("bias", 1, z.heads, z.queries, z.keys);
  fill(bias, bias_h);
  x.run({.causal = true, .window_left = 70}, score::additive_bias(bias));
  auto const r = attention_reference(
      z, x.qh, x.kh, x.vh, 1 / std::sqrt(double(z.d)),
      [&](int, int i, int j) { return j <= i + z.keys - z.queries && j >= i + z.keys - z.queries - 70; },
      [&](double s, int, int h, int i, int j) {
        return s + to_double(bias_h[(std::size_t(h) * z.queries + i) * z.keys + j]);
      },
      8 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
  check_attention(r, values(x.o));
  check_lse(r, values(x.lse));
}
