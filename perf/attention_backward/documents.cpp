// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/documents.hpp"
#include <tessera/compiled_spaces.hpp>
#include "attention_backward/operands.hpp"

namespace tessera::perf {

template <class Exec>
Implementation backward_over_documents(Exec const& exec, BackwardOperands<Exec, bf16_t> const& x,
                                       std::vector<int> const& starts) {
  AttentionBackwardOptions options;
  options.forward.causal = true;
  return backward_of(exec, x, options, score::Identity{}, mask::consecutive_documents(document_ids<Exec>(starts)));
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                           \
  template Implementation backward_over_documents(EXEC const&, BackwardOperands<EXEC, bf16_t> const&, \
                                                  std::vector<int> const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
