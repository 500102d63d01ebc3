// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_RINGS_HPP
#define TESSERA_CUDA_ASYNC_RINGS_HPP

#include <Kokkos_Core.hpp>
#include <tuple>
#include <type_traits>

#include <tessera/cuda/async_row_atoms.hpp>
#include <tessera/cuda/launch.hpp>

// The pipeline of asynchronous copies for several streams: some with a single stage for the whole tile, the others with
// rings of two stages, of which the body acquires the last a step after the others. Copies complete in the order of
// their groups, and a step has one group and one barrier: when the last stream's step j is acquired, this thread's
// copies of it and of the others' step j + 1 have landed; behind the barrier everybody's have, and nobody reads the
// steps before any more, so that the copies of the last stream's step j + 1 and the others' j + 2 are begun.
namespace tessera::detail::async {

template <class Stage>
struct Ring {
  Stage* stage;
  int steps;
  int copied = 0, at = 0;  // steps that are, or are on their way; the stage that comes next
};

template <class Kernel, class Atoms, class... Stage>
struct Rings : Ring<Stage>... {
  Kernel const& kernel;
  typename Kernel::Tile const& tile;
  int thread;

  /// The next step of a stream, if there is one.
  template <class S>
  __device__ __forceinline__ void copy() {
    Ring<S>& ring = *this;
    if (ring.copied < ring.steps)
      kernel.load(typename Atoms::Copy{ptx::anew(thread)}, ring.stage[ring.copied % S::depth], tile, ring.copied);
    ++ring.copied;
  }
  template <class S>
  __device__ __forceinline__ void copy_ring() {
    static_assert(S::depth <= 2);
    if constexpr (S::depth > 1) copy<S>();
  }
  /// Step 0 of all streams but the last is there; what comes next is on its way.
  template <class Last>
  __device__ __forceinline__ void begin() {
    ((std::is_same_v<Stage, Last> ? void() : copy<Stage>()), ...);
    ptx::copy_async_commit();
    (copy_ring<Stage>(), ...);
    ptx::copy_async_commit();
    ptx::copy_async_wait<1>();
    ptx::named_sync(0, Atoms::team_threads);
  }
  __device__ __forceinline__ void go_on() {
    ptx::copy_async_wait<0>();
    ptx::named_sync(0, Atoms::team_threads);
    (copy_ring<Stage>(), ...);
    ptx::copy_async_commit();
  }
};

/// What a body sees of a stream.
template <class Rings, class Stage, bool IsLast>
struct RingStream {
  Rings& rings;

  __device__ __forceinline__ Stage const& acquire() {
    if constexpr (IsLast) rings.go_on();
    Ring<Stage>& ring = rings;
    Stage const& stage = ring.stage[ring.at];
    if constexpr (Stage::depth > 1) ring.at ^= 1;
    return stage;
  }
  __device__ __forceinline__ void release() const {}
};

template <class Kernel, class Atoms, class Inputs, bool AllWhole = false>
struct Pipeline;

/// A team a tile.
template <class Kernel, class Atoms, class First, class Second, class... Rest>
struct Pipeline<Kernel, Atoms, Streams<First, Second, Rest...>, false> {
  using Last = std::tuple_element_t<sizeof...(Rest), std::tuple<Second, Rest...>>;
  template <class S>
  struct Slots {
    S slot[S::depth];
  };
  struct Memory : Slots<First>, Slots<Second>, Slots<Rest>... {};
  static constexpr std::size_t scratch_bytes = sizeof(Memory) > Kernel::Held::scratch_bytes
                                                   ? sizeof(Memory)
                                                   : Kernel::Held::scratch_bytes;
  Kernel kernel;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    auto& memory = *static_cast<Memory*>(team.team_shmem().get_shmem(std::size_t{scratch_bytes}));
    int const thread = team.team_rank() * 32 + threadIdx.x;
    auto const tile = ptx::uniform(kernel.tile(team.league_rank()));
    auto all = rings(memory, tile, thread);
    all.template begin<Last>();
    typename Atoms::Math math{thread, &memory};
    run(math, tile, stream<First>(all), stream<Second>(all), stream<Rest>(all)...);
#endif
  }

 private:
  template <class S>
  __device__ __forceinline__ Ring<S> ring(Memory& memory, typename Kernel::Tile const& tile) const {
    return {static_cast<Slots<S>&>(memory).slot, kernel.steps(static_cast<S const*>(nullptr), tile)};
  }
  __device__ __forceinline__ auto rings(Memory& memory, typename Kernel::Tile const& tile, int thread) const {
    return Rings<Kernel, Atoms, First, Second, Rest...>{
        ring<First>(memory, tile), ring<Second>(memory, tile), ring<Rest>(memory, tile)..., kernel, tile, thread};
  }
  template <class S, class All>
  __device__ __forceinline__ static RingStream<All, S, std::is_same_v<S, Last>> stream(All& rings) {
    return {rings};
  }
  template <class Math, class... S>
  __device__ __forceinline__ void run(Math& math, typename Kernel::Tile const& tile, S... streams) const {
    kernel.body(math, tile, streams...);
  }
};

}  // namespace tessera::detail::async

#endif
