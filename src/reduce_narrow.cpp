// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>

namespace tessera::detail {

// The kernels' starts are compiled in reduce.cpp.
#define TESSERA_INSTANCES(EXTERN, EXEC) \
  TESSERA_REDUCE_STARTS(extern, EXEC)   \
  TESSERA_NARROW_REDUCTIONS(EXTERN, EXEC)
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
