// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_WAVES_HPP
#define TESSERA_MODEL_WAVES_HPP

#include <cstdint>
#include <string>
#include <tessera/model/device.hpp>

namespace tessera::model {

/// How the tiles of a matrix product fall into waves over the machine.
struct Waves {
  std::int64_t tiles = 0;      ///< ⌈M / tile_m⌉ · ⌈N / tile_n⌉
  std::int64_t slots = 0;      ///< tiles that run at once: multiprocessors · teams on each
  std::int64_t waves = 0;      ///< ⌈tiles / slots⌉
  double tail_efficiency = 1;  ///< tiles / (waves · slots): what the last, partial wave leaves; 1 without tiles
  double tile_efficiency = 1;  ///< M · N / (tiles · tile_m · tile_n): what partial tiles at the edges leave
  /// Fraction of the peak left by both.
  double efficiency() const { return tail_efficiency * tile_efficiency; }
};

/// Wave quantisation of an M×N output in tiles of tile_m×tile_n (NVIDIA, Matrix Multiplication Background, §4.2): one
/// column more than fits a wave costs a whole second one.
/// \throws Error{extent} for negative M or N, Error{value} for tiles or teams below 1 or a device without
/// multiprocessors.
Waves waves(DeviceModel const& device, std::int64_t m, std::int64_t n, std::int64_t tile_m, std::int64_t tile_n,
            int teams_per_multiprocessor = 1);

/// "120 tiles in 2 waves of 108, tail 55.6 %, tiles 82 % filled"
std::string to_string(Waves const& waves);

}  // namespace tessera::model

#endif
