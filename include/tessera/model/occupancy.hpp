// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_OCCUPANCY_HPP
#define TESSERA_MODEL_OCCUPANCY_HPP

#include <cstdint>
#include <string>
#include <tessera/model/device.hpp>

namespace tessera::model {

/// What keeps more teams from being resident on a multiprocessor.
enum class Limiter { warps, blocks, registers, shared_memory };

std::string to_string(Limiter limiter);

/// How many teams (thread blocks) of one kernel are resident on a multiprocessor at once.
struct Occupancy {
  int active_blocks = 0;              ///< per multiprocessor; 0: the kernel cannot be launched
  int active_warps = 0;               ///< per multiprocessor
  double fraction = 0;                ///< active warps / the most a multiprocessor holds
  Limiter limiter = Limiter::warps;   ///< the smallest limit below; of equal ones the first in the order of Limiter
  int block_limit_warps = 0;          ///< teams that fit by warps
  int block_limit_blocks = 0;         ///< teams the hardware tracks
  int block_limit_registers = 0;      ///< teams that fit by registers (INT_MAX: no limit)
  int block_limit_shared_memory = 0;  ///< teams that fit by shared memory (INT_MAX: no limit)
};

/// Occupancy of a kernel, by the rules of NVIDIA's occupancy calculator (cuda_occupancy.h):
///
/// - warps per team w = ⌈threads / warp size⌉; by warps: ⌊max warps / w⌋
/// - registers of a warp r = ⌈registers per thread · warp size⌉ to a multiple of the granularity;
///   by registers: ⌊⌊registers / partitions / r⌋ · partitions / w⌋, and 0 when r · ⌈w⌉(to partitions) exceeds them all
/// - shared memory of a team s = ⌈bytes + reserved⌉ to a multiple of the granularity; by shared memory: ⌊shared / s⌋,
///   and 0 when the bytes exceed what one team may have
///
/// \param threads_per_block    threads of a team, 1 to the device's maximum
/// \param registers_per_thread 32-bit registers, 0 (none counted) to the device's maximum
/// \param shared_bytes         static and dynamic shared memory of a team, ≥ 0
/// \throws Error{value} for arguments outside these ranges, or a device without warp size or warps.
Occupancy occupancy(DeviceModel const& device, int threads_per_block, int registers_per_thread,
                    std::int64_t shared_bytes);

/// "8 blocks, 64 warps, 100 % of a multiprocessor, limited by warps"
std::string to_string(Occupancy const& occupancy);

}  // namespace tessera::model

#endif
