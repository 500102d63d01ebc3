// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_KERNEL_HPP
#define TESSERA_ATTENTION_KERNEL_HPP

#include <tessera/attention/arranged_values.hpp>
#include <tessera/attention/dropout.hpp>
#include <tessera/attention/mask_table.hpp>
#include <tessera/attention/numerator.hpp>
#include <tessera/attention/online_softmax.hpp>
#include <tessera/attention/plane_order.hpp>
#include <tessera/attention/problem.hpp>
#include <tessera/attention/score_of_head.hpp>
#include <tessera/attention/tiles.hpp>
#include <tessera/attention/weights.hpp>
#include <tessera/divisor.hpp>
#include <tessera/gemm/problem.hpp>
#include <tessera/mask.hpp>
#include <tessera/score.hpp>

namespace tessera::detail {

/// A step's share of a matrix that is added to scores, of atoms that bring it.
template <class Atoms, bool Brings>
struct AttentionBiasStage {};
template <class Atoms>
struct AttentionBiasStage<Atoms, true> {
  typename Atoms::template Addend<Atoms::BM, Atoms::BN> biases;  // (BM,BN)
  static constexpr int depth = Atoms::bias_depth;
};

/// O = softmax(score(scale·QKᵀ))·V by tiles with the online softmax; scores and weights are never stored (Rabe and
/// Staats 2021; Dao et al. 2022). A tile is BM queries of one head; its steps go over tiles of BN keys, from the last
/// visible one back, so that masked tiles come first. The next step's scores and this step's products run under each
/// other's row work (Shah et al. 2024).
template <class Atoms_, class Score, class Mask = mask::All>
struct AttentionKernel {
  using Atoms = Atoms_;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  static constexpr bool ranged = !std::is_same_v<Mask, mask::All>;
  using KeyMask = Mask;
  using OwnScore = own_score<Score>;
  static constexpr bool drops = drops_weights<Score>;
  static constexpr bool masked = ranged && !std::is_same_v<Mask, Ranges>;
  /// The score is a matrix that is copied by tiles, ahead of its use.
  static constexpr bool brings_biases = requires { Atoms::bias_depth; };
  /// Heads may have scales; elsewhere a tile has no register for its own.
  static constexpr bool scaled = ranged || WantsRowsContiguous<Atoms>;
  /// So may tiles of keys: element by element, or, where weights are rounded to few bits, a step's together.
  static constexpr bool scales_keys = ranged && requires { requires Atoms::scales_keys; };
  static constexpr bool scales_steps = scales_keys && weight_exponent<Atoms>() != 0;
  using Compute = typename Atoms::Compute;
  static constexpr Compute log2_e = Compute(1.44269504088896340736);
  /// The rows of a tile may be of several heads; larger tiles are not asked about it at every element.
  static constexpr bool shares_tiles = !requires { Atoms::one_head_a_tile; };

  using Tile = AttentionTile<Mask>;
  struct QStage {
    typename Atoms::template Left<BM, D> q;  // (BM,D)
    static constexpr int depth = Atoms::query_depth;
  };
  struct KStage {
    typename Atoms::template Right<BN, D> k;  // (BN,D)
    static constexpr int depth = Atoms::depth;
  };
  struct VStage {
    typename Atoms::template RightTransposed<BN, D> v;  // (BN,D)
    static constexpr int depth = Atoms::depth;
  };
  using Scores = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Results = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Weights = typename Atoms::template Rounded<BM, BN>;     // (BM,BN)
  using BiasStage = AttentionBiasStage<Atoms, brings_biases>;
  using RowValues = typename Atoms::template RowValues<BM>;
  /// Where it may, the numerator comes to new maxima as soon as they move: later, that they have moved is one more
  /// thing to keep.
  static constexpr bool rescales_early =
      OnlineSoftmax<Atoms, BM>::template asks_first<Scores> && MultipliesByWarps<typename Atoms::Math>;
  static constexpr bool bounds_rows = BoundsRows<typename Atoms::Math, Scores, RowValues>;
  using Inputs =
      std::conditional_t<brings_biases, Streams<QStage, KStage, BiasStage, VStage>, Streams<QStage, KStage, VStage>>;
  using Held = Fragments<Scores, Results, Weights>;

