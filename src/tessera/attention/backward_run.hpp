// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_RUN_HPP
#define TESSERA_ATTENTION_BACKWARD_RUN_HPP

#include <algorithm>

#include <tessera/attention/backward_bias.hpp>
#include <tessera/attention/backward_keys.hpp>
#include <tessera/attention/backward_queries.hpp>
#include <tessera/attention/backward_rows.hpp>
#include <tessera/attention/backward_sinks.hpp>
#include <tessera/attention/backward_sums.hpp>
#include <tessera/attention/backward_tail.hpp>
#include <tessera/attention/backward_widened.hpp>
#include <tessera/attention/plan.hpp>

namespace tessera::detail {

template <class Exec, class Compute, int D, bool OfKeys>
using BackwardTiledAtoms = RegisterAtoms<Exec, Compute, BackwardTiled<Machine<Exec>::is_host, D, OfKeys>>;

/// Where sums of dQ are formed in place, all products in one pass.
template <class Exec, class Compute, int D>
using BackwardInPlaceAtoms = EitherAtoms<Exec, Compute, BackwardInPlace<D>>;
template <class Exec, class Compute>
inline constexpr bool backward_adds_in_place = has_either_atoms<Exec, Compute>;
/// The atoms of the pass over the keys.
template <class Exec, class Compute, int D>
using BackwardKeyAtoms =
    std::conditional_t<backward_adds_in_place<Exec, Compute>, BackwardInPlaceAtoms<Exec, Compute, D>,
                       BackwardTiledAtoms<Exec, Compute, D, true>>;

/// How the keys of a head are shared out where sums of dQ are formed in place.
template <class Exec, int D>
BackwardSplit backward_split(Exec const& exec, AttentionBackwardProblem const& p) {
  using Sizes = BackwardInPlace<D>;
  bool const few = p.forward.grows() && p.forward.k.rows < Sizes::few_keys;
  int const tile_keys = few ? Sizes::keys_of_few : Sizes::BN;
  std::int64_t const tiles = BackwardShape<float>(p.forward).key_tiles(tile_keys),
                     teams = std::int64_t(Sizes::teams_a_core) * Machine<Exec>::concurrency(exec),
                     planes = std::max<std::int64_t>(p.key_planes(), 1);
  std::int64_t const wanted = std::min<std::int64_t>((teams + planes - 1) / planes, Sizes::most_parts);
  return {static_cast<int>(std::max<std::int64_t>(std::min(wanted, tiles), 1)), tile_keys};
}

/// The tiles of keys that a kernel's teams share.
template <class Kernel, class Exec>
BackwardTail backward_tail(Exec const& exec, AttentionBackwardProblem const& p) {
  AttentionProblem const& f = p.forward;
  if (!Kernel::shares || p.packed() || f.scales.present() || p.d_bias.data != nullptr) return {};
  BackwardShape<float> const shape(f);
  bool const differ = f.grows() || f.windowed() || f.key_lengths != nullptr;
  std::int64_t const tiles = p.key_planes() * shape.key_tiles(Kernel::BN),
                     steps = std::int64_t(shape.query_tiles(Kernel::BM)) * f.heads_per_kv;
  return {tiles, steps, Machine<Exec>::concurrency(exec), differ, Kernel::parts_apart};
}

/// Where things lie in the workspace: LSE and δ of each query, where dQ is added up in memory `sum_cols` sums of fp32 a
/// query, where sinks have gradients parts of those, HeadFactors where heads have scales, sums of fp32 of dK and dV of
/// tiles that teams share, and where a mask bounds them the queries that see each tile of keys.
struct BackwardWorkspace {
  std::int64_t rows, planes, sum_cols, sink_parts, scaled_heads, key_sums, bounds;
  std::size_t element;

  BackwardWorkspace(AttentionBackwardProblem const& p, std::size_t element_bytes, std::int64_t sums_a_query,
                    std::int64_t sums_of_keys = 0, std::int64_t bounded_tiles = 0)
      : rows(BackwardRowPlaces(p.forward).rows(p.forward.q.rows)),
        planes(p.query_planes()),
        sum_cols(sums_a_query),
        sink_parts(p.d_sinks != nullptr ? planes * rows / BackwardRowPlaces::tile_rows : 0),
        scaled_heads(p.forward.scales.present() ? p.sequences() * p.forward.q.inner : 0),
        key_sums(sums_of_keys),
        bounds(bounded_tiles),
        element(element_bytes) {}

