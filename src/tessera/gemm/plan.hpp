// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PLAN_DETAIL_HPP
#define TESSERA_GEMM_PLAN_DETAIL_HPP

#include <algorithm>
#include <cmath>
#include <string>

#include <tessera/gemm/async.hpp>
#include <tessera/gemm/packed.hpp>
#include <tessera/gemm/splits.hpp>
#include <tessera/gemm/thin.hpp>

namespace tessera::detail {

template <class Atoms, class Epilogue, class Exec>
GemmPlan describe_gemm(Exec const& exec, GemmProblem const& p, Algorithm algorithm, char const* reason) {
  GemmPlan plan;
  plan.algorithm = algorithm;
  plan.tile_m = Atoms::BM;
  plan.tile_n = Atoms::BN;
  plan.tile_k = Atoms::BK;
  plan.stages = Atoms::depth;
  plan.team_threads = Machine<Exec>::threads(Atoms::team_threads);
  plan.scratch_bytes = scratch_of<Atoms, Exec, GemmKernel<Atoms, Epilogue>>();
  plan.tiles = gemm_tiles(p, Atoms::BM, Atoms::BN);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  if constexpr (requires { Atoms::instructions(); }) {
    plan.instructions = Atoms::instructions();
    plan.narrow_factors = Atoms::by_words;
  }
  return plan;
}

/// A tile, and what the product takes in clocks of a core where more than one shares it.
struct GemmPanelChoice {
  GemmTileExtent tile;
  double clocks = HUGE_VAL;
};

/// The tile that the cores of a CPU are done with first: of whole panels, rows and columns shared out evenly, as large
/// as Atoms has them or smaller, so that no core waits long for the others. An element of a factor takes a tile
/// `element` clocks, of a left one that is not packed less.
template <class Atoms>
GemmPanelChoice choose_gemm_panels(GemmProblem const& p, int cores, int splits, double element) {
  auto const clocks_of = GemmPanelClocks::of<Atoms>();
  GemmPanelChoice best{{Atoms::BM, Atoms::BN}};
  double of_left = element;
  if constexpr (requires { Atoms::reads_in_place(p.a); })
    if (Atoms::reads_in_place(p.a)) of_left = clocks_of.streamed;
  double const depth = static_cast<double>(p.k()) / splits;
  if (cores == 1 || p.m() == 0 || p.n() == 0 || 2.0 * depth * static_cast<double>(p.c.rows * p.c.cols) < worth_a_fork)
    return best;
  auto const shared_out = [](std::int64_t extent, int most, int panel) {
    std::int64_t const panels = (extent + panel - 1) / panel, parts = (panels + most - 1) / most;
    return static_cast<int>((panels + parts - 1) / parts) * panel;
  };
  for (int most_rows = Atoms::BM / Atoms::MR; most_rows > 0; --most_rows)
    for (int most_cols = Atoms::BN / Atoms::NR; most_cols > 0; --most_cols) {
      int const rows = shared_out(p.m(), most_rows, Atoms::MR), cols = shared_out(p.n(), most_cols, Atoms::NR);
      double const share = static_cast<double>(gemm_tiles(p, rows, cols) * splits) / cores,
                   area = static_cast<double>(rows) * cols;
      double const a_tile =
          depth * (clocks_of.step * area / (Atoms::MR * Atoms::NR) + of_left * rows + element * cols) +
          clocks_of.stored * area + clocks_of.tile;
      // Cores are not done at the same time: the last one half a tile after the others, which would have shared it.
      double const clocks = std::fmax(std::ceil(share), share + 0.5 * (cores - 1) / cores) * a_tile;
      if (clocks < best.clocks) best = {{rows, cols}, clocks};
    }
  return best;
}

/// The tile of factors that are packed before, with what that takes.
template <class Atoms>
GemmPanelChoice choose_packed_gemm_panels(GemmProblem const& p, int cores) {
  auto const clocks_of = GemmPanelClocks::of<Atoms>();
  GemmPanelChoice choice = choose_gemm_panels<Atoms>(p, cores, 1, clocks_of.streamed);
  choice.clocks += clocks_of.start + clocks_of.packed_before * static_cast<double>((p.m() + p.n()) * p.k()) / cores;
  return choice;
}

/// Whether tiles of more than one step go through K in short ones.
template <class Short>
bool takes_short_steps(GemmProblem const& p, GemmPlan const& plan, GemmTileExtent const& tile) {
  constexpr std::int64_t size = sizeof(typename Short::Compute);
  bool const fits = tile.rows * tile.cols * size <= Short::most_sums,
             crowded = tile.rows * plan.tile_k * size > Short::most_rows;
  return plan.splits == 1 && p.k() > plan.tile_k && (crowded || (fits && plan.concurrency > 1));
}

/// The plan on the cores of a CPU: factors are packed for every tile or, where there is a workspace for it and many
/// tiles read them, once, by PackedBefore.
template <class Atoms, class PackedBefore, class Epilogue, class Exec>
GemmPlan plan_gemm_panels(Exec const& exec, GemmProblem const& p, GemmOptions const& options, char const* reason) {
  GemmPlan plan = describe_gemm<Atoms, Epilogue>(exec, p, Algorithm::coarsened, reason);
  std::int64_t const steps = (p.k() + Atoms::BK - 1) / Atoms::BK,
                     wanted = gemm_splits_of_panels<typename Atoms::Factor>(p);
  split_gemm(plan, p, options, steps, wanted);
  if (plan.splits < wanted && options.splits == 0 && options.algorithm == Algorithm::automatic)
    plan.reason = "the fastest rung that runs here; with options.workspace cores would share K";
  GemmPanelChoice choice =
      choose_gemm_panels<Atoms>(p, plan.concurrency, plan.splits, GemmPanelClocks::of<Atoms>().packed);
  if constexpr (packs_gemm_factors<Exec, Epilogue>) {
    std::size_t const bytes = GemmPacking<PackedBefore>::bytes(p);
    if (plan.splits == 1 && p.batch() == 1 && bytes <= options.workspace_bytes) {
      GemmPanelChoice const packed = choose_packed_gemm_panels<PackedBefore>(p, plan.concurrency);
      if (packed.clocks < choice.clocks) {
        choice = packed;
        plan.packed_factors = true;
        plan.workspace_bytes = bytes;
        plan.scratch_bytes = scratch_of<PackedBefore, Exec, GemmKernel<PackedBefore, Epilogue>>();
        plan.tile_k = PackedBefore::BK;
      }
    }
  }
  if constexpr (packs_gemm_factors<Exec, Epilogue> && !Atoms::by_words) {
    using Compute = typename Atoms::Compute;
    using Short = RegisterAtoms<Exec, Compute, GemmCoarsenedShort<Compute>>;
    if (!plan.packed_factors && takes_short_steps<Short>(p, plan, choice.tile)) {
      plan.tile_k = Short::BK;
      plan.scratch_bytes = scratch_of<Short, Exec, GemmKernel<Short, Epilogue>>();
    }
  }
  plan.tile_m = choice.tile.rows;
  plan.tile_n = choice.tile.cols;
  plan.tiles = gemm_tiles(p, plan.tile_m, plan.tile_n) * plan.splits;
  return plan;
}

/// Why the bulk pipeline is not there for products with such an epilogue; nullptr when it is.
template <class Exec, class Epilogue>
char const* bulk_machine_obstacle([[maybe_unused]] Exec const& exec) {
  if constexpr (!has_bulk_pipeline<Exec>) {
    return "the hopper pipeline needs the CUDA backend built for sm_90a";
  } else if constexpr (own_epilogue<Epilogue> && !compiles_bulk_kernels) {
    return "this source, which brings its own epilogue, is not compiled for sm_90a (tessera_target_hopper() in CMake)";
  } else {
    return BulkPipeline<Exec>::runs_on(exec) ? nullptr : "the hopper pipeline needs a device of compute capability 9.0";
  }
}

/// Why the bulk pipeline cannot run this problem; nullptr when it can, as `choice` then says.
template <class Exec, class Compute, class Epilogue>
char const* bulk_gemm_obstacle(Exec const& exec, GemmProblem const& p, GemmOptions const& options,
                               GemmBulkChoice& choice) {
  if (has_bulk_pipeline<Exec> && std::is_same_v<Compute, double>) return "the hopper pipeline has no fp64 products";
  if (char const* const obstacle = bulk_machine_obstacle<Exec, Epilogue>(exec)) return obstacle;
  GemmProblem const seen = bulk_problem<Epilogue>(p);
  if (char const* const obstacle = bulk_gemm_obstacle(seen, options)) return obstacle;
  choice = remembered_gemm_bulk(seen, options, Machine<Exec>::concurrency(exec), own_epilogue<Epilogue>);
  return choice.rows > 0 ? nullptr : "the hopper pipeline has no such tile, not for such a C, or so many slices of K";
}

/// The plan on the bulk pipeline. Tiles of all types have the same bytes; which there are differs for 8-bit floats.
template <class Epilogue, class Exec>
GemmPlan plan_gemm_bulk(Exec const& exec, GemmProblem const& problem, GemmBulkChoice const& choice,
                        GemmOptions const& options, char const* reason) {
  GemmPlan chosen, plan;
  chosen.tile_m = choice.rows;
  chosen.tile_n = choice.columns;
  chosen.schedule = choice.schedule;
  chosen.slices = choice.slices;
  chosen.fast_accumulation = options.fast_accumulation;
  GemmProblem const p = planned_problem<Epilogue>(problem, chosen);
  auto const describe = [&](auto atoms) {
    plan = describe_gemm<decltype(atoms), Epilogue>(exec, p, Algorithm::hopper, reason);
  };
  bool const full = bulk_sum(p.a.type, p.b.type) == BulkSum::full;
  if (full)
    visit_gemm_bulk_tile<Exec, bf16_t, bf16_t, false, false, false>(chosen, describe);
  else
    visit_gemm_bulk_tile<Exec, e4m3_t, e4m3_t, false, false, false>(chosen, describe);
  plan.tile_k =
      plan.tile_k * static_cast<int>(full ? sizeof(bf16_t) : sizeof(e4m3_t)) / static_cast<int>(size_of(p.a.type));
  plan.schedule = choice.schedule;
  plan.clocks = choice.clocks;
  plan.slices = choice.slices;
  plan.cluster_m = choice.cluster.rows;
  plan.cluster_n = choice.cluster.cols;
  plan.fast_accumulation = options.fast_accumulation;
  plan.workspace_bytes = bulk_workspace(p);
  split_gemm(plan, p, options, (p.k() + plan.tile_k - 1) / plan.tile_k, choice.splits);
  plan.tiles = p.batch() * gemm_tile_count(p.m(), choice.rows, choice.cluster.rows) *
               gemm_tile_count(p.n(), choice.columns, choice.cluster.cols) * choice.slices * plan.splits;
  return plan;
}

/// What tiles of such sizes take with K in so many parts, in clocks of a multiprocessor.
template <class Sizes>
double gemm_team_clocks(GemmProblem const& p, int splits, int concurrency) {
  std::int64_t const all = gemm_tiles(p, Sizes::BM, Sizes::BN) * splits;
  bool const apart = gemm_teams_apart<Sizes>(all, concurrency);
  double const teams = std::ceil(static_cast<double>(all) / concurrency);
  double const rounds = apart ? teams : std::ceil(teams / Sizes::teams_at_once);
  double const steps = std::ceil(std::ceil(static_cast<double>(p.k()) / Sizes::BK) / splits);
  double const together = ends_in_step<Sizes> && rounds > 1 ? rounds * Sizes::teams_at_once : teams;
  double const a_step =
      apart ? teams * Sizes::clocks.alone : std::fmax(rounds * Sizes::clocks.alone, together * Sizes::clocks.together);
  double const bytes = static_cast<double>(p.batch() * p.m()) * static_cast<double>(p.n()) *
                       (p.c.col_stride == 1 ? static_cast<double>(size_of(p.c.type)) : 32);
  return steps * a_step + rounds * GemmTeamClocks::tile + bytes * GemmTeamClocks::byte + gemm_split_clocks(p, splits);
}

/// Into how many parts K is split for teams of such sizes: as many as fill the multiprocessors once, twice ...
template <class Sizes>
int choose_gemm_splits(GemmProblem const& p, GemmOptions const& options, int concurrency, std::size_t used) {
  std::int64_t const tiles = gemm_tiles(p, Sizes::BM, Sizes::BN), steps = (p.k() + Sizes::BK - 1) / Sizes::BK;
  if (options.splits > 0) return static_cast<int>(std::clamp<std::int64_t>(steps, 1, options.splits));
  int best = 1;
  if (tiles == 0 || options.workspace_bytes == 0) return best;
  double least = gemm_team_clocks<Sizes>(p, 1, concurrency);
  for (int teams = 1; teams <= 2 * Sizes::teams_at_once; ++teams) {
    auto const splits = static_cast<int>(std::min(std::int64_t(teams) * concurrency / tiles, steps));
    if (splits <= best || used + gemm_split_bytes(p, splits) > options.workspace_bytes) continue;
    double const clocks = gemm_team_clocks<Sizes>(p, splits, concurrency);
    if (clocks < least) least = clocks, best = splits;
  }
  return best;
}

/// A tile, and into how many parts K is split for it.
struct GemmTeamChoice {
  GemmTeamTile tile = GemmTeamTile::large;
  int splits = 1;
  double clocks = HUGE_VAL;