  typename Atoms::Source q, k, v;
  typename Atoms::Target o;
  MatrixStack lse;
  PageTable pages;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  int batches;
  /// What is divided by: where tiles are found in place, by the machine's division too.
  using Count = std::conditional_t<scaled, int, Divisor>;
  Count heads, heads_per_kv;
  int queries, keys, splits, together;
  Compute scale;
  bool causal;
  struct NoBiases {
    NoBiases() = default;
    explicit NoBiases(AttentionProblem const&) {}
  };
  struct Biases {
    typename Atoms::Source source;
    bool by_batch, by_head;
    explicit Biases(AttentionProblem const& p)
        : source(Atoms::template source<typename Atoms::template Addend<BM, BN>>(p.biases)),
          by_batch(p.biases.outer > 1),
          by_head(p.biases.inner > 1) {}
  };
  std::conditional_t<brings_biases, Biases, NoBiases> biases;
  struct Unscaled {};
  std::conditional_t<scales_keys, AllScales, std::conditional_t<scaled, HeadScales, Unscaled>> scales;
  Score score;
  Ranges ranges;
  using Functor = std::conditional_t<masked, Mask, mask::All>;
  Functor mask;
  std::conditional_t<drops, DropoutRule, KeepsAll> dropout;
  float const* sinks;
  std::int64_t sinks_stride;
  int head_rows;  // of heads together; else 0
  struct FoundInPlace {
    FoundInPlace(std::int64_t, std::int64_t, bool) {}
  };
  std::conditional_t<scaled, FoundInPlace, PlaneOrder> order;

  AttentionKernel(AttentionProblem const& p, Score const& s, Functor const& m)
      : q(Atoms::template source<typename Atoms::template Left<BM, D>>(p.q)),
        k(key_source<typename Atoms::template Right<BN, D>>(p, p.k)),
        v(value_source(p)),
        o(Atoms::template target<Results>(p.o)),
        lse(p.lse),
        pages(p.pages),
        key_lengths(p.key_lengths),
        key_lengths_stride(p.key_lengths_stride),
        batches(static_cast<int>(p.q.outer)),
        heads(static_cast<int>(p.q.inner)),
        heads_per_kv(p.heads_per_kv),
        queries(static_cast<int>(p.q.rows)),
        keys(static_cast<int>(p.keys())),
        splits(p.splits),
        together(p.together),
        scale(static_cast<Compute>(p.scale)),
        causal(p.causal),
        biases(p),
        score(s),
        ranges(p.ranges()),
        mask(m),
        dropout(p.dropout),
        sinks(p.sinks),
        sinks_stride(p.sinks_stride),
        head_rows(p.head_rows),
        order(p.q.outer * p.q.inner, query_tiles(), ranged ? ranges.grows : causal) {
    static_assert(Multiplies<Atoms, BM, BN, D> && MultipliesRounded<Atoms, BM, D, BN>);
    static_assert(!ranged || StoresRows<Atoms, BM, D>);
    if constexpr (scaled) static_cast<HeadScales&>(scales) = p.scales;
    if constexpr (scales_keys) scales.tiles = p.key_scales;
  }

  template <class Rows>
  static typename Atoms::Source key_source(AttentionProblem const& p, MatrixStack const& m) {
    if constexpr (ReadsPages<Atoms>)
      if (p.pages.present()) return Atoms::template paged_source<Rows>(m);
    return Atoms::template source<Rows>(m);
  }
  /// Arranged values lie in planes, though keys be in pages.
  static typename Atoms::Source value_source(AttentionProblem const& p) {
    using Rows = typename Atoms::template RightTransposed<BN, D>;
    if constexpr (WantsRowsContiguous<Atoms>)
      return Atoms::template source<Rows>(p.v);
    else
      return key_source<Rows>(p, p.v);
  }

