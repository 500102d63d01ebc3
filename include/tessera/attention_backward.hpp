// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_HPP
#define TESSERA_ATTENTION_BACKWARD_HPP

#include <tessera/attention.hpp>
#include <tessera/attention/backward_plan.hpp>
#include <tessera/attention_backward_options.hpp>

namespace tessera {
namespace detail {

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
