// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_KEYS_HPP
#define TESSERA_ATTENTION_BACKWARD_KEYS_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_scores.hpp>
#include <tessera/attention/backward_shape.hpp>
#include <tessera/attention/backward_stages.hpp>
#include <tessera/attention/backward_tail.hpp>
#include <tessera/attention/plane_order.hpp>

namespace tessera::detail {

/// dK and dV: a tile is BN keys of one head of K and V, its steps go over the queries that see them, BM at a time, of
/// one head that shares them after the other. Everything is transposed, so that sums over queries stay where they are.
/// With Atoms::adds, dQ as well, whose sums over keys are formed in memory: where they are formed in place, by teams
/// that have sums of their own and several tiles one after the other. Where two steps are at hand, the next one's
/// scores are formed behind this one's products, so that the machine has something to multiply while sums leave for
/// memory and weights are formed.
template <class Atoms, class Score = score::Identity, class Mask = mask::All, bool Packed = false>
struct AttentionKeyGradients {
  using Functors = BackwardFunctors<Score, Mask>;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  static constexpr bool adds_queries = Atoms::adds, ahead = Atoms::depth > 1;
  static constexpr bool in_place = requires { requires Atoms::adds_in_place; };
  static constexpr bool of_keys = !Atoms::values_alone, of_values = !Atoms::keys_alone;
  static_assert(of_values || Atoms::rows_in_memory);  // delta is read when dO has been given back
  using Compute = typename Atoms::Compute;
  static constexpr bool by_pairs = Functors::template by_pairs<Compute>;
  static constexpr bool scaled = requires { requires Atoms::scales_heads; };
  static constexpr bool tabled = requires { requires Atoms::factors_in_memory; };
  static_assert(!tabled || (scaled && !by_pairs && !Functors::changes && !Functors::drops));
  static constexpr bool stores_scores = requires { requires Atoms::stores_scores; };
  /// The last tiles may be shared by several teams each.
  static constexpr bool shares = adds_queries && !in_place && !Packed && !scaled && !stores_scores &&
                                 std::is_same_v<Score, score::Identity> && std::is_same_v<Mask, mask::All>;
  using Lost = LostWeights<Compute>;
  /// Steps whose weights are all 0 are left out behind their scores.
  template <class Math>
  static constexpr bool asks_for_losses =
      Functors::template plane_alone<Compute>&& Functors::changes&& AgreesInTeams<Math> && !in_place;

  struct Tile : BackwardSequence<Packed>, TilePart<in_place>, TileBegin<shares> {
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
  using RowNumbers = StagedNumbers<Compute, Atoms::rows_in_memory ? 0 : BM>;
  struct QueryStage : RowNumbers {                  // LSE
    typename Atoms::template RightEither<BM, D> q;  // (BM,D)
    static constexpr int depth = Atoms::depth, bytes = sizeof(q) + RowNumbers::bytes;
  };
  struct OutputStage : RowNumbers {                   // delta
    typename Atoms::template RightEither<BM, D> d_o;  // (BM,D)
    static constexpr int depth = Atoms::output_depth, bytes = sizeof(d_o) + RowNumbers::bytes;
  };
  using Scores = typename Atoms::template Accumulator<BN, BM>;    // (BN,BM)
  using Gradients = typename Atoms::template Accumulator<BN, D>;  // (BN,D)
  using Weights = typename Atoms::template Rounded<BN, BM>;       // (BN,BM)
  using Drops = DropsTile<true>;
  using Kept = std::conditional_t<Functors::drops, typename Atoms::template Flags<BN, BM, Drops>, NoFlags>;
  using QuerySums = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Inputs = Streams<KeyStage, QueryStage, OutputStage>;
  using Held = Fragments<Scores, Scores, Gradients, Gradients, Weights, Weights>;

  typename Atoms::Source q, k, v, d_o;
  typename Atoms::Target dk, dv;
  Compute* dq;  // sums of (plane, tile of BM queries), in the atoms' order; used with adds_queries
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;
  Functors functors;
  Compute kept_factor;  // that dropout keeps weights with
  BackwardSplit split;  // where sums are formed in place
  [[no_unique_address]] std::conditional_t<stores_scores, ScoreGradients, NoScoreGradients> d_scores;
  PlaneOrder order;
  BackwardTail tail;
  Compute* key_sums = nullptr;  // of shared tiles, dK of all and then dV, in the atoms' order

