// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_RUN_HPP
#define TESSERA_ATTENTION_RUN_HPP

#include <tessera/attention/plan.hpp>
#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

template <class Exec, class Compute, int D, class Score, class Mask>
void run_attention_tiles(Exec const& exec, AttentionProblem const& p, Score const& score, Mask const& mask) {
  if constexpr (attention_runs<Exec, Compute>) {
    visit_tiled_attention<Exec, Compute, D, Score, Mask>(p, [&](auto atoms) {
      using Atoms = decltype(atoms);
      run_tiles<Atoms>("tessera::attention", exec, AttentionKernel<Atoms, Score, TiledMask<Mask>>(p, score, mask));
    });
  }
}

/// The warp-specialised pipeline. Apart, so that the library compiles it for the one architecture that has it.
/// `KernelMask` is what the kernel is compiled for: Ranges in the place of mask::All where the problem has them.
template <class Exec, class T, class KernelMask, class Score, class Mask>
void run_attention_bulk(Exec const& exec, AttentionProblem const& p, Score const& score, Mask const& mask) {
  using Visited = std::conditional_t<own_functor<Score, Mask> || arranges_values<T>, KernelMask, Mask>;
  visit_bulk_attention<T, Score, Visited, KernelMask>(exec, p, [&](auto atoms) {
    using Atoms = decltype(atoms);
    run_tiles<Atoms>("tessera::attention", exec, AttentionKernel<Atoms, Score, KernelMask>(p, score, mask));
  });
}

/// V arranged for such kernels at the beginning of the workspace. Compiled with them.
template <class Exec, class T>
void run_arrange_values(Exec const& exec, AttentionProblem const& p, MatrixStack const& to) {
  using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint32_t>;
  arrange_values<Bits, BulkAtoms<Exec, T, BulkSizes>>(exec, p, to);
}

/// The pipeline of asynchronous copies, likewise.
template <class Exec, class T, class KernelMask, class Score, class Mask>
void run_attention_async([[maybe_unused]] Exec const& exec, [[maybe_unused]] AttentionProblem const& p,
                         [[maybe_unused]] AttentionPlan const& plan, [[maybe_unused]] Score const& score,
                         [[maybe_unused]] Mask const& mask) {
  if constexpr (has_async_pipeline<Exec>)
    each_async_attention<Exec, T, Score, KernelMask>(p, [&](auto atoms) {
      using Atoms = decltype(atoms);
      using Kernel = AttentionKernel<Atoms, Score, KernelMask>;
      if (scratch_of<Atoms, Exec, Kernel>() == plan.scratch_bytes)  // which differs between them
        run_tiles<Atoms>("tessera::attention", exec, Kernel(p, score, mask));
    });
}

/// The kernel that the plan says, for Q of T.
template <class Exec, class T, class Compute, class Score, class Mask>
void run_attention_kernel(Exec const& exec, AttentionProblem const& p, AttentionPlan const& plan, Score const& score,
                          Mask const& mask) {
  if (plan.algorithm == AttentionAlgorithm::hopper) {
    constexpr bool own = own_functor<Score, Mask>;
    constexpr bool attends = pipelines_attend<T> || (arranges_values<T> && !drops_weights<Score>);
    if constexpr (has_bulk_pipeline<Exec> && attends && (!own || compiles_bulk_kernels)) {
      if constexpr (drops_weights<Score> && std::is_same_v<Mask, mask::All>)
        run_attention_bulk<Exec, T, Ranges>(exec, p, score, mask);
      else
        visit_kernel_mask<T, Mask>(p, [&](auto kernel_mask) {
          run_attention_bulk<Exec, T, typename decltype(kernel_mask)::type>(exec, p, score, mask);
        });
    }
    return;
  }
  if (plan.algorithm == AttentionAlgorithm::tensor_core) {
    if constexpr (has_async_pipeline<Exec> && pipelines_attend<T>)
      visit_async_mask<T, Score, Mask>(p, [&](auto kernel_mask) {
        run_attention_async<Exec, T, typename decltype(kernel_mask)::type>(exec, p, plan, score, mask);
      });
    return;
  }
  visit_features(attention_features(p), [&](auto d) { run_attention_tiles<Exec, Compute, d()>(exec, p, score, mask); });
}

/// Runs what the plan says for Q of T. O has elements.
template <class Exec, class T, class Compute, class Score, class Mask>
void run_attention(Exec const& exec, AttentionProblem p, AttentionPlan const& plan, Score const& score,
                   Mask const& mask, void* workspace) {
  if constexpr (has_bulk_pipeline<Exec> && arranges_values<T>)
    if (plan.algorithm == AttentionAlgorithm::hopper) {
      MatrixStack const arranged = arranged_values(p, workspace);
      run_arrange_values<Exec, T>(exec, p, arranged);
      workspace = static_cast<char*>(workspace) + arranged_bytes(p);
      p.v = arranged;
    }
  if (plan.splits == 1) return run_attention_kernel<Exec, T, Compute>(exec, p, plan, score, mask);
  AttentionProblem const parts = split_problem(p, plan.splits, scalar_of<Compute>, workspace);
  run_attention_kernel<Exec, T, Compute>(exec, parts, plan, score, mask);
  run_merge(exec, split_merge(p, parts));
}

// The library holds attention without a functor of the caller's own: nobody compiles it again. One instance a source
// for the wide ones.
#define TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, COMPUTE, D)                                       \
  EXTERN template void run_attention_tiles<EXEC, COMPUTE, D>(EXEC const&, AttentionProblem const&, \
                                                             score::Identity const&, mask::All const&);
