// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_KERNEL_HPP
#define TESSERA_ATTENTION_BACKWARD_KERNEL_HPP

#include <tessera/atoms.hpp>
#include <tessera/attention/backward_problem.hpp>

// The gradients of attention by tiles, scores and weights recomputed (Dao et al. 2022, 2024). With P = exp(S − LSE),
//
//     dV = PᵀdO,   dP = dO Vᵀ,   dS = P ∘ (dP − δ),   δ = rowsum(dO ∘ O) − dLSE,   dK = scale dSᵀQ,   dQ = scale dS K
//
namespace tessera::detail {

/// What both kernels know of the problem.
template <class Compute>
struct BackwardShape {
  int batches, heads, heads_per_kv, queries, keys;
  int left, right;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  Compute scale;
  bool grows;  // earlier keys are seen by more queries, later queries see more keys

  explicit BackwardShape(AttentionProblem const& p)
      : batches(static_cast<int>(p.q.outer)),
        heads(static_cast<int>(p.q.inner)),
        heads_per_kv(p.heads_per_kv),
        queries(static_cast<int>(p.q.rows)),
        keys(static_cast<int>(p.k.rows)),
        left(p.ranges().left),
        right(p.ranges().right),
        key_lengths(p.key_lengths),
        key_lengths_stride(p.key_lengths_stride),
        scale(static_cast<Compute>(p.scale)),
        grows(p.grows()) {}

  KOKKOS_FORCEINLINE_FUNCTION BackwardSight sight(int batch) const {
    int count = keys;
    if (key_lengths != nullptr) {
      int const length = key_lengths[batch * key_lengths_stride];
      count = length < 0 ? 0 : (length < keys ? length : keys);
    }
    return {left, right, count - queries, queries, count};
  }
  /// From products of Q and K to exponents of 2.
  KOKKOS_FORCEINLINE_FUNCTION Compute exponent_scale() const { return scale * Compute(1.44269504088896340736); }
};

/// Tile t of planes with `rows` tiles each: the longest first, a few planes at a time so that what their tiles share
/// stays in cache.
struct BackwardOrder {
  int plane, row;

  KOKKOS_FUNCTION BackwardOrder(int t, int planes, int rows, bool grows) : plane(t / rows), row(t - plane * rows) {
    if (!grows) return;
    constexpr int together = 4;
    int const group = t / (together * rows), in_group = t - group * together * rows;
    int const rest = planes - group * together, grouped = rest < together ? rest : together;
    row = in_group / grouped;
    plane = group * together + in_group - row * grouped;
  }
};

/// dK and dV: a tile is BN keys of one head of K and V, its steps go over the queries that see them, BM at a time, of
/// one head that shares them after the other. Everything is transposed, so that sums over queries stay where they are.
/// With Atoms::adds_queries, dQ as well, whose sums over keys are formed in memory.
template <class Atoms>
struct AttentionKeyGradients {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  static constexpr bool adds_queries = requires { Atoms::adds_queries; };
  using Compute = typename Atoms::Compute;

  struct Tile {
    int batch, head;    // of K and V
    int key, keys;      // first one, and how many count
    int first, a_head;  // tiles of queries that see some: the first, and how many a head has
    int steps;
  };
  template <int R, int C>
  using KeyTile =
      std::conditional_t<adds_queries, typename Atoms::template LeftEither<R, C>, typename Atoms::template Left<R, C>>;
  struct KeyStage {
    KeyTile<BN, D> k;                        // (BN,D)
    typename Atoms::template Left<BN, D> v;  // (BN,D)
    static constexpr int depth = 1;
  };
  struct QueryStage {
    typename Atoms::template RightEither<BM, D> q;  // (BM,D)
    Compute lse[BM];
    static constexpr int depth = Atoms::depth, bytes = sizeof(q) + sizeof(lse);
  };
  struct OutputStage {
    typename Atoms::template RightEither<BM, D> d_o;  // (BM,D)
    Compute delta[BM];
    static constexpr int depth = Atoms::depth, bytes = sizeof(d_o) + sizeof(delta);
  };
  using Scores = typename Atoms::template Accumulator<BN, BM>;    // (BN,BM)
  using Gradients = typename Atoms::template Accumulator<BN, D>;  // (BN,D)
  using Weights = typename Atoms::template Rounded<BN, BM>;       // (BN,BM)
  using QuerySums = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Inputs = Streams<KeyStage, QueryStage, OutputStage>;
  using Held = Fragments<Scores, Scores, Gradients, Gradients, Weights, Weights>;

