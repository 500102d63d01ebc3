// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/backward_instances.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)               \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, float, 128) \
  TESSERA_BACKWARD_INSTANCE(EXTERN, EXEC, double, 128)
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
