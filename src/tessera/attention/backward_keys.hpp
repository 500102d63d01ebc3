// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_KEYS_HPP
#define TESSERA_ATTENTION_BACKWARD_KEYS_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_key_tiles.hpp>

namespace tessera::detail {

/// dK and dV, by tiles of keys. Everything is transposed, so that sums over queries stay where they are.
/// With Atoms::adds, dQ as well, whose sums over keys are formed in memory: where they are formed in place, by teams
/// that have sums of their own and several tiles one after the other. Where two steps are at hand, the next one's
/// scores are formed behind this one's products, so that the machine has something to multiply while sums leave for
/// memory and weights are formed.
template <class Atoms, class Score = score::Identity, class Mask = mask::All, bool Packed = false>
struct AttentionKeyGradients : AttentionKeyTiles<Atoms, Score, Mask, Packed> {
  using Tiles = AttentionKeyTiles<Atoms, Score, Mask, Packed>;
  using Tiles::adds_queries, Tiles::ahead, Tiles::by_pairs, Tiles::d_scores, Tiles::dk, Tiles::dq, Tiles::dv,
      Tiles::functors, Tiles::in_place, Tiles::kept_factor, Tiles::key_sums, Tiles::key_tiles, Tiles::kv_heads,
      Tiles::lse_with_outputs, Tiles::of_keys, Tiles::of_values, Tiles::parts_apart, Tiles::query, Tiles::query_plane,
      Tiles::rows, Tiles::scaled, Tiles::shape, Tiles::shares, Tiles::staged_numbers, Tiles::stores_scores,
      Tiles::tabled, Tiles::tail, Tiles::tile_keys;
  using typename Tiles::Compute, typename Tiles::Drops, typename Tiles::Functors, typename Tiles::Gradients,
      typename Tiles::Kept, typename Tiles::KeyStage, typename Tiles::OutputStage, typename Tiles::QueryStage,
      typename Tiles::QuerySums, typename Tiles::Scores, typename Tiles::Tile, typename Tiles::Weights;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  using Lost = LostWeights<Compute>;
  /// Steps whose weights are all 0 are left out behind their scores.
  template <class Math>
  static constexpr bool asks_for_losses =
      Functors::template plane_alone<Compute>&& Functors::changes&& AgreesInTeams<Math> && !in_place;

  /// The next step's weights are formed beside this one's products, before what arrives for them.
  /// Those of pairs one by one are rounded as they are formed.
  static constexpr bool weighs_ahead = requires { requires Atoms::weighs_ahead; }
  &&!by_pairs;
  static_assert(!weighs_ahead || (of_keys && of_values && ahead && !tabled));

  /// Sums of dK, and parts of dQ, are formed and added as soon as there is something to form them of, before the next
  /// step's scores; else behind these.
  static constexpr bool at_once = requires { requires Atoms::at_once; };
  /// What is rounded lies where all warps find it once they have shared it.
  static constexpr bool rounds_for_all = requires { requires Atoms::rounds_for_all; };

  /// Else the compiler keeps what it finds of K's and V's places, and how many steps there are, for which there are no
  /// registers.
  static constexpr bool finds_keys_anew = requires { requires Atoms::few_registers; };
  static constexpr bool counts_anew = requires { requires Atoms::fewest_registers; };

  /// Pairs of tiles that the mask leaves whole are as without one, where nothing is spilled for it.
  static constexpr bool plain_where_whole = Functors::plain_where_whole && adds_queries && !finds_keys_anew;

  using Tiles::Tiles;