  std::size_t row_bytes() const { return static_cast<std::size_t>(planes * rows) * element; }
  std::size_t sink_offset() const {
    return 2 * row_bytes() + static_cast<std::size_t>(planes * rows * sum_cols) * sizeof(float);
  }
  std::size_t factor_offset() const {
    return (sink_offset() + static_cast<std::size_t>(sink_parts) * element + 15) / 16 * 16;
  }
  std::size_t key_sum_offset() const { return factor_offset() + static_cast<std::size_t>(scaled_heads) * 4 * element; }
  std::size_t bound_offset() const { return key_sum_offset() + static_cast<std::size_t>(key_sums) * sizeof(float); }
  std::size_t bytes() const { return bound_offset() + static_cast<std::size_t>(bounds) * sizeof(mask::Queries); }
  mask::Queries* bounds_in(void* workspace) const {
    return reinterpret_cast<mask::Queries*>(static_cast<char*>(workspace) + bound_offset());
  }
  float* key_sums_in(void* workspace) const {
    return reinterpret_cast<float*>(static_cast<char*>(workspace) + key_sum_offset());
  }
  float* sums_in(void* workspace) const {
    return sum_cols > 0 ? reinterpret_cast<float*>(static_cast<char*>(workspace) + 2 * row_bytes()) : nullptr;
  }
  template <class Compute>
  BackwardRows<Compute> rows_in(void* workspace, MatrixStack const& q) const {
    auto* const first = static_cast<Compute*>(workspace);
    auto* const factors = reinterpret_cast<HeadFactors<Compute>*>(static_cast<char*>(workspace) + factor_offset());
    return {first, first + planes * rows, rows, static_cast<int>(q.inner), scaled_heads > 0 ? factors : nullptr};
  }
};

template <class Exec, class Compute, class Places>
void prepare_rows_in_places(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                            void* workspace) {
  using Kernel = PrepareBackward<KernelSpace<Exec>, Compute, Places>;
  using Walk = typename Kernel::Walk;
  Walk const walk{w.rows, p.forward.q.inner, p.entries()};
  Kernel const kernel{walk,
                      p.forward.o,
                      p.d_o,
                      p.forward.lse,
                      p.d_lse,
                      Places(p.forward),
                      w.rows_in<Compute>(workspace, p.forward.q),
                      w.sums_in(workspace),
                      w.sum_cols,
                      Walk::packed(p.forward.o) && Walk::packed(p.d_o)};
  if constexpr (WarpAtoms<Exec>::available && std::is_same_v<Compute, float>)
    if (p.d_o.type == p.forward.o.type && backward_rows_packed(p.d_o) && backward_rows_packed(p.forward.o))
      return visit_packed_backward(p.d_o, [&](auto tag, auto lanes) {
        using Packed = PackedPrepareBackward<Exec, typename decltype(tag)::type, decltype(lanes)::value, Places>;
        std::int64_t const rows = walk.outer * walk.inner * walk.rows;
        launch<Packed::Row::threads, 4>("tessera::attention_backward", exec,
                                        (rows + Packed::Row::rows_a_team - 1) / Packed::Row::rows_a_team, 0,
                                        Packed{kernel, rows, Divisor(walk.rows), Divisor(walk.inner)});
      });
  launch<Walk::threads>("tessera::attention_backward", exec, walk.teams(), 0, kernel);
}

template <class Exec, class Compute>
void prepare_backward_rows(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                           void* workspace) {
  if (p.packed())
    prepare_rows_in_places<Exec, Compute, BackwardRowPlaces>(exec, p, w, workspace);
  else
    prepare_rows_in_places<Exec, Compute, SameRows>(exec, p, w, workspace);
}

/// Gradients of the sinks, when what the products need of each query is there. Without entries they are 0.
template <class Exec, class Compute>
void run_sink_gradients(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                        void* workspace) {
  constexpr char const* label = "tessera::attention_backward";
  using Parts = SinkParts<KernelSpace<Exec>, Compute>;
  using Sum = SumSinkParts<KernelSpace<Exec>, Compute>;
  using Walk = typename Parts::Walk;
  auto* const parts = reinterpret_cast<Compute*>(static_cast<char*>(workspace) + w.sink_offset());
  std::int64_t const heads = p.forward.q.inner, parts_a_plane = w.rows / Parts::rows_a_part;
  Parts const of_parts{Walk{parts_a_plane, heads, p.entries()}, w.rows_in<Compute>(workspace, p.forward.q),
                       p.forward.sinks, p.forward.sinks_stride, parts};
  if (w.sink_parts > 0) launch<Walk::threads>(label, exec, of_parts.walk.teams(), 0, of_parts);
  Sum const sum{Walk{heads, 1, 1}, parts, p.entries(), heads, parts_a_plane, p.d_sinks, p.d_sinks_stride};
  launch<Walk::threads>(label, exec, sum.walk.teams(), 0, sum);
}

/// HeadFactors of each head of a batch entry or sequence.
template <class Compute>
struct FindHeadFactors {
  HeadScales scales;
  int heads, heads_per_kv;
  Compute scale;
  HeadFactors<Compute>* to;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    int const batch = static_cast<int>(i / heads), head = static_cast<int>(i - std::int64_t(batch) * heads);
    to[i] = HeadFactors<Compute>::of(scales, batch, head, heads_per_kv, scale);
  }
};

