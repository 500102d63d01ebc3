// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention_plan.hpp>

#include <cstdio>

namespace tessera {

char const* name(AttentionAlgorithm algorithm) {
  switch (algorithm) {
    case AttentionAlgorithm::automatic:
      return "automatic";
    case AttentionAlgorithm::tiled:
      return "tiled";
    case AttentionAlgorithm::tensor_core:
      return "tensor_core";
    case AttentionAlgorithm::hopper:
      return "hopper";
  }
  return "unknown";
}

std::string to_string(AttentionPlan const& plan) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "%s %d queries x %d keys, d %d, %d threads, %zu KB scratch, %lld tiles: ", name(plan.algorithm),
                plan.tile_queries, plan.tile_keys, plan.tile_features, plan.team_threads, plan.scratch_bytes / 1024,
                static_cast<long long>(plan.tiles));
  return std::string(text) + plan.reason;
}

}  // namespace tessera
