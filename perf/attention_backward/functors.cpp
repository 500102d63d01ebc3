// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include "attention_backward/operands.hpp"

// Gradients with score functors, each of which is kernels to compile: in a source of their own, biases and masks in
// others.
namespace tessera::perf {

template <class Exec>
Implementation backward_with_score(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                   AttentionBackwardOptions options, std::string const& name) {
  if (name == "softcap") return backward_of(exec, x, options, score::SoftCap{50.0});
  auto const slopes = alibi_slopes(exec, x.q.extent_int(1));
  int const offset = x.k.extent_int(2) - x.q.extent_int(2);
  return backward_of(exec, x, options, score::alibi(slopes, offset), mask::All{}, slopes);
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                       \
  template Implementation backward_with_score(EXEC const&, BackwardOperands<EXEC, bf16_t> const&, \
                                              AttentionBackwardOptions, std::string const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
