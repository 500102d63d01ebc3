// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_KERNEL_HPP
#define TESSERA_ATTENTION_KERNEL_HPP

#include <tessera/attention/online_softmax.hpp>
#include <tessera/attention/problem.hpp>
#include <tessera/gemm/problem.hpp>
#include <tessera/score.hpp>

namespace tessera::detail {

/// O = softmax(score(scale·QKᵀ))·V by tiles with the online softmax; scores and weights are never stored (Rabe and
/// Staats 2021; Dao et al. 2022). A tile is BM queries of one head; its steps go over tiles of BN keys, from the last
/// visible one back, so that masked tiles come first. The next step's scores and this step's products run under each
/// other's row work (Shah et al. 2024).
template <class Atoms, class Score>
struct AttentionKernel {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, D = Atoms::D;
  using Compute = typename Atoms::Compute;

  struct Tile {
    int batch, head, query;  // first query
    int keys;                // that count in this batch entry
    int first, steps;        // tiles of keys that some query of the tile sees, of a part of them
    int split;               // which part
  };
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
  using Scores = typename Atoms::template Accumulator<BM, BN>;    // (BM,BN)
  using Numerator = typename Atoms::template Accumulator<BM, D>;  // (BM,D)
  using Weights = typename Atoms::template Rounded<BM, BN>;       // (BM,BN)
  using Inputs = Streams<QStage, KStage, VStage>;
  using Held = Fragments<Scores, Numerator, Weights>;

  typename Atoms::Source q, k, v;
  typename Atoms::Target o;
  MatrixStack lse;
  PageTable pages;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  int batches, heads, heads_per_kv, queries, keys, splits;
  Compute scale;
  bool causal;
  Score score;

  AttentionKernel(AttentionProblem const& p, Score const& s)
      : q(Atoms::template source<typename Atoms::template Left<BM, D>>(p.q)),
        k(key_source<typename Atoms::template Right<BN, D>>(p, p.k)),
        v(key_source<typename Atoms::template RightTransposed<BN, D>>(p, p.v)),
        o(Atoms::template target<Numerator>(p.o)),
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
        scale(static_cast<Compute>(p.scale)),
        causal(p.causal),
        score(s) {
    static_assert(Multiplies<Atoms, BM, BN, D> && MultipliesRounded<Atoms, BM, D, BN>);
  }

  template <class Rows>
  static typename Atoms::Source key_source(AttentionProblem const& p, MatrixStack const& m) {
    if constexpr (ReadsPages<Atoms>)
      if (p.pages.present()) return Atoms::template paged_source<Rows>(m);
    return Atoms::template source<Rows>(m);
  }

  KOKKOS_FUNCTION int query_tiles() const { return (queries + BM - 1) / BM; }
  KOKKOS_FUNCTION std::int64_t tiles() const { return std::int64_t(splits) * batches * heads * query_tiles(); }

  /// Causal: the longest rows first, a few heads at a time so that their K and V stay in cache.
  KOKKOS_FUNCTION Tile tile(int t) const {
    constexpr int head_group = 4;  // one team a tile, four heads: 457 -> 702 TFLOP/s at 16384 keys, d 128, on an H200
    int const rows = query_tiles(), in_split = batches * heads * rows;
    int const split = splits > 1 ? t / in_split : 0;
    t -= split * in_split;
    int plane = t / rows, row = t - plane * rows;
    if (causal) {
      int const group = t / (head_group * rows), in_group = t - group * head_group * rows;
      int const rest = batches * heads - group * head_group, grouped = rest < head_group ? rest : head_group;
      int const down = in_group / grouped;
      plane = group * head_group + in_group - down * grouped;
      row = rows - 1 - down;
    }
    int const batch = plane / heads;
    Tile tile{batch, plane - batch * heads, row * BM, keys, 0, 0, split};
    if (key_lengths != nullptr) {
      int const length = key_lengths[tile.batch * key_lengths_stride];
      tile.keys = length < 0 ? 0 : (length < keys ? length : keys);
    }
    int const last = tile.query + BM < queries ? tile.query + BM - 1 : queries - 1;
    int const seen = visible(tile, last);
    tile.steps = seen <= 0 ? 0 : (seen + BN - 1) / BN;
    if (splits > 1) {
      int const each = tile.steps / splits, more = tile.steps - each * splits;  // the first of them have one more
      tile.first += each * split + (split < more ? split : more);
      tile.steps = each + (split < more ? 1 : 0);
    }
    return tile;
  }
  /// Persistent teams, but a team a tile for long causal problems: the machine hands out the shrinking tiles better.
  /// So where several fit a multiprocessor: one begins under another's steps.
  std::int64_t teams(int concurrency) const {
    bool const team_a_tile = (causal && keys > 1024) || Atoms::teams_at_once > 1;
    return team_a_tile || tiles() < concurrency ? tiles() : concurrency;
  }

