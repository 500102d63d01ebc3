// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_PIPELINE_HPP
#define TESSERA_CUDA_BULK_PIPELINE_HPP

#include <Kokkos_Core.hpp>
#include <tessera/cuda/bulk_atoms.hpp>
#include <tessera/cuda/bulk_sources.hpp>
#include <tessera/cuda/launch.hpp>
#include <tessera/unroll.hpp>

// Hopper's pipeline: a producer warpgroup runs only a kernel's loads, round-robin over its streams, ahead across tiles;
// one to three consumer warpgroups run the body. A full and an empty barrier a stage lie between them, and registers
// move from the producer to the consumers. Of teams that need the same tile each loads a share of it for all: a stage
// is empty when the consumers of all that its loads go to have given it back.
namespace tessera::detail::bulk {

template <class Stage>
struct Ring {
  Stage stage[Stage::depth];
};
template <class Stage>
struct Barriers {
  std::uint64_t full[Stage::depth], empty[Stage::depth];
};
template <class Atoms, bool Staged = Atoms::staged_store>
struct Staging {
  alignas(1024) typename Atoms::Staging tile[Atoms::consumers];
};
template <class Atoms>
struct Staging<Atoms, false> {
  static constexpr typename Atoms::Staging* tile = nullptr;
};
template <class Atoms, class... Stage>
struct Shared : Ring<Stage>..., Staging<Atoms>, Barriers<Stage>... {
  std::uint64_t joined, parts, added[Atoms::consumers][2];
};

/// What the copies into a stage bring: all of it, unless the kernel knows better.
template <class Stage, class Kernel>
KOKKOS_FUNCTION std::uint32_t stage_bytes(Kernel const& kernel) {
  if constexpr (requires { kernel.stage_bytes; })
    return static_cast<std::uint32_t>(kernel.stage_bytes);
  else if constexpr (requires { Stage::bytes; })  // without what aligns the next stage
    return Stage::bytes;
  else
    return sizeof(Stage);
}

/// One role's place in a ring of stages. In ping-pong a consumer's turn ends when it has acquired the last step of its
/// tile. Only then may the other wait for its own: a barrier knows two phases, and before that the stage might be more
/// than one behind.
template <class Stage, bool PingPong, bool Ready, bool Pairs>
struct Stream {
  Stage* stage;
  std::uint64_t *full, *empty;
  int group;
  bool leads;   // the first warp of a consumer
  bool paired;  // other teams load some of what this one reads
  int teams;    // of the cluster: all wait for all, since that some need not is longer to tell
  // The same, ready for each lane where there are registers for it: whether it gives stages back to its own team, or
  // tells the team of its number, and where that one's first barrier is.
  bool releases, tells;
  std::uint32_t told;
  int at = 0, oldest = 0, ahead = 0;  // steps of the tile
  std::uint32_t phase = 0;
  bool waits = false;  // for the kernels ahead, before the first copy

