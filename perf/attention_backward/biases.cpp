// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include "attention_backward/operands.hpp"

namespace tessera::perf {

template <class Exec>
Implementation backward_with_bias(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                  AttentionBackwardOptions options, bool gives_gradient) {
  auto const of_scores = [&](auto view, int seed) {
    return random_view<decltype(view)>(exec, seed, x.q.extent(0), x.q.extent(1), x.q.extent(2), x.k.extent(2));
  };
  auto const bias = of_scores(Tensor4<Exec, bf16_t>{}, 10);
  Tensor4<Exec, float> d_bias;
  if (gives_gradient) options.d_bias = d_bias = of_scores(d_bias, 11);
  return backward_of(exec, x, options, score::additive_bias(bias), mask::All{}, d_bias);
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                      \
  template Implementation backward_with_bias(EXEC const&, BackwardOperands<EXEC, bf16_t> const&, \
                                             AttentionBackwardOptions, bool);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