  template <class Math, class SK, class SQ, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t, SK& ks, SQ& qs, SO& os) const {
    Work work(math);
    if constexpr (of_keys) math.clear(work.dk);
    if constexpr (of_values) math.clear(work.dv);
    if (t.steps > 0) {
      Step now = first_step(t, ks.acquire());
      if constexpr (adds_queries && !in_place && !Atoms::clips_rows)
        clear_behind(math, t, now.keys->k);  // weight 0 times what lies behind is 0
      int j = 0;
      do {
        // Or the compiler keeps what it finds of K's place for all runs, in registers that dQ needs.
        if constexpr (asks_for_losses<Math> && adds_queries) now.keys = math.anew(now.keys);
        now.from = &qs.acquire();
        math.multiply(now.keys->k, now.from->q, work.s, false);
        int end = t.steps;
        if constexpr (asks_for_losses<Math>) {
          end = j + steps_with_weights(t, now, t.steps - j);
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
        if constexpr (weighs_ahead) exponentiate<0>(math, t, now, work);
        weigh<0>(math, t, now, qs, os, work, [] {});
        for (++j; j < (counts_anew && !asks_for_losses<Math> ? t.steps : end); ++j) {
          Step next = after(now, t);
          if constexpr (finds_keys_anew) next.keys = math.anew(next.keys);
          if constexpr (!of_keys) {  // weights are formed under products of the step before
            next.from = &qs.acquire();
            math.multiply(next.keys->k, next.from->q, work.s, false);
            gradients(math, t, now, os, work);
            weigh<1>(math, t, next, qs, os, work,
                     [&]() TESSERA_INLINE_LAMBDA { finish<0>(math, t, now, qs, os, work); });
            now = next;
            continue;
          }
          gradients(math, t, now, os, work);
          if constexpr (ahead) {
            next.from = &qs.acquire();
            math.multiply(next.keys->k, next.from->q, work.s, false);
          }
          if constexpr (weighs_ahead) exponentiate<1>(math, t, next, work);
          finish<ahead ? 1 : 0>(math, t, now, qs, os, work);
          if constexpr (!ahead) {
            next.from = &qs.acquire();
            math.multiply(next.keys->k, next.from->q, work.s, false);
          }
          weigh<0>(math, t, next, qs, os, work, [] {});
          now = next;
        }
        gradients(math, t, now, os, work);
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
        if (shared >= 0) return leave_part(math, t, shared, work);
      }
      if constexpr (of_values) math.store(work.dv, dv, plane, row, 0);
      if constexpr (of_keys) math.store(work.dk, dk, plane, row, 0);
    }
  }

 private:
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
  /// Sums of a part of a shared tile.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void leave_part(Math& math, [[maybe_unused]] Tile const& t, std::int64_t shared,
                                              Work& work) const {
    if constexpr (parts_apart) {
      std::int64_t const at = shared * tail.parts.by + t.part;
      if constexpr (of_keys) math.write_to(work.dk, key_sums + at * (BN * D));
      if constexpr (of_values)
        math.write_to(work.dv, key_sums + (of_keys * tail.shared * tail.parts.by + at) * (BN * D));
    } else {
      math.add_to(work.dv, key_sums + (tail.shared + shared) * (BN * D));
      math.add_to(work.dk, key_sums + shared * (BN * D));
    }
  }
  /// Queries from `query` on of a head, and what has arrived of them.
  struct Step {
    KeyStage const* keys;
    Plane plane;
    int query;
    QueryStage const* from = nullptr;
    OutputStage const* to = nullptr;
    bool asks = true;  // the mask about pairs
  };
  KOKKOS_FORCEINLINE_FUNCTION Step first_step(Tile const& t, KeyStage const& keys) const {
    if constexpr (shares)
      return {&keys, Plane{t.batch, t.first_head}, t.first_query};
    else
      return {&keys, Plane{t.batch, query_plane(t, 0).inner}, query(t, 0)};
  }
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

