// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PLAN_DETAIL_HPP
#define TESSERA_GEMM_PLAN_DETAIL_HPP

#include <string>

#include <tessera/error.hpp>
#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm_plan.hpp>
#include <tessera/machine.hpp>

namespace tessera::detail {

inline std::int64_t gemm_tiles(GemmProblem const& p, std::int64_t bm, std::int64_t bn) {
  return p.batch() * ((p.m() + bm - 1) / bm) * ((p.n() + bn - 1) / bn);
}

template <class Atoms, class Epilogue, class Exec>
GemmPlan describe_gemm(Exec const& exec, GemmProblem const& p, Algorithm algorithm, char const* reason) {
  GemmPlan plan;
  plan.algorithm = algorithm;
  plan.tile_m = Atoms::BM;
  plan.tile_n = Atoms::BN;
  plan.tile_k = Atoms::BK;
  plan.stages = Atoms::depth;
  plan.team_threads = Machine<Exec>::threads(Atoms::team_threads);
  plan.scratch_bytes = scratch_of<Atoms, Exec, GemmKernel<Atoms, Epilogue>>();
  plan.tiles = gemm_tiles(p, Atoms::BM, Atoms::BN);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  return plan;
}

/// What every operand of the bulk pipeline must be.
template <class Exec>
char const* bulk_obstacle(Exec const& exec, GemmProblem const& p) {
  if (!BulkPipeline<Exec>::runs_on(exec)) return "the hopper pipeline needs a device of compute capability 9.0";
  if (p.a.type != Scalar::bf16 || p.b.type != Scalar::bf16 || p.c.type != Scalar::bf16)
    return "the hopper pipeline multiplies bf16 into bf16";
  if (p.k() == 0) return "there is nothing to multiply";
  if (p.a.col_stride != 1 || p.b.col_stride != 1) return "the hopper pipeline wants A and B contiguous along K";
  if (p.c.col_stride != 1) return "the hopper pipeline wants C contiguous along its columns";
  if (!bulk_copyable(p.a) || !bulk_copyable(p.b) || !bulk_copyable(p.c))
    return "the hopper pipeline wants pointers and strides in multiples of 16 bytes";
  return nullptr;
}

/// Why the bulk pipeline cannot run this problem; nullptr when it can.
template <class Exec, class Compute, class Epilogue>
char const* bulk_gemm_obstacle(Exec const& exec, GemmProblem const& p) {
  if constexpr (!has_bulk_pipeline<Exec>)
    return "the hopper pipeline needs the CUDA backend built for sm_90a";
  else if constexpr (!std::is_same_v<Compute, float>)
    return "the hopper pipeline has no fp64 products";
  else if constexpr (!std::is_same_v<Epilogue, epilogue::Identity> && !compiles_bulk_kernels)
    return "this source, which brings its own epilogue, is not compiled for sm_90a (tessera_target_hopper() in CMake)";
  else
    return bulk_obstacle(exec, p);
}

template <class Exec, class Compute, class Epilogue>
GemmPlan plan_gemm(Exec const& exec, GemmProblem const& p, GemmOptions const& options) {
  constexpr bool host = Machine<Exec>::is_host;
  using Large = RegisterAtoms<Exec, Compute, GemmCoarsened<host, Compute>>;
  using Small = RegisterAtoms<Exec, Compute, GemmCoarsenedSmall<host>>;
  using Tiled = ScratchAtoms<Exec, Compute, GemmTiled>;
  Algorithm wanted = options.algorithm;
  char const* reason = wanted == Algorithm::automatic ? "the fastest rung that runs here" : "asked for";
  if (wanted == Algorithm::automatic || wanted == Algorithm::hopper) {
    char const* const obstacle = bulk_gemm_obstacle<Exec, Compute, Epilogue>(exec, p);
    if (wanted == Algorithm::hopper && obstacle != nullptr && !options.allow_fallback)
      throw Error(ErrorCode::unsupported, std::string("tessera::gemm: algorithm hopper cannot run: ") + obstacle);
    if (obstacle == nullptr) {
      if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float>)
        return describe_gemm<BulkAtoms<Exec, bf16_t, GemmBulk>, Epilogue>(exec, p, Algorithm::hopper, reason);
    }
    wanted = Algorithm::coarsened;
    if (has_bulk_pipeline<Exec> || options.algorithm == Algorithm::hopper) reason = obstacle;
  }
  if (p.k() == 0 && wanted != Algorithm::naive) {
    wanted = Algorithm::coalesced;
    reason = "no product to form: K = 0 or alpha = 0";
  }
  if (wanted == Algorithm::tiled) return describe_gemm<Tiled, Epilogue>(exec, p, wanted, reason);
  if (wanted == Algorithm::coarsened) {
    bool const fills = gemm_tiles(p, Large::BM, Large::BN) >= 2 * Machine<Exec>::concurrency(exec);
    return fills ? describe_gemm<Large, Epilogue>(exec, p, wanted, reason)
                 : describe_gemm<Small, Epilogue>(exec, p, wanted, reason);
  }
  GemmPlan plan;
  plan.algorithm = wanted;
  plan.tiles = gemm_tiles(p, 1, 1);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  return plan;
}

}  // namespace tessera::detail

#endif