/// What the products need of each query.
template <class Exec, class Compute>
void prepare_backward(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                      void* workspace) {
  prepare_backward_rows<Exec, Compute>(exec, p, w, workspace);
  if (p.d_sinks != nullptr) run_sink_gradients<Exec, Compute>(exec, p, w, workspace);
}

/// And of each head, for kernels that find it in memory.
template <class Exec, BackwardVariant Variant>
void prepare_backward_bulk(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                           void* workspace) {
  prepare_backward<Exec, float>(exec, p, w, workspace);
  if constexpr (Variant == BackwardVariant::scaled) {
    auto const rows = w.rows_in<float>(workspace, p.forward.q);
    FindHeadFactors<float> const find{p.forward.scales, rows.heads, p.forward.heads_per_kv,
                                      static_cast<float>(p.forward.scale), rows.factors};
    for_each_index("tessera::attention_backward scales", exec, w.scaled_heads, find);
  }
}

/// Eight neighbours of a row may be stored at once.
inline bool stores_eight(MatrixStack const& m) {
  auto const fits = [](std::int64_t extent, std::int64_t stride) { return extent <= 1 || stride % 8 == 0; };
  return reinterpret_cast<std::uintptr_t>(m.data) % (8 * size_of(m.type)) == 0 && m.cols % 8 == 0 &&
         m.col_stride == 1 && fits(m.rows, m.row_stride) && fits(m.inner, m.inner_stride) &&
         fits(m.outer, m.outer_stride);
}
/// What makes dK or dV of sums of the shared tiles of `Atoms::BN` keys.
template <class Exec, class Atoms, class Parts>
auto shared_gradient(AttentionBackwardProblem const& p, MatrixStack const& to, BackwardTail const& tail,
                     float const* sums, Parts const& parts) {
  constexpr int BN = Atoms::BN, D = Atoms::D, halves = BN / 64;
  using Order = typename Atoms::template SumOrder<BN, D>;
  return FinishBackward<KernelSpace<Exec>, Order, D, SameRows, Parts>{
      parts,
      to,
      SameRows(p.forward),
      sums,
      std::int64_t(BackwardShape<float>(p.forward).key_tiles(BN)) * halves,
      tail.whole * halves,
      std::int64_t(tail.shared) * halves,
      1,
      nullptr,
      stores_eight(to)};
}
/// dQ from the sums in the workspace, and dK and dV of the shared tiles.
template <class Exec, class Atoms, bool Packed>
void finish_backward(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                     BackwardTail const& tail, void* workspace) {
  constexpr char const* label = "tessera::attention_backward";
  constexpr int rows = 64, BN = Atoms::BN, D = Atoms::D;  // of a tile of sums
  static_assert(Atoms::BM == rows || sums_go_on<typename Atoms::template SumOrder<rows, D>>,
                "tiles of sums that are not the kernel's need an order that goes on from one tile to the next");
  using Places = std::conditional_t<Packed, BackwardRowPlaces, SameRows>;
  using Space = KernelSpace<Exec>;
  using Queries = FinishBackward<Space, typename Atoms::template SumOrder<rows, D>, D, Places>;
  std::int64_t const tiles = w.rows / rows;
  Queries const dq{{},
                   p.dq,
                   Places(p.forward),
                   w.sums_in(workspace),
                   tiles,
                   0,
                   w.planes * tiles,
                   static_cast<float>(p.forward.scale),
                   w.rows_in<float>(workspace, p.forward.q).factors,
                   stores_eight(p.dq)};
  if (tail.shared == 0) return launch<Queries::threads>(label, exec, dq.teams(), 0, dq);
  float const* const sums = w.key_sums_in(workspace);
  using Keys = FinishBackward<Space, typename Atoms::template SumOrder<BN, D>, D, SameRows>;
  Keys const dk = shared_gradient<Exec, Atoms>(p, p.dk, tail, sums, WholeSums{}),
             dv = shared_gradient<Exec, Atoms>(p, p.dv, tail, sums + std::int64_t(tail.shared) * BN * D, WholeSums{});
  FinishShared<Queries, Keys> const all{dq, dk, dv};
  launch<Queries::threads>(label, exec, all.teams(), 0, all);
}

