// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_PIPELINE_HPP
#define TESSERA_CUDA_ASYNC_PIPELINE_HPP

#include <Kokkos_Core.hpp>
#include <tessera/cuda/async_atoms.hpp>
#include <tessera/cuda/launch.hpp>

// Ampere's pipeline: every warp runs the body; loads run up to `depth` steps ahead as asynchronous copies. One barrier
// a step says both that a stage has landed and that the one before it is free to be given back. One stream so far:
// copies complete in the order of their groups. Fragments take their scratch from the ring, when it is no longer used.
namespace tessera::detail::async {

template <class Kernel, class Atoms, class Stage>
struct Stream {
  Kernel const& kernel;
  typename Kernel::Tile const& tile;
  Stage* stage;
  int thread, steps;
  int issued = 0, to = 0, at = 0;

  /// The copies of the next step, if there is one; a group of its own in any case.
  __device__ __forceinline__ void issue() {
    int copier = thread;
    // Addresses are computed anew for every step: kept over the products, they take registers that those need.
    asm volatile("" : "+r"(copier));
    __builtin_assume(copier >= 0 && copier < Atoms::team_threads);
    if (issued < steps) kernel.load(typename Atoms::Copy{copier}, stage[to], tile, issued);
    ptx::copy_async_commit();
    ++issued;
    if (++to == Stage::depth) to = 0;
  }
  __device__ __forceinline__ Stage const& acquire() {
    ptx::copy_async_wait<Stage::depth - 2>();
    ptx::named_sync(0, Atoms::team_threads);
    Stage const& s = stage[at];
    if (++at == Stage::depth) at = 0;
    return s;
  }
  __device__ __forceinline__ void release() { issue(); }
};

template <class Kernel, class Atoms, class Inputs>
struct Pipeline;

/// A team a tile.
template <class Kernel, class Atoms, class Stage>
struct Pipeline<Kernel, Atoms, Streams<Stage>> {
  static constexpr std::size_t ring_bytes = sizeof(Stage) * Stage::depth;
  static constexpr std::size_t scratch_bytes =
      ring_bytes > Kernel::Held::scratch_bytes ? ring_bytes : Kernel::Held::scratch_bytes;
  Kernel kernel;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    auto* const stages = static_cast<Stage*>(team.team_shmem().get_shmem(std::size_t{scratch_bytes}));
    int const thread = team.team_rank() * 32 + threadIdx.x;
    auto const tile = kernel.tile(team.league_rank());
    Stream<Kernel, Atoms, Stage> stream{kernel, tile, stages, thread,
                                        kernel.steps(static_cast<Stage const*>(nullptr), tile)};
#pragma unroll 1
    for (int i = 0; i < Stage::depth; ++i) stream.issue();
    typename Atoms::Math math{thread, stages};
    kernel.body(math, tile, stream);
#endif
  }
};

}  // namespace tessera::detail::async

namespace tessera::detail {

template <>
struct AsyncPipeline<Kokkos::Cuda> {
  static constexpr bool available = true;
  template <class Element, class Sizes>
  using Atoms = async::Atoms<Element, Sizes>;
  template <class Atoms, class Kernel>
  using Pipeline = async::Pipeline<Kernel, Atoms, typename Kernel::Inputs>;

  static bool runs_on(Kokkos::Cuda const& exec) {
    return cuda_attribute(cudaDevAttrComputeCapabilityMajor, exec.cuda_device()) >= 8;
  }
  template <class Atoms, class Kernel>
  static void run(char const* label, Kokkos::Cuda const& exec, Kernel const& kernel) {
    using P = Pipeline<Atoms, Kernel>;
    launch<Atoms::team_threads, Atoms::teams_at_once>(label, exec, kernel.tiles(), P::scratch_bytes, P{kernel});
  }
};

}  // namespace tessera::detail

#endif
