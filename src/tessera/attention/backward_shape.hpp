// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_SHAPE_HPP
#define TESSERA_ATTENTION_BACKWARD_SHAPE_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_problem.hpp>

// The gradients of attention by tiles, scores and weights recomputed (Dao et al. 2022, 2024). With P = exp(S − LSE),
//
//     dV = PᵀdO,   dP = dO Vᵀ,   dS = P ∘ (dP − δ),   δ = rowsum(dO ∘ O) − dLSE,   dK = scale dSᵀQ,   dQ = scale dS K
//
namespace tessera::detail {

/// What both kernels know of the problem.
template <class Compute>
struct BackwardShape {
  int batches, heads, heads_per_kv, queries, keys;
  int left, right;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  Compute scale, exponent_scale;  // from products of Q and K to scores, and to exponents of 2
  bool grows;                     // earlier keys are seen by more queries, later queries see more keys

  explicit BackwardShape(AttentionProblem const& p)
      : batches(static_cast<int>(p.q.outer)),
        heads(static_cast<int>(p.q.inner)),
        heads_per_kv(p.heads_per_kv),
        queries(static_cast<int>(p.q.rows)),
        keys(static_cast<int>(p.k.rows)),
        left(p.ranges().left),
        right(p.ranges().right),
        key_lengths(p.key_lengths),
        key_lengths_stride(p.key_lengths_stride),
        scale(static_cast<Compute>(p.scale)),
        exponent_scale(scale * Compute(1.44269504088896340736)),
        grows(p.grows()) {}

  KOKKOS_FORCEINLINE_FUNCTION BackwardSight sight(int batch) const {
    int count = keys;
    if (key_lengths != nullptr) {
      int const length = key_lengths[batch * key_lengths_stride];
      count = length < 0 ? 0 : (length < keys ? length : keys);
    }
    return sight_of(count);
  }
  /// Where so many keys count.
  KOKKOS_FORCEINLINE_FUNCTION BackwardSight sight_of(int count) const {
    return {left, right, count - queries, queries, count};
  }
};

/// Tile t of planes with `rows` tiles each: the longest first, a few planes at a time so that what their tiles share
/// stays in cache.
struct BackwardOrder {
  int plane, row;

  KOKKOS_FUNCTION BackwardOrder(int t, int planes, int rows, bool grows) : plane(t / rows), row(t - plane * rows) {
    if (!grows) return;
    constexpr int together = 4;
    int const group = t / (together * rows), in_group = t - group * together * rows;
    int const rest = planes - group * together, grouped = rest < together ? rest : together;
    row = in_group / grouped;
    plane = group * together + in_group - row * grouped;
  }
};

}  // namespace tessera::detail

#endif
