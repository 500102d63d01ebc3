// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_SEQUENCES_HPP
#define TESSERA_ATTENTION_SEQUENCES_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/mask.hpp>
#include <tessera/unroll.hpp>

// Sequences of different lengths as rows of one Q and of one K and V, and which keys a query sees.
namespace tessera::detail {

using KeyRange = mask::Keys;

/// Where one sequence after the other begins among the rows of a matrix: count + 1 numbers in the memory of the
/// execution space. Whatever they are, no row outside of the matrix is named. So that nobody need count the tiles of
/// rows before those of sequence s, it has those from start(s) / tile + s on in a row of tiles: enough, and one or two
/// too many, which have no rows.
struct SequenceStarts {
  int const* data = nullptr;
  std::int64_t stride = 0;
  int rows = 0;

  KOKKOS_FUNCTION int operator()(int sequence) const {
    int const at = data[sequence * stride];
    return at < 0 ? 0 : (at < rows ? at : rows);
  }
  KOKKOS_FUNCTION int first_tile(int sequence, int tile_rows) const { return (*this)(sequence) / tile_rows + sequence; }
  KOKKOS_FUNCTION std::int64_t tiles(int count, int tile_rows) const { return std::int64_t(rows) / tile_rows + count; }
  /// The last of `count` sequences whose tiles begin at or before `tile`. Each round reads eight starts, which do not
  /// wait for each other: rounds are what a tile waits for.
  KOKKOS_FUNCTION int of_tile(int tile, int tile_rows, int count) const {
    constexpr int parts = 8;
    int low = 0, width = count;  // the sequence is in [low, low + width)
    while (width > 1) {
      int const step = (width + parts - 1) / parts, end = low + width;
      int found = low;
      TESSERA_UNROLL
      for (int part = 1; part < parts; ++part) {
        int const at = low + part * step;
        if (first_tile(at < end ? at : low, tile_rows) <= tile && at < end) found = at;
      }
      low = found;
      width = step < end - found ? step : end - found;
    }
    return low;
  }
};

/// Sequences packed one behind the other, each attended by itself. A tile of queries belongs to one of them.
struct PackedSequences {
  int count = 0;
  SequenceStarts queries, keys;
};

/// What a query sees where that need not be all keys from the first on; and, in the place of a mask functor, that there
/// is none. A kernel for mask::All is without it: its tiles have less to be found and kept.
struct Ranges {
  int left, right;   // query i sees the keys from i + keys − queries − left to i + keys − queries + right
  bool grows;        // later queries of a sequence see more
  bool team_a_tile;  // instead of persistent teams
  PackedSequences packed;

  KOKKOS_FORCEINLINE_FUNCTION KeyRange around(int query, int queries, int keys) const {
    int const rest = queries - query, own = keys - rest, begin = own - left;
    return {begin > 0 ? begin : 0, right < rest - 1 ? own + right + 1 : keys};
  }
};

}  // namespace tessera::detail

#endif
