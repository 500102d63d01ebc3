// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MASK_HPP
#define TESSERA_MASK_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

/// Masks of attention beyond those of AttentionOptions. A mask is trivially copyable,
///
///     KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const;
///
/// true where query i of batch b and query head h sees key j. It may be asked about any query and key there is, also
/// those that the options hide. So that not every pair is asked, it may also have some of
///
///     KOKKOS_FUNCTION mask::Tile tile(int b, int h, int i_begin, int i_end, int j_begin, int j_end) const;
///     KOKKOS_FUNCTION mask::Keys keys(int b, int h, int i_begin, int i_end) const;
///     KOKKOS_FUNCTION mask::Queries queries(int b, int h, int j_begin, int j_end) const;
///
/// the first telling what a rectangle of queries and keys has, the second which keys some of these queries may see, the
/// third, for gradients, which queries may see some of these keys: others are not read. Rectangles are not empty and
/// lie within the queries and keys. For masks without the first two, and where these take long, attention() has a table
/// (mask_table.hpp) that tells the same.
namespace tessera::mask {

/// Hides nothing, at no cost.
struct All {};

/// What a mask leaves of a rectangle of queries and keys.
enum class Tile : std::uint8_t {
  none,     ///< every key is hidden to every query
  partial,  ///< some are, or may be
  full,     ///< none is
};

/// Keys [begin, end); none where end <= begin.
struct Keys {
  int begin, end;
};

/// Queries [begin, end); none where end <= begin.
struct Queries {
  int begin, end;
};

/// Tokens of different documents do not see each other. Ids (batch, token), in any order; a batch of 1 serves all.
template <class V>
struct Documents {
  V query_ids, key_ids;

  KOKKOS_FUNCTION bool operator()(int b, int, int i, int j) const { return of_query(b, i) == of_key(b, j); }
  KOKKOS_FUNCTION int of_query(int b, int i) const { return query_ids(query_ids.extent(0) == 1 ? 0 : b, i); }
  KOKKOS_FUNCTION int of_key(int b, int j) const { return key_ids(key_ids.extent(0) == 1 ? 0 : b, j); }
};
template <class V>
Documents<V> documents(V const& query_ids, V const& key_ids) {
  static_assert(V::rank() == 2, "ids of documents are a View of rank 2: batch, token");
  return {query_ids, key_ids};
}
template <class V>
Documents<V> documents(V const& ids) {
  return documents(ids, ids);
}

/// The same where ids never decrease along a sequence: the tokens of a document lie side by side, and are found by a
/// search. Ids that do decrease give wrong results.
template <class V>
struct ConsecutiveDocuments : Documents<V> {
  KOKKOS_FUNCTION Tile tile(int b, int, int i_begin, int i_end, int j_begin, int j_end) const {
    int const i_first = this->of_query(b, i_begin), i_last = this->of_query(b, i_end - 1);
    int const j_first = this->of_key(b, j_begin), j_last = this->of_key(b, j_end - 1);
    if (i_last < j_first || j_last < i_first) return Tile::none;
    return i_first == i_last && j_first == j_last && i_first == j_first ? Tile::full : Tile::partial;
  }
  KOKKOS_FUNCTION Keys keys(int b, int, int i_begin, int i_end) const {
    int const first = this->of_query(b, i_begin), last = this->of_query(b, i_end - 1);
    return tokens<Keys>(this->key_ids, b, first, last);
  }
  KOKKOS_FUNCTION Queries queries(int b, int, int j_begin, int j_end) const {
    int const first = this->of_key(b, j_begin), last = this->of_key(b, j_end - 1);
    return tokens<Queries>(this->query_ids, b, first, last);
  }

 private:
  /// Those whose ids lie in [first, last].
  template <class Range>
  KOKKOS_FUNCTION static Range tokens(V const& ids, int b, int first, int last) {
    return {tokens_while(ids, b, [=](int id) { return id < first; }),
            tokens_while(ids, b, [=](int id) { return id <= last; })};
  }
  /// So many tokens at the start have f(id). Each round reads some ids, which do not wait for each other.
  template <class F>
  KOKKOS_FUNCTION static int tokens_while(V const& ids, int b, F const& f) {
    constexpr int parts = 8;
    int const row = ids.extent(0) == 1 ? 0 : b;
    int low = 0, width = static_cast<int>(ids.extent(1));  // the answer is in [low, low + width]
    while (width > 0) {
      int const step = width / parts + 1, end = low + width;
      int found = low;
      for (int part = 1; part <= parts; ++part) {
        int const at = low + part * step;
        if (f(ids(row, (at < end ? at : end) - 1)) && at <= end) found = at;
      }
      low = found;
      width = step - 1 < end - found ? step - 1 : end - found;
    }
    return low;
  }
};
template <class V>
ConsecutiveDocuments<V> consecutive_documents(V const& query_ids, V const& key_ids) {
  return {documents(query_ids, key_ids)};
}
template <class V>
ConsecutiveDocuments<V> consecutive_documents(V const& ids) {
  return consecutive_documents(ids, ids);
}

/// A mask with what it has of each tile of queries and keys, in the numbers that mask::table() wrote.
template <class M>
struct Table {
  M mask;
  int const* numbers;  // of each row of tiles: of the tiles before a tile those that are visited, key_tiles + 1; and
                       // the visited ones, twice their index, plus 1 where every key is seen
  int tile_queries, tile_keys, batches, heads, query_tiles, key_tiles;

  KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const { return mask(b, h, i, j); }
  /// Where the numbers of a row of tiles begin.
  KOKKOS_FUNCTION std::int64_t row(int b, int h, int query_tile) const {
    std::int64_t const plane = std::int64_t(batches == 1 ? 0 : b) * heads + (heads == 1 ? 0 : h);
    return (plane * query_tiles + query_tile) * (2 * std::int64_t(key_tiles) + 1);
  }
};

}  // namespace tessera::mask

#endif
