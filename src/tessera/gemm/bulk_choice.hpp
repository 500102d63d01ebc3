// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BULK_CHOICE_HPP
#define TESSERA_GEMM_BULK_CHOICE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>

#include <tessera/gemm/bulk_factors.hpp>
#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm/splits.hpp>
#include <tessera/gemm_plan.hpp>

// Which configuration of the bulk pipeline takes a product: the candidates, what they take by the clocks in
// configs.hpp, and the choices that a thread remembers.
namespace tessera::detail {

/// Whether the teams of a cluster can copy shares of such tiles: whole groups of eight lines, by which the swizzle
/// goes.
constexpr bool divides_tile(Cluster const& cluster, GemmBulkTile const& tile) {
  return tile.rows % (8 * cluster.cols) == 0 && tile.columns % (8 * cluster.rows) == 0;
}

struct GemmBulkChoice {
  int rows = 0, columns = 0, slices = 1, splits = 1;
  Cluster cluster;
  Schedule schedule = Schedule::cooperative;
  double clocks = HUGE_VAL;

  bool operator==(GemmBulkChoice const&) const = default;
};

/// Whether there is a kernel: of each tile for 16-bit factors along K; fewer for other types and layouts, which do
/// without those that fit some numbers of tiles better. With an
/// epilogue of the caller's, who compiles them, 64 x 128 and those that hide most of it: ping-pong of 192 and, 16-bit
/// factors along K only, 128 columns. Of what is promoted the largest tile in their place.
constexpr bool has_gemm_bulk_tile(GemmBulkTile const& tile, std::size_t element_bytes, bool across, bool promoted,
                                  bool own_epilogue) {
  if ((promoted ? tile.promoted_step : tile.step) == 0) return false;
  if (tile.turned()) return element_bytes == 2 && !across && !own_epilogue;
  bool const everywhere = tile.rows < 192 && (tile.columns == 192 ? tile.ping_pong() || promoted
                                                                  : tile.columns % 128 == 0 && !tile.ping_pong());
  if (!everywhere && (element_bytes != 2 || across)) return false;
  if (!own_epilogue) return true;
  if (tile.rows == 64) return tile.columns == 128 && !tile.ping_pong();
  return promoted ? tile.columns == 256 : tile.ping_pong() && tile.columns % 64 == 0;
}

/// Clocks that the copy of a line of a tile takes: more where it lies across two of the cache's.
inline double bulk_line_clocks(MatrixStack const& m) {
  BulkAccess const access = bulk_access(m);
  if (!access.direct) return GemmBulkClocks::line(128);  // as it is repacked
  MatrixStack const lines = access.across ? m.transposed() : m;
  auto const size = static_cast<std::int64_t>(size_of(m.type));
  auto const address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(m.data) % 128);
  return GemmBulkClocks::line(
      static_cast<int>(std::gcd(std::gcd(address, lines.rows > 1 ? lines.row_stride * size : 0), 128)));
}

/// Whether C consists of packs of 16 bytes of the factors' 16-bit type, which nothing is added to.
inline bool gemm_bulk_packs(GemmProblem const& p, bool own_epilogue) {
  return !own_epilogue && p.beta == 0 && size_of(p.a.type) == 2 && p.c.type == p.a.type && bulk_copyable(p.c);
}

/// What the copies of a product's factors have to do with: clocks of a line of either, and the bytes of both. And
/// whether sums of teams that share a tile are stored by packs.
struct GemmBulkTraffic {
  double left, right, bytes;
  bool cached;  // both factors stay in the cache
  bool packs;
  GemmBulkTraffic(GemmProblem const& p, bool by_packs)
      : left(bulk_line_clocks(p.a)),
        right(bulk_line_clocks(p.b)),
        bytes(static_cast<double>(p.batch() * (p.m() + p.n())) * static_cast<double>(p.k()) *
              static_cast<double>(size_of(p.a.type))),
        cached(bytes <= GemmBulkClocks::cache_bytes),
        packs(by_packs) {}
};

/// Lines of 128 bytes that K has.
inline std::int64_t gemm_bulk_lines(GemmProblem const& p) {
  std::int64_t const line = 128 / static_cast<int>(size_of(p.a.type));
  return (p.k() + line - 1) / line;
}

