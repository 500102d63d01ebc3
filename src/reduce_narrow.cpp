// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>

namespace tessera::detail {

// The kernels' starts are compiled in reduce.cpp.
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_NARROW_REDUCTIONS)

}  // namespace tessera::detail
