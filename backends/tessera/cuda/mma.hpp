// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_MMA_HPP
#define TESSERA_CUDA_MMA_HPP

// mma.sync, the matrix products of one warp (sm_80). Lane l of a warp is lane t = l % 4 of group g = l / 4. An
// accumulator of 16 x 8 has rows g and g + 8 and columns 2t and 2t + 1.
namespace tessera::detail::ptx {

/// fp64, 16 x 8 x 16: a[2j + h] is row g + 8h, k = 4j + t; b[j] is k = 4j + t, column g.
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
