// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_BIAS_HPP
#define TESSERA_ATTENTION_BACKWARD_BIAS_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_scores.hpp>
#include <tessera/attention/backward_shape.hpp>
#include <tessera/launch.hpp>

namespace tessera::detail {

/// The score adds elements of a View, which may have gradients.
template <class Score>
inline constexpr bool gives_bias_gradient = !std::is_void_v<score_element<own_score<Score>>>;

/// 0 in a gradient of scores, an element for each, where a pass over the keys in tiles of these sizes visits no tile. A
/// team has a tile.
template <class Exec, class Sizes, class Mask>
struct ClearUnseenScores {
  static constexpr int threads = 256, BM = Sizes::BM, BN = Sizes::BN;
  MatrixStack gradient;  // of fp32
  BackwardShape<float> shape;

  KOKKOS_FUNCTION std::int64_t query_tiles() const { return (gradient.rows + BM - 1) / BM; }
  KOKKOS_FUNCTION std::int64_t key_tiles() const { return (gradient.cols + BN - 1) / BN; }
  std::int64_t teams() const { return gradient.outer * gradient.inner * query_tiles() * key_tiles(); }
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    std::int64_t batch = team.league_rank();
    std::int64_t const key = take_remainder(batch, key_tiles()) * BN, query = take_remainder(batch, query_tiles()) * BM,
                       head = take_remainder(batch, gradient.inner);
    if (visits(static_cast<int>(batch), static_cast<int>(query), static_cast<int>(key))) return;
    float* const first =
        static_cast<float*>(const_cast<void*>(gradient.data)) + gradient.offset(Plane{batch, head}, query, key);
    for (int e = thread_of<Exec>(team); e < BM * BN; e += Machine<Exec>::threads(threads)) {
      int const r = e / BN, c = e % BN;
      if (query + r < gradient.rows && key + c < gradient.cols)
        first[r * gradient.row_stride + c * gradient.col_stride] = 0;
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION bool visits(int batch, int query, int key) const {
    if constexpr (BoundsQueries<Mask>) return false;  // as the mask says: all are cleared
    BackwardSequence<false> const sequence{batch};
    int const counted = shape.counted_keys(sequence);
    if (key >= counted) return false;
    BackwardSight const sight = shape.sight_of(sequence, counted);
    int const begin = sight.first_query(key), end = sight.query_end(key + BN);
    return begin < end && query >= begin / BM * BM && query < end;
  }
};

template <class Sizes, class Exec, class Mask>
void clear_unseen_scores(Exec const& exec, AttentionBackwardProblem const& p) {
  AttentionProblem const& f = p.forward;
  if (!f.causal && !f.windowed() && f.key_lengths == nullptr && !BoundsQueries<Mask>) return;
  using Kernel = ClearUnseenScores<Exec, Sizes, Mask>;
  Kernel const kernel{p.d_bias, BackwardShape<float>(f)};
  launch<Kernel::threads>("tessera::attention_backward", exec, kernel.teams(), 0, kernel);
}

/// The gradient of a matrix that is added to scores is dS itself, summed over what an element is added to. A tile is BN
/// keys and BM queries of one plane of that matrix, or, where one row serves all queries, BN keys; its steps go over
/// the batch entries, the heads and the tiles of queries that share it. Each sum is in one place and order.
template <class Atoms, class Score, class Mask>
struct AttentionBiasGradients {
  using Functors = BackwardFunctors<Score, Mask>;
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  using Compute = typename Atoms::Compute;

  struct Tile {
    Plane bias;          // of the gradient
    int key, query;      // first ones
    int batch, head;     // first ones that share the plane
    int heads;           // that do
    int first, a_plane;  // tiles of queries: the first, and how many each head has
    int steps;
  };
  struct Stage {
    typename Atoms::template Left<BN, D> k, v;           // (BN,D)
    typename Atoms::template RightEither<BM, D> q, d_o;  // (BM,D)
    static constexpr int depth = 1;
  };
  using Scores = typename Atoms::template Accumulator<BN, BM>;  // (BN,BM)
  using RowValues = typename Atoms::template RowValues<BN>;
  using Drops = DropsTile<true>;
  using Kept = std::conditional_t<Functors::drops, typename Atoms::template Flags<BN, BM, Drops>, NoFlags>;
  using Inputs = Streams<Stage>;
  using Held = Fragments<Scores, Scores, Scores>;

  typename Atoms::Source q, k, v, d_o;
  MatrixStack gradient;  // keys by queries
  typename Atoms::Target target;
  bool one_row;  // serves all queries
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;
  Functors functors;
  Compute kept_factor;  // that dropout keeps weights with

  AttentionBiasGradients(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, Score const& score,
                         Mask const& mask)
      : q(Atoms::template source<typename Atoms::template RightEither<BM, D>>(p.forward.q)),
        k(Atoms::template source<typename Atoms::template Left<BN, D>>(p.forward.k)),
        v(Atoms::template source<typename Atoms::template Left<BN, D>>(p.forward.v)),
        d_o(Atoms::template source<typename Atoms::template RightEither<BM, D>>(p.d_o)),
        gradient(p.d_bias.transposed()),
        target(Atoms::template target<Scores>(gradient)),
        one_row(p.d_bias.rows == 1),
        rows(r),
        shape(p.forward),
        functors(score, mask, p.forward.dropout),
        kept_factor(static_cast<Compute>(p.forward.dropout.factor)) {}

