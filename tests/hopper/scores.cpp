// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>

#include "hopper/scores.hpp"

using namespace tessera;
using namespace tessera::test;
using Exec = Kokkos::Cuda;

namespace {

void check_alibi(AttentionShape z, std::vector<float> const& slopes_h) {
  int const offset = z.keys - z.queries;
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  fill(slopes, slopes_h);
  check_score_on_hopper(z, score::alibi(slopes, offset),
                        [&](double s, int, int h, int i, int j) { return s + double(slopes_h[h]) * (j - i - offset); });
}

void check_relative(AttentionShape z, int most, float furthest = 1) {
  CAPTURE(most);
  CAPTURE(furthest);
  int const offset = z.keys - z.queries, distances = 2 * most + 1;
  auto table_h = uniform<float>(std::size_t(z.heads) * distances, 11, -3, 3);
  for (int h = 0; h < z.heads; ++h) table_h[h * distances] = table_h[(h + 1) * distances - 1] = furthest;
  ViewOf<Exec, float**> const table("table", z.heads, 2 * most + 1);
  fill(table, table_h);
  check_score_on_hopper(z, score::relative_bias(table, offset), [&](double s, int, int h, int i, int j) {
    return s + table_h[std::size_t(h) * (2 * most + 1) + std::clamp(j - i - offset, -most, most) + most];
  });
}

}  // namespace

TEST_CASE("the hopper pipeline adds linear biases") {
  for (AttentionShape z : scored_shapes) check_alibi(z, uniform<float>(z.heads, 3, 0.01, 0.5));
  check_alibi(long_scored_shape, uniform<float>(long_scored_shape.heads, 3, 0.01, 0.5));
}

/// Slopes that products cannot be counted in, and biases whose rounding would show in an exponent.
TEST_CASE("the hopper pipeline adds linear biases of any size") {
  for (AttentionShape z : {scored_shapes[0], long_scored_shape}) {
    check_alibi(z, {0, -0.3f, 1e-30f, 1e-6f});
    check_alibi(z, {-1e-20f, 60, -60, 2000});
  }
}

/// A bias that falls with the distance takes away all weight of most keys, but not of one whose products are large
/// enough: for the first head's slope still, for the second's just not, for the others' it outweighs near ones.
TEST_CASE("the hopper pipeline leaves out keys that a linear bias has taken all weight of, and no others") {
  for (int d : {64, 128, 256}) {
    AttentionShape const z{1, 4, 2, 200, 1500, d, d};
    CAPTURE(z.d);
    std::vector<float> const of_heads = {0.5f, 0.12f, 0.0625f, 0.03f};
    ViewOf<Exec, float*> const slopes("slopes", z.heads);
    fill(slopes, of_heads);
    int const offset = z.keys - z.queries;
    HopperAttention x(z);
    x.qh = uniform<bf16_t>(x.q.size(), 1, 0.5, 1.5);
    fill(x.q, x.qh);
    auto const set_key = [&](int key, float value) {
      for (int h = 0; h < z.kv_heads; ++h)
        for (int c = 0; c < d; ++c) x.kh[(std::size_t(h) * z.keys + key) * d + c] = bf16_t(value);
      fill(x.k, x.kh);
    };
    set_key(3, 90 / std::sqrt(float(d)));
    for (bool causal : {false, true})
      check_score_of(x, {.causal = causal}, score::alibi(slopes, offset), [&](double s, int, int h, int i, int j) {
        return s + double(of_heads[std::size_t(h)]) * (j - i - offset);
      });
    set_key(3, NAN);  // of a key without weight too
    x.run({.causal = true}, score::alibi(slopes, offset));
    int numbers = 0;
    for (bf16_t o : values(x.o)) numbers += !std::isnan(to_double(o));
    CHECK(numbers == 0);
  }
}

TEST_CASE("the hopper pipeline adds biases by distance") {
  for (AttentionShape z : scored_shapes)
    for (int most : {20, 1000}) check_relative(z, most);
  check_relative(long_scored_shape, 100);
}

TEST_CASE("the hopper pipeline adds large biases to far keys, or hides them") {
  for (AttentionShape z : {scored_shapes[0], long_scored_shape})
    for (float furthest : {-HUGE_VALF, 1e6f}) check_relative(z, 20, furthest);
}
