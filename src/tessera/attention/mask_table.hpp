// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_MASK_TABLE_HPP
#define TESSERA_ATTENTION_MASK_TABLE_HPP

#include <concepts>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/mask.hpp>

// What a mask leaves of each tile of queries and keys, and the table of it.
namespace tessera::detail {

/// A mask that says itself what it leaves of a tile.
template <class M>
concept ClassifiesTiles = requires(M const& mask) {
  { mask.tile(0, 0, 0, 1, 0, 1) } -> std::same_as<mask::Tile>;
};
/// A mask that says which keys some of a few queries may see.
template <class M>
concept BoundsKeys = requires(M const& mask) {
  { mask.keys(0, 0, 0, 1) } -> std::same_as<mask::Keys>;
};
/// A mask that says which queries may see some of a few keys.
template <class M>
concept BoundsQueries = requires(M const& mask) {
  { mask.queries(0, 0, 0, 1) } -> std::same_as<mask::Queries>;
};
template <class M>
inline constexpr bool has_table = false;
template <class M>
inline constexpr bool has_table<mask::Table<M>> = true;

/// Place `at` of a table's rows: batch, head, tile of queries.
template <class M>
struct TableRow {
  int batch, head, query_tile;
  KOKKOS_FUNCTION TableRow(mask::Table<M> const& table, std::int64_t at)
      : batch(static_cast<int>(at / table.query_tiles / table.heads)),
        head(static_cast<int>(at / table.query_tiles % table.heads)),
        query_tile(static_cast<int>(at % table.query_tiles)) {}
};

/// The places of visited tiles first hold what is known of every tile.
enum TileBits : int { sees_some = 1, hides_some = 2 };

/// One call for a tile where the mask classifies tiles, else for a row of it.
template <class M>
struct ClassifyTiles {
  static constexpr bool by_rows = !ClassifiesTiles<M>;
  mask::Table<M> table;
  int* numbers;
  int queries, keys;

  KOKKOS_FUNCTION std::int64_t calls(std::int64_t rows) const {
    return rows * table.key_tiles * (by_rows ? table.tile_queries : 1);
  }
  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    int const part = by_rows ? static_cast<int>(index % table.tile_queries) : 0;
    if (by_rows) index /= table.tile_queries;
    int const key_tile = static_cast<int>(index % table.key_tiles);
    TableRow<M> const row(table, index / table.key_tiles);
    int const i = row.query_tile * table.tile_queries + part, j = key_tile * table.tile_keys;
    int const j_end = j + table.tile_keys < keys ? j + table.tile_keys : keys;
    int* const bits = numbers + table.row(row.batch, row.head, row.query_tile) + table.key_tiles + 1 + key_tile;
    if constexpr (by_rows) {
      if (i >= queries) return;
      int found = 0;
      for (int at = j; at < j_end && found != (sees_some | hides_some); ++at)
        found |= table.mask(row.batch, row.head, i, at) ? sees_some : hides_some;
      Kokkos::atomic_or(bits, found);
    } else {
      int const i_end = i + table.tile_queries < queries ? i + table.tile_queries : queries;
      mask::Tile const left = table.mask.tile(row.batch, row.head, i, i_end, j, j_end);
      *bits = (left != mask::Tile::none ? sees_some : 0) | (left != mask::Tile::full ? hides_some : 0);
    }
  }
};

/// From what is known of the tiles of a row to those that are visited, in place: none moves behind its place.
template <class M>
struct ListTiles {
  mask::Table<M> table;
  int* numbers;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    int* const before = numbers + index * (2 * std::int64_t(table.key_tiles) + 1);
    int* const visited = before + table.key_tiles + 1;
    int count = 0;
    for (int tile = 0; tile < table.key_tiles; ++tile) {
      int const bits = visited[tile];
      before[tile] = count;
      if ((bits & sees_some) != 0) visited[count++] = 2 * tile + ((bits & hides_some) == 0 ? 1 : 0);
    }
    before[table.key_tiles] = count;
  }
};

struct ClearNumbers {
  int* numbers;
  KOKKOS_FUNCTION void operator()(std::int64_t index) const { numbers[index] = 0; }
};

template <class Exec, class M>
void fill_mask_table(Exec const& exec, mask::Table<M> const& table, int* numbers, int queries, int keys) {
  constexpr char const* label = "tessera::mask::table";
  std::int64_t const rows = std::int64_t(table.batches) * table.heads * table.query_tiles;
  ClassifyTiles<M> const classify{table, numbers, queries, keys};
  if (ClassifyTiles<M>::by_rows)
    for_each_index(label, exec, rows * (2 * std::int64_t(table.key_tiles) + 1), ClearNumbers{numbers});
  for_each_index(label, exec, classify.calls(rows), classify);
  for_each_index(label, exec, rows, ListTiles<M>{table, numbers});
}

}  // namespace tessera::detail

#endif
