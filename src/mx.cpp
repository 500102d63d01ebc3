// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/quantize/mx.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)                                \
  EXTERN template void run_mx_quantize(EXEC const&, MxProblem const&); \
  EXTERN template void run_mx_dequantize(EXEC const&, MxProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
