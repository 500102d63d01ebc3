// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_RINGS_HPP
#define TESSERA_CUDA_ASYNC_RINGS_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <type_traits>

#include <tessera/cuda/async_grid_atoms.hpp>
#include <tessera/cuda/async_row_atoms.hpp>
#include <tessera/cuda/launch.hpp>

// The pipeline of asynchronous copies for three streams: one with a single stage for the whole tile, and two with
// rings, an early one and a late one, whose step j the body acquires behind the early one's step j + 1. Threads meet at
// a barrier where their copies have landed: behind it everybody's have, and nobody reads what was multiplied before it.
//
// Rings of two stages, one meeting a step, where the late stream's step j is acquired: it has landed, and the early
// one's step j + 1. The copies of late j + 1 and early j + 2 are begun, and have a whole step to land in.
//
// Rings of one stage, two meetings a step. Before the product with early step j: it has landed, late step j - 1 has
// been multiplied, and late step j is copied under this product. Where early step j is given back: late step j has
// landed, and early step j + 1 is copied under what is left of the step. So a body multiplies once with a late stage.
namespace tessera::detail::async {

template <class Stage>
struct Ring {
  Stage* stage;

  __device__ __forceinline__ Stage& at(int step) const { return stage[step % Stage::depth]; }
};

/// The rings of a kernel's streams, and what fills them.
template <class Kernel, class Atoms, class... Stage>
struct FilledRings : Ring<Stage>... {
  Kernel const& kernel;
  typename Kernel::Tile const& tile;

  /// A step of a stream, if there is one.
  template <class S>
  __device__ __forceinline__ void copy(int at) const {
    if (at < kernel.steps(static_cast<S const*>(nullptr), tile)) load<S>(at);
  }
  /// One that there is.
  template <class S>
  __device__ __forceinline__ void load(int at) const {
    Ring<S> const& ring = *this;
    kernel.load(typename Atoms::Copy{ptx::thread()}, ring.at(at), tile, at);
  }
};

template <class Kernel, class Atoms, class Once, class Early, class Late>
struct Rings : FilledRings<Kernel, Atoms, Once, Early, Late> {
  using Filled = FilledRings<Kernel, Atoms, Once, Early, Late>;
  static constexpr bool single = Late::depth == 1;
  static_assert(Once::depth == 1 && Late::depth <= 2 && Early::depth == Late::depth);
  int step = 0;  // of the early stream: those before have been given back

  __device__ __forceinline__ void begin() const {
    Filled::template copy<Once>(0);
    Filled::template copy<Early>(0);
    ptx::copy_async_commit();
    if constexpr (!single) {
      Filled::template copy<Early>(1);
      Filled::template copy<Late>(0);
      ptx::copy_async_commit();
      meet<1>();
    }
  }
  __device__ __forceinline__ Once const& acquire(Ring<Once> const& ring) const { return *ring.stage; }
  __device__ __forceinline__ Early const& acquire(Ring<Early> const& ring) const { return ring.at(step); }
  __device__ __forceinline__ Late const& acquire(Ring<Late> const& ring) const {
    if constexpr (!single) {
      meet<0>();
      Filled::template copy<Early>(step + 1);
      Filled::template copy<Late>(step);
      ptx::copy_async_commit();
    }
    return ring.at(step + 1);  // the step before, in one of two stages
  }
  __device__ __forceinline__ void multiplies_early() const {
    if constexpr (single) {
      meet<0>();
      Filled::template load<Late>(step);  // as there is the early one
      ptx::copy_async_commit();
    }
  }
  template <class Stage>
  __device__ __forceinline__ void release() {
    if constexpr (!std::is_same_v<Stage, Early>) return;
    ++step;
    if constexpr (single) {
      meet<0>();
      Filled::template copy<Early>(step);
      ptx::copy_async_commit();
    }
  }