/// dQ, dK and dV in one pass over the keys.
template <class Exec, class Compute, int D, class Score, class Mask>
void run_backward_in_place(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                           Mask const& mask) {
  constexpr char const* label = "tessera::attention_backward";
  using Atoms = BackwardInPlaceAtoms<Exec, Compute, D>;
  static_assert(BackwardRowPlaces::tile_rows % Atoms::BM == 0);
  BackwardSplit const split = backward_split<Exec, D>(exec, p);
  BackwardWorkspace const w(p, sizeof(Compute), std::int64_t(D) * split.parts);
  prepare_backward<Exec, Compute>(exec, p, w, workspace);
  auto const rows = w.rows_in<Compute>(workspace, p.forward.q);
  run_tiles<Atoms>(label, exec,
                   AttentionKeyGradients<Atoms, Score, Mask, true>(p, rows, w.sums_in(workspace), score, mask, split));
  run_tiles<Atoms>(label, exec, AttentionQuerySums<Atoms, true>(p, rows, w.sums_in(workspace), split.parts));
}

/// dK and dV, then dQ, each sum in one place, or all in one pass. One kernel for packed sequences and for others.
template <class Exec, class Compute, int D, class Score, class Mask>
void run_backward_tiles(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                        Mask const& mask) {
  if constexpr (backward_adds_in_place<Exec, Compute>) {
    run_backward_in_place<Exec, Compute, D>(exec, p, workspace, score, mask);
  } else if constexpr (attention_runs<Exec, Compute>) {
    BackwardWorkspace const w(p, sizeof(Compute), 0);
    prepare_backward<Exec, Compute>(exec, p, w, workspace);
    auto const rows = w.rows_in<Compute>(workspace, p.forward.q);
    using KeyAtoms = BackwardTiledAtoms<Exec, Compute, D, true>;
    using QueryAtoms = BackwardTiledAtoms<Exec, Compute, D, false>;
    run_tiles<KeyAtoms>("tessera::attention_backward", exec,
                        AttentionKeyGradients<KeyAtoms, Score, Mask, true>(p, rows, nullptr, score, mask));
    run_tiles<QueryAtoms>("tessera::attention_backward", exec,
                          AttentionQueryGradients<QueryAtoms, Score, Mask, true>(p, rows, score, mask));
  }
}

/// The gradient of a matrix that is added to scores, behind the others: it needs what they have left in the workspace.
/// On the portable kernels, whatever the others ran on.
template <class Exec, class Compute, int D, class Score, class Mask>
void run_bias_gradients(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                        Mask const& mask) {
  if constexpr (attention_runs<Exec, Compute>) {
    BackwardWorkspace const w(p, sizeof(Compute), 0);
    using Atoms = BackwardTiledAtoms<Exec, Compute, D, true>;
    run_tiles<Atoms>(
        "tessera::attention_backward", exec,
        AttentionBiasGradients<Atoms, Score, Mask>(p, w.rows_in<Compute>(workspace, p.forward.q), score, mask));
  }
}

