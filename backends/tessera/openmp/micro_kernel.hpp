// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_MICRO_KERNEL_HPP
#define TESSERA_OPENMP_MICRO_KERNEL_HPP

// The CPU's multiply atom: a panel of rows times a panel of columns. One binary holds a version for every instruction
// set; the best one the processor has is picked at run time.
namespace tessera::detail::openmp {

/// Rows of a left panel and columns of a right one. 12 x 2 vectors is what 32 registers of AVX-512 hold beside the
/// operands; AVX2 walks the same panels in pieces of 6 x 2 vectors.
inline constexpr int panel_rows = 12;
template <class T>
inline constexpr int panel_cols = 128 / static_cast<int>(sizeof(T));

/// c[panel_rows][panel_cols] (+)= a[k][panel_rows]^T b[k][panel_cols]; a, b and c 64-byte aligned or not.
template <class T>
using MicroKernel = void (*)(T const* a, T const* b, T* c, int k, bool add);

/// The best version this processor runs, or the one TESSERA_MAX_ISA (baseline, avx2, avx512) caps it to.
template <class T>
MicroKernel<T> micro_kernel();

/// What micro_kernel chose: "avx512", "avx2" or "baseline".
char const* instruction_set();

}  // namespace tessera::detail::openmp

#endif
