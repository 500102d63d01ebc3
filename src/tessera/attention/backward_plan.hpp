// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_PLAN_HPP
#define TESSERA_ATTENTION_BACKWARD_PLAN_HPP

#include <cstdint>
#include <string>

#include <tessera/attention/backward_instances.hpp>
#include <tessera/attention_backward_options.hpp>

// Which kernels form gradients of attention, why, and with what workspace.
namespace tessera::detail {

inline constexpr char const* backward_name = "tessera::attention_backward";

/// Why the pipeline of bulk copies cannot form these gradients, operands of 8 bits widened; nullptr when it can.
template <class Exec, class Compute, class Score, class Mask>
char const* bulk_backward_obstacle([[maybe_unused]] Exec const& exec,
                                   [[maybe_unused]] AttentionBackwardProblem const& p) {
  if constexpr (!has_bulk_pipeline<Exec>) {
    return "the hopper pipeline needs the CUDA backend built for sm_90a";
  } else if constexpr (!std::is_same_v<Compute, float>) {
    return "the hopper pipeline has no fp64 products";
  } else if constexpr (own_functor<Score, Mask> && !compiles_bulk_kernels) {
    return "this source, which brings its own score or mask, is not compiled for sm_90a (tessera_target_hopper() in "
           "CMake)";
  } else {
    if (!BulkPipeline<Exec>::runs_on(exec)) return "the hopper pipeline needs a device of compute capability 9.0";
    if (own_functor<Score, Mask> && p.packed())
      return "the hopper pipeline takes packed sequences without a score or mask of the caller's own";
    if (p.forward.q.rows == 0 || p.forward.k.rows == 0 || p.forward.q.cols == 0 || p.forward.v.cols == 0)
      return "there is nothing to multiply";
    if (p.forward.q.type != Scalar::bf16 && p.forward.q.type != Scalar::fp16)
      return "the hopper pipeline takes Q, K, V and dO of 16 or of 8 bits";
    for (MatrixStack const* m : {&p.forward.q, &p.forward.k, &p.forward.v, &p.d_o, &p.dk, &p.dv}) {
      bool const written = m == &p.dk || m == &p.dv;  // of any type
      if (!written && m->type != p.forward.q.type)
        return "the hopper pipeline takes Q, K, V and dO of one type, those of 8 bits as bf16";
      if (m->col_stride != 1 || !bulk_copyable(*m))
        return "the hopper pipeline wants contiguous features, and pointers and strides in multiples of 16 bytes";
    }
    if (p.forward.scales.present()) {
      if (own_functor<Score, Mask> || drops_weights<Score>)
        return "the hopper pipeline takes scales of heads without dropout and a score or mask of the caller's own";
      if (p.forward.q.type != Scalar::bf16) return "the hopper pipeline takes scales of heads of bf16 or of 8 bits";
    }
    if (attention_features(p.forward) > 128)  // stored straight from registers
      for (MatrixStack const* m : {&p.dq, &p.dk, &p.dv})
        if ((m->type != p.forward.q.type && m->type != Scalar::fp32) || m->cols % 2 != 0 || m->col_stride != 1 ||
            !bulk_copyable(*m))
          return "the hopper pipeline stores gradients of more than 128 features contiguous, in pairs, as Q's type or "
                 "fp32, with pointers and strides in multiples of 16 bytes";
    return nullptr;
  }
}

/// Whether the Hopper pipeline can add dQ up in memory for D features; else a pass over the queries forms it.
/// Where dropout and packed sequences are to be kept in registers too, there are too few beside those of 128 features.
template <class Score, int D, bool Packed>
inline constexpr bool can_add_queries = D <= (Packed && drops_weights<Score> ? 64 : 128);

/// The kernels of the pipeline of asynchronous copies for a problem, by their sizes for the features, for what there is
/// to be done besides and for what scratch the device has: in(type_identity of sizes, whether sequences are packed)
/// forms each sum in one place, adding(sizes, packed) adds dQ up in memory. For little scratch no pass over the queries
/// of more than 64 features.
template <class Exec, class Score, class Mask, class InPlace, class Adding>
void visit_async_gradients(Exec const& exec, AttentionBackwardProblem const& p, bool deterministic,
                           InPlace const& in_place, Adding const& adding) {
  visit_features(attention_features(p.forward), [&](auto d) {
    auto const visit = [&]<bool Packed>(std::bool_constant<Packed> packed) {
      if constexpr (beside_plain<Packed, Score, Mask>) {
        if (deterministic) return in_place(std::type_identity<BackwardAsyncBeside<d(), true, false>>{}, packed);
        adding(std::type_identity<BackwardAsyncBeside<d(), Packed, drops_weights<Score>>>{}, packed);
      } else {
        using Atoms = BackwardAsyncAtoms<Exec, bf16_t, BackwardAsync<d()>>;  // as for fp16
        bool const small =
            scratch_of<Atoms, Exec, AttentionKeyGradients<Atoms>>() > AsyncPipeline<Exec>::scratch_limit(exec);
        if constexpr (d() == 64)
          if (deterministic && small) return in_place(std::type_identity<BackwardAsyncSmall<d()>>{}, packed);
        if (deterministic) return in_place(std::type_identity<BackwardAsync<d()>>{}, packed);
        if constexpr (d() <= 128)
          if (small) return adding(std::type_identity<BackwardAsyncSmall<d()>>{}, packed);
        adding(std::type_identity<BackwardAsync<d()>>{}, packed);
      }
    };
    if constexpr (!own_functor<Score, Mask>)
      if (p.packed()) return visit(std::true_type{});
    visit(std::false_type{});
  });
}
/// f(type_identity of the kernel of all products, or of the pass over the keys, and of its atoms) of bf16, as for fp16.
template <class Exec, class Score, class Mask, class F>
void visit_async_key_gradients(Exec const& exec, AttentionBackwardProblem const& p, bool deterministic, F const& f) {
  auto const of = [&]<class Sizes, bool Packed>(std::type_identity<Sizes>, std::bool_constant<Packed>) {
    using Atoms = BackwardAsyncAtoms<Exec, bf16_t, Sizes>;
    f(std::type_identity<AttentionKeyGradients<Atoms, Score, Mask, Packed>>{}, std::type_identity<Atoms>{});
  };
  visit_async_gradients<Exec, Score, Mask>(
      exec, p, deterministic,
      [&]<class Sizes>(std::type_identity<Sizes>, auto packed) {
        of(std::type_identity<BackwardKeysAsync<Sizes>>{}, packed);
      },
      of);
}

/// Why the pipeline of asynchronous copies cannot form these gradients; nullptr when it can.
template <class Exec, class Compute, class Score, class Mask>
char const* async_backward_obstacle([[maybe_unused]] Exec const& exec,
                                    [[maybe_unused]] AttentionBackwardProblem const& p,
                                    [[maybe_unused]] bool deterministic) {
  if constexpr (!has_async_pipeline<Exec>) {
    return "tensor_core needs the CUDA backend";
  } else if constexpr (!std::is_same_v<Compute, float>) {
    return "tensor_core forms gradients of fp16 and bf16";
  } else {
    if (!AsyncPipeline<Exec>::runs_on(exec)) return "tensor_core needs a device of compute capability 8.0 or more";
    if (p.forward.scales.present()) return "tensor_core forms gradients without scales of heads";
    if (own_functor<Score, Mask> && p.packed())
      return "tensor_core forms gradients of packed sequences without a score or mask of the caller's own";
    if (p.forward.q.rows == 0 || p.forward.k.rows == 0 || p.forward.q.cols == 0 || p.forward.v.cols == 0)
      return "there is nothing to multiply";
    if (p.forward.q.type != Scalar::bf16 && p.forward.q.type != Scalar::fp16)
      return "tensor_core forms gradients of Q, K, V and dO of bf16 or of fp16";
    for (MatrixStack const* m : {&p.forward.q, &p.forward.k, &p.forward.v, &p.d_o}) {
      if (m->type != p.forward.q.type) return "tensor_core forms gradients of Q, K, V and dO of one type";
      if (m->col_stride != 1 || !bulk_copyable(*m))
        return "tensor_core wants contiguous features of Q, K, V and dO, and pointers and strides in multiples of 16 "
               "bytes";
    }
    char const* obstacle = nullptr;
    visit_async_key_gradients<Exec, Score, Mask>(
        exec, p, deterministic, [&]<class Kernel, class Atoms>(std::type_identity<Kernel>, std::type_identity<Atoms>) {
          // The pass over the keys takes more scratch than that over the queries.
          obstacle = scratch_of<Atoms, Exec, Kernel>() <= AsyncPipeline<Exec>::scratch_limit(exec)
                         ? nullptr
                         : "tensor_core needs more team scratch for gradients than the device has";
        });
    return obstacle;
  }
}

/// The workspace behind operands that are widened.
inline void* backward_room(AttentionBackwardProblem const& p, AttentionPlan const& plan,
                           AttentionBackwardOptions const& options) {
  bool const widens = plan.algorithm == AttentionAlgorithm::hopper;
  return static_cast<char*>(options.workspace) + (widens ? widened_bytes(p) : 0);
}

/// Whether the Hopper pipeline adds dQ up in memory.
template <class Score>
bool adds_queries(AttentionBackwardProblem const& p, bool deterministic) {
  bool can = false;
  visit_features(attention_features(p.forward), [&](auto d) {
    can = p.packed() ? can_add_queries<Score, d(), true> : can_add_queries<Score, d(), false>;
  });
  return !deterministic && can;
}

inline char const* backward_reason(bool asked, bool widened, bool portable_bias) {
  if (widened && portable_bias)
    return asked ? "asked for; 8-bit operands widened to bf16, d_bias by the portable kernel"
                 : "the fastest that runs here; 8-bit operands widened to bf16, d_bias by the portable kernel";
  if (widened)
    return asked ? "asked for; 8-bit operands widened to bf16"
                 : "the fastest that runs here; 8-bit operands widened to bf16";
  if (portable_bias)
    return asked ? "asked for; d_bias by the portable kernel"
                 : "the fastest that runs here; d_bias by the portable kernel";
  return asked ? "asked for" : "the fastest that runs here";
}

/// Whether the pipeline's kernel of all products has the gradient of the bias on the way.
template <class Score>
bool stores_bias_gradient(AttentionBackwardProblem const& p, bool deterministic) {
  return !drops_weights<Score> && p.own_biases() && adds_queries<Score>(p, deterministic);
}

/// What runs, and the workspace it takes.
template <class Exec, class Compute, class Score, class Mask>
AttentionPlan plan_backward(Exec const& exec, AttentionBackwardProblem const& p,
                            AttentionBackwardOptions const& options) {
  AttentionPlan plan;
  plan.concurrency = Machine<Exec>::concurrency(exec);
  char const* const obstacle =
      bulk_backward_obstacle<Exec, Compute, Score, Mask>(exec, with_operands_widened(p, nullptr));
  auto const wanted = options.algorithm;
  bool const bulk =
      (wanted == AttentionAlgorithm::automatic || wanted == AttentionAlgorithm::hopper) && obstacle == nullptr;
  char const* const async_obstacle =
      async_backward_obstacle<Exec, Compute, Score, Mask>(exec, p, options.deterministic);
  bool const async = !bulk && async_obstacle == nullptr && wanted != AttentionAlgorithm::tiled;
  char const* refusal = nullptr;
  if (wanted == AttentionAlgorithm::hopper) refusal = obstacle;
  if (wanted == AttentionAlgorithm::tensor_core) refusal = async_obstacle;
  if (refusal != nullptr && !options.allow_fallback)
    throw Error(ErrorCode::unsupported,
                std::string(backward_name) + ": algorithm " + name(wanted) + " cannot run: " + refusal);
  plan.algorithm = bulk    ? AttentionAlgorithm::hopper
                   : async ? AttentionAlgorithm::tensor_core
                           : AttentionAlgorithm::tiled;
  std::size_t const widened = bulk ? widened_bytes(p) : 0;
  plan.reason = refusal != nullptr ? refusal
                : wanted == AttentionAlgorithm::automatic && has_bulk_pipeline<Exec> && !bulk &&
                        (!async || own_functor<Score, Mask>)
                    ? obstacle
                    : backward_reason(wanted != AttentionAlgorithm::automatic, widened > 0,
                                      p.d_bias.data != nullptr &&
                                          (async || (bulk && !stores_bias_gradient<Score>(p, options.deterministic))));
  bool const adds = bulk ? adds_queries<Score>(p, options.deterministic) : async && !options.deterministic;
  std::int64_t sums = 0;
  if (adds) visit_features(attention_features(p.forward), [&](auto d) { sums = d(); });
  if constexpr (backward_adds_in_place<Exec, Compute>)
    visit_features(attention_features(p.forward),
                   [&](auto d) { sums = std::int64_t(d()) * backward_split<Exec, d()>(exec, p).parts; });
  std::int64_t key_sums = 0;
  if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float>)
    if (bulk)
      visit_features(attention_features(p.forward), [&](auto d) {
        if (!adds) key_sums = sums_of_parts<BackwardLastKeysKernel<Exec, d(), Score, Mask>>(exec, p);
        if constexpr (d() <= 128)
          if (adds) {
            using Kernel = AttentionKeyGradients<BulkAtoms<Exec, bf16_t, BackwardBulk<d()>>, Score, Mask>;
            key_sums = backward_tail<Kernel>(exec, p).sums_of(Kernel::BN * Kernel::D);
          }
      });
  if constexpr (has_async_pipeline<Exec> && std::is_same_v<Compute, float>)
    if (async)
      visit_async_key_gradients<Exec, Score, Mask>(
          exec, p, options.deterministic,
          [&]<class Kernel, class Atoms>(std::type_identity<Kernel>, std::type_identity<Atoms>) {
            key_sums =
                adds ? backward_tail<Kernel>(exec, p).sums_of(Kernel::BN * Kernel::D) : sums_of_parts<Kernel>(exec, p);
          });
  BackwardWorkspace const w(p, sizeof(Compute), sums, key_sums, bulk || async ? bounded_tiles<Exec, Mask>(p) : 0);
  bool const empty = p.forward.q.outer == 0 || p.forward.q.inner == 0;
  plan.workspace_wanted = plan.workspace_bytes = empty ? 0 : widened + w.bytes();
  auto const describe = [&]<class Kernel, class Atoms>(std::type_identity<Kernel>, std::type_identity<Atoms>) {
    plan.tile_queries = Atoms::BM;
    plan.tile_keys = Atoms::BN;
    plan.tile_features = Atoms::D;
    plan.team_threads = Machine<Exec>::threads(Atoms::team_threads);
    plan.scratch_bytes = scratch_of<Atoms, Exec, Kernel>();
    if constexpr (backward_adds_in_place<Exec, Compute>)
      plan.tile_keys = backward_split<Exec, Atoms::D>(exec, p).tile_keys;
    plan.tiles = p.key_planes() * BackwardShape<Compute>(p.forward).key_tiles(plan.tile_keys);
  };
  if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float>)
    if (bulk)
      visit_features(attention_features(p.forward), [&](auto d) {
        auto const of = [&]<class Sizes>(std::type_identity<Sizes>) {
          using Atoms = BulkAtoms<Exec, bf16_t, Sizes>;  // as for fp16
          describe(std::type_identity<AttentionKeyGradients<Atoms>>{}, std::type_identity<Atoms>{});
        };
        if constexpr (d() > 128)
          of(std::type_identity<BackwardWideKeysBulk>{});
        else if (adds)
          of(std::type_identity<BackwardBulk<d()>>{});
        else
          of(std::type_identity<BackwardKeysBulk<d()>>{});
      });
  if constexpr (has_async_pipeline<Exec> && std::is_same_v<Compute, float>)
    if (async) visit_async_key_gradients<Exec, Score, Mask>(exec, p, options.deterministic, describe);
  if (!bulk && !async)
    visit_features(attention_features(p.forward), [&](auto d) {
      using Atoms = BackwardKeyAtoms<Exec, Compute, decltype(d)::value>;
      describe(std::type_identity<AttentionKeyGradients<Atoms, Score, Mask, true>>{}, std::type_identity<Atoms>{});
    });
  return plan;
}

