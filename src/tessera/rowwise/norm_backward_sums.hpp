// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP
#define TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP

#include <cstdint>

#include <tessera/normalization_backward.hpp>

namespace tessera::detail {

/// What a kernel has left in the workspace for the gradients of columns: so many parts of them, none if it was not
/// started. One part may be the gradients themselves, left where these go.
struct NormBackwardParts {
  std::int64_t count = 0;
  bool are_gradients = false;

  NormBackwardParts() = default;
  NormBackwardParts(std::int64_t parts, bool gradients = false) : count(parts), are_gradients(gradients) {}
};

/// The workspace: (parts, columns) for each gradient that is wanted.
template <class Acc>
struct NormBackwardSums {
  Acc *weights = nullptr, *biases = nullptr;
  void* behind;  // them, aligned to 16

  NormBackwardSums(NormBackwardProblem const& problem, std::int64_t parts) {
    auto* next = static_cast<Acc*>(problem.workspace);
    if (problem.d_weight.present()) {
      weights = next;
      next += parts * problem.in.extent[3];
    }
    if (problem.d_bias.present()) {
      biases = next;
      next += parts * problem.in.extent[3];
    }
    behind = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(next) + 15) / 16 * 16);
  }
};

}  // namespace tessera::detail

#endif