  typename Atoms::Source q, k, v, d_o;
  typename Atoms::Target dk, dv, dq;
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;

  /// `dq`: sums of fp32 in the workspace; used with adds_queries.
  AttentionKeyGradients(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r, MatrixStack const& dq_sums)
      : q(Atoms::template source<typename Atoms::template RightEither<BM, D>>(p.forward.q)),
        k(Atoms::template source<KeyTile<BN, D>>(p.forward.k)),
        v(Atoms::template source<typename Atoms::template Left<BN, D>>(p.forward.v)),
        d_o(Atoms::template source<typename Atoms::template RightEither<BM, D>>(p.d_o)),
        dk(Atoms::template target<Gradients>(p.dk)),
        dv(Atoms::template target<Gradients>(p.dv)),
        dq(sum_target(dq_sums)),
        rows(r),
        shape(p.forward) {}

  static typename Atoms::Target sum_target(MatrixStack const& m) {
    if constexpr (adds_queries)
      return Atoms::template sum_target<QuerySums>(m);
    else
      return Atoms::template target<Gradients>(m);
  }

  KOKKOS_FUNCTION int kv_heads() const { return shape.heads / shape.heads_per_kv; }
  KOKKOS_FUNCTION int key_tiles() const { return (shape.keys + BN - 1) / BN; }
  KOKKOS_FUNCTION std::int64_t tiles() const { return std::int64_t(shape.batches) * kv_heads() * key_tiles(); }
  /// The machine hands tiles out.
  std::int64_t teams(int) const { return tiles(); }

  KOKKOS_FUNCTION Tile tile(int t) const {
    BackwardOrder const order(t, shape.batches * kv_heads(), key_tiles(), shape.grows);
    int const batch = order.plane / kv_heads(), key = order.row * BN;
    BackwardSight const sight = shape.sight(batch);
    Tile tile{batch, order.plane - batch * kv_heads(), key, sight.keys, sight.first_query(key) / BM, 0, 0};
    if (key >= sight.keys) return tile;
    int const end = (sight.query_end(key + BN) + BM - 1) / BM;
    tile.a_head = end > tile.first ? end - tile.first : 0;
    tile.steps = tile.a_head * shape.heads_per_kv;
    return tile;
  }
  /// Step j: which query head, and the first query.
  KOKKOS_FORCEINLINE_FUNCTION Plane query_plane(Tile const& t, int j) const {
    return {t.batch, t.head * shape.heads_per_kv + (shape.heads_per_kv > 1 ? j / t.a_head : 0)};
  }
  KOKKOS_FORCEINLINE_FUNCTION int query(Tile const& t, int j) const {
    return (t.first + (shape.heads_per_kv > 1 ? j % t.a_head : j)) * BM;
  }

