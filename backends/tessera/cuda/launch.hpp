// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_LAUNCH_HPP
#define TESSERA_CUDA_LAUNCH_HPP

// The only file that touches Kokkos::Impl. Kokkos' own parallel_for over teams wraps the functor in a loop over the
// league (which makes ptxas serialise asynchronous matrix products and spill) and gives 48 KB of scratch at most; this
// launcher runs the same functor with the same team member type, once, with all the scratch the device has.

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

static_assert(KOKKOS_VERSION >= 40700 && KOKKOS_VERSION < 60000,
              "the CUDA launcher builds Kokkos' team member by hand; it was tried with Kokkos 4.7 only");

namespace tessera::detail {

inline void cuda_check(cudaError_t status, char const* label) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the error is told here and must not be told again by the next launch
  throw std::runtime_error(std::string(label) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

/// As many of `teams` teams of so many threads as a multiprocessor may have, which is fewer on some than on those of
/// data centres; a compiler would take no notice of more.
constexpr int teams_of_bounds(int threads, int teams) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 800 && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000 && \
    __CUDA_ARCH__ != 1030
  constexpr int most = 1536;
#else
  constexpr int most = 2048;
#endif
  return teams * threads <= most ? teams : most / threads;
}

template <int Threads, int TeamsAtOnce, class Functor>
__global__ void __launch_bounds__(Threads, teams_of_bounds(Threads, TeamsAtOnce))
    cuda_entry(__grid_constant__ Functor const functor, int reduce, int scratch) {
  extern __shared__ double shared[];
  Kokkos::TeamPolicy<Kokkos::Cuda>::member_type const team(
      Kokkos::Impl::CudaTeamMember(static_cast<void*>(shared), reduce, scratch, nullptr, 0,
                                   static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)));
  functor(team);
}

/// Tells Kokkos Tools about a kernel that Kokkos did not start itself.
class KernelRegion {
 public:
  KernelRegion(char const* label, Kokkos::Cuda const& exec) : on_(Kokkos::Profiling::profileLibraryLoaded()) {
    if (on_) Kokkos::Profiling::beginParallelFor(label, Kokkos::Profiling::Experimental::device_id(exec), &id_);
  }
  ~KernelRegion() {
    if (on_) Kokkos::Profiling::endParallelFor(id_);
  }
  KernelRegion(KernelRegion const&) = delete;
  KernelRegion& operator=(KernelRegion const&) = delete;

 private:
  bool on_;
  std::uint64_t id_ = 0;
};

/// Makes the instance's device current for a launch and puts the caller's back.
class CurrentDevice {
 public:
  CurrentDevice(char const* label, int device) {
    cuda_check(cudaGetDevice(&before_), label);
    changed_ = before_ != device;
    if (changed_) cuda_check(cudaSetDevice(device), label);
  }
  ~CurrentDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(CurrentDevice const&) = delete;
  CurrentDevice& operator=(CurrentDevice const&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Raises a kernel's limit of dynamic shared memory once per kernel, device and size; `Tag` makes the cache the
/// kernel's own.
template <class Tag>
void allow_shared_memory(char const* label, void const* kernel, int device, std::size_t bytes) {
  static constexpr int cached_devices = 64;
  static std::atomic<std::size_t> allowed[cached_devices];
  bool const cached = device < cached_devices;
  if (bytes <= 48 * 1024 || (cached && bytes <= allowed[device].load(std::memory_order_relaxed))) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), label);
  if (cached) allowed[device].store(bytes, std::memory_order_relaxed);
}

/// Names one instance of the launcher's kernel.
template <int Threads, int TeamsAtOnce, class Functor>
struct KernelTag {};

inline int cuda_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, attribute, device), "tessera: device attribute");
  return value;
}

template <>
struct Machine<Kokkos::Cuda> {
  static constexpr bool is_host = false;
  static constexpr int lanes = 32;
  static constexpr int threads(int wanted) { return wanted; }
  // Kokkos' team member reduces over a team through the first bytes of shared memory; scratch starts behind them, on
  // the 1024-byte boundary that swizzled copies need.
  static constexpr int reduce_bytes = 1024;
  // What a kernel may declare statically counts against the same limit: Kokkos' reductions over a team do.
  static constexpr int static_bytes = 1024;

