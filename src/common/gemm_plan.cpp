// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm_plan.hpp>

#include <cstdio>

namespace tessera {

char const* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic:
      return "automatic";
    case Algorithm::naive:
      return "naive";
    case Algorithm::coalesced:
      return "coalesced";
    case Algorithm::tiled:
      return "tiled";
    case Algorithm::coarsened:
      return "coarsened";
    case Algorithm::tensor_core:
      return "tensor_core";
    case Algorithm::hopper:
      return "hopper";
  }
  return "unknown";
}

std::string to_string(GemmPlan const& plan) {
  char text[208], teams[24] = "";
  if (plan.slices > 1) std::snprintf(teams, sizeof(teams), " in %d slices", plan.slices);
  if (plan.multicast > 1) std::snprintf(teams, sizeof(teams), " in teams of %d", plan.multicast);
  std::snprintf(text, sizeof(text),
                "%s %dx%dx%d%s, %d stages, %d threads, %zu KB scratch, %lld tiles (%.1f waves): ", name(plan.algorithm),
                plan.tile_m, plan.tile_n, plan.tile_k, teams, plan.stages, plan.team_threads, plan.scratch_bytes / 1024,
                static_cast<long long>(plan.tiles), plan.waves());
  return std::string(text) + plan.reason;
}

}  // namespace tessera
