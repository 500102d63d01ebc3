// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_VECTOR_UNITS_HPP
#define TESSERA_VECTOR_UNITS_HPP

// Before a function of plain loops: it is compiled for the baseline, AVX2 and AVX-512, and the loader takes what the
// machine has. What is inlined into it is part of it. Only g++ from 12 on does so for templates and names these sets;
// sanitizers are not ready when the loader asks; nvcc's host compiler sees other text.
#if defined(__x86_64__) && defined(__ELF__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && \
    !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TESSERA_FOR_VECTOR_UNITS __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TESSERA_FOR_VECTOR_UNITS
#endif

#endif