/// What a team's copies of a line of K take.
inline double gemm_bulk_copies(GemmBulkTraffic const& traffic, GemmBulkTile const& tile, Cluster const& cluster,
                               double busy) {
  return GemmBulkClocks::crowding(busy) * GemmBulkClocks::shared(cluster) *
         (tile.rows * traffic.left / cluster.cols + tile.columns * traffic.right / cluster.rows);
}

/// Whether pairs of small tiles go along the many of a C that has few the other way.
inline bool gemm_bulk_pairs_few(GemmProblem const& p, GemmBulkTile const& tile, Cluster const& cluster) {
  std::int64_t const others =
      cluster.cols == 2 ? gemm_tile_count(p.m(), tile.rows, 1) : gemm_tile_count(p.n(), tile.columns, 1);
  return tile.rows == 64 && cluster.teams() == 2 && others <= GemmBulkClocks::few_tiles;
}

/// What a configuration takes, by the clocks in configs.hpp.
inline double gemm_bulk_clocks(GemmProblem const& p, GemmBulkTraffic const& traffic, GemmBulkTile const& tile,
                               bool promoted, int slices, int splits, Cluster const& cluster, int concurrency) {
  double const step = (promoted ? tile.promoted_step : tile.step) *
                      GemmBulkClocks::together(tile, cluster, promoted, p.block_scaled) *
                      GemmBulkClocks::products(tile, cluster, p.a.type == Scalar::fp32);
  std::int64_t const steps = gemm_bulk_lines(p);
  double const tiles = static_cast<double>(p.batch() * gemm_tile_count(p.m(), tile.rows, cluster.rows)) *
                       gemm_tile_count(p.n(), tile.columns, cluster.cols) * splits;
  double const waves =
      std::ceil(tiles * slices / std::fmax(1, concurrency * GemmBulkClocks::usable(slices * cluster.teams())));
  double const filled = tiles * slices / std::fmax(1, concurrency), busy = std::fmin(1, filled);
  bool const fills = gemm_bulk_crowded(tile.columns, tile.ping_pong(), promoted) &&
                     (p.m() % (std::int64_t{cluster.rows} * tile.rows) != 0 ||
                      p.n() % (std::int64_t{cluster.cols} * tile.columns) != 0);
  double const copies = gemm_bulk_copies(traffic, tile, cluster, busy) * GemmBulkClocks::sliced_copies(slices, busy) *
                        (fills ? GemmBulkClocks::filling : 1),
               a_step = std::fmax(step * GemmBulkClocks::sliced_steps(slices), copies) *
                        (gemm_bulk_pairs_few(p, tile, cluster) ? GemmBulkClocks::few : 1);
  double const streamed = traffic.cached ? 0 : GemmBulkClocks::streamed(traffic.bytes, filled);
  double const sum =
      std::ceil(static_cast<double>(steps) / (slices * splits)) * a_step * GemmBulkClocks::single(tile, waves);
  bool const adds = p.beta != 0 && splits == 1;
  double const added = splits > 1 ? tile.kind.parts + gemm_split_clocks(p, splits) : 0;
  double const stored = GemmBulkClocks::store(tile) + (adds ? GemmBulkClocks::add(tile) : 0),
               begun = GemmBulkClocks::start - GemmBulkClocks::early(tile, busy);
  double const meeting = GemmBulkClocks::meeting(cluster);
  double clocks = 0;
  if (tile.ping_pong()) {  // while one stores the other multiplies, if that takes as long
    double const a_round = std::fmax(sum, (sum + stored) / 2) + GemmBulkClocks::turn(tile, adds) + meeting;
    clocks = added + begun + stored + GemmBulkClocks::longer(tile, waves * a_round, streamed);
  } else {
    double const a_tile = stored + GemmBulkClocks::combine(tile, slices, traffic.packs);
    clocks = added + begun + meeting + waves * a_tile + GemmBulkClocks::longer(tile, waves * sum, streamed);
  }
  return clocks * (clocks < GemmBulkClocks::long_product ? 1 : GemmBulkClocks::sustained(tile, cluster));
}

