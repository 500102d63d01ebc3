// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_HPP
#define TESSERA_ATTENTION_BACKWARD_HPP

#include <tessera/attention.hpp>
#include <tessera/attention/backward_run.hpp>

namespace tessera {

struct AttentionBackwardOptions {
  /// What attention() was called with: scale, masks, layout, sinks and dropout. `lse`, `splits` and the workspace there
  /// do not count.
  AttentionOptions forward = {};
  /// The gradient that arrives through LSE, (B, H, S_q): added to what arrives through O.
  ViewRef<float const, 3> d_lse = {};
  ViewRef<double const, 3> d_lse_fp64 = {};  ///< the same for operands of double
  /// The gradient of the sinks, (H): written when given.
  ViewRef<float, 1> d_sinks = {};
  /// The gradient of what score::additive_bias adds, written when given: (B or 1, H or 1, S_q or 1, S_k), 1 where one
  /// element of the View serves all of them, over which it is then summed, always in one order: by the portable
  /// kernels, behind the others. Where every score has its own, the Hopper pipeline stores it on the way.
  ViewRef<float, 4> d_bias = {};
  ViewRef<double, 4> d_bias_fp64 = {};  ///< the same for operands of double
  /// The same bits in every run. Else dQ is added up in memory by the pipelines of GPUs, in the order in which teams
  /// come. On a CPU they are the same in any case.
  bool deterministic = false;
  /// attention_backward_workspace_size() bytes in the memory of the execution space, aligned to 16: O(S), and of the
  /// Hopper pipeline and on a CPU O(S·d), operands of 8 bits widened to bf16 among them. Not to be touched before the
  /// gradients are there.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  AttentionAlgorithm algorithm = AttentionAlgorithm::automatic;
  bool allow_fallback = true;  ///< false: Error{unsupported} when the asked algorithm cannot run
};

namespace detail {

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

/// What the forward may have that gradients are not formed of.
inline void refuse_in_backward(AttentionOptions const& options) {
  auto const refuse = [](bool is, char const* what) {
    if (is) throw Error(ErrorCode::unsupported, std::string(backward_name) + ": no gradients with " + what);
  };
  refuse(static_cast<bool>(options.block_table), "keys in pages");
  refuse(options.k_tile_scale || options.v_tile_scale, "scales of tiles of keys");
}

/// Takes a vector of each query.
template <class Exec, class T>
MatrixStack take_query_values(char const* name, Array<T, 3> const& a, MatrixStack const& d_o,
                              std::string const& operands) {
  if (a.extent[0] != d_o.outer || a.extent[1] != d_o.inner || a.extent[2] != d_o.rows)
    throw Error(ErrorCode::extent, std::string(backward_name) + ": " + name + " " + shape(a) +
                                       " is not (batch, heads, queries) of Q; " + operands);
  check_data(backward_name, name, a);
  return {a.data,      scalar_of<std::remove_const_t<T>>,
          a.extent[2], 1,
          a.stride[2], 1,
          a.extent[0], a.extent[1],
          a.stride[0], a.stride[1]};
}

/// An output with the extents of what it is the gradient of.
template <class T, class TO>
MatrixStack take_gradient(char const* name, Array<T, 4> const& a, char const* of_name, Array<TO, 4> const& of,
                          AttentionLayout layout) {
  for (int i = 0; i < 4; ++i)
    if (a.extent[i] != of.extent[i])
      throw Error(ErrorCode::extent, std::string(backward_name) + ": " + name + " " + shape(a) +
                                         " does not have the extents of " + of_name + " " + shape(of));
  check_data(backward_name, name, a);
  return attention_stack(a, layout);
}

template <class Exec, class DQ, class DK, class DV, class Q, class K, class V, class O, class L, class DO>
constexpr void require_backward_operands() {
  require_views<Exec, DQ, DK, DV, Q, K, V, O, L, DO>();
  require_outputs<DQ, DK, DV>();
  static_assert(DQ::rank() == 4 && DK::rank() == 4 && DV::rank() == 4 && Q::rank() == 4 && K::rank() == 4 &&
                    V::rank() == 4 && O::rank() == 4 && DO::rank() == 4 && L::rank() == 3,
                "attention_backward: Q, K, V, O, their gradients are Views of rank 4 as attention() has them, LSE of "
                "rank 3: batch, head, query");
  using TQ = typename Q::non_const_value_type;
  static_assert(
      std::is_same_v<TQ, typename K::non_const_value_type> && std::is_same_v<TQ, typename V::non_const_value_type>,
      "attention_backward: Q, K and V have one value type");
  static_assert(float_type<TQ> && (!std::is_same_v<TQ, double> || Machine<Exec>::is_host),
                "attention_backward: the elements are float, fp16_t, bf16_t, e4m3_t or e5m2_t, or double on a CPU");
  constexpr bool wide = std::is_same_v<TQ, double>;
  static_assert(wide == std::is_same_v<typename DQ::value_type, double> &&
                    wide == std::is_same_v<typename DK::value_type, double> &&
                    wide == std::is_same_v<typename DV::value_type, double> &&
                    wide == std::is_same_v<typename O::non_const_value_type, double> &&
                    wide == std::is_same_v<typename DO::non_const_value_type, double> &&
                    std::is_same_v<typename L::non_const_value_type, std::conditional_t<wide, double, float>>,
                "attention_backward: O, dO and the gradients are of floating-point types, of double exactly when Q, K "
                "and V are; LSE is of float, or then of double");
}

template <class Exec>
void take_sink_gradients(AttentionBackwardProblem& p, AttentionBackwardOptions const& options,
                         std::string const& operands) {
  check_value(static_cast<bool>(options.forward.sinks), backward_name,
              "options.d_sinks is of options.forward.sinks, which is missing");
  auto const& d_sinks = options.d_sinks.array();
  options.d_sinks.template check_accessible<Exec>(backward_name, "options.d_sinks");
  check_extent(backward_name, "d_sinks", d_sinks, 0, p.forward.q.inner, "the heads of Q; " + operands);
  check_data(backward_name, "d_sinks", d_sinks);
  p.d_sinks = d_sinks.data;
  p.d_sinks_stride = d_sinks.stride[0];
}

/// Behind the operands. Whether a batch entry, a head or a query has elements of its own, the View of the score says.
template <class Exec, class Score, class T>
void take_bias_gradient(AttentionBackwardProblem& p, ViewRef<T, 4> const& d_bias, Score const& score,
                        std::string const& operands) {
  auto const refuse = [](char const* why) {
    throw Error(ErrorCode::unsupported, std::string(backward_name) + ": no options.d_bias " + why);
  };
  if constexpr (!gives_bias_gradient<Score>) {
    refuse("of another score than score::additive_bias");
  } else {
    if (p.packed()) refuse("with packed sequences");
    auto const& a = d_bias.array();
    d_bias.template check_accessible<Exec>(backward_name, "options.d_bias");
    MatrixStack const bias = ScoreMatrix<own_score<Score>>::matrices(ScoreParts<Score>::own(score));
    AttentionProblem const& f = p.forward;
    std::int64_t const all[4] = {f.q.outer, f.q.inner, f.q.rows, f.k.rows};
    bool const shared[4] = {bias.outer == 1 || bias.outer_stride == 0, bias.inner == 1 || bias.inner_stride == 0,
                            bias.rows == 1 || bias.row_stride == 0, bias.cols == 1 || bias.col_stride == 0};
    if (shared[3] && all[3] > 1) refuse("of a bias that all keys have in common");
    for (int i = 0; i < 4; ++i)
      if (a.extent[i] != (shared[i] ? 1 : all[i]))
        throw Error(ErrorCode::extent, std::string(backward_name) + ": d_bias " + shape(a) +
                                           " does not have the extents of the bias, 1 where one element of it serves "
                                           "all; " +
                                           operands);
    check_data(backward_name, "d_bias", a);
    check_no_overlap(backward_name, "d_bias", a, "the bias", array(ScoreParts<Score>::own(score).values));
    p.d_bias = attention_stack(a, AttentionLayout::bhsd);
  }
}

/// No gradient lies where something of the options is read.
inline void check_apart_from_options(char const* name, AnyArray const& gradient,
                                     AttentionBackwardOptions const& options) {
  auto const check = [&](char const* other, auto const& numbers) {
    if (numbers) check_no_overlap(backward_name, name, gradient, other, numbers.array());
  };
  check("d_lse", options.d_lse);
  check("d_lse_fp64", options.d_lse_fp64);
  check("query_starts", options.forward.query_starts);
  check("key_starts", options.forward.key_starts);
  check("key_lengths", options.forward.key_lengths);
  check("sinks", options.forward.sinks);
  check("q_scale", options.forward.q_scale);
  check("k_scale", options.forward.k_scale);
  check("v_scale", options.forward.v_scale);
}

template <class Exec, class Score, class DQ, class DK, class DV, class Q, class K, class V, class O, class L, class DO>
AttentionBackwardProblem backward_problem(Score const& score, DQ const& dq_view, DK const& dk_view, DV const& dv_view,
                                          Q const& q_view, K const& k_view, V const& v_view, O const& o_view,
                                          L const& lse_view, DO const& d_o_view,
                                          AttentionBackwardOptions const& options) {
  AttentionOptions forward = options.forward;
  refuse_in_backward(forward);
  forward.lse = {};
  forward.lse_fp64 = {};
  forward.splits = 0;
  forward.workspace = nullptr;
  forward.workspace_bytes = 0;
  AttentionBackwardProblem p;
  p.forward = attention_problem<Exec>(o_view, q_view, k_view, v_view, forward);
  auto const q = array(q_view);
  auto const k = array(k_view);
  auto const v = array(v_view);
  auto const o = array(o_view);
  auto const d_o = array(d_o_view);
  auto const lse = array(lse_view);
  auto const dq = array(dq_view);
  auto const dk = array(dk_view);
  auto const dv = array(dv_view);
  std::string const operands = "Q " + shape(q) + ", K " + shape(k) + ", V " + shape(v) + ", O " + shape(o);
  p.d_o = take_gradient("dO", d_o, "O", o, forward.layout);
  p.dq = take_gradient("dQ", dq, "Q", q, forward.layout);
  p.dk = take_gradient("dK", dk, "K", k, forward.layout);
  p.dv = take_gradient("dV", dv, "V", v, forward.layout);
  p.forward.lse = take_query_values<Exec>("LSE", lse, p.d_o, operands);
  constexpr bool wide = std::is_same_v<typename Q::non_const_value_type, double>;
  check_value(wide ? !options.d_lse : !options.d_lse_fp64, backward_name,
              wide ? "operands of double have options.d_lse_fp64, not options.d_lse"
                   : "only operands of double have options.d_lse_fp64");
  auto const take_d_lse = [&](auto const& d_lse) {
    if (!d_lse) return;
    d_lse.template check_accessible<Exec>(backward_name, "options.d_lse");
    p.d_lse = take_query_values<Exec>("d_lse", d_lse.array(), p.d_o, operands);
  };
  take_d_lse(options.d_lse);
  take_d_lse(options.d_lse_fp64);
  auto const check_output = [&](char const* name, auto const& a) {
    check_writable(backward_name, name, a);
    check_no_overlap(backward_name, name, a, "Q", q);
    check_no_overlap(backward_name, name, a, "K", k);
    check_no_overlap(backward_name, name, a, "V", v);
    check_no_overlap(backward_name, name, a, "O", o);
    check_no_overlap(backward_name, name, a, "dO", d_o);
    check_no_overlap(backward_name, name, a, "LSE", lse);
    check_apart_from_options(name, a, options);
  };
  check_output("dQ", dq);
  check_output("dK", dk);
  check_output("dV", dv);
  check_no_overlap(backward_name, "dQ", dq, "dK", dk);
  check_no_overlap(backward_name, "dQ", dq, "dV", dv);
  check_no_overlap(backward_name, "dK", dk, "dV", dv);
  auto const check_apart_from_gradients = [&](char const* name, auto const& a) {
    check_no_overlap(backward_name, name, a, "dQ", dq);
    check_no_overlap(backward_name, name, a, "dK", dk);
    check_no_overlap(backward_name, name, a, "dV", dv);
  };
  if (options.d_sinks) {
    check_apart_from_gradients("d_sinks", options.d_sinks.array());
    check_output("d_sinks", options.d_sinks.array());
    take_sink_gradients<Exec>(p, options, operands);
  }
  check_value(wide ? !options.d_bias : !options.d_bias_fp64, backward_name,
              wide ? "operands of double have options.d_bias_fp64, not options.d_bias"
                   : "only operands of double have options.d_bias_fp64");
  auto const take_bias = [&](auto const& d_bias) {
    if (!d_bias) return;
    auto const& a = d_bias.array();
    check_output("d_bias", a);
    check_apart_from_gradients("d_bias", a);
    if (options.d_sinks) check_no_overlap(backward_name, "d_bias", a, "d_sinks", options.d_sinks.array());
    take_bias_gradient<Exec>(p, d_bias, score, operands);
  };
  take_bias(options.d_bias);
  take_bias(options.d_bias_fp64);
  return with_sequences_by_ends(p);
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
  BackwardWorkspace const w(p, sizeof(Compute), sums, key_sums);
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

}  // namespace detail

/// What attention_backward() would run for these operands on this machine. @throws Error as attention_backward() does.
template <detail::execution_space Exec, detail::view DQ, detail::view DK, detail::view DV, detail::view Q,
          detail::view K, detail::view V, detail::view O, detail::view L, detail::view DO,
          class Score = score::Identity, class Mask = mask::All>
AttentionPlan attention_backward_plan(Exec const& exec, DQ const& dq, DK const& dk, DV const& dv, Q const& q,
                                      K const& k, V const& v, O const& o, L const& lse, DO const& d_o,
                                      AttentionBackwardOptions const& options = {}, Score const& score = {},
                                      Mask const& = {}) {
  detail::require_backward_operands<Exec, DQ, DK, DV, Q, K, V, O, L, DO>();
  return detail::with_score_to_run<Score, Mask>(options.forward, score, [&]<class ToRun>(ToRun const&) {
    return detail::plan_backward<Exec, detail::attention_compute<Q>, ToRun, Mask>(
        exec, detail::backward_problem<Exec>(score, dq, dk, dv, q, k, v, o, lse, d_o, options), options);
  });
}

/// Bytes of options.workspace. @throws Error as attention_backward() does.
template <detail::execution_space Exec, detail::view DQ, detail::view DK, detail::view DV, detail::view Q,
          detail::view K, detail::view V, detail::view O, detail::view L, detail::view DO,
          class Score = score::Identity, class Mask = mask::All>
std::size_t attention_backward_workspace_size(Exec const& exec, DQ const& dq, DK const& dk, DV const& dv, Q const& q,
                                              K const& k, V const& v, O const& o, L const& lse, DO const& d_o,
                                              AttentionBackwardOptions const& options = {}, Score const& score = {},
                                              Mask const& mask = {}) {
  return attention_backward_plan(exec, dq, dk, dv, q, k, v, o, lse, d_o, options, score, mask).workspace_wanted;
}

/// dQ, dK, dV ← gradients of what attention() forms from Q, K and V, exactly, given its O and LSE and the gradient dO
/// of O (and of LSE: options.d_lse). Scores and weights are recomputed by tiles, so that the memory beside the operands
/// is O(S) numbers a head, and a dQ of fp32 where sums over keys are formed in memory (Dao et al. 2022, 2024).
///
/// Shapes as in attention(): Q, dQ (B, H, S_q, d), K, dK (B, H_kv, S_k, d), V, dV (B, H_kv, S_k, d_v), O, dO (B, H,
/// S_q, d_v), LSE (B, H, S_q), or with the sequence before the heads; any strides; d and d_v up to 256. dK and dV are
/// summed over the query heads that share them. Elements are float, fp16_t, bf16_t, e4m3_t or e5m2_t with fp32
/// accumulation, or double on a CPU; O, dO and gradients may be of another floating-point type. With scales of heads
/// the gradients are those of what the elements are times their scales. Runs asynchronously on `exec`, without fence or
/// allocation.
///
/// A query that sees no key (LSE = −∞) has no gradient: its dQ is 0, and it adds nothing to dK and dV, whatever finite
/// numbers its dO has. Keys behind a key length have dK = dV = 0. Of packed sequences rows of none are not written.
///
/// @param options what the forward was called with, its dropout too, which drops the same weights, and more
/// @param score as in the forward; it says that it only adds, or what its derivative is, or is differentiated: see
///   score.hpp
/// @param mask as in the forward
/// @throws Error as attention() does of Q, K, V, O and options.forward; Error{extent} a gradient, LSE or d_lse does not
/// have the extents of what it belongs to; {overlap} a gradient shares memory with another operand or with itself;
/// {null_data}; {workspace} options.workspace is missing, not aligned or too small; {unsupported} keys in pages,
/// scales of tiles of keys, d_bias of packed sequences, of a bias that all keys have in common or of another score, or
/// the asked algorithm cannot run and options.allow_fallback is false. Outputs are then untouched.
template <detail::execution_space Exec, detail::view DQ, detail::view DK, detail::view DV, detail::view Q,
          detail::view K, detail::view V, detail::view O, detail::view L, detail::view DO,
          class Score = score::Identity, class Mask = mask::All>
void attention_backward(Exec const& exec, DQ const& dq, DK const& dk, DV const& dv, Q const& q, K const& k, V const& v,
                        O const& o, L const& lse, DO const& d_o, AttentionBackwardOptions const& options = {},
                        Score const& score = {}, Mask const& mask = {}) {
  detail::require_backward_operands<Exec, DQ, DK, DV, Q, K, V, O, L, DO>();
  using Compute = detail::attention_compute<Q>;
  static_assert(detail::has_derivative<Score, Compute>,
                "attention_backward: the score functor says neither only_adds nor slope(), and does not take a Dual "
                "number (score.hpp, dual.hpp)");
  auto const p = detail::backward_problem<Exec>(score, dq, dk, dv, q, k, v, o, lse, d_o, options);
  detail::with_score_to_run<Score, Mask>(options.forward, score, [&]<class ToRun>(ToRun const& to_run) {
    AttentionPlan const plan = detail::plan_backward<Exec, Compute, ToRun, Mask>(exec, p, options);
    if (p.forward.q.inner == 0) return;
    if (p.forward.q.outer > 0) {
      detail::check_backward_workspace(options, plan);
      detail::run_backward<Exec, typename Q::non_const_value_type, Compute>(exec, p, plan, options, to_run, mask);
    } else if (p.d_sinks != nullptr) {
      detail::run_sink_gradients<Exec, Compute>(exec, p, {p, sizeof(Compute), 0}, options.workspace);
    }
    if constexpr (detail::gives_bias_gradient<ToRun>)
      if (p.d_bias.data != nullptr && !(plan.algorithm == AttentionAlgorithm::hopper &&
                                        detail::stores_bias_gradient<ToRun>(p, options.deterministic)))
        detail::visit_features(detail::attention_features(p.forward), [&](auto d) {
          detail::run_bias_gradients<Exec, Compute, d()>(exec, p, detail::backward_room(p, plan, options), to_run,
                                                         mask);
        });
  });
}

}  // namespace tessera

#endif
