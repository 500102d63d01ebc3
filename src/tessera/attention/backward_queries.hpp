// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_QUERIES_HPP
#define TESSERA_ATTENTION_BACKWARD_QUERIES_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_scores.hpp>
#include <tessera/attention/backward_shape.hpp>
#include <tessera/attention/plane_order.hpp>

namespace tessera::detail {

/// dQ: a tile is BM queries of one head, its steps go over the keys that they see, BN at a time. Sums are formed in one
/// place and order, so that no bit differs from run to run. The next step's scores are formed ahead, as in the
/// pass over the keys.
template <class Atoms, class Score = score::Identity, class Mask = mask::All, bool Packed = false>
struct AttentionQueryGradients {
  using Functors = BackwardFunctors<Score, Mask>;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  static constexpr bool ahead = Atoms::depth > 1;
  using Compute = typename Atoms::Compute;
  static constexpr bool by_pairs = Functors::template by_pairs<Compute>;
  static constexpr bool scaled = requires { requires Atoms::scales_heads; };

  using Lost = LostWeights<Compute>;
  /// Steps whose weights are all 0 are left out behind their scores.
  template <class Math>
  static constexpr bool asks_for_losses =
      Functors::template plane_alone<Compute>&& Functors::changes&& AgreesInTeams<Math>;

  struct Tile : BackwardSequence<Packed> {
    int head;
    int query, keys;   // first one, and how many keys count
    int first, steps;  // tiles of keys that some query sees
  };
  struct QueryStage {
    typename Atoms::template Left<BM, D> q;    // (BM,D)
    typename Atoms::template Left<BM, D> d_o;  // (BM,D)
    static constexpr int depth = 1;
  };
  struct KeyStage {
    typename Atoms::template RightEither<BN, D> k;  // (BN,D)
    static constexpr int depth = Atoms::depth;
  };
  struct ValueStage {
    typename Atoms::template Right<BN, D> v;  // (BN,D)
    static constexpr int depth = Atoms::value_depth;
  };
  using Scores = typename Atoms::template Accumulator<BM, BN>;    // (BM,BN)
  using Gradients = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Weights = typename Atoms::template Rounded<BM, BN>;       // (BM,BN)
  using Drops = DropsTile<false>;
  using Kept = std::conditional_t<Functors::drops, typename Atoms::template Flags<BM, BN, Drops>, NoFlags>;
  using RowValues = typename Atoms::template RowValues<BM>;
  using Inputs = Streams<QueryStage, KeyStage, ValueStage>;
  using Held = Fragments<Scores, Scores, Gradients, Weights>;

  typename Atoms::Source q, k, v, d_o;
  typename Atoms::Target dq;
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;
  Functors functors;
  Compute kept_factor;  // that dropout keeps weights with
  PlaneOrder order;

  AttentionQueryGradients(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, Score const& score = {},
                          Mask const& mask = {})
      : q(Atoms::template source<typename Atoms::template Left<BM, D>>(p.forward.q)),
        k(Atoms::template source<typename Atoms::template RightEither<BN, D>>(p.forward.k)),
        v(Atoms::template source<typename Atoms::template Right<BN, D>>(p.forward.v)),
        d_o(Atoms::template source<typename Atoms::template Left<BM, D>>(p.d_o)),
        dq(Atoms::template target<Gradients>(p.dq)),
        rows(r),
        shape(p.forward),
        functors(score, mask, p.forward.dropout),
        kept_factor(static_cast<Compute>(p.forward.dropout.factor)),
        order(std::int64_t(shape.batches) * shape.heads, query_tiles(), shape.grows) {}

  KOKKOS_FUNCTION int query_tiles() const { return Packed ? shape.query_tiles(BM) : (shape.queries + BM - 1) / BM; }
  KOKKOS_FUNCTION std::int64_t tiles() const { return std::int64_t(shape.batches) * shape.heads * query_tiles(); }
  std::int64_t teams(int) const { return tiles(); }
  /// Tiles of a head share its keys and values.
  void order_for_a_team_each() {
    std::int64_t const row = (sizeof(KeyStage) + sizeof(ValueStage)) / BN;
    order.for_a_team_each(row * shape.keys / shape.heads_per_kv);
  }

