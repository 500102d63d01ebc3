// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_RUN_HPP
#define TESSERA_GEMM_RUN_HPP

#include <tessera/gemm/direct.hpp>
#include <tessera/gemm/elementwise.hpp>
#include <tessera/gemm/plan.hpp>

namespace tessera::detail {

template <class Atoms, class Exec, class Epilogue>
void run_gemm_tiles(Exec const& exec, GemmProblem const& p, GemmPlan const& plan, Epilogue const& epilogue) {
  GemmTileExtent const tile{plan.tile_m, plan.tile_n};
  run_tiles<Atoms>("tessera::gemm", exec, GemmKernel<Atoms, Epilogue>(p, epilogue, 1, {}, {}, tile, plan.splits));
}

template <class Atoms, class Exec, class Epilogue>
void run_packed_gemm(Exec const& exec, GemmProblem const& p, GemmPlan const& plan, Epilogue const& epilogue) {
  run_gemm_tiles<Atoms>(exec, pack_gemm_factors<Atoms>(exec, p), plan, epilogue);
}

/// Runs what the plan says on the portable pipeline and without one. C has elements, those of every part of K.
template <class Exec, class Compute, class Epilogue>
void run_gemm(Exec const& exec, GemmProblem const& p, GemmPlan const& plan, Epilogue const& epilogue) {
  constexpr bool host = Machine<Exec>::is_host;
  switch (plan.algorithm) {
    case Algorithm::tiled:
      run_gemm_tiles<ScratchAtoms<Exec, Compute, GemmTiled>>(exec, p, plan, epilogue);
      break;
    case Algorithm::coarsened:
      if constexpr (has_direct_products<Exec, Compute> && !own_epilogue<Epilogue>)
        if (plan.splits == 1 && multiply_directly<Exec, Compute>(exec, p)) return;
      if constexpr (has_narrow_atoms<Exec, Compute>) {
        using Element = GemmNarrowElement<Compute>;
        if constexpr (packs_gemm_factors<Exec, Epilogue>)
          if (plan.narrow_factors && plan.packed_factors)
            return run_packed_gemm<PackedAtoms<Exec, Compute, Element, GemmNarrow<Element>>>(exec, p, plan, epilogue);
        if (plan.narrow_factors)
          return run_gemm_tiles<NarrowAtoms<Exec, Element, GemmNarrow<Element>>>(exec, p, plan, epilogue);
      }
      if constexpr (packs_gemm_factors<Exec, Epilogue>) {
        using Short = GemmCoarsenedShort<Compute>;
        if (plan.packed_factors)
          return with_packed_atoms<Exec, Compute, Short>(
              [&](auto tag) { run_packed_gemm<typename decltype(tag)::type>(exec, p, plan, epilogue); });
        if (plan.tile_k == Short::BK)
          return run_gemm_tiles<RegisterAtoms<Exec, Compute, Short>>(exec, p, plan, epilogue);
      }
      if constexpr (host)  // a tile of any size
        run_gemm_tiles<RegisterAtoms<Exec, Compute, GemmCoarsened<host, Compute>>>(exec, p, plan, epilogue);
      else if (plan.tile_m == GemmCoarsened<host, Compute>::BM)
        run_gemm_tiles<RegisterAtoms<Exec, Compute, GemmCoarsened<host, Compute>>>(exec, p, plan, epilogue);
      else
        run_gemm_tiles<RegisterAtoms<Exec, Compute, GemmCoarsenedSmall>>(exec, p, plan, epilogue);
      break;
    default: {
      bool const rows_contiguous = p.c.row_stride < p.c.col_stride;
      bool const along_rows = (plan.algorithm == Algorithm::naive) != rows_contiguous;
      for_each_index("tessera::gemm", exec, p.batch() * p.m() * p.n(),
                     GemmElement<Compute, Epilogue>{p, Finish<Compute, Epilogue>(p, epilogue), along_rows});
    }
  }
}

/// The same for factors of type A and B, on any pipeline.
template <class Exec, class A, class B, class Compute, class Epilogue>
void run_gemm_pass(Exec const& exec, GemmProblem const& p, GemmPlan const& plan, Epilogue const& epilogue) {
  if constexpr (has_bulk_pipeline<Exec> && bulk_multiplies(scalar_of<A>, scalar_of<B>) &&
                (!own_epilogue<Epilogue> || compiles_bulk_kernels))
    if (plan.algorithm == Algorithm::hopper) return run_gemm_bulk<Exec, A, B>(exec, p, plan, epilogue);
  if constexpr (has_async_pipeline<Exec> && std::is_same_v<A, B> && async_multiplies(scalar_of<A>)) {
    if (plan.algorithm == Algorithm::tensor_core) return run_gemm_async<Exec, A, true>(exec, p, plan, epilogue);
    if constexpr (has_thin_products<A> && !own_epilogue<Epilogue>)
      if (is_thin(plan)) return run_gemm_thin<Exec, A>(exec, p, plan);
    if constexpr (std::is_same_v<A, float>)  // the portable pipeline has one stage
      if (plan.algorithm == Algorithm::coarsened && plan.stages > 1)
        return run_gemm_async<Exec, A, false>(exec, p, plan, epilogue);
  }
  run_gemm<Exec, Compute>(exec, p, plan, epilogue);
}

/// Runs what the plan says: a pass or, where K is split, one to the sums of its parts and one that adds them.
template <class Exec, class A, class B, class Compute, class Epilogue>
void run_planned_gemm(Exec const& exec, GemmProblem const& problem, GemmPlan const& plan, Epilogue const& epilogue) {
  if (plan.splits == 1) return run_gemm_pass<Exec, A, B, Compute>(exec, problem, plan, epilogue);
  GemmProblem const p = Machine<Exec>::is_host ? problem : planned_problem<Epilogue>(problem, plan);
  char* const end = static_cast<char*>(p.workspace) + plan.workspace_bytes;
  MatrixStack const sums = gemm_split_sums(p, plan.splits, end - gemm_split_bytes(p, plan.splits));
  GemmProblem parts{p.a, p.b, sums};
  parts.workspace = p.workspace;
  run_gemm_pass<Exec, A, B, Compute>(exec, parts, plan, epilogue::Identity{});
  add_gemm_splits<Exec, Compute>(exec, p, sums, plan.splits, epilogue);
}

}  // namespace tessera::detail

#include <tessera/gemm/instances.hpp>

#endif