  AttentionKeyGradients(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, Compute* dq_sums,
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
    BackwardSight const sight = shape.sight_of(tile, tile.keys);
    int begin = sight.first_query(key), end = sight.query_end(key + tile_keys());
    functors.bound_queries(tile.batch, tile.head * shape.heads_per_kv, shape.heads_per_kv, key,
                           key + tile_keys() < sight.keys ? key + tile_keys() : sight.keys, begin, end);
    tile.first = begin / BM;
    tile.a_head = end > begin ? (end + BM - 1) / BM - tile.first : 0;
    tile.steps = tile.a_head * shape.heads_per_kv;
    if constexpr (shares)
      if (part >= 0) {
        tile.begin = tile.steps * part / tail.parts;
        tile.steps = tile.steps * (part + 1) / tail.parts - tile.begin;
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

  KOKKOS_FUNCTION int steps(KeyStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(QueryStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(OutputStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KeyStage& stage, Tile const& t, int) const {
    if constexpr (in_place) {  // of the tile's own keys; weight 0 times what lies behind those that count is 0
      int const row = shape.key_row(t, t.key), end = row + tile_keys();
      copy(k, key_plane(t), row, 0, stage.k, end, shape.key_row(t, t.keys));
      copy(v, key_plane(t), row, 0, stage.v, end);
    } else {
      copy(k, key_plane(t), shape.key_row(t, t.key), 0, stage.k);
      if constexpr (of_keys) copy(v, key_plane(t), shape.key_row(t, t.key), 0, stage.v);
    }
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QueryStage& stage, Tile const& t, int j) const {
    Plane const plane = query_plane(t, j);
    copy(q, plane, shape.query_row(t, query(t, j)), 0, stage.q);
    if constexpr (!Atoms::rows_in_memory) copy.values(rows.lse + shape.at(rows, t, plane.inner, query(t, j)), stage.v);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, OutputStage& stage, Tile const& t, int j) const {
    Plane const plane = query_plane(t, j);
    copy(d_o, plane, shape.query_row(t, query(t, j)), 0, stage.d_o);
    if constexpr (!Atoms::rows_in_memory)
      copy.values(rows.delta + shape.at(rows, t, plane.inner, query(t, j)), stage.v);
  }

  template <class Math, class SK, class SQ, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t, SK& ks, SQ& qs, SO& os) const {
    Work work(math);
    if constexpr (of_keys) math.clear(work.dk);
    if constexpr (of_values) math.clear(work.dv);
    if (t.steps > 0) {
      Step now{&ks.acquire(), Plane{t.batch, query_plane(t, 0).inner}, query(t, 0)};
      if constexpr (adds_queries && !in_place)
        clear_behind(math, t, now.keys->k);  // weight 0 times what lies behind is 0
      int j = 0;
      do {
        // Or the compiler keeps what it finds of K's place for all runs, in registers that dQ needs.
        if constexpr (asks_for_losses<Math> && adds_queries) now.keys = math.anew(now.keys);
        now.from = &qs.acquire();
        math.multiply(now.keys->k, now.from->q, work.s, false);
        int end = t.steps;
        if constexpr (asks_for_losses<Math>) {
          end = j + steps_with_weights(t, now);
          if (j >= end) {
            now.to = &os.acquire();  // by all threads before they agree, so that one may give it back
            if (loses(math, t, now, work)) {
              os.release();
              qs.release();
              now = after(now, t);
              ++j;
              continue;
            }
          }
        }
        weigh(math, t, now, os, work);
        for (++j; j < end; ++j) {
          Step next = after(now, t);
          gradients(math, t, now, work);
          if constexpr (ahead) {
            next.from = &qs.acquire();
            math.multiply(next.keys->k, next.from->q, work.s, false);
          }
          finish<ahead ? 1 : 0>(math, t, now, qs, os, work);
          if constexpr (!ahead) {
            next.from = &qs.acquire();
            math.multiply(next.keys->k, next.from->q, work.s, false);
          }
          weigh(math, t, next, os, work);
          now = next;
        }
        gradients(math, t, now, work);
        finish<0>(math, t, now, qs, os, work);
        if constexpr (asks_for_losses<Math>) now = after(now, t);
      } while (asks_for_losses<Math> && j < t.steps);
      ks.release();
      Compute const scale = shape.scale;
      if constexpr (of_keys) math.for_each(work.dk, [scale](Compute& x, int, int) { x *= scale; });
      if constexpr (of_values && Functors::drops) {
        Compute const kept = kept_factor;
        math.for_each(work.dv, [kept](Compute& x, int, int) { x *= kept; });
      }
    }
    BackwardSequence<Packed> const own = shape.again(t);
    Plane const plane{shape.key_plane(own), t.head};
    int const row = shape.key_row(own, t.key);
    if constexpr (in_place) {
      int const end = row + tile_keys() < shape.keys ? row + tile_keys() : shape.keys;
      math.store(work.dv, dv, plane, row, 0, end);
      math.store(work.dk, dk, plane, row, 0, end);
    } else {
      if constexpr (shares) {
        std::int64_t const shared = (t.batch * kv_heads() + t.head) * key_tiles() + t.key / BN - tail.whole;
        if (shared >= 0) {
          math.add_to(work.dv, key_sums + (tail.shared + shared) * (BN * D));
          math.add_to(work.dk, key_sums + shared * (BN * D));
          return;
        }
      }
      if constexpr (of_values) math.store(work.dv, dv, plane, row, 0);
      if constexpr (of_keys) math.store(work.dk, dk, plane, row, 0);
    }
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
  struct Work {
    Scores s, dp;  // products, then weights; what arrives for weights, then for scores
    FragmentIf<of_keys, Gradients> dk;
    FragmentIf<of_values, Gradients> dv;
    Weights p, ds;
    Kept kept;
    FragmentIf<adds_queries && !in_place, QuerySums> dq;

    template <class Math>
    KOKKOS_FORCEINLINE_FUNCTION explicit Work(Math& math)
        : s(math), dp(math), dk(math), dv(math), p(math), ds(math), dq(math) {}
  };
  /// Queries from `query` on of a head, and what has arrived of them.
  struct Step {
    KeyStage const* keys;
    Plane plane;
    int query;
    QueryStage const* from = nullptr;
    OutputStage const* to = nullptr;
  };
  KOKKOS_FORCEINLINE_FUNCTION Step after(Step const& s, Tile const& t) const {
    bool const more = s.query + BM < (t.first + t.a_head) * BM;
    return {s.keys, {s.plane.outer, s.plane.inner + (more ? 0 : 1)}, more ? s.query + BM : t.first * BM};
  }
  KOKKOS_FORCEINLINE_FUNCTION HeadFactors<Compute> factors_of(Step const& step) const {
    return rows.factors[static_cast<int>(step.plane.outer) * shape.heads + static_cast<int>(step.plane.inner)];
  }
  KOKKOS_FORCEINLINE_FUNCTION bool hides(Tile const& t, Step const& step) const {
    return !shape.sight_of(t, t.keys).all_see(step.query, step.query + BM, t.key, t.key + tile_keys());
  }

  /// LSE or delta of a step's queries: where there is no room for them in scratch, in memory.
  template <class Stage>
  KOKKOS_FORCEINLINE_FUNCTION auto numbers(Tile const& t, Stage const& stage, Compute const* all,
                                           Step const& step) const -> Compute const (&)[BM] {
    if constexpr (Atoms::rows_in_memory)
      return reinterpret_cast<Compute const(&)[BM]>(all[shape.at(rows, t, step.plane.inner, step.query)]);
    else
      return stage.v;
  }
  /// How many steps there are, from this one on of its head, before a bias that falls with the distance has likely left
  /// nothing of weights.
  KOKKOS_FORCEINLINE_FUNCTION int steps_with_weights(Tile const& t, Step const& step) const {
    BackwardSight const sight = shape.sight_of(t, t.keys);
    int const all = (t.first + t.a_head) - step.query / BM, last = t.key + BN - 1,
              furthest = Lost::furthest(head_weights(step).of_head.plane(step.query, last));
    if (furthest >= sight.keys - 1 - last) return all;
    int const queries = sight.first_query(last + furthest + 1) - step.query, some = (queries + BM - 1) / BM;
    return queries <= 0 ? 0 : (some < all ? some : all);
  }
  /// Whether every weight of a step is 0, of the products in work.s.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION bool loses(Math& math, Tile const& t, Step const& step, Work& work) const {
    math.template wait_for<0>(work.s);
    if (hides(t, step)) return false;
    Lost const lost(head_weights(step).of_head.plane(step.query, t.key + BN - 1), BM,
                    shape.template exponent_scale_of<scaled>(t.batch, static_cast<int>(step.plane.inner)));
    Compute const(&lse)[BM] = numbers(t, *step.from, rows.lse, step);
    bool all = true;
    math.for_each_with_column(work.s, math.columns(lse), [&](Compute const& x, Compute column) TESSERA_INLINE_LAMBDA {
      all = all & lost.has(x, column);
    });
    return math.holds_for_team(all);
  }
  /// Weights, and what arrives for them, of the products in work.s.
  template <class Math, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void weigh(Math& math, Tile const& t, Step& step, SO& os, Work& work) const {
    draw(math, t, step, work);
    if (!asks_for_losses<Math> || step.to == nullptr) step.to = &os.acquire();
    if constexpr (of_keys) math.multiply(step.keys->v, step.to->d_o, work.dp, false);
    bool const asks = asks_mask(t, step);
    Compute exponent_factor = 0;
    if constexpr (tabled) exponent_factor = factors_of(step).exponent;
    math.template wait_for<of_keys ? 1 : 0>(work.s);
    Compute const(&all_lse)[BM] = numbers(t, *step.from, rows.lse, step);
    if constexpr (by_pairs) {
      weigh_pairs(math, t, step, all_lse, asks, work);
    } else {
      auto const& lse = math.columns(all_lse);
      Compute factor = exponent_factor;
      if constexpr (!tabled)
        factor = shape.template exponent_scale_of<scaled>(t.batch, static_cast<int>(step.plane.inner));
      if constexpr (Functors::changes) {
        auto const plane = head_weights(step).of_head.plane(step.query, t.key);
        add_exponents(math, work.s, shape.template score_scale<scaled>(t.batch, static_cast<int>(step.plane.inner)),
                      {plane.at, plane.per_key, plane.per_query});
        factor = 1;
      }
      if constexpr (requires { math.exponentials_of_columns(work.s, factor, lse); })
        math.exponentials_of_columns(work.s, factor, lse);
      else
        math.for_each_with_column(work.s, lse,
                                  [factor](Compute& x, Compute column) { x = Math::exp2(x * factor - column); });
      if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s);
      if constexpr (of_values) math.round(work.s, work.kept, work.p);
    }
    if constexpr (of_keys) math.template wait_for<0>(work.dp);
    if constexpr (!of_values) os.release();
  }
  /// The products that go into gradients, still under way.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void gradients(Math& math, Tile const& t, Step const& step, Work& work) const {
    if constexpr (of_values) math.multiply(work.p, step.to->d_o, work.dv, true);
    if constexpr (of_keys) differentiate(math, t, step, work);
    if constexpr (in_place) {
      typename Atoms::template Shared<BN, BM> all(math);
      math.share(work.ds, all);
      math.add_product(all, step.keys->k, sums_of(t, step));
      scale_by_queries(math, t, step, work);
      math.multiply(work.ds, step.from->q, work.dk, true);
    } else if constexpr (adds_queries) {
      typename Atoms::template Shared<BN, BM> all(math);
      math.share(work.ds, all);
      math.multiply(work.ds, step.from->q, work.dk, true);
      math.template wait_for<1>(work.dv);  // makes room for dQ
      math.multiply(all, step.keys->k, work.dq);
    } else if constexpr (of_keys) {
      math.multiply(work.ds, step.from->q, work.dk, true);
    }
  }
  /// dS of what arrives for weights.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void differentiate(Math& math, Tile const& t, Step const& step, Work& work) const {
    Compute const(&all_delta)[BM] = numbers(t, *step.to, rows.delta, step);
    if constexpr (scaled && !tabled) scale_by_head(math, work.dp, shape.scales.v, t.batch, t.head);
    if constexpr (by_pairs || Functors::drops) {
      auto const weights = head_weights(step);
      math.for_each_of_two(
          work.dp, work.s, all_delta, work.kept,
          [&](Compute& x, Compute left, Compute delta, bool kept) { x = weights.arrived(left, x, delta, kept); });
    } else if constexpr (tabled) {
      HeadFactors<Compute> const by = factors_of(step);
      math.for_each_of_two(work.dp, work.s, math.columns(all_delta), [by](Compute& x, Compute weight, Compute delta) {
        x = weight * (x * by.arrived - delta * by.query);
      });
    } else if constexpr (requires { math.differences_times(work.dp, work.s, all_delta); }) {
      math.differences_times(work.dp, work.s, all_delta);
    } else {
      math.for_each_of_two(work.dp, work.s, math.columns(all_delta),
                           [](Compute& x, Compute weight, Compute delta) { x = weight * (x - delta); });
    }
    if (hides(t, step))  // of keys that do not count anything may have come
      hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.dp);
    if constexpr (scaled && !tabled && !in_place)  // of Q, which dS is multiplied by
      scale_by_head(math, work.dp, shape.scales.q, t.batch, static_cast<int>(step.plane.inner));
    if constexpr (stores_scores) store_scores(math, t, step, work.dp);
    math.round(work.dp, work.ds);
  }
  /// dS that dQ has been formed of times the scale of Q, which it is multiplied by next.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void scale_by_queries(Math& math, Tile const& t, Step const& step, Work& work) const {
    if constexpr (scaled)
      if (shape.scales.q.data != nullptr) {
        scale_by_head(math, work.dp, shape.scales.q, t.batch, static_cast<int>(step.plane.inner));
        math.round(work.dp, work.ds);
      }
  }
  KOKKOS_FORCEINLINE_FUNCTION Compute* sums_of(Tile const& t, Step const& step) const {
    std::int64_t const part_rows = std::int64_t(shape.batches) * shape.heads * rows.rows;
    return dq + (t.part * part_rows + shape.at(rows, t, step.plane.inner, step.query)) * D;
  }
  /// dS as the gradient of what is added to scores: eight keys side by side of each query, whole sectors of memory.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void store_scores(Math& math, Tile const& t, Step const& step, Scores& x) const {
    float* const to = d_scores.at(step.plane, step.query, t.key);
    int const keys = shape.keys - t.key, queries = shape.queries - step.query, stride = d_scores.row_stride;
    math.for_each(x, [=](Compute& e, int r, int c) TESSERA_INLINE_LAMBDA {
      if (r < keys && c < queries) to[std::int64_t(c) * stride + r] = e;
    });
  }
  /// All products but the `Pending` newest are done.
  template <int Pending, class Math, class SQ, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void finish(Math& math, Tile const& t, Step const& step, SQ& qs, SO& os,
                                          Work& work) const {
    if constexpr (of_values) math.template wait_for<Pending>(work.dv);
    if constexpr (of_keys) math.template wait_for<Pending>(work.dk);
    if constexpr (adds_queries && !in_place) math.template wait_for<Pending>(work.dq);
    qs.release();
    if constexpr (of_values) os.release();
    if constexpr (adds_queries && !in_place)
      math.add_to(work.dq, dq + shape.at(rows, t, step.plane.inner, step.query) * D);
  }
  KOKKOS_FORCEINLINE_FUNCTION HeadWeights<Functors, Compute> head_weights(Step const& step) const {
    int const batch = static_cast<int>(step.plane.outer), head = static_cast<int>(step.plane.inner);
    return {functors, step.plane, shape.template score_scale<scaled>(batch, head),
            shape.template exponent_scale_of<scaled>(batch, head), kept_factor};
  }
  /// What dropout keeps, found while the scores are multiplied.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void draw(Math& math, Tile const& t, Step const& step, Work& work) const {
    if constexpr (Functors::drops)
      math.find_flags(Drops{&functors.dropout, static_cast<int>(step.plane.outer), static_cast<int>(step.plane.inner),
                            step.query, t.key},
                      work.kept);
  }
  /// Whether the mask must be asked about pairs. What it reads to tell is on its way while the scores are multiplied.
  KOKKOS_FORCEINLINE_FUNCTION bool asks_mask([[maybe_unused]] Tile const& t, [[maybe_unused]] Step const& step) const {
    if constexpr (Functors::classifies)
      return !functors.shows_all(step.plane, step.query, shape.queries_of(t), BM, t.key, t.keys, tile_keys());
    else
      return true;
  }
  /// By the functors, one pair after the other. The last query and key stand for those behind them.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void weigh_pairs(Math& math, Tile const& t, Step const& step, Compute const (&lse)[BM],
                                               [[maybe_unused]] bool asks, Work& work) const {
    auto const weights = head_weights(step);
    int const last_query = shape.queries_of(t) - 1, last_key = t.keys - 1;
    auto const weigh = [&]<bool Asks>(std::bool_constant<Asks>) TESSERA_INLINE_LAMBDA {
      math.round_each(work.s, lse, work.kept, work.p,
                      [&](Compute& x, Compute column, int r, int c, bool kept) TESSERA_INLINE_LAMBDA {
                        int const i = step.query + c, j = t.key + r;
                        return weights.template weigh<Math, Asks>(x, column, i < last_query ? i : last_query,
                                                                  j < last_key ? j : last_key, kept);
                      });
    };
    if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s, weights.hidden);
    if constexpr (Functors::classifies)
      if (!asks) return weigh(std::false_type{});
    weigh(std::true_type{});
  }
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION static void hide(Math& math, BackwardSight const& sight, int key, int query, Scores& x,
                                               Compute as = 0) {
    math.for_each(x, [&](Compute& e, int r, int c) {
      if (!sight.sees(query + c, key + r)) e = as;
    });
  }
  template <class Math, class KeyRows>
  KOKKOS_FORCEINLINE_FUNCTION void clear_behind(Math& math, Tile const& t, KeyRows const& k) const {
    if (shape.key_lengths != nullptr) math.clear_rows(k, t.keys - t.key);
  }
};

}  // namespace tessera::detail

#endif
