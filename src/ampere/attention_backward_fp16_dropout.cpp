// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/backward_instances.hpp>

namespace tessera::detail {
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_BACKWARD_ASYNC_FP16_DROPOUT)
}  // namespace tessera::detail
