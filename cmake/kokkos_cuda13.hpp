// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kokkos 4.7.0 calls three functions of the CUDA runtime with the arguments they had before CUDA 13. These overloads
// take the old arguments. Force-included only where that Kokkos is built along with CUDA 13; 4.7.1 needs none of it.
#ifndef TESSERA_KOKKOS_CUDA13_HPP
#define TESSERA_KOKKOS_CUDA13_HPP

#if defined(__cplusplus)
#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 13000
namespace tessera_kokkos_cuda13 {

// Before CUDA 13 a negative device meant the host.
inline cudaMemLocation location(int device) {
  return cudaMemLocation{device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, device};
}

}  // namespace tessera_kokkos_cuda13

inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                            size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}

inline cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, cudaStream_t stream = nullptr) {
  return cudaMemPrefetchAsync(pointer, bytes, tessera_kokkos_cuda13::location(device), 0, stream);
}

inline cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int device) {
  return cudaMemAdvise(pointer, bytes, advice, tessera_kokkos_cuda13::location(device));
}
#endif
#endif

#endif