/// What the pipeline of bulk copies multiplies.
template <class T>
using BackwardFactor = std::conditional_t<sizeof(T) == 1, bf16_t, T>;

/// By the pipeline of bulk copies, of operands of T.
template <class Exec, class T, class Score, class Mask>
void run_backward_pipeline(Exec const& exec, AttentionBackwardProblem const& p, bool deterministic, void* workspace,
                           Score const& score, Mask const& mask) {
  constexpr bool own = own_functor<Score, Mask>,
                 takes_scales = !own && !drops_weights<Score> && std::is_same_v<T, bf16_t>;
  visit_features(attention_features(p.forward), [&](auto d) {
    auto const run = [&]<bool Packed, BackwardVariant Variant>() {
      if constexpr (can_add_queries<Score, d(), Packed>)
        if (!deterministic) return run_backward_bulk<Exec, T, d(), Packed, Variant>(exec, p, workspace, score, mask);
      run_backward_bulk_in_place<Exec, T, d(), Packed, Variant>(exec, p, workspace, score, mask);
    };
    auto const run_variant = [&]<bool Packed>() {
      if constexpr (takes_scales)
        if (p.forward.scales.present()) return run.template operator()<Packed, BackwardVariant::scaled>();
      if constexpr (gives_bias_gradient<Score> && !drops_weights<Score> && can_add_queries<Score, d(), Packed>)
        if (stores_bias_gradient<Score>(p, deterministic))
          return run_backward_bulk<Exec, T, d(), Packed, BackwardVariant::bias>(exec, p, workspace, score, mask);
      run.template operator()<Packed, BackwardVariant::plain>();
    };
    if constexpr (!own)
      if (p.packed()) return run_variant.template operator()<true>();
    run_variant.template operator()<false>();
  });
}

