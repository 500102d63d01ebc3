// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_KEY_TILES_HPP
#define TESSERA_ATTENTION_BACKWARD_KEY_TILES_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_bounds.hpp>
#include <tessera/attention/backward_scores.hpp>
#include <tessera/attention/backward_shape.hpp>
#include <tessera/attention/backward_stages.hpp>
#include <tessera/attention/backward_tail.hpp>
#include <tessera/attention/plane_order.hpp>

namespace tessera::detail {

/// What the pass over the keys works on: its operands, which tiles of keys there are and who has them, and what is
/// copied for each step. A tile is BN keys of one head of K and V, its steps go over the queries that see them, BM at a
/// time, of one head that shares them after the other.
template <class Atoms, class Score, class Mask, bool Packed>
struct AttentionKeyTiles {
  using Functors = BackwardFunctors<Score, Mask>;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  static constexpr bool packed = Packed, adds_queries = Atoms::adds, ahead = Atoms::depth > 1;
  static constexpr bool in_place = requires { requires Atoms::adds_in_place; };
  static constexpr bool of_keys = !Atoms::values_alone, of_values = !Atoms::keys_alone;
  /// Which queries see a tile has been found before, where that is a search.
  static constexpr bool bounded_before = BoundsQueries<Mask> && !in_place && !Packed;
  using Compute = typename Atoms::Compute;
  using Shape = BackwardShape<Compute>;
  static constexpr bool by_pairs = Functors::template by_pairs<Compute>;
  static constexpr bool scaled = requires { requires Atoms::scales_heads; };
  static constexpr bool tabled = requires { requires Atoms::factors_in_memory; };
  static_assert(!tabled || (scaled && !by_pairs && !Functors::changes && !Functors::drops));
  static constexpr bool stores_scores = requires { requires Atoms::stores_scores; };
  /// The last tiles may be shared by several teams each, whose parts of sums are added to memory or, where no sum
  /// depends on who comes first, written there side by side.
  static constexpr bool shares = sums_in_order<Atoms> && !in_place && !Packed && !scaled && !stores_scores &&
                                 std::is_same_v<Mask, mask::All> &&
                                 (!adds_queries || std::is_same_v<Score, score::Identity>);
  static constexpr bool parts_apart = shares && !adds_queries;
  struct Tile : BackwardSequence<Packed>, TilePart<in_place || parts_apart>, TileBegin<shares> {
    int head;               // of K and V
    int key, keys;          // first one, and how many count
    int first = 0, a_head;  // tiles of queries that see some: the first, and how many a head has
    int steps = 0;
  };
  template <int R, int C>
  using KeyTile =
      std::conditional_t<adds_queries, typename Atoms::template LeftEither<R, C>, typename Atoms::template Left<R, C>>;
  struct NoTile {};
  using ValueTile = std::conditional_t<of_keys, typename Atoms::template Left<BN, D>, NoTile>;
  struct KeyStage {
    KeyTile<BN, D> k;  // (BN,D)
    ValueTile v;       // (BN,D)
    static constexpr int depth = 1, bytes = sizeof(k) + (of_keys ? sizeof(v) : 0);
  };
  /// Numbers of queries come with their rows: of keys alone, for which there is room once, LSE with dO.
  static constexpr int staged_numbers = Atoms::rows_in_memory ? 0 : BM,
                       lse_with_outputs = of_values ? 0 : staged_numbers;
  using QueryNumbers = StagedNumbers<Compute, staged_numbers - lse_with_outputs>;
  using OutputNumbers = StagedNumbers<Compute, staged_numbers + lse_with_outputs>;
  struct QueryStage : QueryNumbers {                // LSE
    typename Atoms::template RightEither<BM, D> q;  // (BM,D)
    static constexpr int depth = Atoms::depth, bytes = sizeof(q) + QueryNumbers::bytes;
  };
  struct OutputStage : OutputNumbers {                // delta and, of keys alone, LSE behind it
    typename Atoms::template RightEither<BM, D> d_o;  // (BM,D)
    static constexpr int depth = Atoms::output_depth, bytes = sizeof(d_o) + OutputNumbers::bytes;
  };
  using Scores = typename Atoms::template Accumulator<BN, BM>;    // (BN,BM)
  using Gradients = typename Atoms::template Accumulator<BN, D>;  // (BN,D)
  using Weights = typename Atoms::template Rounded<BN, BM>;       // (BN,BM)
  using Drops = DropsTile<true>;
  using Kept = std::conditional_t<Functors::drops, typename Atoms::template Flags<BN, BM, Drops>, NoFlags>;
  using QuerySums = typename SharedSumsOf<Atoms, BM, D>::Type;  // (BM,D)
  using Inputs = Streams<KeyStage, QueryStage, OutputStage>;
  using Held = Fragments<Scores, Scores, Gradients, Gradients, Weights, Weights>;

