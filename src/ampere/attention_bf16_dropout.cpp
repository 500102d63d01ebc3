// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/run.hpp>

namespace tessera::detail {
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_ATTENTION_ASYNC_BF16_DROPOUT)
}  // namespace tessera::detail
