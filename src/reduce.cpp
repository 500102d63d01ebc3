// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>
#include <tessera/reduce.hpp>

namespace tessera::detail {

using Space = TESSERA_EXECUTION_SPACE;

// Compiled in reduce_narrow.cpp.
extern template void run_reduction_of<Space, fp16_t>(Space const&, ReduceProblem const&);
extern template void run_reduction_of<Space, bf16_t>(Space const&, ReduceProblem const&);
extern template void run_reduction_of<Space, e4m3_t>(Space const&, ReduceProblem const&);
extern template void run_reduction_of<Space, e5m2_t>(Space const&, ReduceProblem const&);

template <class Exec>
void run_reduction(Exec const& exec, ReduceProblem const& problem) {
  with_type(problem.in_type, [&]<class In>() { run_reduction_of<Exec, In>(exec, problem); });
}

template <class Exec>
std::size_t reduction_workspace(ReduceProblem const& problem) {
  return with_type(problem.in_type, [&]<class In>() { return reduction_workspace_of<Exec, In>(problem); });
}

// The second passes of every input type.
template void launch_pass<Space, float, float>(char const*, Space const&, ReduceProblem const&, ReducePass const&,
                                               StepKind, ReduceOutput const&);
template void launch_pass<Space, double, double>(char const*, Space const&, ReduceProblem const&, ReducePass const&,
                                                 StepKind, ReduceOutput const&);
template void run_reduction(Space const&, ReduceProblem const&);
template std::size_t reduction_workspace<Space>(ReduceProblem const&);

}  // namespace tessera::detail