  KOKKOS_FUNCTION int key_tiles() const { return shape.key_tiles(BN); }
  KOKKOS_FUNCTION int query_tiles() const { return one_row ? 1 : shape.query_tiles(BM); }
  KOKKOS_FUNCTION std::int64_t tiles() const {
    return gradient.outer * gradient.inner * key_tiles() * std::int64_t(query_tiles());
  }
  std::int64_t teams(int) const { return tiles(); }

  KOKKOS_FUNCTION Tile tile(int t) const {
    int const of_plane = key_tiles() * query_tiles(), plane = t / of_plane, in_plane = t - plane * of_plane;
    int const outer = plane / static_cast<int>(gradient.inner),
              inner = plane - outer * static_cast<int>(gradient.inner);
    bool const all_batches = gradient.outer == 1, all_heads = gradient.inner == 1;
    Tile tile{
        {outer, inner}, 0, 0, all_batches ? 0 : outer, all_heads ? 0 : inner, all_heads ? shape.heads : 1, 0, 0, 0};
    tile.key = in_plane / query_tiles() * BN;
    tile.query = in_plane % query_tiles() * BM;
    int begin = tile.query, end = one_row ? shape.queries : tile.query + BM;
    if (shape.key_lengths == nullptr) {  // else each batch entry has its own
      BackwardSight const sight = shape.sight_of(BackwardSequence<false>{0}, shape.keys);
      int const some = sight.first_query(tile.key), none = sight.query_end(tile.key + BN);
      if (one_row) begin = some, end = none;
      if (some >= end || none <= begin) end = begin;
    }
    tile.first = begin / BM;
    tile.a_plane = end > begin ? (end + BM - 1) / BM - tile.first : 0;
    tile.steps = (all_batches ? shape.batches : 1) * tile.heads * tile.a_plane;
    return tile;
  }

  /// Step j: a batch entry, a head and its first query.
  struct Step {
    int batch, head, query;
  };
  KOKKOS_FORCEINLINE_FUNCTION Step step(Tile const& t, int j) const {
    int const plane = j / t.a_plane, batch = plane / t.heads;
    return {t.batch + batch, t.head + plane - batch * t.heads, (t.first + j - plane * t.a_plane) * BM};
  }

  KOKKOS_FUNCTION int steps(Stage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int j) const {
    Step const s = step(t, j);
    Plane const of_queries{s.batch, s.head}, of_keys{s.batch, s.head / shape.heads_per_kv};
    copy(k, of_keys, t.key, 0, stage.k);
    copy(q, of_queries, s.query, 0, stage.q);
    copy(v, of_keys, t.key, 0, stage.v);
    copy(d_o, of_queries, s.query, 0, stage.d_o);
  }

  template <class Math, class SS>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t, SS& stages) const {
    Scores s(math), dp(math), sum(math);  // products, then weights; what arrives for weights, then for scores
    RowValues sums(math);
    math.clear(sum);
    for (int j = 0; j < t.steps; ++j) {
      Step const at = step(t, j);
      auto const& stage = stages.acquire();
      math.multiply(stage.k, stage.q, s, false);
      math.multiply(stage.v, stage.d_o, dp, false);
      math.template wait_for<0>(dp);
      stages.release();
      differentiate(math, t, at, s, dp);
      if (one_row)
        math.row_add_partial(dp, sums);
      else
        math.for_each_of_two(sum, dp, delta(at), [](Compute& x, Compute more, Compute) { x += more; });
    }
    if (!one_row) return math.store(sum, target, t.bias, t.key, t.query);
    math.row_combine(sums);
    math.once_per_row(sums, [&](Compute x, int r) {
      if (t.key + r >= gradient.rows) return;
      static_cast<Compute*>(const_cast<void*>(gradient.data))[gradient.offset(t.bias, t.key + r, 0)] = x;
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION auto numbers(Compute const* all, Step const& s) const -> Compute const (&)[BM] {
    return reinterpret_cast<Compute const(&)[BM]>(all[rows.at(Plane{s.batch, s.head}, s.query)]);
  }
  KOKKOS_FORCEINLINE_FUNCTION auto delta(Step const& s) const -> Compute const (&)[BM] {
    return numbers(rows.delta, s);
  }
  /// dS of a step's products. The last query and key stand for those behind them.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void differentiate(Math& math, Tile const& t, Step const& at, Scores& s,
                                                 Scores& dp) const {
    Plane const plane{at.batch, at.head};
    HeadWeights<Functors, Compute> const weights{functors, plane, shape.template score_scale<true>(at.batch, at.head),
                                                 shape.template exponent_scale_of<true>(at.batch, at.head),
                                                 kept_factor};
    scale_by_head(math, dp, shape.scales.v, at.batch, at.head / shape.heads_per_kv);
    Kept kept;
    if constexpr (Functors::drops) math.find_flags(Drops{&functors.dropout, at.batch, at.head, at.query, t.key}, kept);
    int const counted = shape.counted_keys(BackwardSequence<false>{at.batch});
    BackwardSight const sight = shape.sight_of(BackwardSequence<false>{at.batch}, counted);
    int const last_query = shape.queries - 1, last_key = counted > 0 ? counted - 1 : 0;
    Compute const(&lse)[BM] = numbers(rows.lse, at);
    math.for_each(s, [&](Compute& x, int r, int c) {
      int const i = at.query + c, j = t.key + r;
      if (!sight.sees(i, j)) x = weights.hidden;
      weights.template weigh<Math, true>(x, lse[c], i < last_query ? i : last_query, j < last_key ? j : last_key, true);
    });
    math.for_each_of_two(dp, s, delta(at), kept, [&](Compute& x, Compute left, Compute of_row, bool is_kept) {
      x = weights.arrived(left, x, of_row, is_kept);
    });
  }
};

}  // namespace tessera::detail

#endif