  KOKKOS_FUNCTION Tile tile(int t) const {
    PlaneOrder::Place const place = order(t);
    int const batch = place.plane / shape.heads, row = shape.grows ? query_tiles() - 1 - place.row : place.row;
    Tile tile{};
    tile.head = place.plane - batch * shape.heads;
    tile.query = shape.find_by_queries(tile, batch, row, BM);
    tile.keys = shape.counted_keys(tile);
    int const queries = shape.queries_of(tile);
    if (Packed && tile.query >= queries) return tile;
    BackwardSight const sight = shape.sight_of(tile, tile.keys);
    int begin = sight.first_key(tile.query), end = sight.key_end(tile.query + BM);
    functors.bound_keys(tile.batch, tile.head, tile.query, tile.query + BM < queries ? tile.query + BM : queries, begin,
                        end);
    tile.first = begin / BN;
    tile.steps = end > begin ? (end + BN - 1) / BN - tile.first : 0;
    return tile;
  }
  KOKKOS_FORCEINLINE_FUNCTION static int key(Tile const& t, int j) { return (t.first + j) * BN; }
  KOKKOS_FORCEINLINE_FUNCTION Plane key_plane(Tile const& t) const {
    return {shape.key_plane(t), t.head / shape.heads_per_kv};
  }
  KOKKOS_FORCEINLINE_FUNCTION Plane query_plane(Tile const& t) const { return {shape.query_plane(t), t.head}; }