/// All products by one kernel that adds dQ up in memory, behind prepare(workspace) and before what finishes sums.
template <class Exec, class Atoms, class Kernel, class Score, class Mask, class Prepare>
void run_backward_adding(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                         Mask const& mask, Prepare const& prepare) {
  BackwardTail const tail = backward_tail<Kernel>(exec, p);
  BackwardWorkspace const w(p, sizeof(float), Atoms::D, tail.sums_of(Atoms::BN * Atoms::D),
                            bounded_tiles<Exec, Mask>(p));
  Kernel kernel(p, w.rows_in<float>(workspace, p.forward.q), w.sums_in(workspace), score, mask);
  bound_queries(exec, kernel, w.bounds_in(workspace));
  prepare(w);
  if constexpr (Kernel::shares)
    if (tail.shared > 0) {
      ClearSums const clear{w.key_sums_in(workspace)};
      for_each_index("tessera::attention_backward sums", exec, w.key_sums / ClearSums::width, clear);
      kernel.share(tail, clear.sums);
    }
  run_tiles<Atoms>("tessera::attention_backward", exec, kernel);
  finish_backward<Exec, Atoms, Kernel::packed>(exec, p, w, tail, workspace);
}

template <class Exec, class T, class Sizes, BackwardVariant Variant>
using BackwardBulkAtoms = BulkAtoms<Exec, T, BackwardVariantBulk<Sizes, Variant>>;

/// All products in one kernel of the warp-specialised pipeline, dQ added up in memory. For packed sequences one of its
/// own, for scales of heads and for gradients of a bias: others have less to be found and kept.
template <class Exec, class T, int D, bool Packed, BackwardVariant Variant, class Score, class Mask>
void run_backward_bulk(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                       Mask const& mask) {
  using Atoms = BackwardBulkAtoms<Exec, T, BackwardBulk<D>, Variant>;
  using Kernel = AttentionKeyGradients<Atoms, Score, Mask, Packed>;
  run_backward_adding<Exec, Atoms, Kernel>(exec, p, workspace, score, mask, [&](BackwardWorkspace const& w) {
    prepare_backward_bulk<Exec, Variant>(exec, p, w, workspace);
    if constexpr (Variant == BackwardVariant::bias) clear_unseen_scores<Atoms, Exec, Mask>(exec, p);
  });
}

/// The sizes of the last pass over the keys, where there are passes.
template <int D>
using BackwardLastKeys = std::conditional_t<(D > 128), BackwardWideKeysBulk, BackwardKeysBulk<(D > 128 ? 128 : D)>>;
/// Sums in the workspace of parts of tiles that the teams of a pass over the keys share, or of a pass before it.
template <class Kernel, class Exec>
std::int64_t sums_of_parts(Exec const& exec, AttentionBackwardProblem const& p) {
  return backward_tail<Kernel>(exec, p).sums_apart(Kernel::BN * Kernel::D,
                                                   Kernel::of_keys && Kernel::of_values ? 2 : 1);
}
template <class Exec, int D, class Score, class Mask>
using BackwardLastKeysKernel = AttentionKeyGradients<BulkAtoms<Exec, bf16_t, BackwardLastKeys<D>>, Score, Mask>;
/// Gradients that a pass over the keys has left parts of.
template <class Exec, class Kernel, class Atoms>
void finish_parts(Exec const& exec, AttentionBackwardProblem const& p, BackwardTail const& tail, float const* sums) {
  SumsInParts const parts{static_cast<int>(tail.parts.by), Atoms::BN};
  auto const finish = [&](MatrixStack const& to, float const* from) {
    auto const kernel = shared_gradient<Exec, Atoms>(p, to, tail, from, parts);
    launch<kernel.threads>("tessera::attention_backward", exec, kernel.teams(), 0, kernel);
  };
  if constexpr (Kernel::of_keys) finish(p.dk, sums);
  if constexpr (Kernel::of_values) finish(p.dv, sums + Kernel::of_keys * tail.sums_apart(Atoms::BN * Atoms::D, 1));
}

/// A pass over the keys whose sums are formed in one place, and what its teams have left in parts.
template <class Exec, class Atoms, class Kernel>
void run_key_pass(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w, void* workspace,
                  Kernel kernel) {
  BackwardTail const tail = backward_tail<Kernel>(exec, p);
  float* const parts = w.key_sums_in(workspace);
  bound_queries(exec, kernel, w.bounds_in(workspace));
  if constexpr (Kernel::shares)
    if (tail.shared > 0) kernel.share(tail, parts);
  run_tiles<Atoms>("tessera::attention_backward", exec, kernel);
  if constexpr (Kernel::shares)
    if (tail.shared > 0) finish_parts<Exec, Kernel, Atoms>(exec, p, tail, parts);
}

