// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm_plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <tessera/model/roofline.hpp>

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

namespace {

/// Without the reason.
std::string configuration(GemmPlan const& plan) {
  char text[256], teams[32] = "", parts[32] = "";
  if (plan.slices > 1) std::snprintf(teams, sizeof(teams), " in %d slices", plan.slices);
  if (plan.cluster_m * plan.cluster_n > 1)
    std::snprintf(teams, sizeof(teams), " in clusters of %dx%d", plan.cluster_m, plan.cluster_n);
  if (plan.splits > 1) std::snprintf(parts, sizeof(parts), ", K in %d parts", plan.splits);
  char const* const by = plan.instructions[0] != 0 ? " by " : "";
  char const* const schedule = plan.schedule == Schedule::ping_pong ? " in ping-pong"
                               : plan.schedule == Schedule::turned  ? " turned"
                               : plan.packed_factors                ? " of packed factors"
                                                                    : "";
  std::snprintf(
      text, sizeof(text), "%s %dx%dx%d%s%s%s%s%s, %d stages, %d threads, %zu KB scratch, %lld tiles (%.1f waves)",
      name(plan.algorithm), plan.tile_m, plan.tile_n, plan.tile_k, schedule, teams, by, plan.instructions, parts,
      plan.stages, plan.team_threads, plan.scratch_bytes / 1024, static_cast<long long>(plan.tiles), plan.waves());
  return text;
}

}  // namespace

std::string to_string(GemmPlan const& plan) { return configuration(plan) + ": " + plan.reason; }

std::string to_string(GemmPlan const& plan, model::DeviceModel const& device) {
  char text[48];
  std::snprintf(text, sizeof(text), ", %.3g us on ", predicted_seconds(plan, device) * 1e6);
  return configuration(plan) + text + device.name + ": " + plan.reason;
}

double predicted_seconds(GemmPlan const& plan, model::DeviceModel const& device) {
  model::Roofline const roofline = model::roofline(device, plan.arithmetic, plan.flops, plan.bytes);
  double const by_memory = plan.bytes / device.hbm_bytes_per_second;
  if (plan.clocks > 0 && device.clock_hz > 0) return std::max(plan.clocks / device.clock_hz, by_memory);
  if (plan.tiles == 0) return roofline.seconds;
  double const tail = std::ceil(plan.waves()) / plan.waves();
  return std::max(plan.flops / device.peak(plan.arithmetic) * tail, by_memory);
}

}  // namespace tessera
