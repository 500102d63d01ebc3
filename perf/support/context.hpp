// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_CONTEXT_HPP
#define TESSERA_PERF_CONTEXT_HPP

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include <tessera/model.hpp>
#include <tessera/version.hpp>
#include "support/arguments.hpp"
#include "support/peers.hpp"
#include "support/stopwatch.hpp"

// What was measured where: the context of the results.
namespace tessera::perf {

template <class Exec>
constexpr char const* backend_name() {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return "cuda";
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
  if constexpr (std::is_same_v<Exec, Kokkos::OpenMP>) return "openmp";
#endif
  return "serial";
}

/// The folder of the benchmarks' sources, where report.py is; empty when this program was moved away from them.
inline std::filesystem::path source_directory() {
  std::filesystem::path const file = __FILE__;
  std::error_code ignored;
  std::filesystem::path const directory = file.parent_path().parent_path();
  return std::filesystem::exists(directory / "report.py", ignored) ? directory : std::filesystem::path();
}

/// The first line that a command prints.
inline std::string output_of(std::string const& command) {
  std::string text;
  if (FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r")) {
    char line[256];
    if (std::fgets(line, sizeof(line), pipe) != nullptr) text = line;
    pclose(pipe);
  }
  return text.substr(0, text.find('\n'));
}

/// Of the sources, from TESSERA_COMMIT or git.
inline std::string commit() {
  if (char const* const given = std::getenv("TESSERA_COMMIT")) return given;
  std::string const directory = source_directory().string();
  std::string const found =
      directory.empty() ? "" : output_of("git -C '" + directory + "' describe --always --dirty --exclude '*'");
  return found.empty() ? "unknown" : found;
}

inline std::string utc_now() {
  std::time_t const now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

inline std::string version_text() {
  return std::to_string(TESSERA_VERSION_MAJOR) + "." + std::to_string(TESSERA_VERSION_MINOR) + "." +
         std::to_string(TESSERA_VERSION_PATCH);
}

inline std::string compiler_text() {
  std::string text;
#if defined(__CUDACC_VER_MAJOR__)
  text = "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." + std::to_string(__CUDACC_VER_MINOR__) + ", ";
#endif
#if defined(__clang__)
  return text + "clang " + __clang_version__;
#else
  return text + "gcc " + __VERSION__;
#endif
}

template <class Exec>
nlohmann::ordered_json context_of(Exec const& exec, model::DeviceModel const& device, Arguments const& arguments) {
  nlohmann::ordered_json context;
  context["date"] = utc_now();
  context["commit"] = commit();
  context["device"] = device.name;
  context["backend"] = backend_name<Exec>();
  context["concurrency"] = exec.concurrency();
  context["clock_mhz"] = static_cast<long>(device.clock_hz * 1e-6);
  context["bandwidth_bytes_per_second"] = device.hbm_bytes_per_second;
  context["last_level_cache_bytes"] = device.l2_bytes;
  nlohmann::ordered_json peaks;
  for (model::Type const type : model::all_types)
    if (device.peak(type) > 0) peaks[model::to_string(type)] = device.peak(type);
  context["peak_flops_per_second"] = peaks;
  context["tessera"] = version_text();
  context["kokkos"] = std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
                      std::to_string(KOKKOS_VERSION % 100);
  context["compiler"] = compiler_text();
  for (auto const& [key, value] : backend_facts<Exec>()) context[key] = value;
  for (auto const& [key, value] : peer_facts<Exec>()) context[key] = value;
  if (arguments.random > 0)
    context["random_shapes"] = std::to_string(arguments.random) + " of seed " + std::to_string(arguments.seed);
#if defined(NDEBUG)
  context["library_build_type"] = "release";
#else
  context["library_build_type"] = "debug";
#endif
  for (std::string const& fact : arguments.context) {
    std::size_t const equals = fact.find('=');
    if (equals == std::string::npos) throw std::invalid_argument("--context=" + fact + ": expected key=value");
    context[fact.substr(0, equals)] = fact.substr(equals + 1);
  }
  return context;
}

}  // namespace tessera::perf

#endif
