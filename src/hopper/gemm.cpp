// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm.hpp>

namespace tessera::detail {
TESSERA_GEMM_BULK_INSTANCE(, TESSERA_EXECUTION_SPACE)
}  // namespace tessera::detail
