// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_ROOFLINE_HPP
#define TESSERA_MODEL_ROOFLINE_HPP

#include <string>
#include <tessera/model/device.hpp>
#include <tessera/model/work.hpp>

namespace tessera::model {

/// What an operation waits for.
enum class Bound { memory, compute };

std::string to_string(Bound bound);

/// The best a machine can do on some work.
struct Roofline {
  double intensity_flops_per_byte = 0;     ///< flops / bytes of the work; +∞ when it moves no byte
  double ridge_flops_per_byte = 0;         ///< peak / bandwidth of the machine: below it, memory is the bound
  double attainable_flops_per_second = 0;  ///< min(peak, intensity · bandwidth)
  double attainable_bytes_per_second = 0;  ///< min(bandwidth, peak / intensity)
  double seconds = 0;                      ///< max(flops / peak, bytes / bandwidth)
  Bound bound = Bound::memory;             ///< compute when the intensity is at or above the ridge
};

/// The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009).
///
/// \param flops operations (OP for int8), ≥ 0
/// \param bytes bytes moved to and from memory, ≥ 0
/// \throws Error{value} for negative or NaN work, a device of unknown bandwidth, or one without arithmetic of this
/// type.
Roofline roofline(DeviceModel const& device, Type type, double flops, double bytes);

inline Roofline roofline(DeviceModel const& device, Type type, Work const& work) {
  return roofline(device, type, work.flops, work.bytes);
}

/// FLOP per byte at which memory and arithmetic take the same time: peak / bandwidth. Same errors as `roofline`.
double ridge_point_flops_per_byte(DeviceModel const& device, Type type);

/// What fraction of the roofline a measured time reached: predicted seconds / measured seconds.
/// \throws Error{value} when measured_seconds is not above 0, and what `roofline` throws.
double fraction_of_roofline(DeviceModel const& device, Type type, Work const& work, double measured_seconds);

/// "295 FLOP/B at a ridge of 295 FLOP/B, 989.5 TFLOP/s attainable, 1.1 ms, bound by compute"
std::string to_string(Roofline const& roofline);

}  // namespace tessera::model

#endif
