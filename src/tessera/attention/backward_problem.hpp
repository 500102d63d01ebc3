// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_PROBLEM_HPP
#define TESSERA_ATTENTION_BACKWARD_PROBLEM_HPP

#include <tessera/attention/problem.hpp>

namespace tessera::detail {

/// Gradients of attention, from what went in, what came out (`forward.o`, `forward.lse`) and the gradients of that.
struct AttentionBackwardProblem {
  AttentionProblem forward;
  MatrixStack d_o;         // of O
  MatrixStack d_lse;       // of LSE; no data: none
  MatrixStack dq, dk, dv;  // written

  std::int64_t query_planes() const { return forward.q.outer * forward.q.inner; }
  std::int64_t key_planes() const { return forward.k.outer * forward.k.inner; }
};

/// What the products need of each query, in the workspace: rows of a whole number of tiles a plane.
template <class Compute>
struct BackwardRows {
  Compute* lse;       // times log2 e; infinite where nothing is seen, and behind the last query: weights are then 0
  Compute* delta;     // rows of dO times rows of O, minus what arrives through LSE
  std::int64_t rows;  // a plane has
  int heads;

  KOKKOS_FORCEINLINE_FUNCTION std::int64_t at(Plane plane, std::int64_t row) const {
    return (plane.outer * heads + plane.inner) * rows + row;
  }
};

/// Which queries see which keys: query i those from i + offset − left to i + offset + right, of `keys`.
struct BackwardSight {
  int left, right, offset, queries, keys;
  static constexpr int nowhere = -(1 << 30);  // before every query, and no further than int can tell

  KOKKOS_FORCEINLINE_FUNCTION bool sees(int query, int key) const {
    // One comparison for both ends; keys that do not count are far away.
    int const from = key < keys ? key - offset + left : nowhere;
    return static_cast<unsigned>(from - query) <= static_cast<unsigned>(left + right);
  }
  /// Every one of the queries [i, i_end) sees every one of the keys [j, j_end).
  KOKKOS_FORCEINLINE_FUNCTION bool all_see(int i, int i_end, int j, int j_end) const {
    return j_end <= keys && j_end - 1 <= i + offset + right && j >= i_end - 1 + offset - left;
  }
  /// The queries that see one of the keys [j, j_end).
  KOKKOS_FORCEINLINE_FUNCTION int first_query(int j) const {
    int const first = j - offset - right;
    return first > 0 ? first : 0;
  }
  KOKKOS_FORCEINLINE_FUNCTION int query_end(int j_end) const {
    int const last = (j_end < keys ? j_end : keys) - 1 - offset + left;
    return last < queries - 1 ? last + 1 : queries;
  }
  /// The keys that one of the queries [i, i_end) sees.
  KOKKOS_FORCEINLINE_FUNCTION int first_key(int i) const {
    int const first = i + offset - left;
    return first > 0 ? first : 0;
  }
  KOKKOS_FORCEINLINE_FUNCTION int key_end(int i_end) const {
    int const last = (i_end < queries ? i_end : queries) - 1 + offset + right;
    return last < keys - 1 ? last + 1 : keys;
  }
};

}  // namespace tessera::detail

#endif
