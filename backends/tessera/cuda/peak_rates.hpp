// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_PEAK_RATES_HPP
#define TESSERA_CUDA_PEAK_RATES_HPP

#include <tessera/model/device.hpp>

namespace tessera::detail {

/// What one multiprocessor of a compute capability does in one clock.
struct PeakRates {
  int major, minor;
  int fp32_cores;
  int fp64, fp64_tensor, fp32, tf32, fp16, bf16, fp8, int8;  // FLOP per clock, dense, fp32 accumulation
  double tensor_clock;  // highest clock under tensor-core load / highest clock, where the data sheet has two
};

// From the architecture white papers: a data sheet's peak is rate × multiprocessors × clock. Hopper's sheet counts
// tensor cores at 1830 MHz and the rest at 1980, Blackwell's at 1856 of 1965.
inline constexpr PeakRates peak_rates[] = {
    {8, 0, 64, 64, 128, 128, 1024, 2048, 2048, 0, 4096, 1.0},                      // A100
    {8, 6, 128, 4, 4, 256, 512, 1024, 1024, 0, 2048, 1.0},                         // A40, A10
    {8, 9, 128, 4, 4, 256, 512, 1024, 1024, 2048, 2048, 1.0},                      // L40S, L4
    {9, 0, 128, 128, 256, 256, 2048, 4096, 4096, 8192, 8192, 1830.0 / 1980.0},     // H100, H200
    {10, 0, 128, 128, 128, 256, 4096, 8192, 8192, 16384, 16384, 1856.0 / 1965.0},  // B200
    {12, 0, 128, 4, 4, 256, 512, 1024, 1024, 2048, 2048, 1.0},                     // RTX PRO 6000 Blackwell
};

/// Fills cores per multiprocessor and the peaks from multiprocessors and clock; leaves 0 for a capability not listed.
inline void set_peaks(model::DeviceModel& d, int major, int minor) {
  using model::Type;
  for (PeakRates const& r : peak_rates) {
    if (r.major != major || r.minor != minor) continue;
    d.cores_per_multiprocessor = r.fp32_cores;
    double const plain = d.clock_hz * d.multiprocessors, tensor = plain * r.tensor_clock;
    d.set_peak(Type::fp64, r.fp64 * plain);
    d.set_peak(Type::fp64_tensor, r.fp64_tensor * plain);
    d.set_peak(Type::fp32, r.fp32 * plain);
    d.set_peak(Type::tf32, r.tf32 * tensor);
    d.set_peak(Type::fp16, r.fp16 * tensor);
    d.set_peak(Type::bf16, r.bf16 * tensor);
    d.set_peak(Type::fp8, r.fp8 * tensor);
    d.set_peak(Type::int8, r.int8 * tensor);
  }
}

}  // namespace tessera::detail

#endif
