// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_COMPILED_SPACES_HPP
#define TESSERA_COMPILED_SPACES_HPP

#include <Kokkos_Core.hpp>
#include <tessera/config.hpp>

// The execution spaces the library holds instances for: X(EXTERN, space) for each, where EXTERN is `extern` or nothing.
#if defined(KOKKOS_ENABLE_SERIAL)
#define TESSERA_IF_SERIAL(X, EXTERN) X(EXTERN, Kokkos::Serial)
#else
#define TESSERA_IF_SERIAL(X, EXTERN)
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
#define TESSERA_IF_OPENMP(X, EXTERN) X(EXTERN, Kokkos::OpenMP)
#else
#define TESSERA_IF_OPENMP(X, EXTERN)
#endif
#if defined(KOKKOS_ENABLE_CUDA)
#define TESSERA_IF_CUDA(X, EXTERN) X(EXTERN, Kokkos::Cuda)
#else
#define TESSERA_IF_CUDA(X, EXTERN)
#endif
#define TESSERA_FOR_EACH_COMPILED_SPACE(X, EXTERN) \
  TESSERA_IF_SERIAL(X, EXTERN)                     \
  TESSERA_IF_OPENMP(X, EXTERN)                     \
  TESSERA_IF_CUDA(X, EXTERN)

// The same for the spaces that the part of the library at hand is compiled for: one, or the two host spaces, whose
// kernels are the same.
#if defined(TESSERA_SECOND_EXECUTION_SPACE)
#define TESSERA_FOR_EACH_SPACE_OF_PART(X) X(, TESSERA_EXECUTION_SPACE) X(, TESSERA_SECOND_EXECUTION_SPACE)
#else
#define TESSERA_FOR_EACH_SPACE_OF_PART(X) X(, TESSERA_EXECUTION_SPACE)
#endif

// The one space with a pipeline of asynchronous copies, if any.
#define TESSERA_FOR_ASYNC_SPACE(X, EXTERN) TESSERA_IF_CUDA(X, EXTERN)

// The one space whose bulk pipeline the library holds kernels for, if any.
#if defined(TESSERA_ENABLE_HOPPER) && defined(KOKKOS_ENABLE_CUDA)
#define TESSERA_FOR_BULK_SPACE(X, EXTERN) X(EXTERN, Kokkos::Cuda)
#else
#define TESSERA_FOR_BULK_SPACE(X, EXTERN)
#endif

#endif
