// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/roofline.hpp>
#include <tessera/model/waves.hpp>

#include <algorithm>
#include <limits>

#include "common/model_format.hpp"

namespace tessera::model {

std::string to_string(Bound bound) { return bound == Bound::memory ? "memory" : "compute"; }

double ridge_point_flops_per_byte(DeviceModel const& d, Type type) {
  detail::require(d.hbm_bytes_per_second > 0, ErrorCode::value, "roofline",
                  "the memory bandwidth of '" + d.name + "' is unknown; read_device measures it");
  detail::require(d.peak(type) > 0, ErrorCode::value, "roofline",
                  "'" + d.name + "' has no peak for " + to_string(type));
  return d.peak(type) / d.hbm_bytes_per_second;
}

Roofline roofline(DeviceModel const& d, Type type, double flops, double bytes) {
  Roofline r;
  r.ridge_flops_per_byte = ridge_point_flops_per_byte(d, type);
  // Written so that NaN fails too.
  detail::require(
      flops >= 0 && bytes >= 0, ErrorCode::value, "roofline",
      "work of " + detail::number(flops) + " FLOP and " + detail::number(bytes) + " bytes, both must be >= 0");
  double const infinity = std::numeric_limits<double>::infinity();
  r.intensity_flops_per_byte = bytes > 0 ? flops / bytes : (flops > 0 ? infinity : 0);
  r.bound = r.intensity_flops_per_byte >= r.ridge_flops_per_byte ? Bound::compute : Bound::memory;
  bool const memory = r.bound == Bound::memory;
  double const peak = d.peak(type), bandwidth = d.hbm_bytes_per_second;
  r.attainable_flops_per_second = memory ? r.intensity_flops_per_byte * bandwidth : peak;
  r.attainable_bytes_per_second = memory ? bandwidth : peak / r.intensity_flops_per_byte;
  r.seconds = std::max(flops / peak, bytes / bandwidth);
  return r;
}

double fraction_of_roofline(DeviceModel const& d, Type type, Work const& work, double measured_seconds) {
  detail::require(measured_seconds > 0, ErrorCode::value, "fraction_of_roofline",
                  "measured_seconds is " + detail::number(measured_seconds) + ", must be > 0");
  return roofline(d, type, work).seconds / measured_seconds;
}

std::string to_string(Roofline const& r) {
  return detail::number(r.intensity_flops_per_byte) + " FLOP/B at a ridge of " +
         detail::number(r.ridge_flops_per_byte) + " FLOP/B, " +
         detail::with_unit(r.attainable_flops_per_second, "FLOP/s") + " attainable, " +
         detail::with_unit(r.seconds, "s") + ", bound by " + to_string(r.bound);
}

Waves waves(DeviceModel const& d, std::int64_t m, std::int64_t n, std::int64_t tile_m, std::int64_t tile_n,
            int teams_per_multiprocessor) {
  detail::require_extent("waves", "M", m);
  detail::require_extent("waves", "N", n);
  detail::require_at_least_one("waves", "tile_m", tile_m);
  detail::require_at_least_one("waves", "tile_n", tile_n);
  detail::require_at_least_one("waves", "teams_per_multiprocessor", teams_per_multiprocessor);
  detail::require_at_least_one("waves", "the device's number of multiprocessors", d.multiprocessors);

  // Divisions first: M + tile_m - 1 could pass 2^63.
  auto const tiles_along = [](std::int64_t extent, std::int64_t tile) { return extent / tile + (extent % tile != 0); };
  Waves w;
  w.tiles = tiles_along(m, tile_m) * tiles_along(n, tile_n);
  w.slots = std::int64_t{d.multiprocessors} * teams_per_multiprocessor;
  w.waves = tiles_along(w.tiles, w.slots);
  if (w.tiles > 0) {
    double const tiles = static_cast<double>(w.tiles);
    w.tail_efficiency = tiles / (static_cast<double>(w.waves) * static_cast<double>(w.slots));
    w.tile_efficiency = static_cast<double>(m) * static_cast<double>(n) /
                        (tiles * static_cast<double>(tile_m) * static_cast<double>(tile_n));
  }
  return w;
}

std::string to_string(Waves const& w) {
  return std::to_string(w.tiles) + " tiles in " + std::to_string(w.waves) + " waves of " + std::to_string(w.slots) +
         ", tail " + detail::percent(w.tail_efficiency) + ", tiles " + detail::percent(w.tile_efficiency) + " filled";
}

}  // namespace tessera::model
