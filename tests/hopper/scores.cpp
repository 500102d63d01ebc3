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

TEST_CASE("the hopper pipeline adds biases by distance") {
  for (AttentionShape z : scored_shapes)
    for (int most : {20, 1000}) check_relative(z, most);
  check_relative(long_scored_shape, 100);
}

TEST_CASE("the hopper pipeline adds large biases to far keys, or hides them") {
  for (AttentionShape z : {scored_shapes[0], long_scored_shape})
    for (float furthest : {-HUGE_VALF, 1e6f}) check_relative(z, 20, furthest);
}