  KOKKOS_FUNCTION int steps(QueryStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(KeyStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(ValueStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QueryStage& stage, Tile const& t, int) const {
    copy(q, query_plane(t), shape.query_row(t, t.query), 0, stage.q);
    copy(d_o, query_plane(t), shape.query_row(t, t.query), 0, stage.d_o);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KeyStage& stage, Tile const& t, int j) const {
    // Weight 0 times what lies behind is 0.
    copy(k, key_plane(t), shape.key_row(t, key(t, j)), 0, stage.k, shape.key_row(t, t.keys));
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, ValueStage& stage, Tile const& t, int j) const {
    copy(v, key_plane(t), shape.key_row(t, key(t, j)), 0, stage.v, shape.key_row(t, t.keys));
  }

  template <class Math, class SQ, class SK, class SV>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t, SQ& qs, SK& ks, SV& vs) const {
    Work work(math);
    math.clear(work.dq);
    if (t.steps > 0) {
      auto const& own = qs.acquire();
      std::int64_t const first = shape.at(rows, t, t.head, t.query);
      if constexpr (scaled)
        work.factors = {shape.template exponent_scale_of<true>(t.batch, t.head),
                        shape.scales.v(t.batch, t.head / shape.heads_per_kv)};
      math.each_row(work.lse, [&](Compute& x, int r) { x = rows.lse[first + r]; });
      math.each_row(work.delta, [&](Compute& x, int r) { x = rows.delta[first + r]; });
      KeyStage const* now = nullptr;
      auto const score = [&] {
        now = &ks.acquire();
        math.multiply(own.q, now->k, work.s, false);
      };
      int j = 0;
      do {
        score();
        ValueStage const* values = nullptr;
        int end = t.steps;
        if constexpr (asks_for_losses<Math>)
          if (j < likely_lost_steps(t)) {
            end = j + 1;
            values = &vs.acquire();  // by all threads before they agree, so that one may give it back
            if (loses(math, t, j, work)) {
              vs.release();
              ks.release();
              ++j;
              continue;
            }
          }
        weigh(math, t, j, own, values, vs, work);
        for (++j; j < end; ++j) {
          multiply(math, t, j - 1, *now, work);
          if constexpr (ahead) score();
          math.template wait_for<ahead ? 1 : 0>(work.dq);
          ks.release();
          if constexpr (!ahead) score();
          weigh(math, t, j, own, nullptr, vs, work);
        }
        multiply(math, t, j - 1, *now, work);
        math.template wait_for<0>(work.dq);
        ks.release();
      } while (asks_for_losses<Math> && j < t.steps);
      qs.release();
      Compute const scale = shape.scale;
      math.for_each(work.dq, [scale](Compute& x, int, int) { x *= scale; });
      if constexpr (scaled) scale_by_head(math, work.dq, shape.scales.k, t.batch, t.head / shape.heads_per_kv);
    }
    BackwardSequence<Packed> const own = shape.again(t);
    math.store(work.dq, dq, Plane{shape.query_plane(own), t.head}, shape.query_row(own, t.query), 0);
  }

 private:
  /// What a head's scales make of products: of Q and K exponents of 2, of dO and V what arrives for weights.
  struct ProductFactors {
    Compute exponent = 0, arrived = 0;
  };
  struct NoFactors {};
  struct Work {
    Scores s, dp;  // products, then weights; what arrives for weights, then for scores
    Gradients dq;
    Weights ds;
    Kept kept;
    RowValues lse, delta;
    [[no_unique_address]] std::conditional_t<scaled, ProductFactors, NoFactors> factors;

    template <class Math>
    KOKKOS_FORCEINLINE_FUNCTION explicit Work(Math& math)
        : s(math), dp(math), dq(math), ds(math), lse(math), delta(math) {}
  };

  KOKKOS_FORCEINLINE_FUNCTION HeadWeights<Functors, Compute> head_weights(Tile const& t) const {
    return {functors, Plane{t.batch, t.head}, shape.template score_scale<scaled>(t.batch, t.head),
            shape.template exponent_scale_of<scaled>(t.batch, t.head), kept_factor};
  }
  KOKKOS_FORCEINLINE_FUNCTION bool hides(Tile const& t, int j) const {
    return !shape.sight_of(t, t.keys).all_see(t.query, t.query + BM, key(t, j), key(t, j) + BN);
  }
  /// The steps from the first on of whose weights a bias that falls with the distance has likely left nothing.
  KOKKOS_FORCEINLINE_FUNCTION int likely_lost_steps(Tile const& t) const {
    int const nearest = shape.sight_of(t, t.keys).key_end(t.query + 1) - 1,
              keys = nearest - Lost::furthest(head_weights(t).of_head.plane(t.query, 0));
    return keys > 0 ? keys / BN - t.first : 0;
  }
  /// Whether every weight of step j is 0, of the products in work.s.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION bool loses(Math& math, Tile const& t, int j, Work& work) const {
    math.template wait_for<0>(work.s);
    if (hides(t, j)) return false;
    Lost const lost(head_weights(t).of_head.plane(t.query, key(t, j) + BN - 1), BM,
                    shape.template exponent_scale_of<scaled>(t.batch, t.head));
    bool all = true;
    math.for_each_with(work.s, work.lse,
                       [&](Compute const& x, Compute lse) TESSERA_INLINE_LAMBDA { all = all & lost.has(x, lse); });
    return math.holds_for_team(all);
  }
  /// Weights of step j, and what arrives for them, of the products in work.s; `values`: its own, if they have come.
  template <class Math, class SV>
  KOKKOS_FORCEINLINE_FUNCTION void weigh(Math& math, Tile const& t, int j, QueryStage const& own,
                                         ValueStage const* values, SV& vs, Work& work) const {
    draw(math, t, j, work);
    if (!asks_for_losses<Math> || values == nullptr) values = &vs.acquire();
    math.multiply(own.d_o, values->v, work.dp, false);
    bool const asks = asks_mask(t, j);
    math.template wait_for<1>(work.s);
    if constexpr (by_pairs) {
      weigh_pairs(math, t, j, asks, work);
    } else {
      Compute factor = shape.exponent_scale;
      if constexpr (scaled) factor = work.factors.exponent;
      if constexpr (Functors::changes) {
        add_exponents(math, work.s, shape.template score_scale<scaled>(t.batch, t.head),
                      head_weights(t).of_head.plane(t.query, key(t, j)));
        factor = 1;
      }
      math.for_each_with(work.s, work.lse, [factor](Compute& x, Compute lse) { x = Math::exp2(x * factor - lse); });
    }
    math.template wait_for<0>(work.dp);
    vs.release();
  }
  /// What dropout keeps, found while the scores are multiplied.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void draw(Math& math, Tile const& t, int j, Work& work) const {
    if constexpr (Functors::drops)
      math.find_flags(Drops{&functors.dropout, t.batch, t.head, t.query, key(t, j)}, work.kept);
  }
  /// Whether the mask must be asked about pairs. What it reads to tell is on its way while the scores are multiplied.
  KOKKOS_FORCEINLINE_FUNCTION bool asks_mask([[maybe_unused]] Tile const& t, [[maybe_unused]] int j) const {
    if constexpr (Functors::classifies)
      return !functors.shows_all(Plane{t.batch, t.head}, t.query, shape.queries_of(t), BM, key(t, j), t.keys, BN);
    else
      return true;
  }
  /// By the functors, one pair after the other. The last query and key stand for those behind them.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void weigh_pairs(Math& math, Tile const& t, int j, [[maybe_unused]] bool asks,
                                               Work& work) const {
    auto const weights = head_weights(t);
    int const first_key = key(t, j), last_query = shape.queries_of(t) - 1, last_key = t.keys - 1;
    auto const weigh = [&]<bool Asks>(std::bool_constant<Asks>) TESSERA_INLINE_LAMBDA {
      math.for_each_placed(work.s, work.lse, [&](Compute& x, Compute lse, int r, int c) TESSERA_INLINE_LAMBDA {
        int const query = t.query + r, at = first_key + c;
        weights.template weigh<Math, Asks>(x, lse, query < last_query ? query : last_query,
                                           at < last_key ? at : last_key, true);
      });
    };
    if (hides(t, j)) hide(math, shape.sight_of(t, t.keys), t.query, first_key, work.s, weights.hidden);
    if constexpr (Functors::classifies)
      if (!asks) return weigh(std::false_type{});
    weigh(std::true_type{});
  }
  /// dQ of step j, still under way.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Tile const& t, int j, KeyStage const& keys, Work& work) const {
    int const key = this->key(t, j);
    if constexpr (by_pairs || Functors::drops) {
      if constexpr (scaled) scale_by_head(math, work.dp, shape.scales.v, t.batch, t.head / shape.heads_per_kv);
      auto const weights = head_weights(t);
      math.for_each_of_two(
          work.dp, work.s, work.delta, work.kept,
          [&](Compute& x, Compute left, Compute delta, bool kept) { x = weights.arrived(left, x, delta, kept); });
    } else if constexpr (scaled) {
      Compute const arrived = work.factors.arrived;
      math.for_each_of_two(work.dp, work.s, work.delta, [arrived](Compute& x, Compute weight, Compute delta) {
        x = weight * (x * arrived - delta);
      });
    } else {
      math.for_each_of_two(work.dp, work.s, work.delta,
                           [](Compute& x, Compute weight, Compute delta) { x = weight * (x - delta); });
    }
    if (hides(t, j)) hide(math, shape.sight_of(t, t.keys), t.query, key, work.dp);
    if constexpr (!Atoms::clips_rows)  // weight 0 times what lies behind is 0
      if (key + BN > t.keys && shape.key_lengths != nullptr) math.clear_rows(keys.k, t.keys - key);
    math.round(work.dp, work.ds);
    math.multiply(work.ds, keys.k, work.dq, true);
  }
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION static void hide(Math& math, BackwardSight const& sight, int query, int key, Scores& x,
                                               Compute as = 0) {
    math.for_each(x, [&](Compute& e, int r, int c) {
      if (!sight.sees(query + r, key + c)) e = as;
    });
  }
};

}  // namespace tessera::detail

#endif