  __device__ __forceinline__ void next() {
    if (++at == Stage::depth) {
      at = 0;
      phase ^= 1;
    }
  }
  /// By one lane, or by a whole warp of which one copies: what it computes is then the same in all lanes, and the
  /// compiler knows it.
  template <class Atoms, bool WholeWarp, bool WaitsLate, class Kernel, class Bytes, class... Cut>
  __device__ __forceinline__ void produce(Kernel const& kernel, typename Kernel::Tile const& tile, int step,
                                          Bytes const& bytes, Neighbours const& together, Cut const&... cut) {
    wait_empty();
    if (!WholeWarp || ptx::elect_one()) {
      ptx::barrier_arrive_expect(full + at, bytes(static_cast<Stage const*>(nullptr)));
      if constexpr (WaitsLate) {
        if (waits) ptx::wait_for_grids_before();
        waits = false;
      }
      kernel.load(typename Atoms::Copy{full + at, together}, stage[at], tile, step, cut...);
    }
    next();
  }
  /// Behind the last step: all that has been loaded is used, here and, what this team has loaded for them, by others,
  /// so that nobody will arrive at these barriers any more. Half a pair is not given back.
  __device__ __forceinline__ void finish() {
    int left = Stage::depth;
    for (; Pairs && at % 2 != 0; left -= 2) next();
    for (; left > 0; --left) {
      wait_empty();
      next();
    }
  }
  /// The stage may be filled, or both of the pair that begins with it.
  __device__ __forceinline__ void wait_empty() {
    static_assert(!Pairs || Stage::depth % 2 == 0);
    if (!Pairs || at % 2 == 0) ptx::barrier_wait(empty + at, phase ^ 1);
  }
  __device__ __forceinline__ Stage const& acquire() {
    ptx::barrier_wait(full + at, phase);
    Stage const& s = stage[at];
    next();
    if constexpr (PingPong)
      if (--ahead == 0) ptx::named_arrive(3 - group, 2 * warpgroup);
    return s;
  }
  __device__ __forceinline__ void release() {
    if (!Pairs || oldest % 2 != 0) give_back(Pairs ? oldest - 1 : oldest);
    if (++oldest == Stage::depth) oldest = 0;
  }
  __device__ __forceinline__ void give_back(int i) {
    if constexpr (Ready) {
      if (releases) ptx::barrier_arrive(empty + i);
      if (tells) ptx::cluster_arrive(told + i * static_cast<int>(sizeof(*empty)));
    } else if (leads) {
      int const lane = ptx::lane();
      if (!paired && lane == 0) ptx::barrier_arrive(empty + i);
      if (paired && lane < teams) ptx::cluster_arrive(ptx::cluster_address(ptx::shared_address(empty + i), lane));
    }
  }
  /// A tile of this consumer begins.
  __device__ __forceinline__ void take_turn(int steps) {
    ahead = steps;
    ptx::named_sync(group, 2 * warpgroup);
  }
  /// Past the steps of a tile of the other's.
  __device__ __forceinline__ void skip(int steps) {
    int const to = at + steps;
    phase ^= to / Stage::depth & 1;
    at = oldest = to % Stage::depth;
  }
};

template <bool PingPong, bool Ready, bool Pairs, class... Stage>
struct Ends : Stream<Stage, PingPong, Ready, Pairs>... {};

/// Teams that share a tile along K, and those that load tiles together: neighbours in the league.
template <class Kernel>
KOKKOS_FUNCTION int slices(Kernel const& kernel) {
  if constexpr (requires { kernel.slices; })
    return kernel.slices;
  else
    return 1;
}
template <class Atoms, class Kernel>
KOKKOS_FUNCTION Cluster cluster(Kernel const& kernel) {
  if constexpr (requires { kernel.cluster; } && Atoms::multicast)
    return kernel.cluster;
  else
    return {};
}

/// Whether tiles of this launch are copied without what hangs over an edge.
template <class Kernel>
KOKKOS_FUNCTION bool cuts_tiles(Kernel const& kernel) {
  if constexpr (requires { kernel.cuts(); })
    return kernel.cuts();
  else
    return false;
}

template <class Kernel, class Atoms, class Inputs>
struct Pipeline;

template <class Kernel, class Atoms, class... Stage>
struct Pipeline<Kernel, Atoms, Streams<Stage...>> {
  static_assert(!Atoms::ping_pong || sizeof...(Stage) == 1, "in ping-pong a stream says whose turn it is");
  template <class S>
  using End = Stream<S, Atoms::ping_pong, Atoms::ready_releases, Atoms::pairs_stages>;
  /// Several streams have longer steps and more to count: 2 % slower at 1024 keys of attention by a whole warp.
  static constexpr bool whole_warp = sizeof...(Stage) == 1;
  /// The first tile is found while barriers are made, and the producer waits for the kernels ahead just before its
  /// first copy: what a multiprocessor runs for the first time takes some five clocks an instruction, and between that
  /// wait and the copy nothing is hidden. In ping-pong, whose producer is hard pressed, the longer step costs more.
  static constexpr bool starts_early = PlacesTilesAhead<Kernel> && whole_warp && !Atoms::ping_pong;
  /// Where every team has one tile, consumers go through the body before the kernels ahead are done and the first copy
  /// has come: they wait anyway, and what follows the last product then is at hand instead of a cache away.
  static constexpr bool rehearses = Atoms::rehearses && requires(Kernel const& k) { k.rehearses(); };
  using Memory = Shared<Atoms, Stage...>;
  static constexpr std::size_t scratch_bytes = sizeof(Memory);
  Kernel kernel;

