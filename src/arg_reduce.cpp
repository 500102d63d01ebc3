// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/element/pair_reduce.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC)                                           \
  EXTERN template void run_pair_reduction(EXEC const&, PairReduceProblem const&); \
  EXTERN template std::size_t pair_reduction_workspace<EXEC>(PairReduceProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
