// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/cast/run.hpp>

namespace tessera::detail {

template void run_cast(TESSERA_EXECUTION_SPACE const& exec, CastProblem const& problem);

}  // namespace tessera::detail
