// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_PIPELINE_HPP
#define TESSERA_CUDA_ASYNC_PIPELINE_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <tessera/cuda/async_atoms.hpp>
#include <tessera/cuda/async_rings.hpp>
#include <tessera/cuda/launch.hpp>

// Ampere's pipeline: every warp runs the body; loads run up to `depth` - 1 steps ahead as asynchronous copies, issued
// among the products of a step. One barrier a step says both that a stage has landed and that the one before it is
// free. One stream: for several there is async_rings.hpp. Copies complete in the order of their groups. Fragments take
// their scratch from the ring, when it is no longer used.
namespace tessera::detail::async {

template <class Kernel, class Atoms, class Stage, Way W>
struct Stream {
  using Copy = typename Atoms::Copy;
  static constexpr int factors = 2;  // that a step loads
  static constexpr bool all_whole = W == Way::whole;
  Kernel const& kernel;
  typename Kernel::Tile const& tile;
  Stage* stage;
  int thread, steps;
  int issued = 0, at = 0;  // steps that are copied; the stage that comes next
  int whole = 0;           // of them, until tiles hang over an edge
  typename Copy::Walk walks[factors];

  /// Copies all stages but one. Where rows are whole what K has beyond whole tiles comes first, so that the loop over
  /// steps has nothing to ask.
  __device__ __forceinline__ void fill() {
    whole = steps;
    kernel.load(typename Copy::template Start<W>{thread, walks, whole}, stage[0], tile, 0);
    if (all_whole && whole < steps) {
      kernel.load(Copy{thread}, stage[0], tile, whole);
      whole = steps, issued = 1;
    }
#pragma unroll 1
    for (; issued < Stage::depth - 1; ++issued) {
      if (issued > 0) ptx::copy_async_commit();
      if (all_whole || issued < whole)
        kernel.load(typename Copy::template Share<1, 1, W>{issued < whole, 0, 0, walks}, stage[issued], tile, issued);
      else if (issued < steps)
        kernel.load(Copy{thread}, stage[issued], tile, issued);
    }
  }
  /// What has been copied since the call before is a group, whether it is something or not.
  __device__ __forceinline__ Stage const& acquire() {
    ptx::copy_async_commit();
    ptx::copy_async_wait<Stage::depth - 2>();
    ptx::named_sync(0, Atoms::team_threads);
    Stage const& s = stage[at];
    if (++at == Stage::depth) at = 0;
    return s;
  }
  /// Nobody reads the stage before the one that has been acquired last.
  __device__ __forceinline__ void release() const {}

  /// Under products: a share of the copies of a later step, into the stage that the step before has left.
  template <int Parts, int Steps>
  __device__ __forceinline__ void copy(int part, int i) {
    kernel.load(typename Copy::template Share<Parts, Steps, W>{issued < whole, part, i, walks}, free(), tile, issued);
  }
  /// Behind products: the same of tiles that are not whole along K, or of which nothing is contiguous. Where a thread
  /// stands is computed anew: kept over the products, it takes registers that those need.
  template <int Parts>
  __device__ __forceinline__ void copy_rest() {
    if (!all_whole && issued >= whole && issued < steps) {
      int const copier = ptx::anew(static_cast<int>(threadIdx.y * 32 + threadIdx.x));
      __builtin_assume(copier >= 0 && copier < Atoms::team_threads);
      if constexpr (Parts > 1)  // the tile too: the loop over parts needs the most registers
        kernel.load(Copy{copier}, free(), kernel.tile(ptx::anew(static_cast<int>(blockIdx.x))), issued);
      else
        kernel.load(Copy{copier}, free(), tile, issued);
    }
    if constexpr (Parts > 1)
      for (auto& walk : walks) walk.next += walk.step;
    ++issued;
  }
  __device__ __forceinline__ Stage& free() const { return stage[at < 2 ? at + Stage::depth - 2 : at - 2]; }
};

/// Math whose products bring the copies of later steps with them.
template <class Atoms, class Stream>
struct CopyingMath : Atoms::Math {
  Stream& stream;

