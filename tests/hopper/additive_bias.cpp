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
