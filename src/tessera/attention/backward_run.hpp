// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_RUN_HPP
#define TESSERA_ATTENTION_BACKWARD_RUN_HPP

#include <algorithm>

#include <tessera/attention/backward_kernel.hpp>
#include <tessera/attention/backward_rows.hpp>
#include <tessera/attention/plan.hpp>
#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

template <class Exec, class Compute, int D, bool OfKeys>
using BackwardTiledAtoms = RegisterAtoms<Exec, Compute, BackwardTiled<Machine<Exec>::is_host, D, OfKeys>>;

/// Where things lie in the workspace: LSE and δ of each query, and, where they are formed in memory, sums of dQ in rows
/// of packs.
struct BackwardWorkspace {
  static constexpr std::int64_t tile_rows = 128;  // a multiple of what any kernel's tile of queries has
  std::int64_t rows, planes, sum_cols, queries;
  std::size_t element;
  bool sums;

  BackwardWorkspace(AttentionBackwardProblem const& p, std::size_t element_bytes, bool with_sums)
      : rows((p.forward.q.rows + tile_rows - 1) / tile_rows * tile_rows),
        planes(p.query_planes()),
        sum_cols((p.forward.q.cols + 3) / 4 * 4),
        queries(p.forward.q.rows),
        element(element_bytes),
        sums(with_sums) {}

  std::size_t row_bytes() const { return static_cast<std::size_t>(planes * rows) * element; }
  std::size_t bytes() const {
    return 2 * row_bytes() + (sums ? static_cast<std::size_t>(planes * queries * sum_cols) * sizeof(float) : 0);
  }
  float* sums_in(void* workspace) const {
    return sums ? reinterpret_cast<float*>(static_cast<char*>(workspace) + 2 * row_bytes()) : nullptr;
  }
  MatrixStack sums_of(MatrixStack const& q, void* workspace) const {
    MatrixStack m;
    m.data = sums_in(workspace);
    m.type = Scalar::fp32;
    m.rows = q.rows;
    m.cols = q.cols;
    m.row_stride = sum_cols;
    m.col_stride = 1;
    m.inner = q.inner;
    m.outer = q.outer;
    m.inner_stride = q.rows * sum_cols;
    m.outer_stride = m.inner_stride * q.inner;
    return m;
  }
  template <class Compute>
  BackwardRows<Compute> rows_in(void* workspace, MatrixStack const& q) const {
    auto* const first = static_cast<Compute*>(workspace);
    return {first, first + planes * rows, rows, static_cast<int>(q.inner)};
  }
};

template <class Exec, class Compute>
void prepare_backward(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w,
                      void* workspace) {
  using Kernel = PrepareBackward<KernelSpace<Exec>, Compute>;
  using Walk = typename Kernel::Walk;
  Walk const walk{w.rows, p.forward.q.inner, p.forward.q.outer};
  Kernel const kernel{walk,
                      p.forward.o,
                      p.d_o,
                      p.forward.lse,
                      p.d_lse,
                      w.rows_in<Compute>(workspace, p.forward.q),
                      w.sums_in(workspace),
                      w.sum_cols,
                      Walk::packed(p.forward.o) && Walk::packed(p.d_o)};
  if constexpr (WarpAtoms<Exec>::available && std::is_same_v<Compute, float>)
    if (w.sums && p.d_o.type == p.forward.o.type && backward_rows_packed(p.d_o) && backward_rows_packed(p.forward.o))
      return visit_packed_backward(p.d_o, [&](auto tag, auto lanes) {
        using Packed = PackedPrepareBackward<Exec, typename decltype(tag)::type, decltype(lanes)::value>;
        std::int64_t const rows = walk.outer * walk.inner * walk.rows;
        launch<Packed::Row::threads, 4>("tessera::attention_backward", exec,
                                        (rows + Packed::Row::rows_a_team - 1) / Packed::Row::rows_a_team, 0,
                                        Packed{kernel, rows, Divisor(walk.rows), Divisor(walk.inner)});
      });
  launch<Walk::threads>("tessera::attention_backward", exec, walk.teams(), 0, kernel);
}