/// In a workspace that operands to be widened have the first part of.
template <class Exec, class T, class Compute, class Score, class Mask>
void run_backward(Exec const& exec, AttentionBackwardProblem const& p, AttentionPlan const& plan,
                  AttentionBackwardOptions const& options, Score const& score, Mask const& mask) {
  if constexpr (has_bulk_pipeline<Exec> && pipelines_attend<BackwardFactor<T>> &&
                (!own_functor<Score, Mask> || compiles_bulk_kernels))
    if (plan.algorithm == AttentionAlgorithm::hopper) {
      widen_operands(exec, p, options.workspace);
      return run_backward_pipeline<Exec, BackwardFactor<T>>(exec, with_operands_widened(p, options.workspace),
                                                            options.deterministic, backward_room(p, plan, options),
                                                            score, mask);
    }
  if constexpr (has_async_pipeline<Exec> && pipelines_attend<T>)
    if (plan.algorithm == AttentionAlgorithm::tensor_core)
      return visit_async_gradients<Exec, Score, Mask>(
          exec, p, options.deterministic,
          [&]<class Sizes, bool Packed>(std::type_identity<Sizes>, std::bool_constant<Packed>) {
            run_backward_async_in_place<Exec, T, Sizes, Packed>(exec, p, options.workspace, score, mask);
          },
          [&]<class Sizes, bool Packed>(std::type_identity<Sizes>, std::bool_constant<Packed>) {
            run_backward_async<Exec, T, Sizes, Packed>(exec, p, options.workspace, score, mask);
          });
  visit_features(attention_features(p.forward),
                 [&](auto d) { run_backward_tiles<Exec, Compute, d()>(exec, p, options.workspace, score, mask); });
}

inline void check_backward_workspace(AttentionBackwardOptions const& options, AttentionPlan const& plan) {
  if (plan.workspace_bytes == 0) return;
  auto const fail = [&](std::string const& why) {
    throw Error(ErrorCode::workspace, std::string(backward_name) + ": " + why + "; " +
                                          std::to_string(plan.workspace_bytes) +
                                          " bytes are needed (attention_backward_workspace_size)");
  };
  if (options.workspace == nullptr) fail("options.workspace is missing");
  if (reinterpret_cast<std::uintptr_t>(options.workspace) % 16 != 0) fail("options.workspace is not aligned to 16");
  if (options.workspace_bytes < plan.workspace_bytes)
    fail("options.workspace has " + std::to_string(options.workspace_bytes) + " bytes");
}

}  // namespace tessera::detail

#endif
