// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_RUN_HPP
#define TESSERA_ATTENTION_RUN_HPP

#include <tessera/attention/plan.hpp>
#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

/// fp64 attention is for the CPU: its tiles do not fit the scratch of a GPU's team.
template <class Exec, class Compute>
inline constexpr bool attention_runs = Machine<Exec>::is_host || std::is_same_v<Compute, float>;

template <class Exec, class Compute, int D, class Score>
void run_attention_tiles(Exec const& exec, AttentionProblem const& p, Score const& score) {
  if constexpr (attention_runs<Exec, Compute>) {
    using Atoms = TiledAttentionAtoms<Exec, Compute, D>;
    run_tiles<Atoms>("tessera::attention", exec, AttentionKernel<Atoms, Score>(p, score));
  }
}

/// The warp-specialised pipeline. Apart, so that the library compiles it for the one architecture that has it.
template <class Exec, class T, class Score>
void run_attention_bulk(Exec const& exec, AttentionProblem const& p, Score const& score) {
  visit_bulk_attention<Exec, T>(p, [&](auto atoms) {
    using Atoms = decltype(atoms);
    run_tiles<Atoms>("tessera::attention", exec, AttentionKernel<Atoms, Score>(p, score));
  });
}

/// The pipeline of asynchronous copies, likewise.
template <class Exec, class T, class Score>
void run_attention_async([[maybe_unused]] Exec const& exec, [[maybe_unused]] AttentionProblem const& p,
                         [[maybe_unused]] AttentionPlan const& plan, [[maybe_unused]] Score const& score) {
  if constexpr (has_async_pipeline<Exec>)
    each_async_attention<Exec, T>(attention_features(p), [&](auto atoms) {
      using Atoms = decltype(atoms);
      using Kernel = AttentionKernel<Atoms, Score>;
      if (scratch_of<Atoms, Exec, Kernel>() == plan.scratch_bytes)  // which differs between them
        run_tiles<Atoms>("tessera::attention", exec, Kernel(p, score));
    });
}

/// Runs what the plan says for Q of T. O has elements.
template <class Exec, class T, class Compute, class Score>
void run_attention(Exec const& exec, AttentionProblem const& p, AttentionPlan const& plan, Score const& score) {
  if (plan.algorithm == AttentionAlgorithm::hopper) {
    if constexpr (has_bulk_pipeline<Exec> && pipelines_attend<T> &&
                  (std::is_same_v<Score, score::Identity> || compiles_bulk_kernels))
      run_attention_bulk<Exec, T>(exec, p, score);
    return;
  }
  if constexpr (pipelines_attend<T>)
    if (plan.algorithm == AttentionAlgorithm::tensor_core) return run_attention_async<Exec, T>(exec, p, plan, score);
  visit_features(attention_features(p), [&](auto d) { run_attention_tiles<Exec, Compute, d()>(exec, p, score); });
}

// The library holds attention without a score functor of the caller's own: nobody compiles it again. One instance a
// source for the wide ones.
#define TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, COMPUTE, D)                                                        \
  EXTERN template void run_attention_tiles<EXEC, COMPUTE, D, score::Identity>(EXEC const&, AttentionProblem const&, \
                                                                              score::Identity const&);
#define TESSERA_ATTENTION_INSTANCES(EXTERN, EXEC)       \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 64)   \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 128)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 256)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 64)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 128) \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 256)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_ATTENTION_INSTANCES, extern)

#define TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, T)                                                        \
  EXTERN template void run_attention_bulk<EXEC, T, score::Identity>(EXEC const&, AttentionProblem const&, \
                                                                    score::Identity const&);
#define TESSERA_ATTENTION_BULK_BF16(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, bf16_t)
#define TESSERA_ATTENTION_BULK_FP16(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_BF16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_FP16, extern)

#define TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, T)                                                        \
  EXTERN template void run_attention_async<EXEC, T, score::Identity>(EXEC const&, AttentionProblem const&, \
                                                                     AttentionPlan const&, score::Identity const&);
#define TESSERA_ATTENTION_ASYNC_BF16(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, bf16_t)
#define TESSERA_ATTENTION_ASYNC_FP16(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_BF16, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_FP16, extern)

}  // namespace tessera::detail

#endif
