// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MASK_TABLE_HPP
#define TESSERA_MASK_TABLE_HPP

#include <climits>
#include <string>

#include <tessera/attention/mask_table.hpp>
#include <tessera/attention_plan.hpp>
#include <tessera/detail/array.hpp>
#include <tessera/mask.hpp>

namespace tessera::mask {

/// What a table is for. A mask that does not ask for the batch or the head needs one of them only.
struct TableShape {
  std::int64_t queries, keys;
  std::int64_t batches = 1, heads = 1;
};

/// So many ints make a table for attention by this plan.
inline std::int64_t table_size(AttentionPlan const& plan, TableShape const& shape) {
  auto const tiles = [](std::int64_t extent, int size) { return (extent + size - 1) / size; };
  return shape.batches * shape.heads * tiles(shape.queries, plan.tile_queries) *
         (2 * tiles(shape.keys, plan.tile_keys) + 1);
}

/// The mask with a table of what it leaves of each tile: attention() then skips tiles without a visible pair and asks
/// nothing about those that are full. Asks the mask's `tile` about each tile, or without one operator() about every
/// pair. Use it for as many calls as you like, as long as what the mask reads stays the same. Runs asynchronously on
/// `exec`.
///
/// @param plan of the attention it is for, from attention_plan() with the same operands, options, score and mask: a
///   table is for tiles of one size
/// @param storage table_size() ints, which the result refers to
/// @throws Error{extent} storage is too small, or a number does not fit; {value} storage is not contiguous
template <detail::execution_space Exec, class M, detail::view Storage>
Table<M> table(Exec const& exec, M const& mask, AttentionPlan const& plan, TableShape const& shape,
               Storage const& storage) {
  detail::require_views<Exec, Storage>();
  static_assert(Storage::rank() == 1 && std::is_same_v<typename Storage::value_type, int>,
                "mask::table: storage is a View of int of rank 1");
  std::int64_t const wanted = table_size(plan, shape);
  if (static_cast<std::int64_t>(storage.extent(0)) < wanted || shape.queries < 0 || shape.keys < 0 ||
      shape.queries > (1 << 30) || shape.keys > (1 << 30) || shape.batches > INT_MAX || shape.heads > INT_MAX)
    throw Error(ErrorCode::extent, "tessera::mask::table: " + std::to_string(shape.queries) + " queries and " +
                                       std::to_string(shape.keys) + " keys, " + std::to_string(shape.batches) + " x " +
                                       std::to_string(shape.heads) + " times, take " + std::to_string(wanted) +
                                       " ints, storage " + detail::shape(detail::array(storage)));
  detail::check_value(storage.extent(0) <= 1 || storage.stride(0) == 1, "tessera::mask::table",
                      "storage is not contiguous");
  auto const tiles = [](std::int64_t extent, int size) { return static_cast<int>((extent + size - 1) / size); };
  Table<M> const made{mask,
                      storage.data(),
                      plan.tile_queries,
                      plan.tile_keys,
                      static_cast<int>(shape.batches),
                      static_cast<int>(shape.heads),
                      tiles(shape.queries, plan.tile_queries),
                      tiles(shape.keys, plan.tile_keys)};
  detail::fill_mask_table(exec, made, storage.data(), static_cast<int>(shape.queries), static_cast<int>(shape.keys));
  return made;
}

}  // namespace tessera::mask

#endif