  KOKKOS_FUNCTION int query_tiles() const {
    if constexpr (ranged)
      if (ranges.packed.count > 0) return static_cast<int>(ranges.packed.queries.tiles(ranges.packed.count, BM));
    return (queries + BM - 1) / BM;
  }
  KOKKOS_FUNCTION std::int64_t tiles() const {
    return std::int64_t(splits) * batches * static_cast<int>(heads) * query_tiles();
  }

  KOKKOS_FUNCTION Tile tile(int t) const { return AttentionTiles<AttentionKernel>{*this}.find(t); }
  /// What the mask leaves of step j.
  KOKKOS_FUNCTION mask::Tile left_of(Tile const& t, int j) const {
    return AttentionTiles<AttentionKernel>{*this}.left_of(t, j);
  }
  /// Persistent teams, but a team a tile for problems whose tiles differ and are long, or of few heads, whose longest
  /// some teams would have more of than others (on an H200, 32 heads and 1024 keys of d 64 25 -> 17 us): the machine
  /// hands those out better. So where several fit a multiprocessor, of which one begins under another's steps, if a
  /// tile has many.
  std::int64_t teams(int concurrency) const {
    bool const few_heads = double(batches) * static_cast<int>(heads) < 0.6 * concurrency;
    bool const differ = masked || (ranged ? ranges.team_a_tile : causal && (keys > 1024 || few_heads));
    constexpr bool few_steps = requires { requires Atoms::few_steps; };
    bool const team_a_tile = differ || (Atoms::teams_at_once > 1 && !few_steps);
    return team_a_tile || tiles() < concurrency ? tiles() : concurrency;
  }

  /// What the tiles of a head share are its keys and values.
  void order_for_a_team_each() requires(!scaled) {
    order.for_a_team_each(std::int64_t(sizeof(KStage) + sizeof(VStage)) / BN * keys / static_cast<int>(heads_per_kv));
  }

  KOKKOS_FORCEINLINE_FUNCTION int queries_of(Tile const& t) const {
    if constexpr (ranged)
      return t.queries;
    else
      return queries;
  }
  /// The keys that a query sees. Of heads together, each has its queries from the first on.
  KOKKOS_FORCEINLINE_FUNCTION KeyRange seen(Tile const& t, int query) const {
    bool const shared = shares_tiles && together > 0;
    int const own_queries = shared ? together : queries_of(t);
    if (shared) query %= together;
    if constexpr (ranged) return ranges.around(query, own_queries, t.keys);
    int const last = query + 1 + t.keys - own_queries;
    return {0, causal && last < t.keys ? last : t.keys};
  }
  KOKKOS_FORCEINLINE_FUNCTION static int key(Tile const& t, int j) {
    if constexpr (has_table<Mask>)
      return t.visited[t.first + t.steps - 1 - j] / 2 * BN;
    else
      return (t.first + t.steps - 1 - j) * BN;
  }

  /// Rows of the operands, and the planes' outer index.
  KOKKOS_FORCEINLINE_FUNCTION int query_row(Tile const& t) const {
    if constexpr (ranged)
      return t.query_row + t.query;
    else
      return t.query;
  }
  KOKKOS_FORCEINLINE_FUNCTION int outer(Tile const& t) const {
    if constexpr (ranged)
      return ranges.packed.count > 0 ? 0 : t.batch;
    else
      return t.batch;
  }