  __device__ __forceinline__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    auto* const memory = static_cast<Memory*>(team.team_shmem().get_shmem(sizeof(Memory)));
    // The launch has made sure of it. Or every address there is chosen between that and Kokkos' nullptr for no room, in
    // each step of a loop: 29 of 820 instructions of attention's gradients.
    if constexpr (Atoms::knows_scratch) __builtin_assume(memory != nullptr);
    Memory& shared = *memory;
    int const warp = ptx::uniform(team.team_rank()), group = warp / 4, id = warp * 32 + threadIdx.x;
    Cluster const shape = cluster<Atoms>(kernel);
    bool const paired = shape.teams() > 1, alone = !paired && slices(kernel) == 1;
    Neighbours const together(shape, paired ? ptx::uniform(ptx::cluster_rank()) : 0);
    if constexpr (requires { kernel.announce(typename Atoms::Copy{}); })
      if (id == 2 * warpgroup) kernel.announce(typename Atoms::Copy{});
    FirstTile const first(kernel, team.league_rank());
    if (id == warpgroup) {
      int const releases = (Atoms::ping_pong ? 1 : Atoms::consumers) * shape.teams();
      (initialise(static_cast<Barriers<Stage>&>(shared), releases), ...);
      ptx::barrier_init(&shared.joined, 1);
      ptx::barrier_init(&shared.parts, Atoms::consumers * 4);
      for (auto& boxes : shared.added)
        for (std::uint64_t& barrier : boxes) ptx::barrier_init(&barrier, 1);
      ptx::async_proxy_fence();
      if (!alone) ptx::barrier_init_fence();
    }
    if (alone)
      team.team_barrier();
    else
      ptx::cluster_meet();
    if constexpr (!whole_warp) ptx::let_next_grid_start();
    if constexpr (!PlacesTilesAhead<Kernel>) ptx::wait_for_grids_before();
    int const lane = id % 32;
    bool const leads = warp % 4 == 0;
    Ends<Atoms::ping_pong, Atoms::ready_releases, Atoms::pairs_stages, Stage...> ends{End<Stage>{
        static_cast<Ring<Stage>&>(shared).stage, static_cast<Barriers<Stage>&>(shared).full,
        static_cast<Barriers<Stage>&>(shared).empty, group, leads, paired, shape.teams(), leads && !paired && lane == 0,
        leads && paired && lane < shape.teams(), told<Stage>(shared, lane)}...};
    int const tiles = static_cast<int>(kernel.tiles());
    if (group == 0) {
      ptx::give_registers<Atoms::producer_registers>();
      if (warp == 0 && (whole_warp || ptx::elect_one())) {
        if constexpr (starts_early) ((static_cast<End<Stage>&>(ends).waits = true), ...);
        auto const produce_all = [&](Neighbours const& with, auto... cut) TESSERA_INLINE_LAMBDA {
          each_tile<!starts_early>(first, team, tiles, [&](typename Kernel::Tile const& tile) {
            if constexpr (sizeof...(cut) > 0)
              produce_cut_tile(tile, ends, with);
            else
              produce_tile(tile, ends, with,
                           [&]<class S>(S const*) TESSERA_INLINE_LAMBDA { return stage_bytes<S>(kernel); });
          });
        };
        // What is known of all copies is known to a loop of its own: small tiles wait for the instructions of a step,
        // which one warp goes through one after the other.
        if (cuts_tiles(kernel))
          produce_all(together, Cut{});
        else if (!paired)
          produce_all(Neighbours{});
        else if (together.right.shift == 0)
          produce_all(Neighbours{together.left, {}});
        else if (together.left.shift == 0)
          produce_all(Neighbours{{}, together.right});
        else
          produce_all(together);
        // Not before: the next kernel's teams would be placed, and fetch their text, while these begin. 512³ 2.88
        // -> 2.73 us, 1024³ 5.86 -> 5.73; without this 3.7 and 6.3.
        if constexpr (whole_warp) ptx::let_next_grid_start();
        if (paired) (static_cast<End<Stage>&>(ends).finish(), ...);
      }
    } else {
      ptx::take_registers<Atoms::consumer_registers>();
      typename Atoms::Math math{{{group - 1, warp % 4, id % warpgroup},
                                 shared.tile,
                                 reinterpret_cast<uint4*>(&shared),
                                 &shared.joined,
                                 shared.added,
                                 slices(kernel)},
                                &shared.parts};
      if constexpr (Atoms::in_turns || Atoms::ping_pong)
        if (group == Atoms::consumers) ptx::named_arrive(1, 2 * warpgroup);
      bool mine = !Atoms::ping_pong || group == 1;
      auto const consume = [&](typename Kernel::Tile const& found, bool rehearsal = false) TESSERA_INLINE_LAMBDA {
        auto tile = ptx::uniform(found);
        if constexpr (rehearses) {
          math.rehearsal = rehearsal;
          if (rehearsal) tile.steps = 0;
        }
        if (mine) {
          if constexpr (Atoms::ping_pong) (static_cast<End<Stage>&>(ends).take_turn(steps<Stage>(tile)), ...);
          kernel.body(math, tile, static_cast<End<Stage>&>(ends)...);
        } else {
          (static_cast<End<Stage>&>(ends).skip(steps<Stage>(tile)), ...);
        }
        if constexpr (Atoms::ping_pong) mine = !mine;
      };
      each_tile<true>(first, team, tiles, consume);
      math.drain();
    }
#endif
  }