/// The same by two passes, over the keys and over the queries, each sum in one place and order.
template <class Exec, class T, int D, bool Packed, BackwardVariant Variant, class Score, class Mask>
void run_backward_bulk_in_place(Exec const& exec, AttentionBackwardProblem const& p, void* workspace,
                                Score const& score, Mask const& mask) {
  BackwardWorkspace const w(p, sizeof(float), 0, sums_of_parts<BackwardLastKeysKernel<Exec, D, Score, Mask>>(exec, p),
                            bounded_tiles<Exec, Mask>(p));
  prepare_backward_bulk<Exec, Variant>(exec, p, w, workspace);
  auto const rows = w.rows_in<float>(workspace, p.forward.q);
  auto const pass = [&]<class Atoms>(std::type_identity<Atoms>) {
    using Kernel = AttentionKeyGradients<Atoms, Score, Mask, Packed>;
    run_key_pass<Exec, Atoms>(exec, p, w, workspace, Kernel(p, rows, nullptr, score, mask));
  };
  if constexpr (D > 128) {
    pass(std::type_identity<BackwardBulkAtoms<Exec, T, BackwardWideValuesBulk, Variant>>{});
    pass(std::type_identity<BackwardBulkAtoms<Exec, T, BackwardWideKeysBulk, Variant>>{});
  } else {
    pass(std::type_identity<BackwardBulkAtoms<Exec, T, BackwardKeysBulk<D>, Variant>>{});
  }
  using QueryAtoms = BackwardBulkAtoms<Exec, T, BackwardQueriesBulk<D>, Variant>;
  run_tiles<QueryAtoms>("tessera::attention_backward", exec,
                        AttentionQueryGradients<QueryAtoms, Score, Mask, Packed>(p, rows, score, mask));
}

template <class Exec, class T, class Sizes>
using BackwardAsyncAtoms = AsyncGridAtoms<Exec, T, Sizes>;
/// Whether kernels on that pipeline have more to find and to keep than plain scores of sequences of one length.
template <bool Packed, class Score, class Mask>
inline constexpr bool beside_plain =
    Packed || !std::is_same_v<Score, score::Identity> || !std::is_same_v<Mask, mask::All>;
template <class Exec, class T, int D>
using BackwardQueriesAsyncAtoms = AsyncRowAtoms<Exec, T, BackwardQueriesAsync<D>>;

/// All products in one kernel of the pipeline of asynchronous copies.
template <class Exec, class T, class Sizes, bool Packed, class Score, class Mask>
void run_backward_async(Exec const& exec, AttentionBackwardProblem const& p, void* workspace, Score const& score,
                        Mask const& mask) {
  using Atoms = BackwardAsyncAtoms<Exec, T, Sizes>;
  using Kernel = AttentionKeyGradients<Atoms, Score, Mask, Packed>;
  run_backward_adding<Exec, Atoms, Kernel>(exec, p, workspace, score, mask, [&](BackwardWorkspace const& w) {
    prepare_backward<Exec, float>(exec, p, w, workspace);
  });
}

/// The same by two passes, each sum in one place and order.
template <class Exec, class T, class Sizes, bool Packed, class Score, class Mask>
void run_backward_async_in_place(Exec const& exec, AttentionBackwardProblem const& p, void* workspace,
                                 Score const& score, Mask const& mask) {
  using KeyAtoms = BackwardAsyncAtoms<Exec, T, BackwardKeysAsync<Sizes>>;
  using KeyKernel = AttentionKeyGradients<KeyAtoms, Score, Mask, Packed>;
  using QueryAtoms = BackwardQueriesAsyncAtoms<Exec, T, Sizes::D>;
  BackwardWorkspace const w(p, sizeof(float), 0, sums_of_parts<KeyKernel>(exec, p), bounded_tiles<Exec, Mask>(p));
  prepare_backward<Exec, float>(exec, p, w, workspace);
  auto const rows = w.rows_in<float>(workspace, p.forward.q);
  run_key_pass<Exec, KeyAtoms>(exec, p, w, workspace, KeyKernel(p, rows, nullptr, score, mask));
  run_tiles<QueryAtoms>("tessera::attention_backward", exec,
                        AttentionQueryGradients<QueryAtoms, Score, Mask, Packed>(p, rows, score, mask));
}

}  // namespace tessera::detail

#endif