template <class Exec>
void finish_backward(Exec const& exec, AttentionBackwardProblem const& p, BackwardWorkspace const& w, void* workspace) {
  using Kernel = FinishBackward<KernelSpace<Exec>>;
  using Walk = typename Kernel::Walk;
  Walk const walk{p.dq.rows, p.dq.inner, p.dq.outer};
  Kernel const kernel{
      walk, p.dq, w.sums_in(workspace), w.sum_cols, static_cast<float>(p.forward.scale), Walk::packed(p.dq)};
  if constexpr (WarpAtoms<Exec>::available)
    if (backward_rows_packed(p.dq))
      return visit_packed_backward(p.dq, [&](auto tag, auto lanes) {
        using Packed = PackedFinishBackward<Exec, typename decltype(tag)::type, decltype(lanes)::value>;
        std::int64_t const rows = walk.outer * walk.inner * walk.rows;
        launch<Packed::Row::threads, 4>("tessera::attention_backward", exec,
                                        (rows + Packed::Row::rows_a_team - 1) / Packed::Row::rows_a_team, 0,
                                        Packed{kernel, rows, Divisor(walk.rows), Divisor(walk.inner)});
      });
  launch<Walk::threads>("tessera::attention_backward", exec, walk.teams(), 0, kernel);
}

/// dK and dV, then dQ, each sum in one place.
template <class Exec, class Compute, int D>
void run_backward_tiles(Exec const& exec, AttentionBackwardProblem const& p, void* workspace) {
  if constexpr (attention_runs<Exec, Compute>) {
    BackwardWorkspace const w(p, sizeof(Compute), false);
    prepare_backward<Exec, Compute>(exec, p, w, workspace);
    auto const rows = w.rows_in<Compute>(workspace, p.forward.q);
    using KeyAtoms = BackwardTiledAtoms<Exec, Compute, D, true>;
    using QueryAtoms = BackwardTiledAtoms<Exec, Compute, D, false>;
    run_tiles<KeyAtoms>("tessera::attention_backward", exec, AttentionKeyGradients<KeyAtoms>(p, rows, {}));
    run_tiles<QueryAtoms>("tessera::attention_backward", exec, AttentionQueryGradients<QueryAtoms>(p, rows));
  }
}

/// All gradients in one kernel of the warp-specialised pipeline, sums of dQ formed in memory.
template <class Exec, class T, int D>
void run_backward_bulk(Exec const& exec, AttentionBackwardProblem const& p, void* workspace) {
  using Atoms = BulkAtoms<Exec, T, BackwardBulk<D>>;
  BackwardWorkspace const w(p, sizeof(float), true);
  auto const rows = w.rows_in<float>(workspace, p.forward.q);
  run_tiles<Atoms>("tessera::attention_backward", exec,
                   AttentionKeyGradients<Atoms>(p, rows, w.sums_of(p.forward.q, workspace)));
}

#define TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, COMPUTE, D) \
  EXTERN template void run_backward_tiles<EXEC, COMPUTE, D>(EXEC const&, AttentionBackwardProblem const&, void*);
#define TESSERA_BACKWARD_INSTANCES(EXTERN, EXEC)       \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, float, 64)   \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, float, 128)  \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, float, 256)  \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, double, 64)  \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, double, 128) \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, double, 256)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_BACKWARD_INSTANCES, extern)

#define TESSERA_BACKWARD_ROWS(EXTERN, EXEC)                                                                          \
  EXTERN template void prepare_backward<EXEC, float>(EXEC const&, AttentionBackwardProblem const&,                   \
                                                     BackwardWorkspace const&, void*);                               \
  EXTERN template void finish_backward<EXEC>(EXEC const&, AttentionBackwardProblem const&, BackwardWorkspace const&, \
                                             void*);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_BACKWARD_ROWS, extern)

#define TESSERA_BACKWARD_BULK_OF(EXTERN, EXEC, T)                                                           \
  EXTERN template void run_backward_bulk<EXEC, T, 64>(EXEC const&, AttentionBackwardProblem const&, void*); \
  EXTERN template void run_backward_bulk<EXEC, T, 128>(EXEC const&, AttentionBackwardProblem const&, void*);
#define TESSERA_BACKWARD_BULK_BF16(EXTERN, EXEC) TESSERA_BACKWARD_BULK_OF(EXTERN, EXEC, bf16_t)
#define TESSERA_BACKWARD_BULK_FP16(EXTERN, EXEC) TESSERA_BACKWARD_BULK_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_BACKWARD_BULK_BF16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_BACKWARD_BULK_FP16, extern)

}  // namespace tessera::detail

#endif
