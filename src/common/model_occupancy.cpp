// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/occupancy.hpp>

#include <algorithm>
#include <climits>

#include "common/model_format.hpp"

namespace tessera::model {

namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

int limit_by_registers(DeviceModel const& d, int warps_per_block, int registers_per_thread) {
  if (d.registers_per_multiprocessor == 0 || registers_per_thread == 0) return INT_MAX;
  std::int64_t const per_warp =
      round_up(std::int64_t{registers_per_thread} * d.warp_size, std::max(1, d.register_granularity_per_warp));
  int const partitions = std::max(1, d.partitions_per_multiprocessor);
  // The hardware's own check of a launch takes the warps of a team as spread evenly over the partitions.
  if (per_warp * round_up(warps_per_block, partitions) > d.registers_per_multiprocessor) return 0;
  std::int64_t const warps = d.registers_per_multiprocessor / partitions / per_warp * partitions;
  return static_cast<int>(warps / warps_per_block);
}

int limit_by_shared_memory(DeviceModel const& d, std::int64_t bytes) {
  if (d.max_shared_bytes_per_block > 0 && bytes > d.max_shared_bytes_per_block) return 0;
  if (d.shared_bytes_per_multiprocessor == 0) return INT_MAX;
  std::int64_t const per_block =
      round_up(bytes + d.reserved_shared_bytes_per_block, std::max<std::int64_t>(1, d.shared_granularity_bytes));
  if (per_block == 0) return INT_MAX;
  return static_cast<int>(std::min<std::int64_t>(d.shared_bytes_per_multiprocessor / per_block, INT_MAX));
}

}  // namespace

std::string to_string(Limiter limiter) {
  switch (limiter) {
    case Limiter::warps:
      return "warps";
    case Limiter::blocks:
      return "blocks";
    case Limiter::registers:
      return "registers";
    case Limiter::shared_memory:
      return "shared memory";
  }
  throw Error(ErrorCode::value, "model::to_string: not a Limiter");
}

Occupancy occupancy(DeviceModel const& d, int threads_per_block, int registers_per_thread, std::int64_t shared_bytes) {
  auto const check = [](bool condition, std::string const& message) {
    detail::require(condition, ErrorCode::value, "occupancy", message);
  };
  check(d.warp_size > 0 && d.max_warps_per_multiprocessor > 0,
        "device '" + d.name + "' has no warp size or no warps per multiprocessor");
  check(threads_per_block >= 1 && (d.max_threads_per_block == 0 || threads_per_block <= d.max_threads_per_block),
        "threads_per_block is " + std::to_string(threads_per_block) + ", must be 1 to " +
            std::to_string(d.max_threads_per_block));
  check(registers_per_thread >= 0 &&
            (d.max_registers_per_thread == 0 || registers_per_thread <= d.max_registers_per_thread),
        "registers_per_thread is " + std::to_string(registers_per_thread) + ", must be 0 to " +
            std::to_string(d.max_registers_per_thread));
  check(shared_bytes >= 0, "shared_bytes is " + std::to_string(shared_bytes) + ", must be >= 0");

  int const warps_per_block = (threads_per_block - 1) / d.warp_size + 1;
  Occupancy o;
  o.block_limit_warps = d.max_warps_per_multiprocessor / warps_per_block;
  o.block_limit_blocks = d.max_blocks_per_multiprocessor > 0 ? d.max_blocks_per_multiprocessor : INT_MAX;
  o.block_limit_registers = limit_by_registers(d, warps_per_block, registers_per_thread);
  o.block_limit_shared_memory = limit_by_shared_memory(d, shared_bytes);

  int const limits[] = {o.block_limit_warps, o.block_limit_blocks, o.block_limit_registers,
                        o.block_limit_shared_memory};
  int const* const smallest = std::min_element(std::begin(limits), std::end(limits));
  o.active_blocks = *smallest;
  o.limiter = static_cast<Limiter>(smallest - std::begin(limits));
  o.active_warps = o.active_blocks * warps_per_block;
  o.fraction = static_cast<double>(o.active_warps) / d.max_warps_per_multiprocessor;
  return o;
}

std::string to_string(Occupancy const& o) {
  return std::to_string(o.active_blocks) + " blocks, " + std::to_string(o.active_warps) + " warps, " +
         detail::percent(o.fraction) + " of a multiprocessor, limited by " + to_string(o.limiter);
}

}  // namespace tessera::model