  template <class Sizes>
  void consider(GemmTeamTile candidate, GemmProblem const& p, GemmOptions const& options, int concurrency,
                std::size_t used) {
    int const parts = choose_gemm_splits<Sizes>(p, options, concurrency, used);
    double const takes = gemm_team_clocks<Sizes>(p, parts, concurrency);
    if (takes < clocks) *this = {candidate, parts, takes};
  }
};

/// The plan that describe(tile) gives of the chosen tile, with K split.
template <class Describe>
GemmPlan plan_gemm_teams(GemmTeamChoice const& choice, GemmProblem const& p, GemmOptions const& options,
                         std::size_t used, std::size_t most_scratch, Describe const& describe) {
  GemmTeamTile tile = choice.tile;
  GemmPlan plan = describe(tile);
  if (plan.scratch_bytes > most_scratch) plan = describe(tile = GemmTeamTile::small);
  plan.workspace_bytes = used;
  split_gemm(plan, tile == GemmTeamTile::flat ? flat_problem(p) : p, options, (p.k() + plan.tile_k - 1) / plan.tile_k,
             choice.splits);
  plan.tiles *= plan.splits;
  return plan;
}

/// The plan on the pipeline of asynchronous copies: large tiles, or others where they are done first, or none.
template <class T, bool TensorCores, class Epilogue, class Exec>
GemmPlan plan_gemm_async(Exec const& exec, GemmProblem const& problem, GemmOptions const& options, char const* reason) {
  GemmProblem const p = bulk_problem<Epilogue>(problem), flat = flat_problem(p);
  int const concurrency = Machine<Exec>::concurrency(exec);
  std::size_t const used = sizeof(T) <= 2 ? bulk_workspace(p) : 0;
  GemmTeamChoice choice;
  GemmThinChoice thin;
  if constexpr (!own_epilogue<Epilogue> && has_thin_products<T>)
    if (options.algorithm != Algorithm::tensor_core) {
      thin = GemmThinChooser(flat, options, concurrency).choose();
      if (thin.fastest) return plan_gemm_thin<T>(exec, flat, options, thin, reason);
    }
  // Most rows of larger tiles would hang over an edge.
  bool const fits_flat = has_flat_tile<T, TensorCores> && flat.m() <= gemm_flat_rows;
  if (own_epilogue<Epilogue> || !fits_flat)
    choice.consider<GemmAsync<T, TensorCores, GemmTeamTile::large>>(GemmTeamTile::large, p, options, concurrency, used);
  if constexpr (!own_epilogue<Epilogue>) {
    if (!fits_flat)
      choice.consider<GemmAsync<T, TensorCores, GemmTeamTile::small>>(GemmTeamTile::small, p, options, concurrency,
                                                                      used);
    if constexpr (has_flat_tile<T, TensorCores>) {
      using Least = GemmAsync<T, TensorCores, GemmTeamTile::least>;
      if (thin.rows == 0 && (!fits_flat || gemm_tiles(p, Least::BM, Least::BN) <= concurrency))
        choice.consider<Least>(GemmTeamTile::least, p, options, concurrency, used);
      choice.consider<GemmAsync<T, TensorCores, GemmTeamTile::flat>>(GemmTeamTile::flat, flat, options, concurrency,
                                                                     used);
    }
    if constexpr (has_thin_products<T>)
      if (thin.clocks < choice.clocks) return plan_gemm_thin<T>(exec, flat, options, thin, reason);
  }
  auto const describe = [&](GemmTeamTile tile) {
    constexpr Algorithm algorithm = TensorCores ? Algorithm::tensor_core : Algorithm::coarsened;
    GemmProblem const& seen = tile == GemmTeamTile::flat ? flat : p;
    GemmPlan plan;
    visit_gemm_async<Exec, T, TensorCores, own_epilogue<Epilogue>>(seen, tile, [&](auto atoms) {
      plan = describe_gemm<decltype(atoms), Epilogue>(exec, seen, algorithm, reason);
    });
    return plan;
  };
  return plan_gemm_teams(choice, p, options, used, Machine<Exec>::scratch_limit(exec), describe);
}
template <class Compute, class Epilogue, class Exec>
GemmPlan plan_gemm_async(Exec const& exec, GemmProblem const& p, GemmOptions const& options, bool tensor_cores,
                         char const* reason) {
  if constexpr (std::is_same_v<Compute, double>)
    return plan_gemm_async<double, true, Epilogue>(exec, p, options, reason);
  else if constexpr (std::is_same_v<Compute, std::int32_t>)
    return plan_gemm_async<std::int8_t, true, Epilogue>(exec, p, options, reason);
  else if (size_of(p.a.type) == 2)  // the tiles of both types are the same
    return plan_gemm_async<bf16_t, true, Epilogue>(exec, p, options, reason);
  else
    return tensor_cores ? plan_gemm_async<float, true, Epilogue>(exec, p, options, reason)
                        : plan_gemm_async<float, false, Epilogue>(exec, p, options, reason);
}

/// What an algorithm multiplies factors of this type with.
template <class Compute>
model::Type gemm_arithmetic(Algorithm algorithm, Scalar type) {
  bool const tensor = algorithm == Algorithm::tensor_core || algorithm == Algorithm::hopper;
  if constexpr (std::is_same_v<Compute, double>) return tensor ? model::Type::fp64_tensor : model::Type::fp64;
  if (!tensor) return model::Type::fp32;
  switch (type) {
    case Scalar::fp16:
      return model::Type::fp16;
    case Scalar::bf16:
      return model::Type::bf16;
    case Scalar::int8:
      return model::Type::int8;
    default:
      return size_of(type) == 1 ? model::Type::fp8 : model::Type::tf32;
  }
}

/// The algorithm and its configuration.
template <class Exec, class Compute, class Epilogue>
GemmPlan choose_gemm(Exec const& exec, GemmProblem const& p, GemmOptions const& options) {
  constexpr bool host = Machine<Exec>::is_host;
  using Large = RegisterAtoms<Exec, Compute, GemmCoarsened<host, Compute>>;
  using Tiled = ScratchAtoms<Exec, Compute, GemmTiled>;
  Algorithm wanted = options.algorithm;
  char const* reason = wanted == Algorithm::automatic ? "the fastest rung that runs here" : "asked for";
  auto const refuse = [&](char const* obstacle) {
    if (obstacle != nullptr && options.algorithm != Algorithm::automatic && !options.allow_fallback)
      throw Error(ErrorCode::unsupported,
                  std::string("tessera::gemm: algorithm ") + name(wanted) + " cannot run: " + obstacle);
  };
  if (wanted == Algorithm::automatic || wanted == Algorithm::hopper) {
    GemmBulkChoice choice;
    char const* const obstacle = bulk_gemm_obstacle<Exec, Compute, Epilogue>(exec, p, options, choice);
    refuse(obstacle);
    if (obstacle == nullptr) {
      if constexpr (has_bulk_pipeline<Exec> && !std::is_same_v<Compute, double>)
        return plan_gemm_bulk<Epilogue>(exec, p, choice, options, reason);
    }
    wanted = Algorithm::tensor_core;
    if (has_bulk_pipeline<Exec> || options.algorithm == Algorithm::hopper) reason = obstacle;
  }
  if (wanted == Algorithm::tensor_core) {
    char const* obstacle = async_gemm_obstacle(exec, p, options, true);
    if constexpr (has_async_pipeline<Exec>) {
      if (obstacle == nullptr) {
        GemmPlan const plan = plan_gemm_async<Compute, Epilogue>(exec, p, options, true, reason);
        if (plan.scratch_bytes <= Machine<Exec>::scratch_limit(exec)) return plan;
        obstacle = "tensor_core needs more scratch than this device gives a team";
      }
    }
    if (options.algorithm == Algorithm::tensor_core) {
      refuse(obstacle);
      reason = obstacle;
    }
    wanted = Algorithm::coarsened;
  }
  if constexpr (has_async_pipeline<Exec> && std::is_same_v<Compute, float>) {
    if (wanted == Algorithm::coarsened && p.a.type == Scalar::fp32 &&
        async_gemm_obstacle(exec, p, options, false) == nullptr) {
      GemmPlan const plan = plan_gemm_async<Compute, Epilogue>(exec, p, options, false, reason);
      if (plan.scratch_bytes <= Machine<Exec>::scratch_limit(exec)) return plan;
    }
  }
  if (p.k() == 0 && wanted != Algorithm::naive) {
    wanted = Algorithm::coalesced;
    reason = "no product to form: K = 0 or alpha = 0";
  }
  if (wanted == Algorithm::tiled) return describe_gemm<Tiled, Epilogue>(exec, p, wanted, reason);
  if (wanted == Algorithm::coarsened) {
    if constexpr (host) {
      if constexpr (has_narrow_atoms<Exec, Compute>) {
        using Element = GemmNarrowElement<Compute>;
        if (multiplies_narrow<Exec, Element>(p.a.type, p.b.type))
          return plan_gemm_panels<NarrowAtoms<Exec, Element, GemmNarrow<Element>>,
                                  PackedAtoms<Exec, Compute, Element, GemmNarrow<Element>>, Epilogue>(exec, p, options,
                                                                                                      reason);
      }
      return with_packed_atoms<Exec, Compute, GemmCoarsenedShort<Compute>>([&](auto tag) {
        return plan_gemm_panels<Large, typename decltype(tag)::type, Epilogue>(exec, p, options, reason);
      });
    } else {
      using Small = RegisterAtoms<Exec, Compute, GemmCoarsenedSmall>;
      GemmProblem const seen = bulk_problem<Epilogue>(p);
      int const concurrency = Machine<Exec>::concurrency(exec);
      GemmTeamChoice choice;
      choice.consider<GemmCoarsened<false, Compute>>(GemmTeamTile::large, seen, options, concurrency, 0);
      choice.consider<GemmCoarsenedSmall>(GemmTeamTile::small, seen, options, concurrency, 0);
      return plan_gemm_teams(choice, seen, options, 0, Machine<Exec>::scratch_limit(exec), [&](GemmTeamTile tile) {
        return tile == GemmTeamTile::small ? describe_gemm<Small, Epilogue>(exec, p, wanted, reason)
                                           : describe_gemm<Large, Epilogue>(exec, p, wanted, reason);
      });
    }
  }
  GemmPlan plan;
  plan.algorithm = wanted;
  plan.tiles = gemm_tiles(p, 1, 1);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  return plan;
}

/// The same with what the product amounts to.
template <class Exec, class Compute, class Epilogue>
GemmPlan plan_gemm(Exec const& exec, GemmProblem const& p, GemmOptions const& options) {
  GemmPlan plan = choose_gemm<Exec, Compute, Epilogue>(exec, p, options);
  auto const bytes = [](MatrixStack const& m) {
    return static_cast<double>(m.inner * m.rows) * static_cast<double>(m.cols) * static_cast<double>(size_of(m.type));
  };
  plan.flops = 2 * static_cast<double>(p.batch() * p.m()) * static_cast<double>(p.n()) * static_cast<double>(p.k());
  plan.bytes = bytes(p.a) + bytes(p.b) + bytes(p.c) * (p.beta == 0 ? 1 : 2);
  plan.arithmetic = gemm_arithmetic<Compute>(plan.algorithm, p.a.type);
  bool const one_pass = plan.splits == 1 && options.splits == 0 && options.workspace_bytes == 0;
  if (!Machine<Exec>::is_host && one_pass && options.algorithm == Algorithm::automatic && p.k() >= 8192 &&
      2 * plan.tiles <= plan.concurrency)
    plan.reason = "the fastest rung that runs here; with options.workspace K would be split";
  return plan;
}

}  // namespace tessera::detail

#endif
