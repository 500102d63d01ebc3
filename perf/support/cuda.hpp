// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_CUDA_HPP
#define TESSERA_PERF_CUDA_HPP

#include <cuda_runtime.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/stopwatch.hpp"

// Timing on a CUDA device: everything of the benchmarks that calls the CUDA runtime.
namespace tessera::perf {

inline void check_cuda(cudaError_t status, char const* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// A stream of our own: the default stream cannot be captured into a graph.
template <>
class Instance<Kokkos::Cuda> {
 public:
  Instance() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    exec_ = std::make_unique<Kokkos::Cuda>(stream_);
  }
  ~Instance() {
    exec_.reset();
    cudaStreamDestroy(stream_);
  }
  Instance(Instance const&) = delete;
  Instance& operator=(Instance const&) = delete;
  Kokkos::Cuda const& exec() const { return *exec_; }

 private:
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Kokkos::Cuda> exec_;
};

struct CudaEvent {
  cudaEvent_t event = nullptr;
  CudaEvent() { check_cuda(cudaEventCreate(&event), "cudaEventCreate"); }
  ~CudaEvent() { cudaEventDestroy(event); }
  CudaEvent(CudaEvent const&) = delete;
  CudaEvent& operator=(CudaEvent const&) = delete;
};

/// Several launches of the same as a graph, so that the host's time between them does not count.
class CudaGraph {
 public:
  /// Empty when something in `launch` cannot be captured.
  CudaGraph(cudaStream_t stream, Launch const& launch, int calls) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    bool captured = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    try {
      for (int i = 0; i < calls && captured; ++i) launch();
    } catch (std::exception const&) {
      captured = false;
    }
    captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess && captured && graph != nullptr;
    if (captured && cudaGraphInstantiate(&executable_, graph, 0) != cudaSuccess) executable_ = nullptr;
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // a failed capture is no error of what follows
  }
  ~CudaGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  CudaGraph(CudaGraph const&) = delete;
  CudaGraph& operator=(CudaGraph const&) = delete;
  explicit operator bool() const { return executable_ != nullptr; }
  void operator()() const { check_cuda(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

/// Reads words of equal bytes; so it never finds what it would write something for.
struct ReadWords {
  std::uint64_t* words;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (words[i] == 0x0123456789abcdef) words[0] = 0;
  }
};

template <>
class Stopwatch<Kokkos::Cuda> {
 public:
  static constexpr double default_seconds = 0.4;
  static constexpr int max_samples = 100;

  Stopwatch(Kokkos::Cuda const& exec, std::int64_t cache_bytes)
      : exec_(exec), flush_bytes_(std::max<std::int64_t>(3 * cache_bytes, 64 << 20)) {
    check_cuda(cudaMalloc(&flushed_, flush_bytes_), "cudaMalloc");
  }
  ~Stopwatch() { cudaFree(flushed_); }
  Stopwatch(Stopwatch const&) = delete;
  Stopwatch& operator=(Stopwatch const&) = delete;

  static constexpr double short_launch = 100e-6, short_memory_launch = 20e-6;

  /// Launches that take long are timed alone, from cold caches. In short ones the host's launches and the events would
  /// count: a graph of 200 µs or more is replayed, with warm caches. What memory bounds is timed cold for as long as
  /// the events allow, since warm caches would change what is measured.
  int calls(double seconds, bool bound_by_memory) const {
    if (seconds >= (bound_by_memory ? short_memory_launch : short_launch)) return 1;
    return static_cast<int>(std::clamp(200e-6 / std::max(seconds, 1e-7), 20.0, 100.0));
  }

  double warm_up(Launch const& launch) {
    Kokkos::Timer const timer;
    launch();
    exec_.fence("tessera::perf::warm_up");
    return timer.seconds();
  }

  /// A card at its power limit lowers its clock for what comes next, by a tenth and more after 50 ms of products.
  void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

  /// The flush is queued before the first event and takes longer than the host needs to queue what follows, so that
  /// the device never waits for the host between the events.
  Sampler sampler(Launch const& launch, int calls, Conditions const& conditions) {
    std::shared_ptr<CudaGraph> graph;
    if (calls > 1) {
      exec_.fence("tessera::perf::capture");
      graph = std::make_shared<CudaGraph>(exec_.cuda_stream(), launch, calls);
      if (*graph) (*graph)();  // the first replay uploads the graph
    }
    bool const replayed = graph != nullptr && *graph;
    return {[this, launch, calls, graph, replayed, reads = conditions.reads_only] {
              cudaStream_t const stream = exec_.cuda_stream();
              check_cuda(cudaMemsetAsync(flushed_, ++pattern_, flush_bytes_, stream), "cudaMemsetAsync");
              if (reads) read_flushed();
              check_cuda(cudaEventRecord(begin_.event, stream), "cudaEventRecord");
              if (replayed)
                (*graph)();
              else
                for (int i = 0; i < calls; ++i) launch();
              check_cuda(cudaEventRecord(end_.event, stream), "cudaEventRecord");
              check_cuda(cudaEventSynchronize(end_.event), "cudaEventSynchronize");
              float milliseconds = 0;
              check_cuda(cudaEventElapsedTime(&milliseconds, begin_.event, end_.event), "cudaEventElapsedTime");
              return 1e-3 * static_cast<double>(milliseconds) / calls;
            },
            replayed};
  }

 private:
  void read_flushed() {
    auto const words = static_cast<std::int64_t>(flush_bytes_ / sizeof(std::uint64_t));
    Kokkos::parallel_for("tessera::perf::read_flushed", Kokkos::RangePolicy<Kokkos::Cuda>(exec_, 0, words),
                         ReadWords{static_cast<std::uint64_t*>(flushed_)});
  }

  Kokkos::Cuda exec_;
  std::size_t flush_bytes_;
  void* flushed_ = nullptr;
  unsigned char pattern_ = 0;
  CudaEvent begin_, end_;
};

template <>
inline Facts backend_facts<Kokkos::Cuda>() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  auto const text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return {{"cuda_driver", text(driver)},
          {"cuda_runtime", text(runtime)},
          {"short_launches", "replayed as graphs of 20 to 100: below 100 us, or below 20 us where memory bounds them"}};
}

}  // namespace tessera::perf

#endif
