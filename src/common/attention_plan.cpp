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
  char text[200];
  std::snprintf(text, sizeof(text), "%s %d queries x %d keys, d %d, %d threads, %zu KB scratch, %lld tiles",
                name(plan.algorithm), plan.tile_queries, plan.tile_keys, plan.tile_features, plan.team_threads,
                plan.scratch_bytes / 1024, static_cast<long long>(plan.tiles));
  std::string all = text;
  if (plan.splits > 1) {
    std::snprintf(text, sizeof(text), ", %d splits, %zu bytes of workspace", plan.splits, plan.workspace_bytes);
    all += text;
  }
  all += std::string(": ") + plan.reason;
  if (plan.splits < plan.splits_wanted) {
    std::snprintf(text, sizeof(text), "; a workspace of %zu bytes (attention_workspace_size) would allow %d splits",
                  plan.workspace_wanted, plan.splits_wanted);
    all += text;
  }
  return all;
}

}  // namespace tessera