/// f(splits) with more than one: as many as the caller asks for, or those that fill the machine once, twice or three
/// times and have sums that fit into the workspace beside what is used of it.
template <class F>
void for_gemm_splits(GemmProblem const& p, GemmBulkTile const& tile, GemmOptions const& options, std::int64_t steps,
                     int concurrency, std::size_t used, F const& f) {
  if (options.splits > 1) return f(options.splits);
  if (options.splits == 1 || options.workspace_bytes == 0 || p.block_scaled) return;
  std::int64_t const tiles = gemm_tiles(p, tile.rows, tile.columns);
  if (tiles == 0) return;
  std::int64_t last = 1;
  for (int rounds = 1; rounds <= 3; ++rounds) {
    std::int64_t const splits = std::min<std::int64_t>(std::int64_t(rounds) * concurrency / tiles, steps);
    if (splits <= last) continue;
    last = splits;
    std::size_t const bytes = used + gemm_split_bytes(p, static_cast<int>(splits));
    if (bytes <= options.workspace_bytes) f(static_cast<int>(splits));
  }
}

/// Whether such clusters are to be tried: not where one of the teams would have nothing to do in every one of them, or
/// rows that a matrix does not have would be copied as well, and large ones not on a part of a device.
inline bool suits_cluster(GemmProblem const& p, GemmBulkTile const& tile, Cluster const& cluster, int concurrency) {
  return (cluster.teams() <= 2 || concurrency >= gemm_cluster_concurrency) &&
         (cluster.rows == 1 || (p.m() > tile.rows * (cluster.rows - 1) && p.n() >= tile.columns)) &&
         (cluster.cols == 1 || (p.n() > tile.columns * (cluster.cols - 1) && p.m() >= tile.rows));
}

/// Whether an option, 0 where the caller leaves it open, allows a number.
constexpr bool option_allows(int asked, int offered) { return asked == 0 || asked == offered; }

/// f(cluster, slices, splits) for the candidates of a tile that the caller allows.
template <class F>
void for_gemm_bulk_teams(GemmProblem const& p, GemmBulkTile const& tile, GemmOptions const& options, int concurrency,
                         std::size_t used, F const& f) {
  std::int64_t const steps = gemm_bulk_lines(p);
  bool const asks_cluster = options.cluster_m != 0 || options.cluster_n != 0;
  for (Cluster const& cluster : gemm_clusters) {
    if (!option_allows(options.cluster_m, cluster.rows) || !option_allows(options.cluster_n, cluster.cols)) continue;
    if (!divides_tile(cluster, tile)) continue;
    if (!asks_cluster && !suits_cluster(p, tile, cluster, concurrency)) continue;
    auto const consider = [&](int slices, int splits) {
      if (option_allows(options.slices, slices) && option_allows(options.splits, splits)) f(cluster, slices, splits);
    };
    consider(1, 1);
    if (cluster.teams() == 1) {  // teams that share a tile have no other: unless asked for, all must run at once
      auto const tiles = static_cast<double>(gemm_tiles(p, tile.rows, tile.columns));
      auto const suits = [&](int slices) {
        return (slices <= 2 || concurrency >= gemm_cluster_concurrency) &&
               tiles * slices <= concurrency * GemmBulkClocks::usable(slices);
      };
      for (int slices = 2; slices <= std::min<std::int64_t>(tile.max_slices, steps); ++slices)
        if (options.slices > 1 || suits(slices)) consider(slices, 1);
    }
    // Not in clusters, unless asked for: 512x512x16384 of bf16 20.5 -> 22.3 us.
    if (!tile.turned() && (cluster.teams() == 1 || options.cluster_m * options.cluster_n > 1))
      for_gemm_splits(p, tile, options, steps, concurrency, used, [&](int splits) { consider(1, splits); });
  }
}

