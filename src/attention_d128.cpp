// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/run.hpp>

namespace tessera::detail {
TESSERA_ATTENTION_INSTANCE(, TESSERA_EXECUTION_SPACE, float, 128)
TESSERA_ATTENTION_INSTANCE(, TESSERA_EXECUTION_SPACE, double, 128)
}  // namespace tessera::detail
