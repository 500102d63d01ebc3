// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_UNROLL_HPP
#define TESSERA_UNROLL_HPP

// A fragment lives in registers only while every index into it is a constant: its loops must unroll on a GPU.
#if defined(__CUDA_ARCH__)
#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_UNROLL_8 _Pragma("unroll 8")
#define TESSERA_ROLLED _Pragma("unroll 1")  // a loop that is rarely run, and short when it is
#else
#define TESSERA_UNROLL
#define TESSERA_UNROLL_8
#define TESSERA_ROLLED
#endif

// After the parameters of a lambda: part of its caller, however long it is. On a CPU the caller may be compiled for
// other vector units than functions of their own are.
#if defined(__GNUC__)
#define TESSERA_INLINE_LAMBDA __attribute__((always_inline))
#else
#define TESSERA_INLINE_LAMBDA
#endif

#endif