 private:
  /// All groups of copies have landed but the newest Pending.
  template <int Pending>
  __device__ __forceinline__ static void meet() {
    ptx::copy_async_wait<Pending>();
    ptx::named_sync(0, Atoms::team_threads);
  }
};

/// Rings of two stages whose steps come together: behind the meeting at which the late stream's step j is acquired both
/// steps j have landed, those before have been multiplied, and both steps j + 1 are copied.
template <class Kernel, class Atoms, class Once, class Early, class Late>
struct SteppingRings : FilledRings<Kernel, Atoms, Once, Early, Late> {
  using Filled = FilledRings<Kernel, Atoms, Once, Early, Late>;
  static_assert(Once::depth == 1 && Late::depth == 2 && Early::depth == 2);
  int early = 0, late = 0;  // steps that have been acquired

  __device__ __forceinline__ void begin() const {
    Filled::template copy<Once>(0);
    copy_step(0);
  }
  __device__ __forceinline__ Once const& acquire(Ring<Once> const& ring) const { return *ring.stage; }
  __device__ __forceinline__ Early const& acquire(Ring<Early> const& ring) { return ring.at(early++); }
  __device__ __forceinline__ Late const& acquire(Ring<Late> const& ring) {
    ptx::copy_async_wait<0>();
    ptx::named_sync(0, Atoms::team_threads);
    copy_step(late + 1);
    return ring.at(late++);
  }
  __device__ __forceinline__ void multiplies_early() const {}
  template <class Stage>
  __device__ __forceinline__ void release() const {}

 private:
  __device__ __forceinline__ void copy_step(int step) const {
    Filled::template copy<Early>(step);
    Filled::template copy<Late>(step);
    ptx::copy_async_commit();
  }
};
/// The same where the early step j + 1 is multiplied before the late one is acquired: it has landed where what is
/// rounded in step j is shared, and is copied a group before the late one. Copies ask nothing, so that they are spread
/// over products: behind the last step they bring nothing, and the kernel goes from one step's place to the next's. Its
/// tile they find in scratch.
template <class Kernel, class Atoms, class Once, class Early, class Late>
struct LeadingRings : Ring<Once>, Ring<Early>, Ring<Late> {
  using Tile = typename Kernel::Tile;
  static_assert(Once::depth == 1 && Late::depth == 2 && Early::depth == 2);
  Kernel const& kernel;
  Tile const& tile;
  typename Kernel::Place place{};  // of the next step that is copied
  int steps = 0;                   // of the early stream that have been acquired

  __device__ __forceinline__ void begin(Tile const& known) {
    place = kernel.place(known, 0);
    load<Once>(0, known, 0);
    copy_step(0, known);
    ptx::copy_async_wait<0>();
  }
  __device__ __forceinline__ Once const& acquire(Ring<Once> const& ring) const { return *ring.stage; }
  __device__ __forceinline__ Early const& acquire(Ring<Early> const& ring) { return ring.at(steps++); }
  __device__ __forceinline__ Late const& acquire(Ring<Late> const& ring) {
    Tile const known = tile;  // on its way while others are waited for
    ptx::copy_async_wait<0>();
    ptx::named_sync(0, Atoms::team_threads);
    copy_step(steps, known);
    return ring.at(steps - 1);
  }
  /// Before the meeting at which what is rounded is shared.
  __device__ __forceinline__ static void meets() { ptx::copy_async_wait<1>(); }
  template <class Stage>
  __device__ __forceinline__ void release() const {}

 private:
  __device__ __forceinline__ void copy_step(int step, Tile const& of) {
    load<Early>(step, of, place);
    ptx::copy_async_commit();
    load<Late>(step, of, place);
    ptx::copy_async_commit();
    place = kernel.place_after(place, of);
  }
  template <class S, class At>
  __device__ __forceinline__ void load(int step, Tile const& of, At const& at) const {
    Ring<S> const& ring = *this;
    bool const is = step < kernel.steps(static_cast<S const*>(nullptr), of);
    kernel.load(typename Atoms::Copy{ptx::thread(), is}, ring.at(step), of, at);
  }
};
template <class Kernel, class Atoms, class... Stage>
struct RingsOf {
  using Type = Rings<Kernel, Atoms, Stage...>;
};
template <class Kernel, class Atoms, class... Stage>
requires requires { requires Atoms::steps_together; }
struct RingsOf<Kernel, Atoms, Stage...> {
  using Type = SteppingRings<Kernel, Atoms, Stage...>;
};
template <class Kernel, class Atoms, class... Stage>
requires has_rounded_tiles<Atoms>
struct RingsOf<Kernel, Atoms, Stage...> {
  using Type = LeadingRings<Kernel, Atoms, Stage...>;
};

/// What a body sees of a stream.
template <class Rings, class Stage>
struct RingStream {
  Rings& rings;

