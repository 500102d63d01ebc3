// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_TILES_HPP
#define TESSERA_ATTENTION_TILES_HPP

#include <Kokkos_Core.hpp>
#include <type_traits>

#include <tessera/attention/mask_table.hpp>
#include <tessera/attention/plane_order.hpp>
#include <tessera/attention/sequences.hpp>
#include <tessera/mask.hpp>

// The scheduler of attention: which tile of queries is whose, and over which tiles of keys its steps go.
namespace tessera::detail {

/// A tile whose sequence is all rows of a plane.
struct WholeSequence {
  static constexpr int key_row = 0;
};
struct PartOfSequences {
  int queries, query_row, key_row;  // of its sequence, which is rows of Q from query_row on, of K from key_row on
};
struct ListedKeys : PartOfSequences {
  int const* visited;  // tiles of keys in the mask's table, of which `first` counts
};
template <class Mask>
struct AttentionTile
    : std::conditional_t<has_table<Mask>, ListedKeys,
                         std::conditional_t<std::is_same_v<Mask, mask::All>, WholeSequence, PartOfSequences>> {
  int batch, head, query;  // batch entry or sequence; first query
  int keys;                // that count in this sequence
  int first, steps;        // tiles of keys that some query of the tile sees, of a part of them
  int split;               // which part
};

/// Finds the tiles of an attention kernel.
template <class Kernel>
struct AttentionTiles {
  using Tile = typename Kernel::Tile;
  using Mask = typename Kernel::KeyMask;
  static constexpr int BM = Kernel::BM, BN = Kernel::BN;
  static constexpr bool ranged = Kernel::ranged, shares_tiles = Kernel::shares_tiles;

  Kernel const& kernel;

  KOKKOS_FORCEINLINE_FUNCTION Tile find(int t) const {
    int const rows = kernel.query_tiles(), in_split = kernel.batches * static_cast<int>(kernel.heads) * rows;
    int const split = kernel.splits > 1 ? t / in_split : 0;
    t -= split * in_split;
    int plane, row;
    bool const grows = ranged ? kernel.ranges.grows : kernel.causal;
    if constexpr (Kernel::scaled) {
      plane = t / rows;
      row = t - plane * rows;
      if (grows) take_longest_first(t, rows, plane, row);
    } else {
      PlaneOrder::Place const place = kernel.order(t);
      plane = place.plane;
      row = grows ? rows - 1 - place.row : place.row;
    }
    int const batch = plane / kernel.heads;
    Tile tile{{}, batch, plane - batch * static_cast<int>(kernel.heads), row * BM, kernel.keys, 0, 0, split};
    if constexpr (ranged) place(tile, row);
    if (kernel.key_lengths != nullptr) {
      int const length = kernel.key_lengths[tile.batch * kernel.key_lengths_stride];
      if (!ranged || length < tile.keys) tile.keys = length < 0 ? 0 : (length < kernel.keys ? length : kernel.keys);
    }
    int const last = tile.query + BM < kernel.queries_of(tile) ? tile.query + BM - 1 : kernel.queries_of(tile) - 1;
    int const furthest = shares_tiles && kernel.together > 0 ? kernel.together - 1 : last;
    if constexpr (ranged) {
      visit(tile, {kernel.seen(tile, tile.query).begin, kernel.seen(tile, furthest).end}, last + 1);
    } else {
      int const end = kernel.seen(tile, furthest).end;
      tile.steps = end <= 0 ? 0 : (end + BN - 1) / BN;
    }
    if (kernel.splits > 1) {  // the first of them may have a step more
      int const each = tile.steps / kernel.splits, more = tile.steps - each * kernel.splits;
      tile.first += each * split + (split < more ? split : more);
      tile.steps = each + (split < more ? 1 : 0);
    }
    return tile;
  }
  /// The order of PlaneOrder without a longer end, found in place: what is kept ready to find it by would take
  /// registers from kernels that have none left, and memory, at the end of their tiles.
  KOKKOS_FORCEINLINE_FUNCTION void take_longest_first(int t, int rows, int& plane, int& row) const {
    constexpr int together = PlaneOrder::together;
    int const group = t / (together * rows), in_group = t - group * together * rows;
    int const rest = kernel.batches * static_cast<int>(kernel.heads) - group * together,
              grouped = rest < together ? rest : together;
    int const down = in_group / grouped;
    plane = group * together + in_group - down * grouped;
    row = rows - 1 - down;
  }
  /// The tiles of keys in a range that the mask leaves something of, to queries before `end`.
  KOKKOS_FORCEINLINE_FUNCTION void visit(Tile& t, KeyRange range, int end) const {
    if constexpr (BoundsKeys<Mask>)
      if (t.query < end) {
        KeyRange const some = kernel.mask.keys(t.batch, t.head, t.query, end);
        range = {some.begin > range.begin ? some.begin : range.begin, some.end < range.end ? some.end : range.end};
      }
    t.first = range.begin / BN;
    t.steps = t.query >= end || range.end <= range.begin ? 0 : (range.end + BN - 1) / BN - t.first;
    if constexpr (has_table<Mask>) {
      int const* const before = kernel.mask.numbers + kernel.mask.row(t.batch, t.head, t.query / BM);
      t.visited = before + kernel.mask.key_tiles + 1;
      if (t.steps == 0) return;
      int const first = before[t.first];
      t.steps = before[t.first + t.steps] - first;
      t.first = first;
    } else if constexpr (ClassifiesTiles<Mask> && !BoundsKeys<Mask>) {
      while (t.steps > 0 && left_of(t, t.steps - 1) == mask::Tile::none) ++t.first, --t.steps;
      while (t.steps > 0 && left_of(t, 0) == mask::Tile::none) --t.steps;
    }
  }
  /// What the mask leaves of step j.
  KOKKOS_FORCEINLINE_FUNCTION mask::Tile left_of(Tile const& t, int j) const {
    if constexpr (has_table<Mask>) {
      return t.visited[t.first + t.steps - 1 - j] % 2 != 0 ? mask::Tile::full : mask::Tile::partial;
    } else if constexpr (ClassifiesTiles<Mask>) {
      int const i_end = t.query + BM < t.queries ? t.query + BM : t.queries, j_begin = Kernel::key(t, j);
      return kernel.mask.tile(t.batch, t.head, t.query, i_end, j_begin, j_begin + BN < t.keys ? j_begin + BN : t.keys);
    } else {
      return mask::Tile::partial;
    }
  }
  /// Finds the sequence of a tile: a batch entry, or one of those that are packed.
  KOKKOS_FORCEINLINE_FUNCTION void place(Tile& t, int row) const {
    t.queries = kernel.queries;
    t.query_row = t.key_row = 0;
    PackedSequences const& p = kernel.ranges.packed;
    if (p.count == 0) return;
    t.batch = p.queries.of_tile(row, BM, p.count);
    t.query_row = p.queries(t.batch);
    t.queries = p.queries(t.batch + 1) - t.query_row;
    t.key_row = p.keys(t.batch);
    t.keys = p.keys(t.batch + 1) - t.key_row;
    int const own_row = row - p.queries.first_tile(t.batch, BM);
    t.query = own_row < 0 ? t.queries : own_row * BM;  // starts need not begin with row 0
  }
};

}  // namespace tessera::detail

#endif
