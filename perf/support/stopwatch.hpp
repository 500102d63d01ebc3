// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_STOPWATCH_HPP
#define TESSERA_PERF_STOPWATCH_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

// How one call is timed on a machine. A Stopwatch makes samplers: each call of a sampler empties the caches and gives
// the seconds of one launch. The one below serves every host space; support/cuda.hpp has the GPU's.
namespace tessera::perf {

using Launch = std::function<void()>;

/// Empties the caches and gives the seconds of one launch.
struct Sampler {
  std::function<double()> seconds = {};
  bool replayed = false;  ///< the launches of a sample are one graph, which the device runs without the host
};

/// What surrounds a launch.
struct Conditions {
  bool alone = true;        ///< no other library's threads take part
  bool reads_only = false;  ///< or nearly so
};

/// Emptied caches are left full of what must still be written to memory, as they are by most launches before another,
/// and by this one for the next. For a launch that only reads they are left full of what has been read: it would pay
/// for what it has not written.
template <class Exec>
class Stopwatch {
 public:
  static constexpr double default_seconds = 0.3;  ///< of samples an implementation
  static constexpr int max_samples = 15;

  Stopwatch(Exec const& exec, std::int64_t cache_bytes)
      : exec_(exec), flushed_(std::clamp<std::int64_t>(2 * cache_bytes, 16 << 20, 128 << 20)) {}

  /// Launches in one sample when the fastest implementation takes `seconds`, by memory or not: 2 ms at least, so that
  /// neither the clock nor waking the threads counts.
  int calls(double seconds, bool) const {
    return static_cast<int>(std::clamp(2e-3 / std::max(seconds, 1e-9), 1.0, 1e5));
  }

  /// Seconds of one run as it comes, the first included.
  double warm_up(Launch const& launch) {
    Kokkos::Timer const timer;
    launch();
    exec_.fence("tessera::perf::warm_up");
    return timer.seconds();
  }

  Sampler sampler(Launch const& launch, int calls, Conditions const& conditions) {
    return {[this, launch, calls, conditions] {
      flush(conditions);
      Kokkos::Timer const timer;
      for (int i = 0; i < calls; ++i) launch();
      exec_.fence("tessera::perf::sample");
      return timer.seconds() / calls;
    }};
  }

 private:
  /// Writes more memory than the caches hold. Thread pools spin for some milliseconds after their last work and would
  /// take the cores from the next library: give them time to go to sleep.
  void flush(Conditions const& conditions) {
    auto const begin = std::chrono::steady_clock::now();
    std::memset(flushed_.data(), ++pattern_, flushed_.size());
    if (conditions.reads_only) read_ = std::accumulate(flushed_.begin(), flushed_.end(), 0u);
    if (!conditions.alone) std::this_thread::sleep_until(begin + std::chrono::milliseconds(40));
  }

  Exec exec_;
  std::vector<unsigned char> flushed_;
  unsigned char pattern_ = 0;
  unsigned volatile read_ = 0;
};

/// Times what a call costs the host: launches are queued on an instance that has nothing to do, and what the device
/// then does is waited for after the clock was read.
template <class Exec>
class HostStopwatch {
 public:
  static constexpr int max_samples = 50;

  explicit HostStopwatch(Exec const& exec) : exec_(exec) {}

  /// Enough for the clock, and fewer than a device queues before it makes the host wait.
  int calls(double, bool) const { return 200; }

  double warm_up(Launch const& launch) {
    Kokkos::Timer const timer;
    launch();
    exec_.fence("tessera::perf::warm_up");
    return timer.seconds();
  }

  Sampler sampler(Launch const& launch, int calls, Conditions const&) {
    return {[this, launch, calls] {
      exec_.fence("tessera::perf::idle");
      Kokkos::Timer const timer;
      for (int i = 0; i < calls; ++i) launch();
      double const seconds = timer.seconds();
      exec_.fence("tessera::perf::drain");
      return seconds / calls;
    }};
  }

 private:
  Exec exec_;
};

/// The instance that everything runs on.
template <class Exec>
class Instance {
 public:
  Exec const& exec() const { return exec_; }

 private:
  Exec exec_;
};

/// Key and value of what a backend adds to the context of the results.
using Facts = std::vector<std::pair<std::string, std::string>>;

template <class Exec>
Facts backend_facts() {
  return {};
}

}  // namespace tessera::perf

#if defined(KOKKOS_ENABLE_CUDA)
#include "support/cuda.hpp"
#endif

#endif
