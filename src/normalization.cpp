// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/rowwise/normalization.hpp>

namespace tessera::detail {

template void run_norm(TESSERA_EXECUTION_SPACE const&, NormProblem const&);

}  // namespace tessera::detail
