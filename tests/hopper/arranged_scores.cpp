// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/arranged_values.hpp"

using namespace tessera;
using namespace tessera::test;

// Functors of the caller's own.

TEST_CASE("scores of 8 bits are changed on the hopper pipeline") {
  auto const capped = [](double s, int, int, int, int) { return 3 * std::tanh(s / 3); };
  for (bool causal : {false, true}) {
    run_case<e4m3_t, bf16_t>({2, 4, 2, 200, 411, 128, 128}, {.causal = causal}, score::SoftCap{3.0}, capped);
    run_case<e4m3_t, bf16_t>({2, 4, 2, 200, 411, 128, 128}, {.causal = causal, .left = 99, .scale_keys = 128},
                             score::SoftCap{3.0}, capped);
  }
}