  typename Atoms::Source q, k, v, d_o;
  typename Atoms::Target dk, dv;
  Compute* dq;  // sums of (plane, tile of BM queries), in the atoms' order; used with adds_queries
  BackwardRows<Compute> rows;
  Shape shape;
  Functors functors;
  Compute kept_factor;  // that dropout keeps weights with
  BackwardSplit split;  // where sums are formed in place
  [[no_unique_address]] std::conditional_t<stores_scores, ScoreGradients, NoScoreGradients> d_scores;
  PlaneOrder order;
  BackwardTail tail;
  struct NoBounds {};
  [[no_unique_address]] std::conditional_t<bounded_before, mask::Queries const*, NoBounds> bounds{};  // (plane, tile)
  Compute* key_sums = nullptr;  // of shared tiles or their parts, dK of all and then dV, in the atoms' order

  AttentionKeyTiles(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, Compute* dq_sums,
                    Score const& score = {}, Mask const& mask = {}, BackwardSplit const& keys_split = {1, BN})
      : q(source_beside<Atoms, typename Atoms::template RightEither<BM, D>>(p.forward.q, p.d_o.type)),
        k(source_beside<Atoms, KeyTile<BN, D>>(p.forward.k, p.d_o.type)),
        v(source_beside<Atoms, typename Atoms::template Left<BN, D>>(p.forward.v, p.d_o.type)),
        d_o(source_beside<Atoms, typename Atoms::template RightEither<BM, D>>(p.d_o, p.forward.q.type)),
        dk(Atoms::template target<Gradients>(p.dk)),
        dv(Atoms::template target<Gradients>(p.dv)),
        dq(dq_sums),
        rows(r),
        shape(p.forward),
        functors(score, mask, p.forward.dropout),
        kept_factor(static_cast<Compute>(p.forward.dropout.factor)),
        split(keys_split),
        d_scores(p.d_bias),
        order(std::int64_t(shape.batches) * kv_heads(), key_tiles(), shape.grows),
        tail(planes() * key_tiles(), 0, 1) {}

  KOKKOS_FUNCTION int kv_heads() const { return shape.heads / shape.heads_per_kv; }
  KOKKOS_FORCEINLINE_FUNCTION int tile_keys() const {
    if constexpr (in_place)
      return split.tile_keys;
    else
      return BN;
  }
  KOKKOS_FUNCTION int key_tiles() const {
    return Packed ? shape.key_tiles(tile_keys()) : (shape.keys + tile_keys() - 1) / tile_keys();
  }
  KOKKOS_FUNCTION std::int64_t tiles() const {
    if constexpr (in_place) return planes() * split.parts * tiles_a_part();
    return tail.whole + tail.shared * tail.parts.by;
  }
  KOKKOS_FUNCTION std::int64_t planes() const { return std::int64_t(shape.batches) * kv_heads(); }
  /// The machine hands tiles out. Those of a head share its queries and what arrives for them, and add to sums.
  std::int64_t teams(int) const { return tiles(); }
  void order_for_a_team_each() {
    std::int64_t const row =
        (sizeof(QueryStage::q) + sizeof(OutputStage::d_o)) / BM + adds_queries * D * sizeof(Compute);
    order.for_a_team_each(row * shape.queries * shape.heads_per_kv);
  }
  KOKKOS_FUNCTION int tiles_a_part() const { return (key_tiles() + split.parts - 1) / split.parts; }
  /// The last tiles are shared, with their sums there.
  void share(BackwardTail const& the_last, Compute* sums) requires shares {
    tail = the_last;
    key_sums = sums;
  }
  int tiles_a_team() const requires in_place { return tiles_a_part() > 0 ? tiles_a_part() : 1; }

  KOKKOS_FUNCTION Tile tile(int t) const {
    Tile tile{};
    int part = -1;
    if constexpr (shares)
      if (t >= tail.whole) t = take_part(t, part);
    if constexpr (parts_apart) tile.part = part;
    PlaneOrder::Place place;
    if constexpr (in_place)
      place = place_in_part(t, tile.part);
    else
      place = order(t);
    int const batch = place.plane / kv_heads();
    tile.head = place.plane - batch * kv_heads();
    int const key = shape.find_by_keys(tile, batch, place.row, tile_keys());
    tile.key = key;
    tile.keys = shape.counted_keys(tile);
    if (key >= tile.keys) return tile;
    mask::Queries some;
    if constexpr (bounded_before)
      some = bounds[std::int64_t(place.plane) * key_tiles() + place.row];
    else
      some = queries_that_see(shape, functors, tile, tile.head, tile.keys, key, key + tile_keys());
    tile.first = some.begin / BM;
    tile.a_head = some.end > some.begin ? (some.end + BM - 1) / BM - tile.first : 0;
    tile.steps = tile.a_head * shape.heads_per_kv;
    if constexpr (shares) {
      if (part >= 0) {
        tile.begin = tile.steps * part / tail.parts;
        tile.steps = tile.steps * (part + 1) / tail.parts - tile.begin;
      }
      if (tile.steps > 0) {
        tile.first_head = static_cast<int>(query_plane(tile, 0).inner);
        tile.first_query = query(tile, 0);
      }
    }
    return tile;
  }
  KOKKOS_FORCEINLINE_FUNCTION Plane key_plane(Tile const& t) const { return {shape.key_plane(t), t.head}; }
  /// Step j: which query head, and the first query.
  KOKKOS_FORCEINLINE_FUNCTION Plane query_plane(Tile const& t, int j) const {
    if constexpr (shares) j += t.begin;
    return {shape.query_plane(t), t.head * shape.heads_per_kv + (shape.heads_per_kv > 1 ? j / t.a_head : 0)};
  }
  KOKKOS_FORCEINLINE_FUNCTION int query(Tile const& t, int j) const {
    if constexpr (shares) j += t.begin;
    return (t.first + (shape.heads_per_kv > 1 ? j % t.a_head : j)) * BM;
  }

