// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP
#define TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP

#include <cstdint>

#include <tessera/normalization_backward.hpp>

namespace tessera::detail {

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
