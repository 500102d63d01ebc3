// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm.hpp>

namespace tessera::detail {
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_GEMM_THIN)
}  // namespace tessera::detail
