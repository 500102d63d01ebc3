// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>
#include <tessera/reduce.hpp>

namespace tessera::detail {

template <class Exec>
void run_reduction(Exec const& exec, ReduceProblem const& problem) {
  with_type(problem.in_type, [&]<class In>() { run_reduction_of<Exec, In>(exec, problem); });
}

template <class Exec>
std::size_t reduction_workspace(ReduceProblem const& problem) {
  return with_type(problem.in_type, [&]<class In>() { return reduction_workspace_of<Exec, In>(problem); });
}

// The narrow types are compiled in reduce_narrow.cpp.
#define TESSERA_INSTANCES(EXTERN, EXEC)                                  \
  TESSERA_REDUCE_STARTS(EXTERN, EXEC)                                    \
  EXTERN template void run_reduction(EXEC const&, ReduceProblem const&); \
  EXTERN template std::size_t reduction_workspace<EXEC>(ReduceProblem const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::detail