  KOKKOS_FUNCTION int steps(KeyStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(QueryStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(OutputStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KeyStage& stage, Tile const& t, int) const {
    copy(k, Plane{t.batch, t.head}, t.key, 0, stage.k);
    copy(v, Plane{t.batch, t.head}, t.key, 0, stage.v);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QueryStage& stage, Tile const& t, int j) const {
    Plane const plane = query_plane(t, j);
    copy(q, plane, query(t, j), 0, stage.q);
    copy.values(rows.lse + rows.at(plane, query(t, j)), stage.lse);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, OutputStage& stage, Tile const& t, int j) const {
    Plane const plane = query_plane(t, j);
    copy(d_o, plane, query(t, j), 0, stage.d_o);
    copy.values(rows.delta + rows.at(plane, query(t, j)), stage.delta);
  }

  template <class Math, class SK, class SQ, class SO>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, SK& ks, SQ& qs, SO& os) const {
    Scores s(math), dp(math);
    Gradients dk_sum(math), dv_sum(math);
    Weights p(math), ds(math);
    if (t.steps == 0) {
      math.clear(dk_sum);
      math.clear(dv_sum);
    } else {
      auto const& keys = ks.acquire();
      if constexpr (adds_queries) clear_behind(math, t, keys.k);  // weight 0 times what lies behind is 0
      int head = t.head * shape.heads_per_kv, query = t.first * BM;
      for (int j = 0; j < t.steps; ++j) {
        step(math, t, Plane{t.batch, head}, query, j == 0, keys, qs, os, s, dp, p, ds, dk_sum, dv_sum);
        query += BM;
        if (query == (t.first + t.a_head) * BM) query = t.first * BM, ++head;
      }
      ks.release();
      Compute const scale = shape.scale;
      math.for_each(dk_sum, [scale](Compute& x, int, int) { x *= scale; });
    }
    math.store(dv_sum, dv, Plane{t.batch, t.head}, t.key, 0);
    math.store(dk_sum, dk, Plane{t.batch, t.head}, t.key, 0);
  }

 private:
  /// Queries from `query` on of a head.
  template <class Math, class SQ, class SO>
  KOKKOS_FORCEINLINE_FUNCTION void step(Math& math, Tile const& t, Plane plane, int query, bool first,
                                        KeyStage const& keys, SQ& qs, SO& os, Scores& s, Scores& dp, Weights& p,
                                        Weights& ds, Gradients& dk_sum, Gradients& dv_sum) const {
    Compute const factor = shape.exponent_scale();
    BackwardSight const sight{shape.left, shape.right, t.keys - shape.queries, shape.queries, t.keys};
    bool const hides = !sight.all_see(query, query + BM, t.key, t.key + BN);
    auto const& from = qs.acquire();
    math.multiply(keys.k, from.q, s, false);
    auto const& to = os.acquire();
    math.multiply(keys.v, to.d_o, dp, false);
    math.template wait_for<1>(s);
    math.for_each_with_column(s, from.lse, [factor](Compute& x, Compute lse) { x = Math::exp2(x * factor - lse); });
    if (hides) hide(math, sight, t.key, query, s);
    math.round(s, p);
    math.template wait_for<0>(dp);
    math.multiply(p, to.d_o, dv_sum, !first);
    math.for_each_of_two(dp, s, to.delta, [](Compute& x, Compute weight, Compute delta) { x = weight * (x - delta); });
    if (hides) hide(math, sight, t.key, query, dp);  // of keys that do not count anything may have come
    math.round(dp, ds);
    if constexpr (adds_queries) {
      QuerySums dq_part(math);
      typename Atoms::template Shared<BN, BM> all(math);
      math.share(ds, all);
      math.multiply(all, keys.k, dq_part);
      math.multiply(ds, from.q, dk_sum, !first);
      math.template wait_for<1>(dq_part);
      os.release();
      math.add_to(dq_part, dq, plane, query, 0);
    } else {
      math.multiply(ds, from.q, dk_sum, !first);
      os.release();
    }
    math.template wait_for<0>(dk_sum);
    math.template wait_for<0>(dv_sum);
    qs.release();
  }
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION static void hide(Math& math, BackwardSight const& sight, int key, int query, Scores& x) {
    math.for_each(x, [&](Compute& e, int r, int c) {
      if (!sight.sees(query + c, key + r)) e = 0;
    });
  }
  template <class Math, class KeyRows>
  KOKKOS_FORCEINLINE_FUNCTION void clear_behind(Math& math, Tile const& t, KeyRows const& k) const {
    if (t.keys < shape.keys) math.clear_rows(k, t.keys - t.key);
  }
};

/// dQ: a tile is BM queries of one head, its steps go over the keys that they see, BN at a time. Sums are formed in one
/// place and order, so that no bit differs from run to run.
template <class Atoms>
struct AttentionQueryGradients {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  using Compute = typename Atoms::Compute;

  struct Tile {
    int batch, head;
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
    static constexpr int depth = Atoms::depth;
  };
  using Scores = typename Atoms::template Accumulator<BM, BN>;    // (BM,BN)
  using Gradients = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Weights = typename Atoms::template Rounded<BM, BN>;       // (BM,BN)
  using RowValues = typename Atoms::template RowValues<BM>;
  using Inputs = Streams<QueryStage, KeyStage, ValueStage>;
  using Held = Fragments<Scores, Scores, Gradients, Weights>;

  typename Atoms::Source q, k, v, d_o;
  typename Atoms::Target dq;
  BackwardRows<Compute> rows;
  BackwardShape<Compute> shape;

  AttentionQueryGradients(AttentionBackwardProblem const& p, BackwardRows<Compute> const& r)
      : q(Atoms::template source<typename Atoms::template Left<BM, D>>(p.forward.q)),
        k(Atoms::template source<typename Atoms::template RightEither<BN, D>>(p.forward.k)),
        v(Atoms::template source<typename Atoms::template Right<BN, D>>(p.forward.v)),
        d_o(Atoms::template source<typename Atoms::template Left<BM, D>>(p.d_o)),
        dq(Atoms::template target<Gradients>(p.dq)),
        rows(r),
        shape(p.forward) {}

