// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PORTABLE_PIPELINE_HPP
#define TESSERA_PORTABLE_PIPELINE_HPP

#include <Kokkos_Core.hpp>
#include <tessera/portable/atoms.hpp>

// The pipeline without asynchrony: every thread of the team runs the body; acquiring a stage loads it there and then.
namespace tessera::detail::portable {

template <class Kernel, class Atoms, class Stage>
struct Stream {
  Kernel const& kernel;
  typename Kernel::Tile const& tile;
  typename Atoms::Math const& math;
  Stage* stage;
  int step = 0;

  KOKKOS_FUNCTION Stage const& acquire() {
    math.team.team_barrier();  // every thread is done with what the stage held
    kernel.load(typename Atoms::Copy{math.thread}, *stage, tile, step++);
    math.team.team_barrier();
    return *stage;
  }
  KOKKOS_FUNCTION void release() {}
};

template <class Kernel, class Atoms, class Inputs>
struct Pipeline;

/// A team a tile; where teams cannot be counted before they start, as many as fit the machine take tiles in turn.
template <class Kernel, class Atoms, class... Stage>
struct Pipeline<Kernel, Atoms, Streams<Stage...>> {
  Kernel kernel;
  int tiles_a_team = 1, count = 0;  // of a host's, where tiles are small: `count` in all

  static constexpr std::size_t scratch_bytes = (aligned(sizeof(Stage)) + ... + 0) + Kernel::Held::scratch_bytes + 128;

  KOKKOS_FUNCTION void operator()(TeamMember<typename Atoms::Space> const& team) const {
    char* const scratch = static_cast<char*>(team.team_shmem().get_shmem_aligned(scratch_bytes - 128, 128));
    if constexpr (CountsTilesInPlace<Kernel> && !Machine<typename Atoms::Space>::is_host) {
      auto const tiles = static_cast<int>(kernel.tiles());
      for (int t = team.league_rank(); t < tiles; t += team.league_size()) one_tile(team, scratch, t);
    } else if constexpr (Machine<typename Atoms::Space>::is_host) {
      int const first = team.league_rank() * tiles_a_team;
      for (int t = first; t < count && t - first < tiles_a_team; ++t) one_tile(team, scratch, t);
    } else {
      one_tile(team, scratch, team.league_rank());
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void one_tile(TeamMember<typename Atoms::Space> const& team, char* scratch, int t) const {
    typename Atoms::Math math{team, Threads<typename Atoms::Space>(team).index, scratch};
    typename Kernel::Tile const tile = kernel.tile(t);
    run(math, tile,
        Stream<Kernel, Atoms, Stage>{kernel, tile, math, static_cast<Stage*>(math.take(aligned(sizeof(Stage))))}...);
  }
  template <class Math, class... S>
  KOKKOS_FORCEINLINE_FUNCTION void run(Math& math, typename Kernel::Tile const& tile, S&&... streams) const {
    kernel.body(math, tile, streams...);
  }
};

/// Tiles that a team of a host works on one after the other: so many that handing out the next takes little of the
/// time, and so few that the cores are done at about the same time.
inline int tiles_together(std::int64_t tiles, double operations, int cores) {
  constexpr double worth_handing_out = 2e5;
  double const by_work = worth_handing_out * static_cast<double>(tiles) / operations;
  return static_cast<int>(std::fmin(std::fmax(by_work, 1), std::fmax(static_cast<double>(tiles) / cores / 8, 1)));
}

template <class Atoms, class Exec, TileKernel Kernel>
void run(char const* label, Exec const& exec, Kernel const& kernel) {
  using P = Pipeline<Kernel, Atoms, typename Kernel::Inputs>;
  double operations = HUGE_VAL;
  if constexpr (requires { kernel.operations(); }) operations = kernel.operations();
  std::int64_t teams = 0;
  if constexpr (CountsTilesInPlace<Kernel> && !Machine<Exec>::is_host)
    teams = std::int64_t(Machine<Exec>::concurrency(exec)) * Atoms::teams_at_once;
  else
    teams = kernel.tiles();
  P pipeline{kernel};
  if constexpr (Machine<Exec>::is_host) {
    check_tiles(label, teams);
    pipeline.count = static_cast<int>(teams);
    if constexpr (requires { kernel.tiles_a_team(); })
      pipeline.tiles_a_team = kernel.tiles_a_team();
    else
      pipeline.tiles_a_team = tiles_together(teams, operations, Machine<Exec>::concurrency(exec));
    teams = (teams + pipeline.tiles_a_team - 1) / pipeline.tiles_a_team;
  }
  launch<Atoms::team_threads, Atoms::teams_at_once>(label, exec, teams, P::scratch_bytes, pipeline, operations);
}

}  // namespace tessera::detail::portable

#endif
