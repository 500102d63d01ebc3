// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/device.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "common/model_format.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace tessera::model {

namespace {

std::string first_line(std::string const& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The text after the colon of the first line of /proc/cpuinfo or /proc/meminfo that begins with the key.
std::string proc_field(char const* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (std::string_view(line).substr(0, key.size()) == key) {
      std::size_t const colon = line.find(':');
      if (colon == std::string::npos) continue;
      std::size_t const begin = line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? std::string() : line.substr(begin);
    }
  return {};
}

/// "2048K", "480M" or plain bytes, as sysfs writes cache sizes.
std::int64_t parse_size(std::string const& text) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  switch (end == text.data() + text.size() ? '\0' : *end) {
    case 'K':
      return value << 10;
    case 'M':
      return value << 20;
    case 'G':
      return value << 30;
    default:
      return value;
  }
}

struct Caches {
  std::int64_t private_bytes = 0;  // L2 of a core; L1 data where there is none
  std::int64_t last_bytes = 0;
};

Caches read_caches() {
  Caches caches;
  for (int index = 0, last_level = 0; index < 8; ++index) {
    std::string const folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::string const type = first_line(folder + "type");
    if (type.empty() || type == "Instruction") continue;
    int const level = std::atoi(first_line(folder + "level").c_str());
    std::int64_t const size = parse_size(first_line(folder + "size"));
    if (level <= 2) caches.private_bytes = std::max(caches.private_bytes, size);
    if (level > last_level) {
      last_level = level;
      caches.last_bytes = size;
    }
  }
  return caches;
}

struct Cores {
  int threads = 1;   // hardware threads the process may use
  int physical = 1;  // physical cores they belong to
};

// A thread bound to one place (OMP_PROC_BIND) sees only that place: when fewer hardware threads are allowed than will
// run, the machine's own count is used.
Cores read_cores(int threads) {
  int seen = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t allowed;
  bool const known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  if (known) seen = std::max(1, CPU_COUNT(&allowed));
#endif
  int const online = detail::count_cpu_list(first_line("/sys/devices/system/cpu/online"));
  bool const bound = seen < threads && seen < online;
  Cores cores{bound ? online : seen, 0};
#if defined(__linux__)
  std::set<std::string> siblings;
  for (int cpu = 0; known && cpu < CPU_SETSIZE; ++cpu) {
    if (!bound && !CPU_ISSET(cpu, &allowed)) continue;
    std::string const list =
        first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (!list.empty()) siblings.insert(list);
  }
  cores.physical = static_cast<int>(siblings.size());
#endif
  if (cores.physical == 0) cores.physical = cores.threads;
  return cores;
}

// Two dependent one-cycle operations a step: no compiler shortens the chain and no CPU runs it faster than its clock.
double measured_clock_hz() {
  constexpr std::uint64_t steps = 1 << 20;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto const begin = std::chrono::steady_clock::now();
    std::uint64_t x = static_cast<std::uint64_t>(begin.time_since_epoch().count()) | 1, y = x >> 3;
    for (std::uint64_t i = 0; i < steps; ++i) {
      x += y;
      y ^= x;
    }
    std::uint64_t volatile keep = x ^ y;
    static_cast<void>(keep);
    std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - begin;
    if (elapsed.count() > 0) best = std::max(best, 2.0 * steps / elapsed.count());
  }
  return best;
}

double read_clock_hz() {
  double const listed = 1e6 * std::atof(proc_field("/proc/cpuinfo", "cpu MHz").c_str());
  double const highest = 1e3 * std::atof(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").c_str());
  return std::max({listed, highest, measured_clock_hz()});
}

std::string read_features() {
  std::string features = proc_field("/proc/cpuinfo", "flags");
  return features.empty() ? proc_field("/proc/cpuinfo", "Features") : features;
}

bool has(std::string_view features, std::string_view name) {
  std::istringstream words{std::string(features)};
  for (std::string word; words >> word;)
    if (word == name) return true;
  return false;
}

}  // namespace

namespace detail {

int host_lanes(std::string_view features) {
  if (has(features, "avx512f")) return 16;
  if (has(features, "avx")) return 8;
  return 4;
}

std::array<double, type_count> host_flops_per_clock(std::string_view features) {
  constexpr double vector_units = 2;
  bool const arm = has(features, "asimd");
  double const fused = arm || has(features, "fma") ? 2 : 1;
  double const fp32 = vector_units * fused * host_lanes(features);

  double const fp16 = has(features, "avx512_fp16") || has(features, "asimdhp") ? 2 * fp32 : fp32;

  // AMX multiplies 16x64 bytes by 64x16 bytes in 16 cycles: 16·16·32 products of bf16, twice that of int8. Arm's BFMMLA
  // does 16 products where the fp32 instruction does 4, its int8 sibling 32.
  constexpr double amx = 1024;
  double bf16 = fp32;
  if (has(features, "avx512_bf16") || has(features, "avx_ne_convert")) bf16 = 2 * fp32;
  if (arm && has(features, "bf16")) bf16 = 4 * fp32;
  if (has(features, "amx_bf16")) bf16 = amx;

  double int8 = fp32;
  if (has(features, "avx512_vnni") || has(features, "avx_vnni") || has(features, "asimddp")) int8 = 4 * fp32;
  if (has(features, "i8mm")) int8 = 8 * fp32;
  if (has(features, "amx_int8")) int8 = 2 * amx;

  return {fp32 / 2, fp32 / 2, fp32, fp32, fp16, bf16, fp32, int8};
}

int count_cpu_list(std::string_view list) {
  int count = 0;
  std::istringstream ranges{std::string(list)};
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0;
    char const* const end = range.data() + range.size();
    auto const [after, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc{} || first < 0) return 0;
    int last = first;
    if (after != end && *after == '-' && std::from_chars(after + 1, end, last).ec != std::errc{}) return 0;
    if (last < first) return 0;
    count += last - first + 1;
  }
  return count;
}

}  // namespace detail

DeviceModel host_device(int threads) {
  detail::require(threads >= 0, ErrorCode::value, "host_device",
                  "threads is " + std::to_string(threads) + ", must be >= 0");
  static double const clock_hz = read_clock_hz();
  Cores const cores = read_cores(threads);
  Caches const caches = read_caches();
  std::string const features = read_features();
  std::string const name = proc_field("/proc/cpuinfo", "model name");

  DeviceModel d;
  d.multiprocessors = threads == 0 ? cores.physical : std::min(threads, cores.physical);
  d.name = name.empty() ? "host" : name;
  d.cores_per_multiprocessor = detail::host_lanes(features);
  d.warp_size = 1;
  int const threads_per_core = std::max(1, cores.threads / cores.physical);
  d.max_threads_per_block = threads_per_core;
  d.max_blocks_per_multiprocessor = threads_per_core;
  d.max_warps_per_multiprocessor = threads_per_core;
  d.shared_bytes_per_multiprocessor = caches.private_bytes;
  d.max_shared_bytes_per_block = caches.private_bytes;
  d.l2_bytes = caches.last_bytes;
  d.hbm_bytes = 1024 * std::atof(proc_field("/proc/meminfo", "MemTotal").c_str());
  d.clock_hz = clock_hz;
  auto const per_clock = detail::host_flops_per_clock(features);
  for (Type const type : all_types)
    d.set_peak(type, per_clock[static_cast<std::size_t>(type)] * clock_hz * d.multiprocessors);
  return d;
}

}  // namespace tessera::model
