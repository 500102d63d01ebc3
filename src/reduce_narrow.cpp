// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/element/reduce_plan.hpp>

namespace tessera::detail {

using Space = TESSERA_EXECUTION_SPACE;

// Compiled in reduce.cpp.
extern template void launch_pass<Space, float, float>(char const*, Space const&, ReduceProblem const&,
                                                      ReducePass const&, StepKind, ReduceOutput const&);
extern template void launch_pass<Space, double, double>(char const*, Space const&, ReduceProblem const&,
                                                        ReducePass const&, StepKind, ReduceOutput const&);

template void run_reduction_of<Space, fp16_t>(Space const&, ReduceProblem const&);
template void run_reduction_of<Space, bf16_t>(Space const&, ReduceProblem const&);
template void run_reduction_of<Space, e4m3_t>(Space const&, ReduceProblem const&);
template void run_reduction_of<Space, e5m2_t>(Space const&, ReduceProblem const&);

}  // namespace tessera::detail
