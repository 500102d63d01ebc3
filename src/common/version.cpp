// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/version.hpp>

namespace tessera {

int version() noexcept { return TESSERA_VERSION; }

}  // namespace tessera