  __device__ __forceinline__ Stage const& acquire() const {
    return rings.acquire(static_cast<Ring<Stage> const&>(rings));
  }
  __device__ __forceinline__ void release() const { rings.template release<Stage>(); }
};

/// Math whose products of two tiles begin where the threads have met for them.
template <class Atoms, class Rings>
struct MeetingMath : Atoms::Math {
  Rings& rings;

  template <int Pending, class Accumulator>
  __device__ __forceinline__ void wait_all_but(Accumulator& acc) const {
    if (acc.pending) rings.multiplies_early();
    Atoms::Math::template wait_all_but<Pending>(acc);
  }
};

template <class Atoms, class Rings>
requires has_rounded_tiles<Atoms>
struct MeetingMath<Atoms, Rings> : Atoms::Math {
  Rings& rings;

  template <class... What>
  __device__ __forceinline__ void share(What&&... what) const {
    rings.meets();
    Atoms::Math::share(what...);
  }
  /// Where a step is left out behind its scores there is no such meeting.
  __device__ __forceinline__ bool holds_for_team(bool own) const {
    rings.meets();
    return Atoms::Math::holds_for_team(own);
  }
};

template <class Kernel, class Atoms, class Inputs, Way = Way::edges>
struct Pipeline;

/// A team a tile. The body finds it in shared memory: what it asks for now and then would take registers all the time,
/// of which the products need every one. Copies, which ask in every step, have it in registers.
template <class Kernel, class Atoms, class Once, class Early, class Late>
struct Pipeline<Kernel, Atoms, Streams<Once, Early, Late>, Way::edges> {
  using AllRings = typename RingsOf<Kernel, Atoms, Once, Early, Late>::Type;
  using Tile = typename Kernel::Tile;
  struct Memory {
    [[no_unique_address]] RoundedTiles<Atoms> rounded;  // at the beginning, where Math looks for it
    Early early[Early::depth];
    Late late[Late::depth];
    Once once;
  };
  static constexpr std::size_t scratch_bytes = std::max(sizeof(Memory), Kernel::Held::most_bytes);
  /// Before the scratch, in what Kokkos keeps for reductions over a team, of which there are none here.
  static constexpr std::size_t tile_bytes = (sizeof(Tile) + 15) / 16 * 16;
  static_assert(tile_bytes <= Machine<Kokkos::Cuda>::reduce_bytes / 2);
  Kernel kernel;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    auto* const scratch = static_cast<unsigned char*>(team.team_shmem().get_shmem(std::size_t{scratch_bytes}));
    auto& memory = *reinterpret_cast<Memory*>(scratch);
    auto& kept = *reinterpret_cast<Tile*>(scratch - tile_bytes);
    auto const tile = kernel.tile(team.league_rank());
    if (ptx::thread() == 0) kept = tile;
    AllRings rings = rings_in(memory, tile, kept);
    if constexpr (has_rounded_tiles<Atoms>)
      rings.begin(tile);
    else
      rings.begin();
    ptx::named_sync(0, Atoms::team_threads);
    MeetingMath<Atoms, AllRings> math{{team.team_rank() * 32 + static_cast<int>(threadIdx.x), &memory}, rings};
    RingStream<AllRings, Once> once{rings};
    RingStream<AllRings, Early> early{rings};
    RingStream<AllRings, Late> late{rings};
    kernel.body(math, kept, once, early, late);
#endif
  }

 private:
  __device__ __forceinline__ AllRings rings_in(Memory& memory, Tile const& tile, Tile const& kept) const {
    if constexpr (has_rounded_tiles<Atoms>)
      return {{&memory.once}, {memory.early}, {memory.late}, kernel, kept};
    else
      return {{{&memory.once}, {memory.early}, {memory.late}, kernel, tile}};
  }
};

}  // namespace tessera::detail::async

#endif
