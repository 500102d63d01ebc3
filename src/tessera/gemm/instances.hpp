// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_INSTANCES_HPP
#define TESSERA_GEMM_INSTANCES_HPP

#include <tessera/compiled_spaces.hpp>

// The library holds the products without an epilogue of the caller's own: nobody compiles them again.
namespace tessera::detail {

#define TESSERA_GEMM_INSTANCES(EXTERN, EXEC)                                                                        \
  EXTERN template void run_gemm<EXEC, float, epilogue::Identity>(EXEC const&, GemmProblem const&, GemmPlan const&,  \
                                                                 epilogue::Identity const&);                        \
  EXTERN template void run_gemm<EXEC, double, epilogue::Identity>(EXEC const&, GemmProblem const&, GemmPlan const&, \
                                                                  epilogue::Identity const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_GEMM_INSTANCES, extern)

#define TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC)                                                \
  EXTERN template void run_gemm_bulk<EXEC, epilogue::Identity>(EXEC const&, GemmProblem const&, \
                                                               epilogue::Identity const&);
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_INSTANCE, extern)

}  // namespace tessera::detail

#endif
