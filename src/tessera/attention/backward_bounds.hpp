// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_BOUNDS_HPP
#define TESSERA_ATTENTION_BACKWARD_BOUNDS_HPP

#include <cstdint>

#include <tessera/attention/backward_scores.hpp>
#include <tessera/attention/backward_shape.hpp>
#include <tessera/launch.hpp>

namespace tessera::detail {

/// The queries that see some of a sequence's keys [key, key_end), of which `keys` count, by ranges and by the mask.
template <class Shape, class Functors, class Sequence>
KOKKOS_FORCEINLINE_FUNCTION mask::Queries queries_that_see(Shape const& shape, Functors const& functors,
                                                           Sequence const& sequence, int kv_head, int keys, int key,
                                                           int key_end) {
  BackwardSight const sight = shape.sight_of(sequence, keys);
  mask::Queries some{sight.first_query(key), sight.query_end(key_end)};
  functors.bound_queries(sequence.batch, kv_head * shape.heads_per_kv, shape.heads_per_kv, key,
                         key_end < keys ? key_end : keys, some.begin, some.end);
  return some;
}

/// The same of all tiles of keys, before the kernel that needs them, whose teams would each wait for the memory that a
/// mask searches: over documents of 512 to 4096 tokens 6 % of their time on an H200.
template <class Shape, class Functors>
struct BoundQueries {
  Shape shape;
  Functors functors;
  int tile_keys, tiles;  // of a plane
  mask::Queries* to;     // (batch, head of K and V, tile)

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    int const kv_heads = shape.heads / shape.heads_per_kv;
    auto const plane = static_cast<int>(index / tiles);
    int const key = static_cast<int>(index - std::int64_t(plane) * tiles) * tile_keys, batch = plane / kv_heads;
    BackwardSequence<false> const sequence{batch};
    int const keys = shape.counted_keys(sequence);
    to[index] = key < keys
                    ? queries_that_see(shape, functors, sequence, plane - batch * kv_heads, keys, key, key + tile_keys)
                    : mask::Queries{0, 0};
  }
};

/// Of a tile, at least.
inline constexpr int fewest_bounded_keys = 32;
/// How many of them the workspace has room for.
template <class Exec, class Mask>
std::int64_t bounded_tiles(AttentionBackwardProblem const& p) {
  if (Machine<Exec>::lanes == 1 || !BoundsQueries<Mask> || p.packed()) return 0;
  return p.key_planes() * ((p.forward.k.rows + fewest_bounded_keys - 1) / fewest_bounded_keys);
}

/// Finds them for a kernel that asks for them.
template <class Exec, class Kernel>
void bound_queries(Exec const& exec, Kernel& kernel, mask::Queries* to) {
  if constexpr (Kernel::bounded_before) {
    static_assert(Kernel::BN >= fewest_bounded_keys);
    kernel.bounds = to;
    BoundQueries<typename Kernel::Shape, typename Kernel::Functors> const bound{kernel.shape, kernel.functors,
                                                                                Kernel::BN, kernel.key_tiles(), to};
    for_each_index("tessera::attention_backward bounds", exec, kernel.planes() * kernel.key_tiles(), bound);
  }
}

}  // namespace tessera::detail

#endif