#define TESSERA_ATTENTION_INSTANCES(EXTERN, EXEC)       \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 64)   \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 128)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, float, 256)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 64)  \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 128) \
  TESSERA_ATTENTION_INSTANCE(EXTERN, EXEC, double, 256)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_ATTENTION_INSTANCES, extern)

#define TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, COMPUTE, D) \
  EXTERN template void run_attention_tiles<EXEC, COMPUTE, D>(  \
      EXEC const&, AttentionProblem const&, score::WithDropout<score::Identity> const&, mask::All const&);
#define TESSERA_ATTENTION_DROPOUT(EXTERN, EXEC)           \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, float, 64)   \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, float, 128)  \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, float, 256)  \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, double, 64)  \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, double, 128) \
  TESSERA_ATTENTION_DROPOUT_OF(EXTERN, EXEC, double, 256)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_ATTENTION_DROPOUT, extern)

#define TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, T, MASK)                                                               \
  EXTERN template void run_attention_bulk<EXEC, T, MASK>(EXEC const&, AttentionProblem const&, score::Identity const&, \
                                                         mask::All const&);
#define TESSERA_ATTENTION_BULK_BF16(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, bf16_t, mask::All)
#define TESSERA_ATTENTION_BULK_FP16(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, fp16_t, mask::All)
#define TESSERA_ATTENTION_BULK_BF16_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, bf16_t, Ranges)
#define TESSERA_ATTENTION_BULK_FP16_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, fp16_t, Ranges)
#define TESSERA_ATTENTION_BULK_ARRANGED(EXTERN, EXEC, T) \
  TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, T, mask::All)  \
  EXTERN template void run_arrange_values<EXEC, T>(EXEC const&, AttentionProblem const&, MatrixStack const&);
#define TESSERA_ATTENTION_BULK_E4M3(EXTERN, EXEC) TESSERA_ATTENTION_BULK_ARRANGED(EXTERN, EXEC, e4m3_t)
#define TESSERA_ATTENTION_BULK_E5M2(EXTERN, EXEC) TESSERA_ATTENTION_BULK_ARRANGED(EXTERN, EXEC, e5m2_t)
#define TESSERA_ATTENTION_BULK_TF32(EXTERN, EXEC) TESSERA_ATTENTION_BULK_ARRANGED(EXTERN, EXEC, float)
#define TESSERA_ATTENTION_BULK_E4M3_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, e4m3_t, Ranges)
#define TESSERA_ATTENTION_BULK_E5M2_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, e5m2_t, Ranges)
#define TESSERA_ATTENTION_BULK_TF32_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_BULK_OF(EXTERN, EXEC, float, Ranges)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_BF16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_FP16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_BF16_RANGES, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_FP16_RANGES, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_E4M3, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_E5M2, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_TF32, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_E4M3_RANGES, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_E5M2_RANGES, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_TF32_RANGES, extern)

#define TESSERA_ATTENTION_BULK_DROPOUT_OF(EXTERN, EXEC, T)  \
  EXTERN template void run_attention_bulk<EXEC, T, Ranges>( \
      EXEC const&, AttentionProblem const&, score::WithDropout<score::Identity> const&, mask::All const&);
#define TESSERA_ATTENTION_BULK_BF16_DROPOUT(EXTERN, EXEC) TESSERA_ATTENTION_BULK_DROPOUT_OF(EXTERN, EXEC, bf16_t)
#define TESSERA_ATTENTION_BULK_FP16_DROPOUT(EXTERN, EXEC) TESSERA_ATTENTION_BULK_DROPOUT_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_BF16_DROPOUT, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_ATTENTION_BULK_FP16_DROPOUT, extern)

#define TESSERA_ATTENTION_ASYNC_WITH(EXTERN, EXEC, T, MASK, SCORE)                                                    \
  EXTERN template void run_attention_async<EXEC, T, MASK>(EXEC const&, AttentionProblem const&, AttentionPlan const&, \
                                                          SCORE const&, mask::All const&);
#define TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, T, MASK) \
  TESSERA_ATTENTION_ASYNC_WITH(EXTERN, EXEC, T, MASK, score::Identity)
#define TESSERA_ATTENTION_ASYNC_DROPOUT_OF(EXTERN, EXEC, T) \
  TESSERA_ATTENTION_ASYNC_WITH(EXTERN, EXEC, T, Ranges, score::WithDropout<score::Identity>)
#define TESSERA_ATTENTION_ASYNC_BF16(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, bf16_t, mask::All)
#define TESSERA_ATTENTION_ASYNC_FP16(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, fp16_t, mask::All)
#define TESSERA_ATTENTION_ASYNC_BF16_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, bf16_t, Ranges)
#define TESSERA_ATTENTION_ASYNC_FP16_RANGES(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_OF(EXTERN, EXEC, fp16_t, Ranges)
#define TESSERA_ATTENTION_ASYNC_BF16_DROPOUT(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_DROPOUT_OF(EXTERN, EXEC, bf16_t)
#define TESSERA_ATTENTION_ASYNC_FP16_DROPOUT(EXTERN, EXEC) TESSERA_ATTENTION_ASYNC_DROPOUT_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_BF16, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_FP16, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_BF16_RANGES, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_FP16_RANGES, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_BF16_DROPOUT, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_ATTENTION_ASYNC_FP16_DROPOUT, extern)

}  // namespace tessera::detail

#endif
