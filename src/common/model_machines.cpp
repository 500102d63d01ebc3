// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/device.hpp>

#include "common/model_format.hpp"

namespace tessera::model {

namespace {

constexpr std::array<char const*, type_count> type_names = {"fp64", "fp64_tensor", "fp32", "tf32",
                                                            "fp16", "bf16",        "fp8",  "int8"};

// What compute capabilities 8.0, 9.0 and 10.0 have in common.
DeviceModel nvidia_data_centre(char const* name, int multiprocessors) {
  DeviceModel d;
  d.name = name;
  d.multiprocessors = multiprocessors;
  d.warp_size = 32;
  d.max_threads_per_block = 1024;
  d.max_blocks_per_multiprocessor = 32;
  d.max_warps_per_multiprocessor = 64;
  d.registers_per_multiprocessor = 65536;
  d.max_registers_per_thread = 255;
  d.register_granularity_per_warp = 256;
  d.partitions_per_multiprocessor = 4;
  d.reserved_shared_bytes_per_block = 1024;
  d.shared_granularity_bytes = 128;
  return d;
}

void set_shared_memory(DeviceModel& d, int kib) {
  d.shared_bytes_per_multiprocessor = std::int64_t{kib} * 1024;
  d.max_shared_bytes_per_block = d.shared_bytes_per_multiprocessor - d.reserved_shared_bytes_per_block;
}

}  // namespace

std::string to_string(Type type) { return type_names[static_cast<std::size_t>(type)]; }

Type type_from_string(std::string_view name) {
  if (name == "e4m3" || name == "e5m2") return Type::fp8;
  for (Type const type : all_types)
    if (name == type_names[static_cast<std::size_t>(type)]) return type;
  throw Error(ErrorCode::value, "model::type_from_string: no type is called '" + std::string(name) + "'");
}

int bytes_per_element(Type type) {
  switch (type) {
    case Type::fp64:
    case Type::fp64_tensor:
      return 8;
    case Type::fp32:
    case Type::tf32:
      return 4;
    case Type::fp16:
    case Type::bf16:
      return 2;
    case Type::fp8:
    case Type::int8:
      return 1;
  }
  throw Error(ErrorCode::value, "model::bytes_per_element: not a Type");
}

DeviceModel a100_80gb() {
  DeviceModel d = nvidia_data_centre("A100 SXM 80 GB", 108);
  d.cores_per_multiprocessor = 64;
  set_shared_memory(d, 164);
  d.l2_bytes = 40ll << 20;
  d.hbm_bytes = 80e9;
  d.hbm_bytes_per_second = 2.039e12;
  d.clock_hz = 1.410e9;
  d.peak_flops_per_second = {9.7e12, 19.5e12, 19.5e12, 156e12, 312e12, 312e12, 0, 624e12};
  return d;
}

DeviceModel h100_sxm() {
  DeviceModel d = nvidia_data_centre("H100 SXM", 132);
  d.cores_per_multiprocessor = 128;
  set_shared_memory(d, 228);
  d.l2_bytes = 50ll << 20;
  d.hbm_bytes = 80e9;
  d.hbm_bytes_per_second = 3.35e12;
  d.clock_hz = 1.980e9;
  d.peak_flops_per_second = {33.5e12, 67e12, 67e12, 494.5e12, 989.5e12, 989.5e12, 1979e12, 1979e12};
  return d;
}

DeviceModel h200_sxm() {
  DeviceModel d = h100_sxm();
  d.name = "H200 SXM";
  d.hbm_bytes = 141e9;
  d.hbm_bytes_per_second = 4.8e12;
  return d;
}

DeviceModel b200() {
  DeviceModel d = nvidia_data_centre("B200", 148);
  d.cores_per_multiprocessor = 128;
  set_shared_memory(d, 228);
  d.l2_bytes = 126ll << 20;
  d.hbm_bytes = 180e9;
  d.hbm_bytes_per_second = 8e12;
  d.clock_hz = 1.965e9;
  d.peak_flops_per_second = {37e12, 37e12, 75e12, 1125e12, 2250e12, 2250e12, 4500e12, 4500e12};
  return d;
}

std::string to_string(DeviceModel const& d) {
  using detail::with_unit;
  auto const count = [](std::int64_t n, char const* unit) { return std::to_string(n) + " " + unit; };
  std::string text = d.name + "\n";
  text += "  " + count(d.multiprocessors, "multiprocessors of ") + count(d.cores_per_multiprocessor, "cores at ") +
          with_unit(d.clock_hz, "Hz") + "\n";
  text += "  per multiprocessor: " + count(d.max_warps_per_multiprocessor, "warps of ") +
          count(d.warp_size, "threads, ") + count(d.max_blocks_per_multiprocessor, "teams, ") +
          count(d.registers_per_multiprocessor, "registers, ") +
          count(d.shared_bytes_per_multiprocessor, "B shared memory") + "\n";
  text += "  per team: " + count(d.max_threads_per_block, "threads, ") +
          count(d.max_shared_bytes_per_block, "B shared memory (") +
          count(d.reserved_shared_bytes_per_block, "B more reserved), ") +
          count(d.max_registers_per_thread, "registers a thread") + "\n";
  text += "  memory: L2 " + count(d.l2_bytes, "B, ") + with_unit(d.hbm_bytes, "B at ") +
          (d.hbm_bytes_per_second > 0 ? with_unit(d.hbm_bytes_per_second, "B/s") : "unknown bandwidth") + "\n";
  text += "  peak:";
  char const* separator = " ";
  for (Type const type : all_types)
    if (d.peak(type) > 0) {
      text += separator + to_string(type) + " " + with_unit(d.peak(type), type == Type::int8 ? "OP/s" : "FLOP/s");
      separator = ", ";
    }
  return text + "\n";
}

}  // namespace tessera::model