  /// Where a step is, for who goes from one to the next: which query head, and the first query.
  struct Place {
    int head, query;
  };
  KOKKOS_FORCEINLINE_FUNCTION Place place(Tile const& t, int j) const {
    return {static_cast<int>(query_plane(t, j).inner), query(t, j)};
  }
  KOKKOS_FORCEINLINE_FUNCTION Place place_after(Place const& at, Tile const& t) const {
    bool const more = at.query + BM < (t.first + t.a_head) * BM;
    return {at.head + (more ? 0 : 1), more ? at.query + BM : t.first * BM};
  }
  KOKKOS_FORCEINLINE_FUNCTION Plane query_plane(Tile const& t, Place const& at) const {
    return {shape.query_plane(t), at.head};
  }
  KOKKOS_FORCEINLINE_FUNCTION int query(Tile const&, Place const& at) const { return at.query; }

  KOKKOS_FUNCTION int steps(KeyStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(QueryStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(OutputStage const*, Tile const& t) const { return t.steps; }
  /// Of numbers that lie with others.
  template <int First, class T, int N>
  KOKKOS_FORCEINLINE_FUNCTION static auto numbers_from(T (&v)[N]) -> T (&)[BM] {
    static_assert(First + BM <= N);
    return reinterpret_cast<T(&)[BM]>(v[First]);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KeyStage& stage, Tile const& t, int) const {
    if constexpr (in_place) {  // of the tile's own keys; weight 0 times what lies behind those that count is 0
      int const row = shape.key_row(t, t.key), end = row + tile_keys();
      copy(k, key_plane(t), row, 0, stage.k, end, shape.key_row(t, t.keys));
      copy(v, key_plane(t), row, 0, stage.v, end);
    } else {
      if constexpr (adds_queries && Atoms::clips_rows)  // weight 0 times what lies behind is 0
        copy(k, key_plane(t), shape.key_row(t, t.key), 0, stage.k, shape.key_row(t, t.keys));
      else
        copy(k, key_plane(t), shape.key_row(t, t.key), 0, stage.k);
      if constexpr (of_keys) copy(v, key_plane(t), shape.key_row(t, t.key), 0, stage.v);
    }
  }
  /// Step `at`, by its number or its place.
  template <class Copy, class At>
  KOKKOS_FUNCTION void load(Copy const& copy, QueryStage& stage, Tile const& t, At at) const {
    Plane const plane = query_plane(t, at);
    copy(q, plane, shape.query_row(t, query(t, at)), 0, stage.q);
    if constexpr (QueryNumbers::bytes > 0)
      copy.values(rows.lse + shape.at(rows, t, plane.inner, query(t, at)), stage.v);
  }
  template <class Copy, class At>
  KOKKOS_FUNCTION void load(Copy const& copy, OutputStage& stage, Tile const& t, At at) const {
    Plane const plane = query_plane(t, at);
    copy(d_o, plane, shape.query_row(t, query(t, at)), 0, stage.d_o);
    std::int64_t const first = shape.at(rows, t, plane.inner, query(t, at));
    if constexpr (staged_numbers > 0) copy.values(rows.delta + first, numbers_from<0>(stage.v));
    if constexpr (lse_with_outputs > 0) copy.values(rows.lse + first, numbers_from<BM>(stage.v));
  }

 private:
  /// The shared tile that is t's, and which part of it.
  KOKKOS_FORCEINLINE_FUNCTION int take_part(int t, int& part) const {
    int const whole = static_cast<int>(tail.whole), tile = (t - whole) / tail.parts;
    part = t - whole - tile * static_cast<int>(tail.parts);
    return whole + tile;
  }
  /// Where `parts` teams share a plane, each with so many tiles one after the other: those of a team are spread over
  /// the plane, so that teams have about as much to do. There may be one too many, behind the last.
  KOKKOS_FUNCTION PlaneOrder::Place place_in_part(int t, int& part) const {
    int const team = t / tiles_a_part(), plane = team / split.parts;
    part = team - plane * split.parts;
    return {plane, part + (t - team * tiles_a_part()) * split.parts};
  }
};

}  // namespace tessera::detail

#endif
