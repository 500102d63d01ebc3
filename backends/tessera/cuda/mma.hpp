// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_MMA_HPP
#define TESSERA_CUDA_MMA_HPP

#include <cstdint>

#include <tessera/cuda/ptx.hpp>
#include <tessera/detail/matrix.hpp>

// mma.sync, the matrix products of one warp (sm_80), and the matrix loads that go with them. Lane l of a warp is lane
// t = l % 4 of group g = l / 4. An accumulator of 16 x 8 has rows g and g + 8 and columns 2t and 2t + 1.
namespace tessera::detail::ptx {

/// Four 8 x 8 matrices of 16-bit elements, or of 8 lines of 16 bytes; `from` is this lane's line. Lane l gets the four
/// bytes t of line g of each.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&v)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from));
}
/// The same of the transposes of matrices of 16-bit elements.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&v)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from));
}

/// The bits of an fp32 number as those of the nearest tf32 number, ties away from zero.
__device__ __forceinline__ std::uint32_t round_to_tf32(std::uint32_t x) {
  std::uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
  return y;
}

// 32 bytes of K: a[0], a[1] are the first 16 of rows g and g + 8, a[2], a[3] the others; b0, b1 those of column g. A
// lane has four bytes of each.
#define TESSERA_MMA(ELEMENT, SUM, IN_REGISTER, SHAPE)                                                               \
  __device__ __forceinline__ void mma(ScalarTag<ELEMENT>, SUM(&d)[4], std::uint32_t const(&a)[4], std::uint32_t b0, \
                                      std::uint32_t b1) {                                                           \
    asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                \
        : IN_REGISTER(d[0]), IN_REGISTER(d[1]), IN_REGISTER(d[2]), IN_REGISTER(d[3])                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                            \
  }
TESSERA_MMA(bf16_t, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
TESSERA_MMA(fp16_t, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
TESSERA_MMA(float, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
TESSERA_MMA(std::int8_t, std::int32_t, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
#undef TESSERA_MMA

/// fp64, 16 x 8 x 8: a[2j + h] is row g + 8h, k = 4j + t; b[j] is k = 4j + t, column g.
__device__ __forceinline__ void mma(double (&d)[4], double const (&a)[4], double const (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(d[2 * h]), "+d"(d[2 * h + 1])
          : "d"(a[2 * j + h]), "d"(b[j]));
#endif
}
/// fp64, 16 x 8 x 16, likewise.
__device__ __forceinline__ void mma(double (&d)[4], double const (&a)[8], double const (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(d[2 * h]), "+d"(d[2 * h + 1])
          : "d"(a[2 * j + h]), "d"(b[j]));
#endif
}

}  // namespace tessera::detail::ptx

#endif