  static std::size_t scratch_limit(Kokkos::Cuda const& exec, int declared = static_bytes) {
    return static_cast<std::size_t>(cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, exec.cuda_device())) -
           reduce_bytes - static_cast<std::size_t>(declared);
  }
  static int concurrency(Kokkos::Cuda const& exec) {
    return cuda_attribute(cudaDevAttrMultiProcessorCount, exec.cuda_device());
  }

  template <int Threads, int TeamsAtOnce, class Functor>
  static void launch(char const* label, Kokkos::Cuda const& exec, int league, std::size_t scratch,
                     Functor const& functor) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    bool early = false;
    if constexpr (StartsEarly<Functor>) early = can_wait<Threads, TeamsAtOnce, Functor>(exec.cuda_device());
    start<Threads, TeamsAtOnce>(label, exec, league, scratch, functor, &attribute, early ? 1 : 0);
  }
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.y * 32 + threadIdx.x); }
  template <class T>
  __device__ __forceinline__ static T exchange(T x, int distance) {
    return __shfl_xor_sync(~0u, x, distance);
  }
  /// In a kernel that starts early.
  __device__ __forceinline__ static void wait_for_kernels_before([[maybe_unused]] bool followed_early) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (followed_early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }

  /// The same in clusters of neighbouring teams that run at the same time and reach each other's scratch (sm_90);
  /// `cluster` divides `league`. Teams may start while the kernels before are still running, so that the functor begins
  /// with what needs none of their results and then waits for them (ptx::wait_for_grids_before).
  template <int Threads, int TeamsAtOnce, class Functor>
  static void launch_clusters(char const* label, Kokkos::Cuda const& exec, int league, int cluster, std::size_t scratch,
                              Functor const& functor) {
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    start<Threads, TeamsAtOnce>(label, exec, league, scratch, functor, attributes, cluster > 1 ? 2 : 1, cluster);
  }

  /// All at the same time, in place of any before that still runs, so that they may wait for each other.
  template <int Threads, int TeamsAtOnce, class Functor>
  static void launch_all_together(char const* label, Kokkos::Cuda const& exec, int league, std::size_t scratch,
                                  Functor const& functor) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    start<Threads, TeamsAtOnce>(label, exec, league, scratch, functor, &attribute, 1);
  }

  /// How many teams with so much scratch the device has room for at the same time. Asked once for every size.
  template <int Threads, int TeamsAtOnce, class Functor>
  static int teams_together(Kokkos::Cuda const& exec, std::size_t scratch) {
    if (!can_launch_clusters<Threads, TeamsAtOnce, Functor>(exec)) return 0;
    using Key = std::pair<int, std::size_t>;
    static Known<Key> known;
    return known(Key{exec.cuda_device(), scratch}, [&] {
      char const* const label = "tessera: teams together";
      CurrentDevice const device(label, exec.cuda_device());
      void (*const kernel)(Functor, int, int) = cuda_entry<Threads, TeamsAtOnce, Functor>;
      allow<Threads, TeamsAtOnce, Functor>(label, exec, 1, scratch);
      int of_each = 0;
      cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kernel, Threads, reduce_bytes + scratch),
                 label);
      return of_each * concurrency(exec);
    });
  }

  /// Whether the device and its code of the kernel know clusters.
  template <int Threads, int TeamsAtOnce, class Functor>
  static bool can_launch_clusters(Kokkos::Cuda const& exec) {
    return can_wait<Threads, TeamsAtOnce, Functor>(exec.cuda_device());
  }

  /// How many such clusters of teams with so much scratch run at the same time: processors are grouped, and clusters
  /// lie within a group. Asked once for every size.
  template <int Threads, int TeamsAtOnce, class Functor>
  static int clusters_at_once(Kokkos::Cuda const& exec, int cluster, std::size_t scratch) {
    if (!can_launch_clusters<Threads, TeamsAtOnce, Functor>(exec)) return 0;
    using Key = std::tuple<int, int, std::size_t>;
    static Known<Key> known;
    return known(Key{exec.cuda_device(), cluster, scratch}, [&] {
      char const* const label = "tessera: clusters at once";
      CurrentDevice const device(label, exec.cuda_device());
      void (*const kernel)(Functor, int, int) = cuda_entry<Threads, TeamsAtOnce, Functor>;
      allow<Threads, TeamsAtOnce, Functor>(label, exec, cluster, scratch);
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
      cudaLaunchConfig_t config = configuration<Threads>(exec, cluster, scratch, &attribute, 1);
      int count = 0;
      if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess) return count;
      static_cast<void>(cudaGetLastError());
      return 0;
    });
  }

 private:
  /// What has been asked once, by all threads.
  template <class Key>
  class Known {
   public:
    template <class Ask>
    int operator()(Key const& key, Ask const& ask) {
      std::lock_guard const lock(mutex);
      auto const at = answers.find(key);
      return at != answers.end() ? at->second : answers.emplace(key, ask()).first->second;
    }

   private:
    std::mutex mutex;
    std::map<Key, int> answers;
  };

  static constexpr int portable_cluster = 8;  // larger ones are the device's own

  template <int Threads, int TeamsAtOnce, class Functor>
  static void allow(char const* label, Kokkos::Cuda const& exec, int cluster, std::size_t scratch) {
    void (*const kernel)(Functor, int, int) = cuda_entry<Threads, TeamsAtOnce, Functor>;
    auto const* const address = reinterpret_cast<void const*>(kernel);
    allow_shared_memory<KernelTag<Threads, TeamsAtOnce, Functor>>(label, address, exec.cuda_device(),
                                                                  reduce_bytes + scratch);
    if (cluster > portable_cluster)
      cuda_check(cudaFuncSetAttribute(address, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), label);
  }
  template <int Threads>
  static cudaLaunchConfig_t configuration(Kokkos::Cuda const& exec, int league, std::size_t scratch,
                                          cudaLaunchAttribute* attributes, unsigned count) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(league));
    config.blockDim = dim3(32, Threads / 32);
    config.dynamicSmemBytes = reduce_bytes + scratch;
    config.stream = exec.cuda_stream();
    config.attrs = attributes;
    config.numAttrs = count;
    return config;
  }
  /// Whether the device's code of the kernel knows how to wait for those before it: that made for sm_90 and later.
  /// Asked once.
  template <int Threads, int TeamsAtOnce, class Functor>
  static bool can_wait(int device) {
    static bool const can = [&] {
      CurrentDevice const current("tessera: kernel attributes", device);
      cudaFuncAttributes attributes{};
      void (*const kernel)(Functor, int, int) = cuda_entry<Threads, TeamsAtOnce, Functor>;
      cuda_check(cudaFuncGetAttributes(&attributes, reinterpret_cast<void const*>(kernel)),
                 "tessera: kernel attributes");
      return attributes.ptxVersion >= 90;
    }();
    return can;
  }
  template <int Threads, int TeamsAtOnce, class Functor>
  static void start(char const* label, Kokkos::Cuda const& exec, int league, std::size_t scratch,
                    Functor const& functor, cudaLaunchAttribute* attributes, unsigned count, int cluster = 1) {
    static_assert(sizeof(Functor) <= 4000, "kernel parameters hold 4 KB: pass large tables through memory");
    if (league <= 0) return;
    CurrentDevice const device(label, exec.cuda_device());
    void (*const kernel)(Functor, int, int) = cuda_entry<Threads, TeamsAtOnce, Functor>;
    allow<Threads, TeamsAtOnce, Functor>(label, exec, cluster, scratch);
    cudaLaunchConfig_t const config = configuration<Threads>(exec, league, scratch, attributes, count);
    KernelRegion const region(label, exec);
    cuda_check(cudaLaunchKernelEx(&config, kernel, functor, int(reduce_bytes), static_cast<int>(scratch)), label);
  }
};

}  // namespace tessera::detail

#endif
