// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/rowwise/normalization_backward.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)                                            \
  EXTERN template void run_norm_backward(EXEC const&, NormBackwardProblem const&); \
  EXTERN template std::size_t norm_backward_workspace(EXEC const&, NormBackwardProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
