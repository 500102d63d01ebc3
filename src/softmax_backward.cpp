// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/rowwise/softmax_backward.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC) \
  EXTERN template void run_softmax_backward(EXEC const&, SoftmaxBackwardProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