  /// LSE of a step's queries, and delta: where there is no room for them in scratch, in memory.
  KOKKOS_FORCEINLINE_FUNCTION auto lse_of(Tile const& t, Step const& step) const -> Compute const (&)[BM] {
    if constexpr (staged_numbers == 0)
      return reinterpret_cast<Compute const(&)[BM]>(rows.lse[shape.at(rows, t, step.plane.inner, step.query)]);
    else if constexpr (lse_with_outputs > 0)
      return this->template numbers_from<BM>(step.to->v);
    else
      return step.from->v;
  }
  KOKKOS_FORCEINLINE_FUNCTION auto delta_of(Tile const& t, Step const& step) const -> Compute const (&)[BM] {
    if constexpr (staged_numbers == 0)
      return reinterpret_cast<Compute const(&)[BM]>(rows.delta[shape.at(rows, t, step.plane.inner, step.query)]);
    else
      return this->template numbers_from<0>(step.to->v);
  }
  /// How many steps there are, of `left` and from this one on of its head, before a bias that falls with the distance
  /// has likely left nothing of weights.
  KOKKOS_FORCEINLINE_FUNCTION int steps_with_weights(Tile const& t, Step const& step, int left) const {
    BackwardSight const sight = shape.sight_of(t, t.keys);
    int const of_head = (t.first + t.a_head) - step.query / BM, all = shares && left < of_head ? left : of_head,
              last = t.key + BN - 1, furthest = Lost::furthest(head_weights(step).of_head.plane(step.query, last));
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
    Compute const(&lse)[BM] = lse_of(t, step);
    bool all = true;
    math.for_each_with_column(work.s, math.columns(lse), [&](Compute const& x, Compute column) TESSERA_INLINE_LAMBDA {
      all = all & lost.has(x, column);
    });
    return math.holds_for_team(all);
  }
  /// Weights, and what arrives for them, of the products in work.s, behind which `Behind` others have been begun;
  /// before_rounding(): what uses rounded weights is over.
  template <int Behind, class Math, class SQ, class SO, class F>
  KOKKOS_FORCEINLINE_FUNCTION void weigh(Math& math, Tile const& t, Step& step, [[maybe_unused]] SQ& qs, SO& os,
                                         Work& work, F const& before_rounding) const {
    draw(math, t, step, work);
    if constexpr (of_keys) {
      if (!asks_for_losses<Math> || step.to == nullptr) step.to = &os.acquire();
      math.multiply(step.keys->v, step.to->d_o, work.dp, false);
    }
    step.asks = asks_mask(t, step);
    Compute exponent_factor = 0;
    if constexpr (tabled) exponent_factor = factors_of(step).exponent;
    if constexpr (by_pairs) {
      math.template wait_for<of_keys ? 1 : Behind>(work.s);
      before_rounding();
      weigh_pairs(math, t, step, lse_of(t, step), work);
      if constexpr (!of_keys) give_back(math, qs);
    } else if constexpr (weighs_ahead) {
      math.round(work.s, work.kept, work.p);
    } else {
      // Where there are registers for LSE it is read while products are waited for, which read scratch as well.
      constexpr bool early = !(of_keys && of_values) && !Functors::drops;
      if constexpr (!early) math.template wait_for<of_keys ? 1 : Behind>(work.s);
      auto const& lse = math.columns(lse_of(t, step));
      if constexpr (early) math.template wait_for<of_keys ? 1 : Behind>(work.s);
      Compute factor = exponent_factor;
      if constexpr (!tabled) factor = begin_exponents(math, t, step, work);
      if constexpr (requires { math.exponentials_of_columns(work.s, factor, lse); })
        math.exponentials_of_columns(work.s, factor, lse);
      else
        math.for_each_with_column(work.s, lse,
                                  [factor](Compute& x, Compute column) { x = Math::exp2(x * factor - column); });
      if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s);
      if constexpr (!of_keys) give_back(math, qs);
      if constexpr (of_values) {
        before_rounding();
        math.round(work.s, work.kept, work.p);
      }
    }
    if constexpr (of_keys) math.template wait_for<0>(work.dp);
    if constexpr (!of_values) {
      differentiate(math, t, step, work);
      give_back(math, os);
    }
  }
  /// Makes the products in work.s exponents of 2, but for LSE and the factor that is returned.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION Compute begin_exponents([[maybe_unused]] Math& math, Tile const& t, Step const& step,
                                                      [[maybe_unused]] Work& work) const {
    if constexpr (Functors::changes) {
      auto const plane = head_weights(step).of_head.plane(step.query, t.key);
      add_exponents(math, work.s, shape.template score_scale<scaled>(t.batch, static_cast<int>(step.plane.inner)),
                    {plane.at, plane.per_key, plane.per_query});
      return 1;
    } else {
      return shape.template exponent_scale_of<scaled>(t.batch, static_cast<int>(step.plane.inner));
    }
  }
  /// Weights of the products in work.s, behind which `Behind` others have been begun.
  template <int Behind, class Math>
  KOKKOS_FORCEINLINE_FUNCTION void exponentiate(Math& math, Tile const& t, Step const& step, Work& work) const {
    math.template wait_for<Behind>(work.s);
    Compute const factor = begin_exponents(math, t, step, work);
    math.for_each_with_column(work.s, math.columns(lse_of(t, step)),
                              [factor](Compute& x, Compute column) { x = Math::exp2(x * factor - column); });
    if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s);
  }
  /// A stage whose numbers have been read since its last product was begun.
  template <class Math, class Stream>
  KOKKOS_FORCEINLINE_FUNCTION static void give_back(Math& math, Stream& stream) {
    math.meet();
    stream.release();
  }
  /// The products that go into gradients, still under way.
  template <class Math, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void gradients(Math& math, Tile const& t, Step& step, [[maybe_unused]] SO& os,
                                             Work& work) const {
    if constexpr (!of_keys)  // not before: of two stages one may still be in use
      if (!asks_for_losses<Math> || step.to == nullptr) step.to = &os.acquire();
    if constexpr (of_values) math.multiply(work.p, step.to->d_o, work.dv, true);
    if constexpr (of_keys && of_values) differentiate(math, t, step, work);
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
      if constexpr (at_once) math.template wait_for<1>(work.dk);
      math.multiply(all, step.keys->k, work.dq);
      if constexpr (at_once) add_queries(math, t, step, work);
    } else if constexpr (of_keys) {
      if constexpr (rounds_for_all) math.share();
      math.multiply(work.ds, step.from->q, work.dk, true);
      if constexpr (rounds_for_all) math.template wait_for<1>(work.dv);  // behind the next scores they would spill
    }
  }
  /// dS of what arrives for weights.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void differentiate(Math& math, Tile const& t, Step const& step, Work& work) const {
    Compute const(&all_delta)[BM] = delta_of(t, step);
    if constexpr (scaled && !tabled) scale_by_head(math, work.dp, shape.scales.v, t.batch, t.head);
    [[maybe_unused]] auto const plain = [](Compute& x, Compute weight, Compute delta) { x = weight * (x - delta); };
    if constexpr (by_pairs || Functors::drops) {
      auto const weights = head_weights(step);
      if (plain_where_whole && !step.asks)
        math.for_each_of_two(work.dp, work.s, math.columns(all_delta), plain);
      else
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
      math.for_each_of_two(work.dp, work.s, math.columns(all_delta), plain);
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
    if constexpr (of_keys) qs.release();
    if constexpr (of_values) os.release();
    if constexpr (adds_queries && !in_place && !at_once) add_queries(math, t, step, work);
  }
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void add_queries(Math& math, Tile const& t, Step const& step, Work& work) const {
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
                                               Work& work) const {
    auto const weights = head_weights(step);
    if constexpr (plain_where_whole)
      if (!step.asks) {
        Compute const factor = weights.exponent_scale;
        math.for_each_with_column(work.s, math.columns(lse),
                                  [factor](Compute& x, Compute column) { x = Math::exp2(x * factor - column); });
        if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s);
        return math.round(work.s, work.kept, work.p);
      }
    if (hides(t, step)) hide(math, shape.sight_of(t, t.keys), t.key, step.query, work.s, weights.hidden);
    int const last_query = shape.queries_of(t) - 1, last_key = t.keys - 1;
    auto const weigh = [&]<bool Asks>(std::bool_constant<Asks>) TESSERA_INLINE_LAMBDA {
      math.round_each(work.s, lse, work.kept, work.p,
                      [&](Compute& x, Compute column, int r, int c, bool kept) TESSERA_INLINE_LAMBDA {
                        int const i = step.query + c, j = t.key + r;
                        return weights.template weigh<Math, Asks>(x, column, i < last_query ? i : last_query,
                                                                  j < last_key ? j : last_key, kept);
                      });
    };
    if constexpr (Functors::classifies && !plain_where_whole)
      if (!step.asks) return weigh(std::false_type{});
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
