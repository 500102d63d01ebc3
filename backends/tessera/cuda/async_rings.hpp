// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_RINGS_HPP
#define TESSERA_CUDA_ASYNC_RINGS_HPP

#include <Kokkos_Core.hpp>
#include <tuple>
#include <type_traits>

#include <tessera/cuda/async_row_atoms.hpp>
#include <tessera/cuda/launch.hpp>

// The pipeline of asynchronous copies for several streams: the first with one stage for the whole tile, the others with
// rings, of which the body acquires the last a step after those between. Copies complete in the order of their groups,
// and threads meet at a barrier where theirs have landed: behind it everybody's have, and nobody reads what was
// multiplied before it.
//
// Rings of two stages, one meeting a step, where step j of the last stream is acquired: it has landed, and step j + 1
// of the others; the copies of the last one's step j + 1 and the others' j + 2 are begun, and have a whole step to land
// in.
//
// Rings of one stage, two meetings a step. Where step j of the last stream is acquired, the others' stages are free,
// and are copied under its product. Before the others' product its own stage is, and is copied under that product and
// what follows: so what a body reads of a stage of the last stream is one product.
namespace tessera::detail::async {

template <class Stage>
struct Ring {
  Stage* stage;
  int steps;
  int copied = 0, at = 0;  // steps that are, or are on their way; the stage that comes next
};

template <class Kernel, class Atoms, class Once, class... Stage>
struct Rings : Ring<Once>, Ring<Stage>... {
  using Last = std::tuple_element_t<sizeof...(Stage) - 1, std::tuple<Stage...>>;
  static constexpr bool single = Last::depth == 1;
  static_assert(Once::depth == 1 && Last::depth <= 2 && ((Stage::depth == Last::depth) && ...));
  Kernel const& kernel;
  typename Kernel::Tile const& tile;
  int thread;

  /// Step 0 of all streams but the last; with two stages, what comes next is on its way when it has landed.
  __device__ __forceinline__ void begin() {
    copy<Once>();
    copy_all<false>();
    ptx::copy_async_commit();
    if constexpr (single) return;
    copy_all<true>();
    ptx::copy_async_commit();
    ptx::copy_async_wait<1>();
    ptx::named_sync(0, Atoms::team_threads);
  }
  /// Where the last stream's next stage is acquired.
  __device__ __forceinline__ void meet_for_last() {
    meet();
    copy_all<!single>();
    ptx::copy_async_commit();
  }
  /// Before the product of the other streams' stages.
  __device__ __forceinline__ void meet_for_others() {
    if constexpr (!single) return;
    meet();
    copy<Last>();
    ptx::copy_async_commit();
  }

 private:
  __device__ __forceinline__ static void meet() {
    ptx::copy_async_wait<0>();
    ptx::named_sync(0, Atoms::team_threads);
  }
  /// The next step of every ring, of the last one's only if wanted.
  template <bool AndLast>
  __device__ __forceinline__ void copy_all() {
    (
        [&] {
          if constexpr (AndLast || !std::is_same_v<Stage, Last>) copy<Stage>();
        }(),
        ...);
  }
  /// The next step of a stream, if there is one.
  template <class S>
  __device__ __forceinline__ void copy() {
    Ring<S>& ring = *this;
    if (ring.copied < ring.steps)
      kernel.load(typename Atoms::Copy{ptx::anew(thread)}, ring.stage[ring.copied % S::depth], tile, ring.copied);
    ++ring.copied;
  }
};

/// What a body sees of a stream.
template <class Rings, class Stage>
struct RingStream {
  Rings& rings;

  __device__ __forceinline__ Stage const& acquire() {
    if constexpr (std::is_same_v<Stage, typename Rings::Last>) rings.meet_for_last();
    Ring<Stage>& ring = rings;
    Stage const& stage = ring.stage[ring.at];
    if constexpr (Stage::depth > 1) ring.at ^= 1;
    return stage;
  }
  __device__ __forceinline__ void release() const {}
};

/// Math whose product of two tiles begins where the threads have met for it.
template <class Atoms, class Rings>
struct MeetingMath : Atoms::Math {
  Rings& rings;

  template <int Pending, class Accumulator>
  __device__ __forceinline__ void wait_all_but(Accumulator& acc) const {
    if (acc.pending) rings.meet_for_others();
    Atoms::Math::template wait_all_but<Pending>(acc);
  }
};

template <class Kernel, class Atoms, class Inputs, bool AllWhole = false>
struct Pipeline;

/// A team a tile.
template <class Kernel, class Atoms, class Once, class Second, class... Rest>
struct Pipeline<Kernel, Atoms, Streams<Once, Second, Rest...>, false> {
  using AllRings = Rings<Kernel, Atoms, Once, Second, Rest...>;
  template <class S>
  struct Slots {
    S slot[S::depth];
  };
  struct Memory : Slots<Once>, Slots<Second>, Slots<Rest>... {};
  static constexpr std::size_t scratch_bytes = sizeof(Memory) > Kernel::Held::scratch_bytes
                                                   ? sizeof(Memory)
                                                   : Kernel::Held::scratch_bytes;
  Kernel kernel;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    auto& memory = *static_cast<Memory*>(team.team_shmem().get_shmem(std::size_t{scratch_bytes}));
    int const thread = team.team_rank() * 32 + threadIdx.x;
    auto const tile = ptx::uniform(kernel.tile(team.league_rank()));
    AllRings rings{
        ring<Once>(memory, tile), ring<Second>(memory, tile), ring<Rest>(memory, tile)..., kernel, tile, thread};
    rings.begin();
    MeetingMath<Atoms, AllRings> math{{thread, &memory}, rings};
    run(math, tile, RingStream<AllRings, Once>{rings}, RingStream<AllRings, Second>{rings},
        RingStream<AllRings, Rest>{rings}...);
#endif
  }

 private:
  template <class S>
  __device__ __forceinline__ Ring<S> ring(Memory& memory, typename Kernel::Tile const& tile) const {
    return {static_cast<Slots<S>&>(memory).slot, kernel.steps(static_cast<S const*>(nullptr), tile)};
  }
  template <class Math, class... S>
  __device__ __forceinline__ void run(Math& math, typename Kernel::Tile const& tile, S... streams) const {
    kernel.body(math, tile, streams...);
  }
};

}  // namespace tessera::detail::async

#endif