 private:
  /// Where team `lane` of the cluster waits for stages to be empty.
  template <class S>
  __device__ __forceinline__ static std::uint32_t told(Barriers<S>& barriers, int lane) {
    if constexpr (Atoms::ready_releases)
      return ptx::cluster_address(ptx::shared_address(barriers.empty), lane);
    else
      return 0;
  }
  struct FoundFirst {
    typename Kernel::Tile found;
    __device__ __forceinline__ FoundFirst(Kernel const& kernel, int t) : found(kernel.tile(t)) {}
    __device__ __forceinline__ auto tile(Kernel const&, int) const { return found; }
  };
  struct FoundLater {
    __device__ __forceinline__ FoundLater(Kernel const&, int) {}
    __device__ __forceinline__ auto tile(Kernel const& kernel, int t) const { return kernel.tile(t); }
  };
  using FirstTile = std::conditional_t<starts_early, FoundFirst, FoundLater>;

  /// f(tile) for the tiles of a team, in order. A kernel that must search for them goes on from the last.
  template <bool Waits, class F>
  __device__ __forceinline__ void each_tile(FirstTile const& first, TeamMember<Kokkos::Cuda> const& team, int tiles,
                                            F const& f) const {
    int t = team.league_rank();
    constexpr bool goes_on = requires(typename Kernel::Tile const& last) { kernel.tile_after(last, t); };
    if constexpr (goes_on || PlacesTilesAhead<Kernel>) {
      if (t >= tiles) return;
      auto tile = first.tile(kernel, t);
      bool rehearsal = false;
      if constexpr (rehearses && Waits) rehearsal = tiles <= team.league_size() && kernel.rehearses();
      if constexpr (PlacesTilesAhead<Kernel> && Waits)
        if (!rehearsal) ptx::wait_for_grids_before();
      while (true) {
        if constexpr (rehearses && Waits) {  // in this loop, so that the instructions are those of the tile
          f(tile, rehearsal);
          if (rehearsal) {
            ptx::wait_for_grids_before();
            rehearsal = false;
            continue;
          }
        } else {
          f(tile);
        }
        if ((t += team.league_size()) >= tiles) return;
        if constexpr (goes_on)
          tile = kernel.tile_after(tile, t);
        else
          tile = kernel.tile(t);
      }
    } else {  // a tile kept from round to round is registers that a producer of several streams does not have
      for (; t < tiles; t += team.league_size()) f(kernel.tile(t));
    }
  }
  template <class S>
  __device__ __forceinline__ static void initialise(Barriers<S>& barriers, int releases) {
    for (int i = 0; i < S::depth; ++i) {
      ptx::barrier_init(barriers.full + i, 1);
      ptx::barrier_init(barriers.empty + i, releases);
    }
  }
  template <class S>
  __device__ __forceinline__ int steps(typename Kernel::Tile const& tile) const {
    return kernel.steps(static_cast<S const*>(nullptr), tile);
  }
  struct Cut {};
  template <class AllEnds>
  __device__ __forceinline__ void produce_cut_tile(typename Kernel::Tile const& tile, AllEnds& ends,
                                                   Neighbours const& together) const {
    if constexpr (requires { kernel.cuts(); }) {
      auto const cut = kernel.cut(typename Atoms::Copy{nullptr, together}, tile);
      produce_tile(
          tile, ends, together,
          [&](auto const*) TESSERA_INLINE_LAMBDA { return static_cast<std::uint32_t>(cut.bytes); }, cut);
    }
  }
  template <class AllEnds, class Bytes, class... Cut>
  __device__ __forceinline__ void produce_tile(typename Kernel::Tile const& tile, AllEnds& ends,
                                               Neighbours const& together, Bytes const& bytes,
                                               Cut const&... cut) const {
    int last = 0;
    ((last = steps<Stage>(tile) > last ? steps<Stage>(tile) : last), ...);
#pragma unroll 1
    for (int j = 0; j < last; ++j)
      (
          [&] {
            if (sizeof...(Stage) == 1 || j < steps<Stage>(tile))
              static_cast<End<Stage>&>(ends).template produce<Atoms, whole_warp, starts_early>(kernel, tile, j, bytes,
                                                                                               together, cut...);
          }(),
          ...);
  }
};

}  // namespace tessera::detail::bulk

