// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_RUN_HPP
#define TESSERA_GEMM_RUN_HPP

#include <tessera/gemm/elementwise.hpp>
#include <tessera/gemm/plan.hpp>

namespace tessera::detail {

template <class Atoms, class Exec, class Epilogue>
void run_gemm_tiles(Exec const& exec, GemmProblem const& p, Epilogue const& epilogue) {
  run_tiles<Atoms>("tessera::gemm", exec, GemmKernel<Atoms, Epilogue>(p, epilogue));
}

/// The warp-specialised pipeline. Apart, so that the library compiles it for the one architecture that has it.
template <class Exec, class Epilogue>
void run_gemm_bulk(Exec const& exec, GemmProblem const& p, Epilogue const& epilogue) {
  run_gemm_tiles<BulkAtoms<Exec, bf16_t, GemmBulk>>(exec, p, epilogue);
}

/// Runs what the plan says. C has elements.
template <class Exec, class Compute, class Epilogue>
void run_gemm(Exec const& exec, GemmProblem const& p, GemmPlan const& plan, Epilogue const& epilogue) {
  constexpr bool host = Machine<Exec>::is_host;
  switch (plan.algorithm) {
    case Algorithm::hopper:
      if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float> &&
                    (std::is_same_v<Epilogue, epilogue::Identity> || compiles_bulk_kernels))
        run_gemm_bulk(exec, p, epilogue);
      break;
    case Algorithm::tiled:
      run_gemm_tiles<ScratchAtoms<Exec, Compute, GemmTiled>>(exec, p, epilogue);
      break;
    case Algorithm::coarsened:
      if (plan.tile_m == GemmCoarsened<host, Compute>::BM)
        run_gemm_tiles<RegisterAtoms<Exec, Compute, GemmCoarsened<host, Compute>>>(exec, p, epilogue);
      else
        run_gemm_tiles<RegisterAtoms<Exec, Compute, GemmCoarsenedSmall<host>>>(exec, p, epilogue);
      break;
    default: {
      bool const rows_contiguous = p.c.row_stride < p.c.col_stride;
      bool const along_rows = (plan.algorithm == Algorithm::naive) != rows_contiguous;
      for_each_index("tessera::gemm", exec, p.batch() * p.m() * p.n(),
                     GemmElement<Compute, Epilogue>{p, Finish<Compute, Epilogue>(p, epilogue), along_rows});
    }
  }
}

}  // namespace tessera::detail

#include <tessera/gemm/instances.hpp>

#endif
