// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/quantize/run_blocks.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)                                             \
  EXTERN template bool finds_scales_of_blocks(EXEC const&, QuantizeProblem const&); \
  EXTERN template void run_quantize_blocks(EXEC const&, QuantizeProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
