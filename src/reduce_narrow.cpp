// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>

namespace tessera::detail {

// Compiled in reduce.cpp.
#define TESSERA_STARTS(EXTERN, EXEC)        \
  TESSERA_REDUCE_START(extern, EXEC, float) \
  TESSERA_REDUCE_START(extern, EXEC, double)
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_STARTS)

#define TESSERA_INSTANCES(EXTERN, EXEC)      \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, fp16_t) \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, bf16_t) \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, e4m3_t) \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, e5m2_t)
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)

}  // namespace tessera::detail
