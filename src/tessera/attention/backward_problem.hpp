// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_PROBLEM_HPP
#define TESSERA_ATTENTION_BACKWARD_PROBLEM_HPP

#include <climits>
#include <tessera/attention/problem.hpp>

namespace tessera::detail {

/// Gradients of attention, from what went in, what came out (`forward.o`, `forward.lse`) and the gradients of that.
struct AttentionBackwardProblem {
  AttentionProblem forward;
  MatrixStack d_o;         // of O
  MatrixStack d_lse;       // of LSE; no data: none
  MatrixStack dq, dk, dv;  // written
  MatrixStack d_bias;      // (S_q or 1, S_k), of all batch entries or heads where it has one plane; no data: not wanted
  float* d_sinks = nullptr;  // of each query head; none: not wanted
  std::int64_t d_sinks_stride = 0;

  bool packed() const { return forward.packed.count > 0; }
  /// Every score has an element of d_bias of its own, those of a query side by side.
  bool own_biases() const {
    return d_bias.data != nullptr && d_bias.outer == forward.q.outer && d_bias.inner == forward.q.inner &&
           d_bias.rows == forward.q.rows && d_bias.col_stride == 1 && d_bias.row_stride <= INT_MAX;
  }
  /// Batch entries; packed sequences lie in one.
  std::int64_t entries() const { return packed() ? 1 : forward.q.outer; }
  std::int64_t sequences() const { return packed() ? forward.packed.count : forward.q.outer; }
  std::int64_t query_planes() const { return entries() * forward.q.inner; }
  std::int64_t key_planes() const { return entries() * forward.k.inner; }
};

/// The rows of a matrix as the ends of planes: plane e has those before row e, as many as the matrix has rows in all,
/// the first of which nobody asks for. A sequence is then the last rows of the plane that ends where it does, and what
/// stays within a matrix, the copy engine too, stays within the sequence.
inline MatrixStack by_ends(MatrixStack m) {
  auto const before = m.rows * m.row_stride * static_cast<std::int64_t>(size_of(m.type));
  m.data = reinterpret_cast<void const*>(reinterpret_cast<std::intptr_t>(m.data) - before);
  m.outer = m.rows + 1;
  m.outer_stride = m.row_stride;
  return m;
}

/// The matrix that such planes are of.
inline MatrixStack by_rows(MatrixStack m) {
  m.data = static_cast<char const*>(m.data) + m.rows * m.row_stride * static_cast<std::int64_t>(size_of(m.type));
  m.outer = 1;
  m.outer_stride = 0;
  return m;
}

/// With packed sequences as ends of planes.
inline AttentionBackwardProblem with_sequences_by_ends(AttentionBackwardProblem p) {
  if (!p.packed()) return p;
  AttentionProblem& f = p.forward;
  for (MatrixStack* const m : {&f.q, &f.k, &f.v, &f.o, &f.lse, &p.d_o, &p.d_lse, &p.dq, &p.dk, &p.dv}) *m = by_ends(*m);
  return p;
}

/// A row of a plane of the workspace is that of the operands' matrices.
struct SameRows {
  explicit SameRows(AttentionProblem const&) {}
  KOKKOS_FORCEINLINE_FUNCTION void find(Plane&, std::int64_t&) const {}
  /// The batch entry, or the sequence.
  KOKKOS_FORCEINLINE_FUNCTION int entry(Plane plane, std::int64_t) const { return static_cast<int>(plane.outer); }
};
/// The same of packed sequences: another row, or, where none is in its place, one behind their last.
struct BackwardRowPlaces {
  static constexpr int tile_rows = 128;  // sequences begin at multiples of that, which any kernel's tile divides
  SequenceStarts queries;
  int count;  // of packed sequences

  explicit BackwardRowPlaces(AttentionProblem const& p) : queries(p.packed.queries), count(p.packed.count) {}

  /// Of so many queries in a plane of the operands, packed or not.
  std::int64_t rows(std::int64_t of_plane) const {
    return (count > 0 ? queries.tiles(count, tile_rows) : (of_plane + tile_rows - 1) / tile_rows) * tile_rows;
  }
  KOKKOS_FORCEINLINE_FUNCTION int entry(Plane plane, std::int64_t row) const {
    return count == 0 ? static_cast<int>(plane.outer)
                      : queries.of_tile(static_cast<int>(row / tile_rows), tile_rows, count);
  }
  KOKKOS_FORCEINLINE_FUNCTION void find(Plane& plane, std::int64_t& row) const {
    if (count == 0) return;
    int const sequence = entry(plane, row);
    std::int64_t const own = row - std::int64_t(queries.first_tile(sequence, tile_rows)) * tile_rows;
    int const end = queries(sequence + 1), length = end - queries(sequence);
    plane.outer = end;
    row = own < 0 ? queries.rows : queries.rows - length + own;  // starts need not begin with row 0
  }
};

/// What the products need of each query, in the workspace: rows of a whole number of tiles a plane.
template <class Compute>
struct BackwardRows {
  Compute* lse;       // times log2 e; infinite where nothing is seen, and behind the last query: weights are then 0
  Compute* delta;     // rows of dO times rows of O, minus what arrives through LSE
  std::int64_t rows;  // a plane has
  int heads;
  HeadFactors<Compute>* factors;  // of each head of a batch entry, or of a sequence; none where heads have no scales

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
