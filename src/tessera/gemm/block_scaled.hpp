// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BLOCK_SCALED_DETAIL_HPP
#define TESSERA_GEMM_BLOCK_SCALED_DETAIL_HPP

#include <tessera/gemm/run.hpp>

// The matrix product of 8-bit factors with a scale a block: the same kernel, which promotes every block's sum with its
// scales.
namespace tessera::detail {

/// The pipeline it takes and how: the bulk pipeline as gemm() would without fast accumulation, else register tiles.
template <class Exec, class Epilogue>
GemmPlan plan_block_scaled(Exec const& exec, GemmProblem const& p, GemmOptions options) {
  options.fast_accumulation = false;
  bool const forced = options.algorithm != Algorithm::automatic && options.algorithm != Algorithm::coarsened &&
                      options.algorithm != Algorithm::hopper;
  if (forced && !options.allow_fallback)
    throw Error(ErrorCode::unsupported, std::string("tessera::gemm_block_scaled: there is no ") +
                                            name(options.algorithm) + " algorithm for scales of blocks");
  if (forced) options.algorithm = Algorithm::automatic;
  options.splits = 1;
  GemmPlan const product = plan_gemm<Exec, float, Epilogue>(exec, p, options);
  if (product.algorithm == Algorithm::hopper || p.k() == 0) return product;
  GemmPlan plan = describe_gemm<RegisterAtoms<Exec, float, GemmBlockScaled<Machine<Exec>::is_host>>, Epilogue>(
      exec, p, Algorithm::coarsened, product.reason);
  plan.flops = product.flops;
  plan.bytes = product.bytes;
  return plan;
}

/// On register tiles. Apart, so that the library holds instances.
template <class Exec, class Epilogue>
void run_block_scaled(Exec const& exec, GemmProblem const& p, BlockScales const& scales, Epilogue const& epilogue) {
  using Atoms = RegisterAtoms<Exec, float, GemmBlockScaled<Machine<Exec>::is_host>>;
  run_tiles<Atoms>("tessera::gemm_block_scaled", exec,
                   GemmKernel<Atoms, Epilogue, BlockScales>(p, epilogue, 1, {}, scales));
}

/// On the bulk pipeline, likewise. Of a C contiguous along its rows' index the transpose is not an option: the scales
/// of A and B differ.
template <class Exec, class A, class B, class Epilogue>
void run_block_scaled_bulk(Exec const& exec, GemmProblem const& problem, BlockScales const& scales,
                           GemmPlan const& plan, Epilogue const& epilogue) {
  GemmProblem p = problem;
  repack_factors(exec, p);
  visit_gemm_bulk_tile<Exec, A, B, false, false, own_epilogue<Epilogue>>(plan, [&](auto atoms) {
    using Atoms = decltype(atoms);
    if constexpr (Atoms::promotes && has_block_scaled_tile(Atoms::BN))
      run_tiles<Atoms>(
          "tessera::gemm_block_scaled", exec,
          GemmKernel<Atoms, Epilogue, BlockScales>(p, epilogue, plan.slices, {plan.cluster_m, plan.cluster_n}, scales));
  });
}

/// Runs what the plan says. C has elements.
template <class Exec, class A, class B, class Epilogue>
void run_planned_block_scaled(Exec const& exec, GemmProblem const& p, BlockScales const& scales, GemmPlan const& plan,
                              Epilogue const& epilogue) {
  if (p.k() == 0) return run_gemm<Exec, float>(exec, p, plan, epilogue);
  if constexpr (has_bulk_pipeline<Exec> && bulk_multiplies(scalar_of<A>, scalar_of<B>) &&
                (!own_epilogue<Epilogue> || compiles_bulk_kernels))
    if (plan.algorithm == Algorithm::hopper) return run_block_scaled_bulk<Exec, A, B>(exec, p, scales, plan, epilogue);
  run_block_scaled(exec, p, scales, epilogue);
}

}  // namespace tessera::detail

#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

#define TESSERA_BLOCK_SCALED_INSTANCE(EXTERN, EXEC)                                                                    \
  EXTERN template void run_block_scaled<EXEC, epilogue::Identity>(EXEC const&, GemmProblem const&, BlockScales const&, \
                                                                  epilogue::Identity const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_BLOCK_SCALED_INSTANCE, extern)

#define TESSERA_BLOCK_SCALED_BULK_OF(EXTERN, EXEC, A, B)                      \
  EXTERN template void run_block_scaled_bulk<EXEC, A, B, epilogue::Identity>( \
      EXEC const&, GemmProblem const&, BlockScales const&, GemmPlan const&, epilogue::Identity const&);
#define TESSERA_BLOCK_SCALED_BULK(EXTERN, EXEC)              \
  TESSERA_BLOCK_SCALED_BULK_OF(EXTERN, EXEC, e4m3_t, e4m3_t) \
  TESSERA_BLOCK_SCALED_BULK_OF(EXTERN, EXEC, e4m3_t, e5m2_t) \
  TESSERA_BLOCK_SCALED_BULK_OF(EXTERN, EXEC, e5m2_t, e4m3_t)
TESSERA_FOR_BULK_SPACE(TESSERA_BLOCK_SCALED_BULK, extern)

}  // namespace tessera::detail

#endif
