// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ATTENTION_BACKWARD_OPERANDS_HPP
#define TESSERA_PERF_ATTENTION_BACKWARD_OPERANDS_HPP

#include <string>
#include <vector>

#include <tessera/attention_backward.hpp>
#include "support/contest.hpp"
#include "support/data.hpp"

namespace tessera::perf {

/// Operands of a backward pass, random ones, and where O and LSE go.
template <class Exec, class T>
struct BackwardOperands {
  using Tensor = Tensor4<Exec, T>;
  Tensor q, k, v, o, d_o, dq, dk, dv;
  Kokkos::View<float***, Kokkos::LayoutRight, typename Exec::memory_space> lse;

  BackwardOperands(Exec const& exec, model::AttentionShape const& s)
      : lse("LSE", s.batch, s.query_heads, s.query_length) {
    auto const of_queries = [&](int seed) {
      return random_view<Tensor>(exec, seed, s.batch, s.query_heads, s.query_length, s.head_size);
    };
    auto const of_keys = [&](int seed) {
      return random_view<Tensor>(exec, seed, s.batch, s.kv_heads, s.kv_length, s.head_size);
    };
    q = of_queries(1), d_o = of_queries(4), o = of_queries(5), dq = of_queries(6);
    k = of_keys(2), v = of_keys(3), dk = of_keys(7), dv = of_keys(8);
  }
};

/// The gradients of a forward that has run. What the functors refer to is `kept`.
template <class Exec, class T, class Score = score::Identity, class Mask = mask::All, class... Kept>
Implementation backward_of(Exec const& exec, BackwardOperands<Exec, T> const& x, AttentionBackwardOptions options,
                           Score const& score = {}, Mask const& mask = {}, Kept const&... kept) {
  AttentionOptions forward = options.forward;
  forward.lse = x.lse;
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

/// Causal, with the score of that name, alibi or softcap.
template <class Exec>
Implementation backward_with_score(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x, std::string const& name);

/// Causal, over documents of one batch entry that begin there, told by an id a token.
template <class Exec>
Implementation backward_over_documents(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                       std::vector<int> const& starts);

}  // namespace tessera::perf

#endif