/// f(problem, traffic, tile, promoted, cluster, slices, splits) for the candidates that the caller allows. The problem
/// is the transposed one for tiles of that.
template <class F>
void for_gemm_bulk_candidates(GemmProblem const& problem, GemmOptions const& options, int concurrency,
                              bool own_epilogue, F const& f) {
  std::size_t const used = options.workspace_bytes > 0 ? bulk_workspace(problem) : 0;
  bool const across = bulk_access(problem.a).across || bulk_access(problem.b).across;
  BulkSum const sum = bulk_sum(problem.a.type, problem.b.type);
  bool const packs = gemm_bulk_packs(problem, own_epilogue);
  // What of tiles of such columns does not leave through the copy engine is stored element by element.
  bool const by_copies = bulk_copyable(problem.c) &&
                         (problem.beta == 0 ? size_of(problem.c.type) > 1
                                            : problem.c.type == problem.a.type || problem.c.type == Scalar::fp32);
  // Rows and columns that are asked for are those of C, unless it is asked to be turned too.
  bool const asks = options.tile_m != 0 || options.tile_n != 0 || options.cluster_m != 0 || options.cluster_n != 0;
  bool const turns = packs && (!asks || options.schedule == Schedule::turned);
  GemmProblem const transposed = problem.transposed();
  GemmBulkTraffic const traffic(problem, packs && problem.n() % 8 == 0), turned_traffic(transposed, packs);
  for (GemmBulkTile const& tile : gemm_bulk_tiles) {
    if (!option_allows(options.tile_m, tile.rows) || !option_allows(options.tile_n, tile.columns)) continue;
    if (options.schedule != Schedule::automatic && options.schedule != tile.schedule) continue;
    bool const promoted = gemm_bulk_promotes(sum, tile, options.fast_accumulation);
    if (!has_gemm_bulk_tile(tile, size_of(problem.a.type), across, promoted, own_epilogue)) continue;
    if (problem.block_scaled && !has_block_scaled_tile(tile.columns)) continue;
    if (tile.turned() ? !turns : tile.columns % 32 != 0 && !by_copies && options.tile_n == 0) continue;
    GemmProblem const& p = tile.turned() ? transposed : problem;
    if (tile.rows > 128 && p.m() <= 128 && options.tile_m == 0) continue;  // a third of it or more would be idle
    for_gemm_bulk_teams(p, tile, options, concurrency, used, [&](Cluster const& cluster, int slices, int splits) {
      f(p, tile.turned() ? turned_traffic : traffic, tile, promoted, cluster, slices, splits);
    });
  }
}

/// The fastest of the candidates; without rows where there is none.
inline GemmBulkChoice choose_gemm_bulk(GemmProblem const& p, GemmOptions const& options, int concurrency,
                                       bool own_epilogue) {
  GemmBulkChoice best;
  for_gemm_bulk_candidates(p, options, concurrency, own_epilogue,
                           [&](GemmProblem const& seen, GemmBulkTraffic const& traffic, GemmBulkTile const& tile,
                               bool promoted, Cluster const& cluster, int slices, int splits) {
                             double const clocks =
                                 gemm_bulk_clocks(seen, traffic, tile, promoted, slices, splits, cluster, concurrency);
                             if (clocks < best.clocks)
                               best = {tile.rows, tile.columns, slices, splits, cluster, tile.schedule, clocks};
                           });
  return best;
}

/// All that the choice depends on, and nothing else.
struct GemmBulkQuestion {
  GemmProblem problem;
  GemmOptions options;
  int concurrency = 0;
  bool own_epilogue = false;

  GemmBulkQuestion() = default;
  GemmBulkQuestion(GemmProblem const& p, GemmOptions const& o, int teams, bool own)
      : problem(p), options(o), concurrency(teams), own_epilogue(own) {
    for (MatrixStack* m : {&problem.a, &problem.b, &problem.c}) {
      auto const place = reinterpret_cast<std::uintptr_t>(m->data) % 128;
      m->data = reinterpret_cast<void const*>(place);
    }
    problem.alpha = 1;
    problem.beta = p.beta != 0 ? 1 : 0;
    problem.workspace = options.workspace = nullptr;
  }
  std::size_t hash() const {
    auto const mixed = [](std::uint64_t x, std::int64_t y) {
      return (x ^ static_cast<std::uint64_t>(y)) * 0x9E3779B97F4A7C15u;
    };
    return mixed(mixed(mixed(mixed(0, problem.m()), problem.n()), problem.k()), problem.batch()) >> 32;
  }
  bool operator==(GemmBulkQuestion const&) const = default;
};

/// choose_gemm_bulk(), whose last answers a thread remembers: programs ask for the same products again and again, and
/// to think of one takes the host longer than a small product takes the device.
inline GemmBulkChoice remembered_gemm_bulk(GemmProblem const& p, GemmOptions const& options, int concurrency,
                                           bool own_epilogue) {
  struct Remembered {
    GemmBulkQuestion question;
    GemmBulkChoice choice;
  };
  thread_local Remembered remembered[32];
  GemmBulkQuestion const question(p, options, concurrency, own_epilogue);
  Remembered& last = remembered[question.hash() % std::size(remembered)];
  if (last.question != question) last = {question, choose_gemm_bulk(p, options, concurrency, own_epilogue)};
  return last.choice;
}

}  // namespace tessera::detail

#endif
