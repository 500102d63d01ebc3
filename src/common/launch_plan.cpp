// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/launch_plan.hpp>

namespace tessera {

std::string to_string(LaunchPlan const& plan) {
  std::string text;
  for (KernelLaunch const& kernel : plan.kernels) {
    if (!text.empty()) text += '\n';
    text += kernel.label + ": ";
    if (!kernel.scheme.empty()) text += kernel.scheme + ", ";
    if (kernel.teams == 0) {
      text += std::to_string(kernel.indices) + " indices";
      continue;
    }
    text += std::to_string(kernel.teams) + (kernel.teams == 1 ? " team of " : " teams of ") +
            std::to_string(kernel.team_threads) + (kernel.team_threads == 1 ? " thread" : " threads");
    if (kernel.together > 1) text += ", " + std::to_string(kernel.together) + " at a time";
    if (kernel.scratch_bytes > 0) text += ", " + std::to_string((kernel.scratch_bytes + 1023) / 1024) + " KB scratch";
  }
  return text;
}

}  // namespace tessera
