// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BULK_HPP
#define TESSERA_GEMM_BULK_HPP

#include <algorithm>
#include <climits>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>

#include <tessera/error.hpp>
#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm/repack.hpp>
#include <tessera/gemm/splits.hpp>
#include <tessera/gemm_plan.hpp>
#include <tessera/machine.hpp>

// The matrix product on the bulk pipeline: what it can take, and which configuration takes it.
namespace tessera::detail {

/// Whether the bulk pipeline multiplies these element types with each other. fp32 is rounded to tf32; of two 8-bit
/// floating-point types one is e4m3.
constexpr bool bulk_multiplies(Scalar a, Scalar b) {
  if (size_of(a) == 1 && size_of(b) == 1 && a != Scalar::int8 && b != Scalar::int8)
    return a == Scalar::e4m3 || b == Scalar::e4m3;
  return a == b && (a == Scalar::bf16 || a == Scalar::fp16 || a == Scalar::fp32 || a == Scalar::int8);
}

/// How the tensor cores' own sums serve a product of these types: fp32 and int32 as they are; of 8-bit floats, which
/// they cut at some 14 bits, only those of 128 products, which are then added in fp32, unless the caller permits more
/// where the library has it.
enum class BulkSum : std::uint8_t { full, promoted, either };
constexpr BulkSum bulk_sum(Scalar a, Scalar b) {
  if (size_of(a) != 1 || a == Scalar::int8) return BulkSum::full;
  return a == Scalar::e4m3 && b == Scalar::e4m3 ? BulkSum::either : BulkSum::promoted;
}

/// Of `either` the largest tile and ping-pong have kernels without promotion.
constexpr bool gemm_bulk_promotes(BulkSum sum, GemmBulkTile const& tile, bool fast) {
  return sum == BulkSum::promoted || (sum == BulkSum::either && !(fast && (tile.columns == 256 || tile.ping_pong)));
}

/// How the copy engine gets at an (M, K) or (N, K) factor.
struct BulkAccess {
  bool direct;  // as it lies: in multiples of 16 bytes, contiguous along K or, 16-bit types only, across it
  bool across;  // contiguous along the other index, as it lies or to be repacked
};
inline BulkAccess bulk_access(MatrixStack const& m) {
  if (bulk_copyable(m)) return {true, false};
  if (size_of(m.type) != 2) return {false, false};
  if (bulk_copyable(m.transposed())) return {true, true};
  return {false, m.row_stride == 1 && m.col_stride != 1};
}

/// Bytes of workspace that repacking takes where a factor cannot be read as it lies.
inline std::size_t bulk_workspace(MatrixStack const& m) {
  BulkAccess const access = bulk_access(m);
  return access.direct ? 0 : (repacked_bytes(m, access.across) + 255) / 256 * 256;
}
inline std::size_t bulk_workspace(GemmProblem const& p) { return bulk_workspace(p.a) + bulk_workspace(p.b); }

/// Copies what cannot be read where it lies into the workspace.
template <class Exec>
void repack_factors(Exec const& exec, GemmProblem& p) {
  char* workspace = static_cast<char*>(p.workspace);
  for (MatrixStack* m : {&p.a, &p.b}) {
    BulkAccess const access = bulk_access(*m);
    if (access.direct) continue;
    MatrixStack const to = repacked(*m, access.across, workspace);
    repack(exec, *m, access.across, to);
    workspace += bulk_workspace(*m);
    *m = to;
  }
}

/// The problem as the bulk pipeline takes it: where nothing depends on rows and columns, stores go along a contiguous
/// index.
template <class Epilogue>
GemmProblem bulk_problem(GemmProblem const& p) {
  bool const turned = !own_epilogue<Epilogue> && p.c.col_stride != 1 && p.c.row_stride == 1;
  return turned ? p.transposed() : p;
}

/// Beside scales of blocks there are no registers for the largest tile, and of 192 columns none for two steps' scales.
constexpr bool has_block_scaled_tile(int columns) { return columns < 192; }

/// Whether the teams of a cluster can copy shares of such tiles: whole groups of eight lines, by which the swizzle
/// goes.
constexpr bool divides_tile(Cluster const& cluster, GemmBulkTile const& tile) {
  return tile.rows % (8 * cluster.cols) == 0 && tile.columns % (8 * cluster.rows) == 0;
}

struct GemmBulkChoice {
  int rows = 0, columns = 0, slices = 1, splits = 1;
  Cluster cluster;
  bool ping_pong = false;
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
  bool const everywhere = tile.rows < 192 && (tile.columns == 192 ? tile.ping_pong || promoted
                                                                  : tile.columns % 128 == 0 && !tile.ping_pong);
  if (!everywhere && (element_bytes != 2 || across)) return false;
  if (!own_epilogue) return true;
  if (tile.rows == 64) return tile.columns == 128 && !tile.ping_pong;
  return promoted ? tile.columns == 256 : tile.ping_pong && tile.columns % 64 == 0;
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

/// What the copies of a product's factors have to do with: clocks of a line of either, and the bytes of both.
struct GemmBulkTraffic {
  double left, right, bytes;
  bool cached;  // both factors stay in the cache
  explicit GemmBulkTraffic(GemmProblem const& p)
      : left(bulk_line_clocks(p.a)),
        right(bulk_line_clocks(p.b)),
        bytes(static_cast<double>(p.batch() * (p.m() + p.n())) * static_cast<double>(p.k()) *
              static_cast<double>(size_of(p.a.type))),
        cached(bytes <= GemmBulkClocks::cache_bytes) {}
};

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
  std::int64_t const line = 128 / static_cast<int>(size_of(p.a.type)), steps = (p.k() + line - 1) / line;
  double const tiles = static_cast<double>(p.batch() * gemm_tile_count(p.m(), tile.rows, cluster.rows)) *
                       gemm_tile_count(p.n(), tile.columns, cluster.cols) * splits;
  double const waves =
      std::ceil(tiles * slices / std::fmax(1, concurrency * GemmBulkClocks::usable(slices * cluster.teams())));
  double const filled = tiles * slices / std::fmax(1, concurrency), busy = std::fmin(1, filled);
  bool const fills = gemm_bulk_crowded(tile.columns, tile.ping_pong, promoted) &&
                     (p.m() % (std::int64_t{cluster.rows} * tile.rows) != 0 ||
                      p.n() % (std::int64_t{cluster.cols} * tile.columns) != 0);
  double const copies = gemm_bulk_copies(traffic, tile, cluster, busy) * GemmBulkClocks::sliced_copies(slices, busy) *
                        (fills ? GemmBulkClocks::filling : 1),
               a_step = std::fmax(step * GemmBulkClocks::sliced_steps(slices, busy), copies) *
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
  if (tile.ping_pong) {  // while one stores the other multiplies, if that takes as long
    double const a_round = std::fmax(sum, (sum + stored) / 2) + GemmBulkClocks::turn(tile, adds) + meeting;
    clocks = added + begun + stored + GemmBulkClocks::longer(tile, waves * a_round, streamed);
  } else {
    double const a_tile = stored + GemmBulkClocks::combine(tile, slices);
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

/// f(traffic, tile, promoted, cluster, slices, splits) for the candidates that the caller allows, as long as it returns
/// true.
template <class F>
void for_gemm_bulk_candidates(GemmProblem const& p, GemmOptions const& options, int concurrency, bool own_epilogue,
                              F const& f) {
  std::size_t const used = options.workspace_bytes > 0 ? bulk_workspace(p) : 0;
  bool const across = bulk_access(p.a).across || bulk_access(p.b).across;
  BulkSum const sum = bulk_sum(p.a.type, p.b.type);
  std::int64_t const line = 128 / static_cast<int>(size_of(p.a.type)), steps = (p.k() + line - 1) / line;
  auto const allows = [](int asked, int offered) { return asked == 0 || asked == offered; };
  bool const asks_cluster = options.cluster_m != 0 || options.cluster_n != 0;
  // What of tiles of such columns does not leave through the copy engine is stored element by element.
  bool const by_copies =
      bulk_copyable(p.c) && (p.beta == 0 ? size_of(p.c.type) > 1 : p.c.type == p.a.type || p.c.type == Scalar::fp32);
  GemmBulkTraffic const traffic(p);
  bool more = true;
  for (GemmBulkTile const& tile : gemm_bulk_tiles) {
    if (!allows(options.tile_m, tile.rows) || !allows(options.tile_n, tile.columns)) continue;
    if (options.schedule != Schedule::automatic && (options.schedule == Schedule::ping_pong) != tile.ping_pong)
      continue;
    bool const promoted = gemm_bulk_promotes(sum, tile, options.fast_accumulation);
    if (!has_gemm_bulk_tile(tile, size_of(p.a.type), across, promoted, own_epilogue)) continue;
    if (p.block_scaled && !has_block_scaled_tile(tile.columns)) continue;
    if (tile.columns % 32 != 0 && !by_copies && options.tile_n == 0) continue;
    if (tile.rows > 128 && p.m() <= 128 && options.tile_m == 0) continue;  // a third of it or more would be idle
    for (Cluster const& cluster : gemm_clusters) {
      if (!allows(options.cluster_m, cluster.rows) || !allows(options.cluster_n, cluster.cols)) continue;
      if (!divides_tile(cluster, tile)) continue;
      if (!asks_cluster && !suits_cluster(p, tile, cluster, concurrency)) continue;
      auto const consider = [&](int slices, int splits) {
        if (more && allows(options.slices, slices) && allows(options.splits, splits))
          more = f(traffic, tile, promoted, cluster, slices, splits);
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
      if (cluster.teams() == 1 || options.cluster_m * options.cluster_n > 1)
        for_gemm_splits(p, tile, options, steps, concurrency, used, [&](int splits) { consider(1, splits); });
      if (!more) return;
    }
  }
}

/// The fastest of the candidates.
inline GemmBulkChoice choose_gemm_bulk(GemmProblem const& p, GemmOptions const& options, int concurrency,
                                       bool own_epilogue) {
  GemmBulkChoice best;
  for_gemm_bulk_candidates(p, options, concurrency, own_epilogue,
                           [&](GemmBulkTraffic const& traffic, GemmBulkTile const& tile, bool promoted,
                               Cluster const& cluster, int slices, int splits) {
                             double const clocks =
                                 gemm_bulk_clocks(p, traffic, tile, promoted, slices, splits, cluster, concurrency);
                             if (clocks < best.clocks)
                               best = {tile.rows, tile.columns, slices, splits, cluster, tile.ping_pong, clocks};
                             return true;
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

/// The same, of which a thread remembers some: programs ask for the same products again and again, and to think of one
/// takes the host longer than a small product takes the device.
inline GemmBulkChoice remembered_gemm_bulk(GemmProblem const& p, GemmOptions const& options, int concurrency,
                                           bool own_epilogue) {
  struct Remembered {
    GemmBulkQuestion question;
    GemmBulkChoice choice;
  };
  thread_local Remembered remembered[32];
  GemmBulkQuestion const question(p, options, concurrency, own_epilogue);
  Remembered& last = remembered[question.hash() % std::size(remembered)];
  if (!(last.question == question)) last = {question, choose_gemm_bulk(p, options, concurrency, own_epilogue)};
  return last.choice;
}

/// Whether there is one.
inline bool has_gemm_bulk_candidate(GemmProblem const& p, GemmOptions const& options, bool own_epilogue) {
  bool found = false;
  for_gemm_bulk_candidates(p, options, 1, own_epilogue, [&](auto&&...) {
    found = true;
    return false;
  });
  return found;
}

/// What keeps a product from the bulk pipeline, where there is one; nullptr: nothing.
inline char const* bulk_gemm_obstacle(GemmProblem const& p, GemmOptions const& options, bool own_epilogue) {
  if (!bulk_multiplies(p.a.type, p.b.type))
    return "the hopper pipeline multiplies fp16, bf16 and int8 with their own and e4m3 with 8-bit floating-point types";
  if (p.a.type == Scalar::fp32 && !options.allow_tf32)
    return "the hopper pipeline would round fp32 operands to tf32, which allow_tf32 does not permit";
  if (p.k() == 0) return "there is nothing to multiply";
  if (std::max({p.m(), p.n(), p.k(), p.batch()}) > INT_MAX) return "the hopper pipeline counts extents in 31 bits";
  if (options.workspace_bytes < bulk_workspace(p))
    return "the hopper pipeline reads factors in multiples of 16 bytes, fp32 and 8-bit ones along K: others are "
           "repacked, for which options.workspace is missing or too small (gemm_workspace_size)";
  if (!has_gemm_bulk_candidate(p, options, own_epilogue))
    return "the hopper pipeline has no such tile or so many slices of K";
  return nullptr;
}

/// f(atoms) with the atoms of a configuration that has_gemm_bulk_tile().
template <class Exec, class A, class B, bool LeftAcross, bool RightAcross, bool OwnEpilogue, class F>
void visit_gemm_bulk_tile(GemmPlan const& plan, F const& f) {
  constexpr BulkSum sum = bulk_sum(scalar_of<A>, scalar_of<B>);
  auto const visit = [&](auto index, auto fast) {
    constexpr GemmBulkTile tile = gemm_bulk_tiles[index];
    constexpr bool promoted = gemm_bulk_promotes(sum, tile, fast);
    if constexpr (has_gemm_bulk_tile(tile, sizeof(A), LeftAcross || RightAcross, promoted, OwnEpilogue)) {
      auto const run = [&](auto joins) {
        using Sizes = GemmBulk<tile.rows, tile.columns, static_cast<int>(sizeof(A)), LeftAcross, RightAcross, promoted,
                               tile.ping_pong, joins>;
        static_assert(holds_gemm_slices(Sizes::consumers, tile.max_slices, 4 * tile.rows * tile.columns,
                                        Sizes::depth * Sizes::lines * 128 * (tile.rows + tile.columns)));
        f(BulkAtoms<Exec, A, Sizes, B>{});
      };
      if (plan.tile_m != tile.rows || plan.tile_n != tile.columns || plan.ping_pong != tile.ping_pong) return;
      constexpr bool shared = tile.max_slices > 1;
      if constexpr (shared)
        if (OwnEpilogue || plan.slices > 1) return run(std::true_type{});
      if constexpr (!shared || !OwnEpilogue) run(std::false_type{});
    }
  };
  unroll<static_cast<int>(std::size(gemm_bulk_tiles))>([&](auto index) {
    if constexpr (sum == BulkSum::either)
      if (plan.fast_accumulation) return visit(index, std::true_type{});
    visit(index, std::false_type{});
  });
}

/// The warp-specialised pipeline. Apart, so that the library compiles it for the one architecture that has it.
template <class Exec, class A, class B, class Epilogue>
void run_gemm_bulk(Exec const& exec, GemmProblem const& problem, GemmPlan const& plan, Epilogue const& epilogue) {
  GemmProblem p = bulk_problem<Epilogue>(problem);
  repack_factors(exec, p);
  auto const run = [&](auto atoms) {
    using Atoms = decltype(atoms);
    run_tiles<Atoms>(
        "tessera::gemm", exec,
        GemmKernel<Atoms, Epilogue>(p, epilogue, plan.slices, {plan.cluster_m, plan.cluster_n}, {}, {}, plan.splits));
  };
  constexpr bool own = own_epilogue<Epilogue>;
  if constexpr (sizeof(A) == 2) {
    bool const left = bulk_access(p.a).across, right = bulk_access(p.b).across;
    if (left && right) return visit_gemm_bulk_tile<Exec, A, B, true, true, own>(plan, run);
    if (left) return visit_gemm_bulk_tile<Exec, A, B, true, false, own>(plan, run);
    if (right) return visit_gemm_bulk_tile<Exec, A, B, false, true, own>(plan, run);
  }
  visit_gemm_bulk_tile<Exec, A, B, false, false, own>(plan, run);
}

}  // namespace tessera::detail

#endif