namespace tessera::detail {

template <>
struct BulkPipeline<Kokkos::Cuda> {
  static constexpr bool available = true;
  template <class Element, class Sizes, class RightElement = Element>
  using Atoms = bulk::Atoms<Element, Sizes, RightElement>;
  template <class Atoms, class Kernel>
  using Pipeline = bulk::Pipeline<Kernel, Atoms, typename Kernel::Inputs>;

  static bool runs_on(Kokkos::Cuda const& exec) {
    return cuda_attribute(cudaDevAttrComputeCapabilityMajor, exec.cuda_device()) == 9;
  }
  /// Of a source that only the device can bind, in memory at a multiple of 128 bytes.
  static constexpr std::size_t source_bytes = sizeof(CUtensorMap);
  /// Binds, of elements of that type, matrices(0, i) for tiles of type Left and matrices(1, i) for those of type Right,
  /// i < count, which the device says, into places[i] and places[count + i]. Those that the copy engine cannot read are
  /// left out.
  template <class Left, class Right, class Matrices>
  static void bind(char const* label, Kokkos::Cuda const& exec, Scalar type, int count, Matrices const& matrices,
                   CUtensorMap* places) {
    using Binder = bulk::SourceBinder<Left, Right, Matrices>;
    launch<32>(label, exec, 2 * std::int64_t(count), sizeof(CUtensorMap), Binder(type, count, matrices, places));
  }
  template <class Atoms, class Kernel>
  static void run(char const* label, Kokkos::Cuda const& exec, Kernel const& kernel) {
    using P = Pipeline<Atoms, Kernel>;
    int const together = bulk::slices(kernel) * bulk::cluster<Atoms>(kernel).teams();
    int const groups = groups_at_once<Atoms::team_threads, Atoms::teams_at_once, P>(exec, together, P::scratch_bytes);
    int teams = (groups > 0 ? groups : 1) * together;  // where none fits, the launch says so
    P pipeline{kernel};
    if constexpr (!CountsTilesInPlace<Kernel>) {
      check_tiles(label, kernel.tiles());
      teams = static_cast<int>(kernel.teams(teams));
      if (teams == kernel.tiles()) order_for_a_team_each(pipeline.kernel);
    }
    // Nothing is reduced by Kokkos' means, so that nothing is declared beside the scratch.
    check_scratch(label, P::scratch_bytes, Machine<Kokkos::Cuda>::scratch_limit(exec, 0));
    if (is_planned(label, teams, Atoms::team_threads, together, P::scratch_bytes)) return;
    Machine<Kokkos::Cuda>::launch_clusters<Atoms::team_threads, Atoms::teams_at_once>(label, exec, teams, together,
                                                                                      P::scratch_bytes, pipeline);
  }
};

}  // namespace tessera::detail

#endif
