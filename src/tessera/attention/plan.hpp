// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PLAN_DETAIL_HPP
#define TESSERA_ATTENTION_PLAN_DETAIL_HPP

#include <string>

#include <tessera/attention/configs.hpp>
#include <tessera/attention/kernel.hpp>
#include <tessera/attention_options.hpp>
#include <tessera/error.hpp>
#include <tessera/machine.hpp>

namespace tessera::detail {

template <class Exec, class Compute, int D>
using TiledAttentionAtoms = RegisterAtoms<Exec, Compute, AttentionTiled<Machine<Exec>::is_host, D>>;

/// Calls f(std::integral_constant<int, D>) with the smallest compiled D that holds the features.
template <class F>
void visit_features(std::int64_t features, F const& f) {
  if (features <= 64)
    f(std::integral_constant<int, 64>{});
  else if (features <= 128)
    f(std::integral_constant<int, 128>{});
  else
    f(std::integral_constant<int, 256>{});
}

inline std::int64_t attention_features(AttentionProblem const& p) { return p.q.cols > p.v.cols ? p.q.cols : p.v.cols; }

/// The element types that the pipelines of asynchronous copies attend over.
template <class T>
inline constexpr bool pipelines_attend = std::is_same_v<T, bf16_t> || std::is_same_v<T, fp16_t>;

/// f(atoms) with the configuration of the bulk pipeline for this problem with Q, K and V of T.
template <class Exec, class T, class F>
void visit_bulk_attention(AttentionProblem const& p, F const& f) {
  bool const long_rows = p.k.rows >= (p.causal ? attention_long_causal_from : attention_long_from);
  if (attention_features(p) <= 64 && p.causal && p.k.rows < attention_three_causal_from)
    f(BulkAtoms<Exec, T, AttentionBulk<64, attention_short_keys>>{});
  else if (attention_features(p) <= 64)
    f(BulkAtoms<Exec, T, AttentionBulk<64, attention_short_keys, 3>>{});
  else if (attention_features(p) > 128)
    f(BulkAtoms<Exec, T, AttentionBulk<256, attention_wide_keys>>{});
  else if (long_rows)
    f(BulkAtoms<Exec, T, AttentionBulk<128, attention_long_keys>>{});
  else
    f(BulkAtoms<Exec, T, AttentionBulk<128, attention_short_keys>>{});
}

/// f(atoms) with the configurations of the pipeline of asynchronous copies for so many features, the preferred one
/// first, the others for devices with less scratch. On an H200, full and causal over 4096 keys (TFLOP/s): of D 64, 96
/// keys a step 303 and 276, 112 in one stage 296 and 268, 64 and three teams 304 and 276; of D 128, two stages 358 and
/// 313, one 342 and 301, 256 queries in eight warps 323 and 276; of D 256, four warps 298 and 295, eight 268 and 261.
template <class Exec, class T, class F>
void each_async_attention(std::int64_t features, F const& f) {
  if (features <= 64) {
    f(AsyncRowAtoms<Exec, T, AttentionAsync<64, 96, 4, 2, 2>>{});
  } else if (features <= 128) {
    f(AsyncRowAtoms<Exec, T, AttentionAsync<128, 64, 4, 2, 2>>{});
    f(AsyncRowAtoms<Exec, T, AttentionAsync<128, 64, 4, 2, 1>>{});
  } else {
    f(AsyncRowAtoms<Exec, T, AttentionAsync<256, 64, 4, 1, 1>>{});
    f(AsyncRowAtoms<Exec, T, AttentionAsync<256, 64, 8, 1, 1, 1>>{});
  }
}

template <class Atoms, class Score, class Exec>
AttentionPlan describe_attention(Exec const& exec, AttentionProblem const& p, AttentionAlgorithm algorithm,
                                 char const* reason) {
  AttentionPlan plan;
  plan.algorithm = algorithm;
  plan.tile_queries = Atoms::BM;
  plan.tile_keys = Atoms::BN;
  plan.tile_features = Atoms::D;
  plan.team_threads = Machine<Exec>::threads(Atoms::team_threads);
  plan.scratch_bytes = scratch_of<Atoms, Exec, AttentionKernel<Atoms, Score>>();
  plan.tiles = p.planes() * ((p.q.rows + Atoms::BM - 1) / Atoms::BM);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  return plan;
}

/// What the operands must be for the bulk pipeline; nullptr when they are.
template <class Exec>
char const* bulk_attention_operands(Exec const& exec, AttentionProblem const& p) {
  if (!BulkPipeline<Exec>::runs_on(exec)) return "the hopper pipeline needs a device of compute capability 9.0";
  for (MatrixStack const* m : {&p.q, &p.k, &p.v, &p.o}) {
    bool const fits = m->type == p.q.type || (m == &p.o && m->type == Scalar::fp32);
    if (!fits || (p.q.type != Scalar::bf16 && p.q.type != Scalar::fp16))
      return "the hopper pipeline takes Q, K and V of bf16 or of fp16, O of the same type or of fp32";
    if (m->col_stride != 1 || !bulk_copyable(*m))
      return "the hopper pipeline wants contiguous features, and pointers and strides in multiples of 16 bytes";
  }
  if (p.k.rows == 0 || p.q.cols == 0 || p.v.cols == 0) return "there is nothing to multiply";
  if (p.v.cols % 2 != 0) return "the hopper pipeline stores features in pairs";
  return nullptr;
}

/// Why the bulk pipeline cannot run this problem; nullptr when it can.
template <class Exec, class Compute, class Score>
char const* bulk_attention_obstacle(Exec const& exec, AttentionProblem const& p) {
  if constexpr (!has_bulk_pipeline<Exec>)
    return "the hopper pipeline needs the CUDA backend built for sm_90a";
  else if constexpr (!std::is_same_v<Compute, float>)
    return "the hopper pipeline has no fp64 products";
  else if constexpr (!std::is_same_v<Score, score::Identity> && !compiles_bulk_kernels)
    return "this source, which brings its own score, is not compiled for sm_90a (tessera_target_hopper() in CMake)";
  else
    return bulk_attention_operands(exec, p);
}

/// Why the pipeline of asynchronous copies cannot run this problem; nullptr when it can, if it has the scratch.
template <class Exec, class Compute>
char const* async_attention_obstacle([[maybe_unused]] Exec const& exec, [[maybe_unused]] AttentionProblem const& p) {
  if constexpr (!has_async_pipeline<Exec>) {
    return "tensor_core needs the CUDA backend";
  } else {
    if (!AsyncPipeline<Exec>::runs_on(exec)) return "tensor_core needs a device of compute capability 8.0 or more";
    if (p.q.type != Scalar::bf16 && p.q.type != Scalar::fp16) return "tensor_core takes Q, K and V of bf16 or of fp16";
    for (MatrixStack const* m : {&p.q, &p.k, &p.v})
      if (m->col_stride != 1 || !bulk_copyable(*m))
        return "tensor_core wants contiguous features of Q, K and V, and pointers and strides in multiples of 16 bytes";
    if (p.k.rows == 0 || p.q.cols == 0 || p.v.cols == 0) return "there is nothing to multiply";
    return nullptr;
  }
}

/// The first configuration of which as many teams as it wants fit a multiprocessor, else the first of which one does;
/// none: the plan's algorithm stays automatic.
template <class Score, class Exec>
AttentionPlan plan_attention_async(Exec const& exec, AttentionProblem const& p, char const* reason) {
  AttentionPlan plan;
  std::size_t const room = Machine<Exec>::scratch_limit(exec);
  bool chosen = false;
  each_async_attention<Exec, bf16_t>(attention_features(p), [&](auto atoms) {  // as for fp16
    using Atoms = decltype(atoms);
    AttentionPlan const candidate = describe_attention<Atoms, Score>(exec, p, AttentionAlgorithm::tensor_core, reason);
    bool const fits = candidate.scratch_bytes * Atoms::teams_at_once <= room;
    if (!chosen && (fits || (plan.algorithm == AttentionAlgorithm::automatic && candidate.scratch_bytes <= room)))
      plan = candidate;
    chosen = chosen || fits;
  });
  return plan;
}

template <class Exec, class Compute, class Score>
AttentionPlan plan_attention(Exec const& exec, AttentionProblem const& p, AttentionOptions const& options) {
  AttentionAlgorithm wanted = options.algorithm;
  char const* reason = wanted == AttentionAlgorithm::automatic ? "the fastest that runs here" : "asked for";
  auto const refuse = [&](char const* obstacle) {
    if (obstacle != nullptr && options.algorithm == wanted && !options.allow_fallback)
      throw Error(ErrorCode::unsupported,
                  std::string("tessera::attention: algorithm ") + name(wanted) + " cannot run: " + obstacle);
  };
  AttentionPlan plan;
  if (wanted == AttentionAlgorithm::automatic || wanted == AttentionAlgorithm::hopper) {
    char const* const obstacle = bulk_attention_obstacle<Exec, Compute, Score>(exec, p);
    if (wanted == AttentionAlgorithm::hopper) refuse(obstacle);
    if (obstacle == nullptr) {
      if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float>)
        visit_bulk_attention<Exec, bf16_t>(p, [&](auto atoms) {  // as for fp16
          plan = describe_attention<decltype(atoms), Score>(exec, p, AttentionAlgorithm::hopper, reason);
        });
      return plan;
    }
    if (has_bulk_pipeline<Exec> || wanted == AttentionAlgorithm::hopper) reason = obstacle;
    wanted = AttentionAlgorithm::tensor_core;
  }
  if (wanted == AttentionAlgorithm::tensor_core) {
    char const* obstacle = async_attention_obstacle<Exec, Compute>(exec, p);
    if constexpr (has_async_pipeline<Exec> && std::is_same_v<Compute, float>) {
      if (obstacle == nullptr) {
        plan = plan_attention_async<Score>(exec, p, reason);
        if (plan.algorithm == wanted) return plan;
        obstacle = "tensor_core needs more scratch than this device gives a team";
      }
    }
    refuse(obstacle);
    if (options.algorithm == wanted || (has_async_pipeline<Exec> && !has_bulk_pipeline<Exec>)) reason = obstacle;
  }
  visit_features(attention_features(p), [&](auto d) {
    plan =
        describe_attention<TiledAttentionAtoms<Exec, Compute, d()>, Score>(exec, p, AttentionAlgorithm::tiled, reason);
  });
  return plan;
}

}  // namespace tessera::detail

#endif
