// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include "attention_backward/operands.hpp"
#include "support/documents.hpp"

// Gradients with functors, each of which is kernels to compile: in a source of their own.
namespace tessera::perf {

template <class Exec>
Implementation backward_with_score(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                   AttentionBackwardOptions options, std::string const& name) {
  if (name == "softcap") return backward_of(exec, x, options, score::SoftCap{50.0});
  if (name == "bias" || name == "dbias") {
    auto const of_scores = [&](auto view, int seed) {
      return random_view<decltype(view)>(exec, seed, x.q.extent(0), x.q.extent(1), x.q.extent(2), x.k.extent(2));
    };
    auto const bias = of_scores(Tensor4<Exec, bf16_t>{}, 10);
    Tensor4<Exec, float> d_bias;
    if (name == "dbias") options.d_bias = d_bias = of_scores(d_bias, 11);
    return backward_of(exec, x, options, score::additive_bias(bias), mask::All{}, d_bias);
  }
  auto const slopes = random_view<Vector<Exec, float>>(exec, 9, x.q.extent_int(1));
  int const offset = x.k.extent_int(2) - x.q.extent_int(2);
  return backward_of(exec, x, options, score::alibi(slopes, offset), mask::All{}, slopes);
}

template <class Exec>
Implementation backward_over_documents(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                       std::vector<int> const& starts) {
  AttentionBackwardOptions options;
  options.forward.causal = true;
  return backward_of(exec, x, options, score::Identity{}, mask::consecutive_documents(document_ids<Exec>(starts)));
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                           \
  template Implementation backward_with_score(EXEC const&, BackwardOperands<EXEC, bf16_t> const&,     \
                                              AttentionBackwardOptions, std::string const&);          \
  template Implementation backward_over_documents(EXEC const&, BackwardOperands<EXEC, bf16_t> const&, \
                                                  std::vector<int> const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
