// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/rowwise/softmax.hpp>

namespace tessera::detail {

template void run_softmax(TESSERA_EXECUTION_SPACE const&, SoftmaxProblem const&);

}  // namespace tessera::detail
