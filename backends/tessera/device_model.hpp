// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DEVICE_MODEL_HPP
#define TESSERA_DEVICE_MODEL_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include <tessera/launch.hpp>
#include <tessera/model/device.hpp>

// How the running machine is read into a model::DeviceModel.
namespace tessera::detail {

template <class Exec>
struct CopyElements {
  Kokkos::View<double*, typename Exec::memory_space> to;
  Kokkos::View<double const*, typename Exec::memory_space> from;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { to(i) = from(i); }
};

/// Bytes per second, read and write together, of the best copy of ten, or of those that half a second has time for. On
/// a machine that does other work most copies are slow: only the best says what the memory can do.
template <class Exec>
double copy_bytes_per_second(Exec const& exec, std::int64_t bytes) {
  using Elements = Kokkos::View<double*, typename Exec::memory_space>;
  std::int64_t const n = bytes / static_cast<std::int64_t>(sizeof(double));
  Elements const from(Kokkos::view_alloc(exec, "tessera::copy_from"), n);
  Elements const to(Kokkos::view_alloc(exec, "tessera::copy_to"), n);
  double best = 0;
  Kokkos::Timer total;
  for (int repeat = 0; repeat < 10 && (repeat < 2 || total.seconds() < 0.5); ++repeat) {
    exec.fence("tessera::copy_bytes_per_second begin");
    Kokkos::Timer timer;
    for_each_index("tessera::copy_bytes_per_second", exec, n, CopyElements<Exec>{to, from});
    exec.fence("tessera::copy_bytes_per_second end");
    double const seconds = timer.seconds();
    if (seconds > 0) best = std::max(best, 2.0 * static_cast<double>(n) * sizeof(double) / seconds);
  }
  return best;
}

/// The same, timed once per process and concurrency of the instance, with an array well past the caches where 128 MiB
/// are.
template <class Exec>
double cached_copy_bytes_per_second(Exec const& exec, std::int64_t last_cache_bytes) {
  static std::mutex mutex;
  static std::map<int, double> known;
  std::lock_guard<std::mutex> const lock(mutex);
  auto const [entry, absent] = known.try_emplace(exec.concurrency(), 0.0);
  std::int64_t const bytes = std::clamp<std::int64_t>(2 * last_cache_bytes, 32ll << 20, 128ll << 20);
  if (absent) entry->second = copy_bytes_per_second(exec, bytes);
  return entry->second;
}

/// Any Kokkos backend: a CPU is read from the operating system; of other machines only the concurrency, the team
/// scratch and the bandwidth are known.
template <class Exec>
struct DeviceReader {
  static model::DeviceModel read(Exec const& exec) {
    model::DeviceModel d;
    if constexpr (Machine<Exec>::is_host) {
      d = model::host_device(exec.concurrency());
    } else {
      d.name = exec.name();
      d.multiprocessors = Machine<Exec>::concurrency(exec);
      d.max_shared_bytes_per_block = static_cast<std::int64_t>(Machine<Exec>::scratch_limit(exec));
    }
    d.hbm_bytes_per_second = cached_copy_bytes_per_second(exec, d.l2_bytes);
    return d;
  }
};

}  // namespace tessera::detail

#if defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/device_model.hpp>
#endif

#endif
