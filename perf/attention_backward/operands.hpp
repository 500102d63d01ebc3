// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ATTENTION_BACKWARD_OPERANDS_HPP
#define TESSERA_PERF_ATTENTION_BACKWARD_OPERANDS_HPP

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/attention_backward.hpp>
#include "support/contest.hpp"
#include "support/data.hpp"

namespace tessera::perf {

/// Operands of a backward pass, random ones, and where O and LSE go. Those of 8 bits have scales of heads and O, dO and
/// gradients of bf16.
template <class Exec, class T>
struct BackwardOperands {
  static constexpr bool narrow = sizeof(T) == 1;
  using Tensor = Tensor4<Exec, T>;
  using Result = Tensor4<Exec, std::conditional_t<narrow, bf16_t, T>>;
  Tensor q, k, v;
  Result o, d_o, dq, dk, dv;
  Kokkos::View<float***, Kokkos::LayoutRight, typename Exec::memory_space> lse;
  Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> q_scale, k_scale, v_scale;

  BackwardOperands(Exec const& exec, model::AttentionShape const& s)
      : lse("LSE", s.batch, s.query_heads, s.query_length) {
    auto const of_queries = [&]<class View>(View& view, int seed) {
      view = random_view<View>(exec, seed, s.batch, s.query_heads, s.query_length, s.head_size);
    };
    auto const of_keys = [&]<class View>(View& view, int seed) {
      view = random_view<View>(exec, seed, s.batch, s.kv_heads, s.kv_length, s.head_size);
    };
    of_queries(q, 1), of_queries(d_o, 4), of_queries(o, 5), of_queries(dq, 6);
    of_keys(k, 2), of_keys(v, 3), of_keys(dk, 7), of_keys(dv, 8);
    if constexpr (narrow) {
      auto const ones = [&](std::int64_t heads) { return decltype(q_scale)("scales", s.batch, heads); };
      q_scale = ones(s.query_heads), k_scale = ones(s.kv_heads), v_scale = ones(s.kv_heads);
      for (auto const& scales : {q_scale, k_scale, v_scale}) Kokkos::deep_copy(exec, scales, 1.0f);
    }
  }
};

/// The gradients of a forward that has run. What the functors refer to is `kept`.
template <class Exec, class T, class Score = score::Identity, class Mask = mask::All, class... Kept>
Implementation backward_of(Exec const& exec, BackwardOperands<Exec, T> const& x, AttentionBackwardOptions options,
                           Score const& score = {}, Mask const& mask = {}, Kept const&... kept) {
  if constexpr (BackwardOperands<Exec, T>::narrow) {
    options.forward.q_scale = x.q_scale;
    options.forward.k_scale = x.k_scale;
    options.forward.v_scale = x.v_scale;
  }
  AttentionOptions forward = options.forward;
  forward.lse = x.lse;
  Vector<Exec, char> const arranged("workspace",
                                    attention_workspace_size(exec, x.o, x.q, x.k, x.v, forward, score, mask));
  if (arranged.size() > 0) forward.workspace = arranged.data();
  forward.workspace_bytes = arranged.size();
  attention(exec, x.o, x.q, x.k, x.v, forward, score, mask);
  Vector<Exec, char> const workspace(
      "workspace", attention_backward_workspace_size(exec, x.dq, x.dk, x.dv, x.q, x.k, x.v, x.o, x.lse, x.d_o, options,
                                                     score, mask));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  return {"tessera",
          [=] {
            (static_cast<void>(kept), ..., static_cast<void>(workspace));
            attention_backward(exec, x.dq, x.dk, x.dv, x.q, x.k, x.v, x.o, x.lse, x.d_o, options, score, mask);
          },
          tessera::to_string(
              attention_backward_plan(exec, x.dq, x.dk, x.dv, x.q, x.k, x.v, x.o, x.lse, x.d_o, options, score, mask))};
}

/// With the score of that name: alibi or softcap.
template <class Exec>
Implementation backward_with_score(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                   AttentionBackwardOptions options, std::string const& name);
/// With a bias that has an element a score, and whether that has a gradient.
template <class Exec>
Implementation backward_with_bias(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                  AttentionBackwardOptions options, bool gives_gradient);

/// Causal, over documents of one batch entry that begin there, told by an id a token.
template <class Exec>
Implementation backward_over_documents(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                       std::vector<int> const& starts);

}  // namespace tessera::perf

#endif
