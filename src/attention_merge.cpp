// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/merge.hpp>
#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

#define TESSERA_INSTANCES(EXTERN, EXEC) EXTERN template void run_merge(EXEC const&, MergeProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
