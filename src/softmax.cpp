// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/rowwise/mailed_rows.hpp>
#include <tessera/rowwise/softmax.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)                                 \
  EXTERN template void run_softmax(EXEC const&, SoftmaxProblem const&); \
  EXTERN template std::size_t row_workspace(EXEC const&, std::int64_t);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
