// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_DEVICE_MODEL_HPP
#define TESSERA_CUDA_DEVICE_MODEL_HPP

#include <tessera/cuda/launch.hpp>
#include <tessera/cuda/peak_rates.hpp>

namespace tessera::detail {

template <>
struct DeviceReader<Kokkos::Cuda> {
  static int attribute(Kokkos::Cuda const& exec, cudaDeviceAttr which) {
    int value = 0;
    cuda_check(cudaDeviceGetAttribute(&value, which, exec.cuda_device()), "tessera::model::read_device");
    return value;
  }

  static model::DeviceModel read(Kokkos::Cuda const& exec) {
    cudaDeviceProp const& p = exec.cuda_device_prop();
    model::DeviceModel d;
    d.name = p.name;
    d.multiprocessors = p.multiProcessorCount;
    d.warp_size = p.warpSize;
    d.max_threads_per_block = p.maxThreadsPerBlock;
    d.max_blocks_per_multiprocessor = attribute(exec, cudaDevAttrMaxBlocksPerMultiprocessor);
    d.max_warps_per_multiprocessor = p.maxThreadsPerMultiProcessor / p.warpSize;
    d.registers_per_multiprocessor = p.regsPerMultiprocessor;
    d.max_registers_per_thread = 255;
    d.register_granularity_per_warp = 256;
    d.partitions_per_multiprocessor = 4;
    d.shared_bytes_per_multiprocessor = attribute(exec, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    d.max_shared_bytes_per_block = attribute(exec, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    d.reserved_shared_bytes_per_block = attribute(exec, cudaDevAttrReservedSharedMemoryPerBlock);
    d.shared_granularity_bytes = 128;
    d.l2_bytes = attribute(exec, cudaDevAttrL2CacheSize);
    d.hbm_bytes = static_cast<double>(p.totalGlobalMem);
    d.clock_hz = 1e3 * attribute(exec, cudaDevAttrClockRate);
    set_peaks(d, p.major, p.minor);
    // Two transfers a clock, bus width in bits; a device that hides its memory clock is timed instead.
    d.hbm_bytes_per_second = 2 * 1e3 * attribute(exec, cudaDevAttrMemoryClockRate) *
                             (attribute(exec, cudaDevAttrGlobalMemoryBusWidth) / 8.0);
    if (!(d.hbm_bytes_per_second > 0)) d.hbm_bytes_per_second = cached_copy_bytes_per_second(exec, d.l2_bytes);
    return d;
  }
};

}  // namespace tessera::detail

#endif