  KOKKOS_FUNCTION int steps(QStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(KStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(VStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QStage& stage, Tile const& t, int) const {
    copy(q, Plane{outer(t), t.head}, query_row(t), 0, stage.q);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KStage& stage, Tile const& t, int j) const {
    from_keys(t, [&](auto const& rows) { copy(k, rows, t.key_row + key(t, j), 0, stage.k); });
  }
  KOKKOS_FUNCTION int steps(BiasStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, BiasStage& stage, Tile const& t, int j) const {
    copy(biases.source, Plane{biases.by_batch ? t.batch : 0, biases.by_head ? t.head : 0}, t.query, key(t, j),
         stage.biases);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, VStage& stage, Tile const& t, int j) const {
    if constexpr (WantsRowsContiguous<Atoms>)
      copy(v, Plane{outer(t), t.head / heads_per_kv}, arranged_row(t) + key(t, j), 0, stage.v);
    else  // weight 0 times what lies behind is 0
      from_keys(t, [&](auto const& rows) { copy(v, rows, t.key_row + key(t, j), 0, stage.v, t.key_row + t.keys); });
  }
  /// Where a tile's sequence begins among arranged values.
  KOKKOS_FORCEINLINE_FUNCTION int arranged_row(Tile const& t) const {
    if constexpr (ranged)
      if (ranges.packed.count > 0) return ranges.packed.keys.first_tile(t.batch, arranged_group) * arranged_group;
    return 0;
  }
  /// f(the plane of a tile's keys, or their pages)
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void from_keys(Tile const& t, F const& f) const {
    int const head = t.head / heads_per_kv;
    if constexpr (ReadsPages<Atoms>)
      if (pages.present()) return f(PagedRows{pages, t.batch, head});
    f(Plane{outer(t), head});
  }

  /// Of products of Q and K.
  KOKKOS_FORCEINLINE_FUNCTION Compute score_scale(Tile const& t) const {
    if constexpr (scaled)
      if (scales.q.data != nullptr || scales.k.data != nullptr)
        return scale * scales.q(t.batch, t.head) * scales.k(t.batch, t.head / heads_per_kv);
    return scale;
  }
  KOKKOS_FORCEINLINE_FUNCTION Compute value_scale(Tile const& t) const {
    if constexpr (scaled)
      return scales.v(t.batch, t.head / heads_per_kv);
    else
      return 1;
  }
  /// The values of step j. Rows of keys that do not count may hold anything, and a weight of 0 times NaN is NaN: where
  /// copies do not leave them out, they are cleared in the first step, which has the last keys.
  template <class Math, class SV>
  KOKKOS_FORCEINLINE_FUNCTION auto const& values(Math& math, Tile const& t, int j, SV& vs) const {
    auto const& v = vs.acquire().v;
    if constexpr (!Atoms::clips_rows)
      if (j == 0 && (t.key_row + t.keys < keys || pages.present())) math.clear_rows(v, t.keys - key(t, 0));
    if constexpr (WantsRowsContiguous<Atoms> && ranged)  // another sequence's
      if (j == 0 && ranges.packed.count > 0) math.clear_rows(v, t.keys - key(t, 0));
    return v;
  }

  /// The sink of a row's head: of heads together one behind the other. Rows behind the last have the last's.
  KOKKOS_FORCEINLINE_FUNCTION float sink(Tile const& t, int r) const {
    int head = t.head;
    if (shares_tiles && head_rows > 0) {
      int const row = t.query + r < queries ? t.query + r : queries - 1;
      head = t.head * (queries / head_rows) + row / head_rows;
    }
    return sinks[head * sinks_stride];
  }

  template <class Math, class SQ, class SK, class SV>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, SQ& qs, SK& ks, SV& vs) const {
    NoBiases none;
    attend(math, t, qs, ks, none, vs);
  }
  template <class Math, class SQ, class SK, class SB, class SV>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, SQ& qs, SK& ks, SB& bs, SV& vs) const {
    attend(math, t, qs, ks, bs, vs);
  }

