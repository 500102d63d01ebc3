// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PROBLEM_HPP
#define TESSERA_ATTENTION_PROBLEM_HPP

#include <tessera/detail/matrix.hpp>

namespace tessera::detail {

/// O = softmax(scale·QKᵀ + mask)·V for every batch entry (outer) and query head (inner); K and V have a head for every
/// `heads_per_kv` query heads.
struct AttentionProblem {
  MatrixStack q, k, v, o;
  MatrixStack lse;  // (S_q, 1) a plane; no data when not wanted
  int const* key_lengths = nullptr;
  std::int64_t key_lengths_stride = 0;
  int heads_per_kv = 1;
  double scale = 1;
  bool causal = false;

  std::int64_t planes() const { return o.outer * o.inner; }
};

}  // namespace tessera::detail

#endif