  /// Keys [0, visible) are seen by a query.
  KOKKOS_FORCEINLINE_FUNCTION int visible(Tile const& t, int query) const {
    int const last = query + 1 + t.keys - queries;
    return causal && last < t.keys ? last : t.keys;
  }
  KOKKOS_FORCEINLINE_FUNCTION static int key(Tile const& t, int j) { return (t.first + t.steps - 1 - j) * BN; }

  KOKKOS_FUNCTION int steps(QStage const*, Tile const& t) const { return t.steps > 0 ? 1 : 0; }
  KOKKOS_FUNCTION int steps(KStage const*, Tile const& t) const { return t.steps; }
  KOKKOS_FUNCTION int steps(VStage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, QStage& stage, Tile const& t, int) const {
    copy(q, Plane{t.batch, t.head}, t.query, 0, stage.q);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, KStage& stage, Tile const& t, int j) const {
    from_keys(t, [&](auto const& rows) { copy(k, rows, key(t, j), 0, stage.k); });
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, VStage& stage, Tile const& t, int j) const {
    // weight 0 times what lies behind is 0
    from_keys(t, [&](auto const& rows) { copy(v, rows, key(t, j), 0, stage.v, t.keys); });
  }
  /// f(the plane of a tile's keys, or their pages)
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void from_keys(Tile const& t, F const& f) const {
    int const head = t.head / heads_per_kv;
    if constexpr (ReadsPages<Atoms>)
      if (pages.present()) return f(PagedRows{pages, t.batch, head});
    f(Plane{t.batch, head});
  }

  /// The caller's scores, and −∞ where a key is not seen.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION void modify(Math& math, Tile const& t, int j, Scores& s) const {
    int const first_key = key(t, j);
    if constexpr (!std::is_same_v<Score, score::Identity>)
      math.for_each(s, [&](Compute& x, int r, int c) {
        if (t.query + r < queries && first_key + c < t.keys)
          x = score(x * scale, t.batch, t.head, t.query + r, first_key + c);
      });
    if (first_key + BN > visible(t, t.query))
      math.for_each(s, [&](Compute& x, int r, int c) {
        if (first_key + c >= visible(t, t.query + r)) x = -Kokkos::Experimental::infinity_v<Compute>;
      });
  }

  /// The values of step j. Rows of keys that do not count may hold anything, and a weight of 0 times NaN is NaN: where
  /// copies do not leave them out, they are cleared in the first step, which has the last keys.
  template <class Math, class SV>
  KOKKOS_FORCEINLINE_FUNCTION auto const& values(Math& math, Tile const& t, int j, SV& vs) const {
    auto const& v = vs.acquire().v;
    if constexpr (!Atoms::clips_rows)
      if (j == 0 && (t.keys < keys || pages.present())) math.clear_rows(v, t.keys - key(t, 0));
    return v;
  }

  template <class Math, class SQ, class SK, class SV>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, SQ& qs, SK& ks, SV& vs) const {
    constexpr Compute log2_e = Compute(1.44269504088896340736);
    Scores s(math);
    Numerator acc(math);
    Weights p(math);
    OnlineSoftmax<Atoms, BM> softmax(math, std::is_same_v<Score, score::Identity> ? scale * log2_e : log2_e);
    if (t.steps == 0) {
      math.clear(acc);
    } else {
      auto const& q_tile = qs.acquire().q;
      math.turn([&] { math.multiply(q_tile, ks.acquire().k, s, false); });
      math.template wait_all_but<0>(s);
      ks.release();
      modify(math, t, 0, s);
      softmax.update(math, s);
      math.round(s, p);
      for (int j = 1; j < t.steps; ++j) {
        math.turn([&] {
          math.multiply(q_tile, ks.acquire().k, s, false);           // the next scores ...
          math.multiply(p, values(math, t, j - 1, vs), acc, j > 1);  // ... and this step's products
        });
        math.template wait_all_but<1>(s);
        ks.release();
        modify(math, t, j, s);
        softmax.update(math, s);
        math.template wait_all_but<0>(acc);
        vs.release();
        softmax.rescale(math, acc);
        math.round(s, p);
      }
      qs.release();
      math.multiply(p, values(math, t, t.steps - 1, vs), acc, t.steps > 1);
      math.template wait_all_but<0>(acc);
      vs.release();
    }
    softmax.finish(math, acc);
    Plane const plane{t.split * batches + t.batch, t.head};
    math.store(acc, o, plane, t.query, 0);
    if (lse.data != nullptr)
      math.once_per_row(softmax.lse(), [&](Compute x, int r) {
        if (t.query + r < queries) write(lse, lse.offset(plane, t.query + r, 0), x);
      });
  }
};

}  // namespace tessera::detail

#endif
