// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_INSTANCES_HPP
#define TESSERA_GEMM_INSTANCES_HPP

#include <tessera/compiled_spaces.hpp>

// The library holds the products without an epilogue of the caller's own: nobody compiles them again.
namespace tessera::detail {

#define TESSERA_GEMM_INSTANCE(EXTERN, EXEC, COMPUTE)                                                                 \
  EXTERN template void run_gemm<EXEC, COMPUTE, epilogue::Identity>(EXEC const&, GemmProblem const&, GemmPlan const&, \
                                                                   epilogue::Identity const&);                       \
  EXTERN template void add_gemm_splits<EXEC, COMPUTE, epilogue::Identity>(                                           \
      EXEC const&, GemmProblem const&, MatrixStack const&, int, epilogue::Identity const&);
#define TESSERA_GEMM_INSTANCES(EXTERN, EXEC) \
  TESSERA_GEMM_INSTANCE(EXTERN, EXEC, float) \
  TESSERA_GEMM_INSTANCE(EXTERN, EXEC, double)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_GEMM_INSTANCES, extern)

#define TESSERA_GEMM_INT8_INSTANCE(EXTERN, EXEC) TESSERA_GEMM_INSTANCE(EXTERN, EXEC, std::int32_t)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_GEMM_INT8_INSTANCE, extern)

#define TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, T, TENSOR_CORES)                \
  EXTERN template void run_gemm_async<EXEC, T, TENSOR_CORES, epilogue::Identity>( \
      EXEC const&, GemmProblem const&, GemmPlan const&, epilogue::Identity const&);
#define TESSERA_GEMM_ASYNC_FP64(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, double, true)
#define TESSERA_GEMM_ASYNC_BF16(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, bf16_t, true)
#define TESSERA_GEMM_ASYNC_FP16(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, fp16_t, true)
#define TESSERA_GEMM_ASYNC_INT8(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, std::int8_t, true)
#define TESSERA_GEMM_ASYNC_TF32(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, float, true)
#define TESSERA_GEMM_ASYNC_FP32(EXTERN, EXEC) TESSERA_GEMM_ASYNC_INSTANCE(EXTERN, EXEC, float, false)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_FP64, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_BF16, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_FP16, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_INT8, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_TF32, extern)
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_ASYNC_FP32, extern)

#define TESSERA_GEMM_THIN(EXTERN, EXEC)                                                              \
  EXTERN template void run_gemm_thin<EXEC, float>(EXEC const&, GemmProblem const&, GemmPlan const&); \
  EXTERN template void run_gemm_thin<EXEC, double>(EXEC const&, GemmProblem const&, GemmPlan const&);
TESSERA_FOR_ASYNC_SPACE(TESSERA_GEMM_THIN, extern)

#define TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, A, B)                                                                 \
  EXTERN template void run_gemm_bulk<EXEC, A, B, epilogue::Identity>(EXEC const&, GemmProblem const&, GemmPlan const&, \
                                                                     epilogue::Identity const&);
#define TESSERA_GEMM_BULK_BF16(EXTERN, EXEC) TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, bf16_t, bf16_t)
#define TESSERA_GEMM_BULK_FP16(EXTERN, EXEC) TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, fp16_t, fp16_t)
#define TESSERA_GEMM_BULK_FP32(EXTERN, EXEC) TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, float, float)
#define TESSERA_GEMM_BULK_INT8(EXTERN, EXEC) TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, std::int8_t, std::int8_t)
#define TESSERA_GEMM_BULK_FP8(EXTERN, EXEC)                \
  TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, e4m3_t, e4m3_t) \
  TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, e4m3_t, e5m2_t) \
  TESSERA_GEMM_BULK_INSTANCE(EXTERN, EXEC, e5m2_t, e4m3_t)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_BF16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_FP16, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_FP32, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_FP8, extern)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BULK_INT8, extern)

}  // namespace tessera::detail

#endif
