// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_SUMS_HPP
#define TESSERA_ATTENTION_BACKWARD_SUMS_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_shape.hpp>

namespace tessera::detail {

/// dQ from sums that teams have formed in place, a tile of BM queries of one head after the other: those of the teams
/// that shared the head's keys are added in their order.
template <class Atoms, bool Packed>
struct AttentionQuerySums {
  static constexpr int BM = Atoms::BM, D = Atoms::D;
  using Compute = typename Atoms::Compute;
  struct Tile : BackwardSequence<Packed> {
    int head, query;
  };
  using Inputs = Streams<>;
  using Held = Fragments<>;

  typename Atoms::Target dq;
  Compute const* sums;
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;
  int parts;

  AttentionQuerySums(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, Compute const* from,
                     int teams_a_head)
      : dq(Atoms::template target<typename Atoms::template Accumulator<BM, D>>(p.dq)),
        sums(from),
        rows(r),
        shape(p.forward),
        parts(teams_a_head) {}

  KOKKOS_FUNCTION int query_tiles() const { return shape.query_tiles(BM); }
  KOKKOS_FUNCTION std::int64_t tiles() const { return std::int64_t(shape.batches) * shape.heads * query_tiles(); }
  std::int64_t teams(int) const { return tiles(); }
  KOKKOS_FUNCTION Tile tile(int t) const {
    int const plane = t / query_tiles(), batch = plane / shape.heads;
    Tile tile{};
    tile.head = plane - batch * shape.heads;
    tile.query = shape.find_by_queries(tile, batch, t - plane * query_tiles(), BM);
    return tile;
  }
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t) const {
    if (t.query >= shape.queries_of(t)) return;
    std::int64_t const part_rows = std::int64_t(shape.batches) * shape.heads * rows.rows;
    Compute const factor = shape.scale * static_cast<Compute>(shape.scales.k(t.batch, t.head / shape.heads_per_kv));
    math.template store_sums<BM, D>(sums + shape.at(rows, t, t.head, t.query) * D, parts, part_rows * D, factor, dq,
                                    Plane{shape.query_plane(t), t.head}, shape.query_row(t, t.query));
  }
};

}  // namespace tessera::detail

#endif
