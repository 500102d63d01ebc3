// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/scores.hpp"

using namespace tessera;
using namespace tessera::test;
using Exec = Kokkos::Cuda;

namespace {

void check_alibi(AttentionShape z) {
  int const offset = z.keys - z.queries;
  auto const slopes_h = uniform<float>(z.heads, 3, 0.01, 0.5);
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  fill(slopes, slopes_h);
  check_score_on_hopper(z, score::alibi(slopes, offset),
                        [&](double s, int, int h, int i, int j) { return s + double(slopes_h[h]) * (j - i - offset); });
}

void check_relative(AttentionShape z, int most) {
  CAPTURE(most);
  int const offset = z.keys - z.queries;
  auto const table_h = uniform<float>(std::size_t(z.heads) * (2 * most + 1), 11, -3, 3);
  ViewOf<Exec, float**> const table("table", z.heads, 2 * most + 1);
  fill(table, table_h);
  check_score_on_hopper(z, score::relative_bias(table, offset), [&](double s, int, int h, int i, int j) {
    return s + table_h[std::size_t(h) * (2 * most + 1) + std::clamp(j - i - offset, -most, most) + most];
  });
}

}  // namespace

TEST_CASE("the hopper pipeline adds linear biases") {
  for (AttentionShape z : scored_shapes) check_alibi(z);
  check_alibi(long_scored_shape);
}

TEST_CASE("the hopper pipeline adds biases by distance") {
  for (AttentionShape z : scored_shapes)
    for (int most : {20, 1000}) check_relative(z, most);
  check_relative(long_scored_shape, 100);
}