 private:
  template <class Math, class SQ, class SK, class SB, class SV>
  KOKKOS_FORCEINLINE_FUNCTION void attend(Math& math, Tile const& t, SQ& qs, SK& ks, SB& bs, SV& vs) const {
    if (ranged && t.query >= queries_of(t)) return;
    AttentionWeights<AttentionKernel> const weights{*this, t};
    Scores s(math);
    Numerator<Atoms, BM, D> numerator(math);
    auto& acc = numerator.sum;
    Weights p(math);
    constexpr bool scaled_by_softmax = std::is_same_v<OwnScore, score::Identity> && !scales_steps;
    OnlineSoftmax<Atoms, BM> softmax(math, scaled_by_softmax ? score_scale(t) * log2_e : log2_e);
    [[maybe_unused]] Compute unit = 1;  // of values
    if (t.steps == 0) {
      math.clear(acc);
    } else {
      numerator.begin(math);
      auto const f = score_of_head<Compute>(ScoreParts<Score>::own(score), t.batch, t.head);
      auto const& q_tile = qs.acquire().q;
      auto const multiply_scores = [&] { math.multiply(q_tile, ks.acquire().k, s, false); };
      math.turn(multiply_scores);
      auto const first_words = weights.draw(math, 0);
      auto const first_sums = weights.find_sums(math, 0, f);
      math.template wait_all_but<0>(s);
      ks.release();
      weights.weigh(math, 0, f, first_sums, s, bs, softmax, [] {});
      if constexpr (scales_steps) unit = weights.key_scale(scales.tiles.v, key(t, 0));
      if constexpr (scales_keys && !scales_steps) weights.scale_by_keys(math, 0, scales.tiles.v, s);
      weights.drop(math, first_words, s);
      math.round(s, p);
      auto const multiply = [&](int j) {
        numerator.multiply(math, p, values(math, t, j, vs), softmax, j == 0);
        if constexpr (numerator.multiplies_first) vs.release();
      };
      int j = 1;
      for (; j < t.steps && !weights.likely_lost(j, f); ++j) {
        math.turn([&] {
          if constexpr (numerator.multiplies_first) multiply(j - 1);
          multiply_scores();                                           // the next scores ...
          if constexpr (!numerator.multiplies_first) multiply(j - 1);  // ... and this step's products
        });
        auto const words = weights.draw(math, j);
        auto const sums = weights.find_sums(math, j, f);
        math.template wait_all_but<numerator.multiplies_first ? 0 : 1>(s);
        ks.release();
        weights.weigh(math, j, f, sums, s, bs, softmax, [&] {
          if constexpr (rescales_early) numerator.rescale(math, softmax);
        });
        if constexpr (scales_steps) weights.change_unit(math, j, unit, softmax);
        if constexpr (scales_keys && !scales_steps) weights.scale_by_keys(math, j, scales.tiles.v, s);
        weights.drop(math, words, s);
        numerator.wait(math);
        if constexpr (!numerator.multiplies_first) vs.release();
        math.round(s, p);
        if constexpr (!rescales_early) numerator.rescale(math, softmax);
      }
      constexpr bool leaves_out = AttentionWeights<AttentionKernel>::template asks_for_losses<decltype(f)>;
      if constexpr (!leaves_out) qs.release();
      multiply(j - 1);
      numerator.wait(math);
      if constexpr (!numerator.multiplies_first) vs.release();
      if constexpr (leaves_out) {
        for (; j < t.steps; ++j) {  // one after the other, most of them nothing but scores
          math.turn(multiply_scores);
          auto const& v = values(math, t, j, vs);  // by all threads before they agree, so that one may give it back
          math.template wait_all_but<0>(s);
          ks.release();
          if (!weights.loses(math, j, f, s, softmax)) {
            weights.weigh(math, j, f, weights.find_sums(math, j, f), s, bs, softmax, [] {});
            math.round(s, p);
            numerator.rescale(math, softmax);
            numerator.multiply(math, p, v, softmax, false);
            numerator.wait(math);
          }
          vs.release();
        }
        qs.release();
      }
      numerator.end(math);
    }
    bool const has_sinks = sinks != nullptr && t.split == 0;  // once, where parts of the keys are to be merged
    Compute factor = value_scale(t) * unit;
    if constexpr (drops) factor *= static_cast<Compute>(dropout.factor);
    bool const wants_lse = lse.data != nullptr;
    softmax.finish(math, acc, factor, wants_lse, has_sinks, [&](int r) { return static_cast<Compute>(sink(t, r)); });
    Plane const plane{t.split * batches + outer(t), t.head};
    if constexpr (ranged)
      math.store(acc, o, plane, query_row(t), 0, t.query_row + t.queries);  // behind them another sequence's rows
    else
      math.store(acc, o, plane, t.query, 0);
    if (wants_lse)
      math.once_per_row(softmax.lse(), [&](Compute x, int r) {
        if (t.query + r < queries_of(t)) write(lse, lse.offset(plane, query_row(t) + r, 0), x);
      });
  }
};

}  // namespace tessera::detail

#endif
