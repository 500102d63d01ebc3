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

/// What a tile knows of its sequence. A batch entry is all rows of its planes,
template <bool Packed>
struct BackwardSequence {
  int batch;
};
/// a packed sequence the last of planes that end where it does. There may be none of those.
template <>
struct BackwardSequence<true> {
  int batch, queries, all_keys;  // which, and how many rows it has
  int query_plane, key_plane;
  int row;  // in planes of the workspace
};

/// What both kernels know of the problem.
template <class Compute>
struct BackwardShape {
  int batches, heads, heads_per_kv, queries, keys;
  int left, right;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  Compute scale, exponent_scale;  // from products of Q and K to scores, and to exponents of 2
  bool grows;                     // earlier keys are seen by more queries, later queries see more keys
  PackedSequences packed;         // of the only batch
  HeadScales scales;              // of Q, K and V, whose gradients are those of what they are times these

  explicit BackwardShape(AttentionProblem const& p)
      : batches(p.packed.count > 0 ? 1 : static_cast<int>(p.q.outer)),
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
        grows(p.grows()),
        packed(p.packed),
        scales(p.scales) {}

  /// From products of Q and K of a query head to scores, in kernels that know of scales.
  template <bool Scaled>
  KOKKOS_FORCEINLINE_FUNCTION Compute score_scale(int batch, int head) const {
    if constexpr (Scaled)
      return scale * static_cast<Compute>(scales.q(batch, head) * scales.k(batch, head / heads_per_kv));
    else
      return scale;
  }
  template <bool Scaled>
  KOKKOS_FORCEINLINE_FUNCTION Compute exponent_scale_of(int batch, int head) const {
    if constexpr (Scaled)
      return score_scale<true>(batch, head) * Compute(1.44269504088896340736);
    else
      return exponent_scale;
  }

  /// Tiles of `size` rows of keys or queries, of a plane.
  KOKKOS_FORCEINLINE_FUNCTION int key_tiles(int size) const {
    return packed.count > 0 ? static_cast<int>(packed.keys.tiles(packed.count, size)) : (keys + size - 1) / size;
  }
  KOKKOS_FORCEINLINE_FUNCTION int query_tiles(int size) const {
    return packed.count > 0 ? static_cast<int>(packed.queries.tiles(packed.count, size)) : (queries + size - 1) / size;
  }
  /// Finds the sequence of tile `tile` of rows of keys or queries. Its first row there, at or behind the last where
  /// the tile is none.
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION int find_by_keys(Sequence& s, int batch, int tile, int size) const {
    return find(s, batch, tile, size, packed.keys, [](auto const& of) { return of.all_keys; });
  }
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION int find_by_queries(Sequence& s, int batch, int tile, int size) const {
    return find(s, batch, tile, size, packed.queries, [](auto const& of) { return of.queries; });
  }

  KOKKOS_FORCEINLINE_FUNCTION int queries_of(BackwardSequence<false> const&) const { return queries; }
  KOKKOS_FORCEINLINE_FUNCTION int queries_of(BackwardSequence<true> const& s) const { return s.queries; }
  KOKKOS_FORCEINLINE_FUNCTION int all_keys_of(BackwardSequence<false> const&) const { return keys; }
  KOKKOS_FORCEINLINE_FUNCTION int all_keys_of(BackwardSequence<true> const& s) const { return s.all_keys; }
  /// Planes of the operands that have a sequence, and a row of it there.
  KOKKOS_FORCEINLINE_FUNCTION int query_plane(BackwardSequence<false> const& s) const { return s.batch; }
  KOKKOS_FORCEINLINE_FUNCTION int query_plane(BackwardSequence<true> const& s) const { return s.query_plane; }
  KOKKOS_FORCEINLINE_FUNCTION int key_plane(BackwardSequence<false> const& s) const { return s.batch; }
  KOKKOS_FORCEINLINE_FUNCTION int key_plane(BackwardSequence<true> const& s) const { return s.key_plane; }
  /// A sequence whose planes and rows are read anew, so that nobody keeps them in registers while a tile is worked on.
  KOKKOS_FORCEINLINE_FUNCTION BackwardSequence<false> again(BackwardSequence<false> const& s) const { return s; }
  KOKKOS_FORCEINLINE_FUNCTION BackwardSequence<true> again(BackwardSequence<true> s) const {
    if (packed.count > 0) take(s);
    return s;
  }
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION int query_row(Sequence const& s, int query) const {
    return queries - queries_of(s) + query;
  }
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION int key_row(Sequence const& s, int key) const {
    return keys - all_keys_of(s) + key;
  }
  /// Where a query's numbers lie in the workspace.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t at(BackwardRows<Compute> const& rows, BackwardSequence<false> const& s,
                                              std::int64_t head, int query) const {
    return rows.at(Plane{s.batch, head}, query);
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t at(BackwardRows<Compute> const& rows, BackwardSequence<true> const& s,
                                              std::int64_t head, int query) const {
    return rows.at(Plane{packed.count > 0 ? 0 : s.batch, head}, s.row + query);
  }

  /// How many keys of a sequence count.
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION int counted_keys(Sequence const& s) const {
    int const all = all_keys_of(s);
    if (key_lengths == nullptr) return all;
    int const length = key_lengths[s.batch * key_lengths_stride];
    return length < 0 ? 0 : (length < all ? length : all);
  }
  /// Where so many of them count.
  template <class Sequence>
  KOKKOS_FORCEINLINE_FUNCTION BackwardSight sight_of(Sequence const& s, int count) const {
    return {left, right, count - queries_of(s), queries_of(s), count};
  }

 private:
  template <class Rows>
  KOKKOS_FORCEINLINE_FUNCTION int find(BackwardSequence<false>& s, int batch, int tile, int size, SequenceStarts const&,
                                       Rows const&) const {
    s.batch = batch;
    return tile * size;
  }
  template <class Rows>
  KOKKOS_FORCEINLINE_FUNCTION int find(BackwardSequence<true>& s, int batch, int tile, int size,
                                       SequenceStarts const& starts, Rows const& rows) const {
    if (packed.count == 0) {
      s = {batch, queries, keys, batch, batch, 0};
      return tile * size;
    }
    s.batch = starts.of_tile(tile, size, packed.count);
    take(s);
    int const own = tile - starts.first_tile(s.batch, size);
    return own < 0 ? rows(s) : own * size;  // starts need not begin with row 0
  }
  KOKKOS_FORCEINLINE_FUNCTION void take(BackwardSequence<true>& s) const {
    s.query_plane = packed.queries(s.batch + 1);
    s.queries = s.query_plane - packed.queries(s.batch);
    s.key_plane = packed.keys(s.batch + 1);
    s.all_keys = s.key_plane - packed.keys(s.batch);
    s.row = packed.queries.first_tile(s.batch, BackwardRowPlaces::tile_rows) * BackwardRowPlaces::tile_rows;
  }
};

/// How the keys of a head are shared out where sums are formed in place: among `parts` teams, in tiles of `tile_keys`.
struct BackwardSplit {
  int parts, tile_keys;
};

}  // namespace tessera::detail

#endif