  template <class Left, class Right, class Accumulator>
  __device__ __forceinline__ void multiply(Left const& a, Right const& b, Accumulator& acc, bool add) const {
    auto const parts = Atoms::Math::multiply(
        a, b, acc, add, [&](auto count, int part, auto steps, int i) { stream.template copy<count, steps>(part, i); });
    stream.template copy_rest<parts>();
  }
};

/// A team a tile.
template <class Kernel, class Atoms, class Stage, Way W>
struct Pipeline<Kernel, Atoms, Streams<Stage>, W> {
  static constexpr bool starts_early = true;
  static constexpr std::size_t ring_bytes = sizeof(Stage) * Stage::depth;
  static constexpr std::size_t scratch_bytes =
      ring_bytes > Kernel::Held::scratch_bytes ? ring_bytes : Kernel::Held::scratch_bytes;
  Kernel kernel;
  /// Whether the next kernel may start early, once this one's first copies are on their way. Where it finds
  /// multiprocessors that have more room than others its teams come together there (512³ in fp64 9.6 -> 14.2 us): of a
  /// kernel whose teams fill half of the machine or more they are kept apart.
  bool followed_early = false;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    auto* const stages = static_cast<Stage*>(team.team_shmem().get_shmem(std::size_t{scratch_bytes}));
    int const thread = team.team_rank() * 32 + threadIdx.x;
    auto const tile = kernel.tile(team.league_rank());
    Stream<Kernel, Atoms, Stage, W> stream{kernel, tile, stages, thread,
                                           kernel.steps(static_cast<Stage const*>(nullptr), tile)};
    wait_for_kernels_before<Kokkos::Cuda>();
    stream.fill();
#if __CUDA_ARCH__ >= 900
    if (followed_early) ptx::let_next_grid_start();
#endif
    CopyingMath<Atoms, decltype(stream)> math{{thread, stages}, stream};
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
  template <class Element, class Sizes>
  using RowAtoms = async::RowAtoms<Element, Sizes>;
  template <class Element, class Sizes>
  using GridAtoms = async::GridAtoms<Element, Sizes>;
  template <class Atoms, class Kernel>
  using Pipeline = async::Pipeline<Kernel, Atoms, typename Kernel::Inputs>;

  static bool runs_on(Kokkos::Cuda const& exec) {
    return cuda_attribute(cudaDevAttrComputeCapabilityMajor, exec.cuda_device()) >= 8;
  }
  /// Of kernels that declare no shared memory of their own.
  static std::size_t scratch_limit(Kokkos::Cuda const& exec) { return Machine<Kokkos::Cuda>::scratch_limit(exec, 0); }
  template <class Atoms, class Kernel>
  static void run(char const* label, Kokkos::Cuda const& exec, Kernel const& kernel) {
    using async::Way;
    if constexpr (requires { kernel.whole_tiles; }) {
      if (kernel.whole_tiles) return start<Atoms, Kernel, Way::whole>(label, exec, kernel);
      if constexpr (Atoms::comes_one_by_one)
        if (!kernel.a.packs || !kernel.b.packs) return start<Atoms, Kernel, Way::elements>(label, exec, kernel);
    }
    start<Atoms, Kernel, Way::edges>(label, exec, kernel);
  }

 private:
  template <class Atoms, class Kernel, async::Way W>
  static void start(char const* label, Kokkos::Cuda const& exec, Kernel const& kernel) {
    using Functor = async::Pipeline<Kernel, Atoms, typename Kernel::Inputs, W>;
    Functor functor{kernel};
    order_for_a_team_each(functor.kernel);
    std::size_t scratch = Functor::scratch_bytes;
    if constexpr (requires { kernel.apart(1); }) {
      using Machine = detail::Machine<Kokkos::Cuda>;
      int const concurrency = Machine::concurrency(exec);
      bool const few = 2 * kernel.tiles() <= concurrency, apart = kernel.apart(concurrency);
      if (apart && !few) scratch = std::max(scratch, Machine::scratch_limit(exec) / 2);
      functor.followed_early = few || apart;
    }
    launch<Atoms::team_threads, Atoms::teams_at_once>(label, exec, kernel.tiles(), scratch, functor);
  }
};

}  // namespace tessera::detail

#endif