  KOKKOS_FUNCTION int query_tiles() const { return (shape.queries + BM - 1) / BM; }
  KOKKOS_FUNCTION std::int64_t tiles() const { return std::int64_t(shape.batches) * shape.heads * query_tiles(); }
  std::int64_t teams(int) const { return tiles(); }

  KOKKOS_FUNCTION Tile tile(int t) const {
    BackwardOrder const order(t, shape.batches * shape.heads, query_tiles(), shape.grows);
    int const batch = order.plane / shape.heads, row = shape.grows ? query_tiles() - 1 - order.row : order.row;
    BackwardSight const sight = shape.sight(batch);
    Tile tile{batch, order.plane - batch * shape.heads, row * BM, sight.keys, sight.first_key(row * BM) / BN, 0};
    int const end = (sight.key_end(row * BM + BM) + BN - 1) / BN;
    tile.steps = end > tile.first ? end - tile.first : 0;
    return tile;
  }
  KOKKOS_FORCEINLINE_FUNCTION static int key(Tile const& t, int j) { return (t.first + j) * BN; }
  KOKKOS_FORCEINLINE_FUNCTION Plane key_plane(Tile const& t) const { return {t.batch, t.head / shape.heads_per_kv}; }

  KOKKOS_FUNCTION int steps(QueryStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(KeyStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(ValueStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QueryStage& stage, Tile const& t, int) const {
    copy(q, Plane{t.batch, t.head}, t.query, 0, stage.q);
    copy(d_o, Plane{t.batch, t.head}, t.query, 0, stage.d_o);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KeyStage& stage, Tile const& t, int j) const {
    copy(k, key_plane(t), key(t, j), 0, stage.k, t.keys);  // weight 0 times what lies behind is 0
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, ValueStage& stage, Tile const& t, int j) const {
    copy(v, key_plane(t), key(t, j), 0, stage.v, t.keys);
  }

  template <class Math, class SQ, class SK, class SV>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, SQ& qs, SK& ks, SV& vs) const {
    Scores s(math), dp(math);
    Gradients dq_sum(math);
    Weights ds(math);
    if (t.steps == 0) {
      math.clear(dq_sum);
    } else {
      auto const& own = qs.acquire();
      RowValues lse(math), delta(math);
      std::int64_t const first = rows.at(Plane{t.batch, t.head}, t.query);
      math.each_row(lse, [&](Compute& x, int r) { x = rows.lse[first + r]; });
      math.each_row(delta, [&](Compute& x, int r) { x = rows.delta[first + r]; });
      Compute const factor = shape.exponent_scale();
      for (int j = 0; j < t.steps; ++j) {
        auto const& keys = ks.acquire();
        math.multiply(own.q, keys.k, s, false);
        math.multiply(own.d_o, vs.acquire().v, dp, false);
        math.template wait_for<1>(s);
        math.for_each_with(s, lse, [factor](Compute& x, Compute row_lse) { x = Math::exp2(x * factor - row_lse); });
        math.template wait_for<0>(dp);
        vs.release();
        math.for_each_of_two(dp, s, delta,
                             [](Compute& x, Compute weight, Compute row_delta) { x = weight * (x - row_delta); });
        if (!shape.sight(t.batch).all_see(t.query, t.query + BM, key(t, j), key(t, j) + BN)) hide(math, t, j, dp);
        math.round(dp, ds);
        math.multiply(ds, keys.k, dq_sum, j > 0);
        math.template wait_for<0>(dq_sum);
        ks.release();
      }
      qs.release();
      Compute const scale = shape.scale;
      math.for_each(dq_sum, [scale](Compute& x, int, int) { x *= scale; });
    }
    math.store(dq_sum, dq, Plane{t.batch, t.head}, t.query, 0);
  }

 private:
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void hide(Math& math, Tile const& t, int j, Scores& x) const {
    BackwardSight const sight = shape.sight(t.batch);
    int const first = key(t, j);
    math.for_each(x, [&](Compute& e, int r, int c) {
      if (!sight.sees(t.query + r, first + c)) e = 0;
    });
  }
};

}  // namespace tessera::detail

#endif
