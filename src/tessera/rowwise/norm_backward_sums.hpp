// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP
#define TESSERA_ROWWISE_NORM_BACKWARD_SUMS_HPP

#include <cstdint>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/column_sums.hpp>

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

/// In place of a number of parts: a kernel has added up what its teams have left.
inline constexpr std::int64_t summed_already = -1;

/// How so many parts become the gradients.
template <class Acc>
ColumnSums<Acc> column_sums(NormBackwardProblem const& problem, NormBackwardSums<Acc> const& sums, std::int64_t parts) {
  auto const out = [](RowArray const& a) { return const_cast<void*>(a.data); };
  return {{sums.weights, sums.biases},
          {out(problem.d_weight), out(problem.d_bias)},
          {problem.d_weight.type, problem.d_bias.type},
          {problem.d_weight.stride[3], problem.d_bias.stride[3]},
          parts,
          problem.in.extent[3]};
}

}  // namespace tessera::detail

#endif
