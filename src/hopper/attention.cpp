// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/run.hpp>

namespace tessera::detail {
TESSERA_ATTENTION_BULK_INSTANCE(, TESSERA_EXECUTION_SPACE)
}  // namespace tessera::detail
