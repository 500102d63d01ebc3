// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_GROUPED_BULK_HPP
#define TESSERA_GEMM_GROUPED_BULK_HPP

#include <algorithm>
#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include <tessera/gemm/grouped.hpp>

// Products of different sizes on the bulk pipeline, which must know a matrix before it copies from it.
namespace tessera::detail {

/// C(M,N) = finish(A(M,K) B(N,K)ᵀ) for blocks of rows, whose operands are bound as a whole before the sizes are known:
/// a tile that hangs over the end of its block reads rows of the next, and does not store what it makes of them.
template <class Atoms, class Epilogue>
struct GemmBlocksKernel {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, BK = Atoms::BK;
  static constexpr bool counts_tiles_in_place = true;
  using Compute = typename Atoms::Compute;

  struct Tile {
    int group, before;                  // tiles of the groups before it
    std::int64_t first, end, row, col;  // of the block, and of the tile, in C
  };
  using Stage = GemmStage<Atoms>;
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Inputs = Streams<Stage>;
  using Held = Fragments<Accumulator>;

  typename Atoms::Source a, b;
  typename Atoms::Target c;
  GemmGroups groups;
  Finish<Compute, Epilogue> finish;
  int tile_cols, mainloop;
  TileOrderOfColumns order;

  GemmBlocksKernel(GemmGroups const& all, double alpha, double beta, Epilogue const& epilogue)
      : a(Atoms::template source<typename Atoms::template Left<BM, BK>>(all.a)),
        b(Atoms::template source<typename Atoms::template Right<BN, BK>>(all.b)),
        c(Atoms::template target<Accumulator>(all.c)),
        groups(all),
        finish(GemmProblem{all.a, all.b, all.c, alpha, beta}, epilogue),
        tile_cols(static_cast<int>((all.c.cols + BN - 1) / BN)),
        mainloop(static_cast<int>((all.a.cols + BK - 1) / BK)),
        order(tile_cols) {
    static_assert(Copies<Atoms, typename Atoms::template Left<BM, BK>> && Multiplies<Atoms, BM, BN, BK>);
  }

  KOKKOS_FUNCTION std::int64_t tiles() const {
    std::int64_t count = 0;
    for (int g = 0; g < groups.count; ++g) count += tile_rows(groups.rows(g));
    return count * tile_cols;
  }
  KOKKOS_FUNCTION Tile tile(int t) const {
    GemmGroups::Rows const rows = groups.rows(0);
    return tile_after({0, 0, rows.first, rows.end, 0, 0}, t);
  }
  /// The same, sought from a tile before it on.
  KOKKOS_FUNCTION Tile tile_after(Tile const& last, int t) const {
    int g = last.group, before = last.before;
    GemmGroups::Rows rows{last.first, last.end};
    for (int here = tile_rows(rows) * tile_cols; t - before >= here; here = tile_rows(rows) * tile_cols) {
      before += here;
      rows = groups.rows(++g);
    }
    TilePlace const at = order(t - before, tile_rows(rows));
    return {g, before, rows.first, rows.end, rows.first + std::int64_t(at.row) * BM, std::int64_t(at.col) * BN};
  }
  KOKKOS_FUNCTION int steps(Stage const*, Tile const&) const { return mainloop; }
  template <class Copy>
  KOKKOS_FUNCTION void announce(Copy const& copy) const {
    copy.announce(a);
    copy.announce(b);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k) const {
    copy(a, Plane{}, t.row, std::int64_t(k) * BK, stage.a);
    copy(b, Plane{0, t.group}, t.col, std::int64_t(k) * BK, stage.b);
  }
  template <class Math, class In>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, In& in) const {
    Accumulator acc(math);
    gemm_sum(math, mainloop, in, acc);
    finish.template in_block<BM>(math, acc, c, t.group, t.row, t.col, t.first, t.end);
  }

 private:
  KOKKOS_FUNCTION static int tile_rows(GemmGroups::Rows const& r) { return group_tile_count(r.end - r.first, BM); }
};

/// The same for products of a list, of the share that the copy engine reads: a kernel before has bound their factors.
template <class Atoms, class Epilogue>
struct GemmListKernel {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, BK = Atoms::BK;
  static constexpr bool counts_tiles_in_place = true;
  using Compute = typename Atoms::Compute;
  using Source = typename Atoms::Source;

  struct Tile {
    int group, before;         // tiles of the groups before it
    int tile_rows, tile_cols;  // of the group
    int steps;
    std::int64_t row, col;
  };
  using Stage = GemmStage<Atoms>;
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Inputs = Streams<Stage>;
  using Held = Fragments<Accumulator>;

  GemmGroups groups;
  Source const *a, *b;  // one a group
  Finish<Compute, Epilogue> finish;

  GemmListKernel(GemmGroups const& all, Source const* sources, double alpha, double beta, Epilogue const& epilogue)
      : groups(all),
        a(sources),
        b(sources + all.count),
        finish(GemmProblem{all.a, all.b, all.c, alpha, beta}, epilogue) {
    static_assert(Copies<Atoms, typename Atoms::template Left<BM, BK>> && Multiplies<Atoms, BM, BN, BK>);
  }

  KOKKOS_FUNCTION std::int64_t tiles() const {
    std::int64_t sum = 0;
    for (int g = 0; g < groups.count; ++g) sum += group_tiles(groups.extents(g), BM, BN);
    return sum;
  }
  KOKKOS_FUNCTION Tile tile(int t) const {
    GemmGroups::Extents const e = groups.extents(0);
    return tile_after({0, 0, group_tile_count(e.m, BM), group_tile_count(e.n, BN), 0, 0, 0}, t);
  }
  /// The same, sought from a tile before it on.
  KOKKOS_FUNCTION Tile tile_after(Tile const& last, int t) const {
    Tile tile = last;
    for (int here = tile.tile_rows * tile.tile_cols; t - tile.before >= here; here = tile.tile_rows * tile.tile_cols) {
      tile.before += here;
      GemmGroups::Extents const e = groups.extents(++tile.group);
      tile.tile_rows = group_tile_count(e.m, BM);
      tile.tile_cols = group_tile_count(e.n, BN);
    }
    TilePlace const at = TileOrderBy<int>(tile.tile_rows, tile.tile_cols)(t - tile.before);
    tile.steps = group_tile_count(groups.list[tile.group].k, BK);
    tile.row = std::int64_t(at.row) * BM;
    tile.col = std::int64_t(at.col) * BN;
    return tile;
  }
  KOKKOS_FUNCTION int steps(Stage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k) const {
    if (k == 0) {
      copy.acquire(a[t.group]);
      copy.acquire(b[t.group]);
    }
    copy(a[t.group], Plane{}, t.row, std::int64_t(k) * BK, stage.a);
    copy(b[t.group], Plane{}, t.col, std::int64_t(k) * BK, stage.b);
  }
  template <class Math, class In>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, In& in) const {
    Accumulator acc(math);
    gemm_sum(math, t.steps, in, acc);
    MatrixStack c = groups.of(t.group).c;
    c.inner_stride = 0;
    Plane const plane{0, t.group};  // as the epilogue sees it
    Finish<Compute, Epilogue>(finish, c).template operator()<BM, BN>(math, acc, Atoms::late_target(c), plane, t.row,
                                                                     t.col);
  }
};

/// The types that the library has kernels of the bulk pipeline for.
template <class A, class B>
inline constexpr bool bulk_multiplies_blocks = std::is_same_v<A, B> &&
                                               (std::is_same_v<A, bf16_t> || std::is_same_v<A, fp16_t>);

/// Memory for the sources of a list.
template <class Exec>
constexpr std::size_t list_source_bytes(int count) {
  if constexpr (has_bulk_pipeline<Exec>)
    return 2 * static_cast<std::size_t>(count) * BulkPipeline<Exec>::source_bytes;
  else
    return 0;
}
/// From the first multiple of 128 bytes of the workspace on; nullptr: there is no room.
inline constexpr std::size_t list_alignment = 128;
template <class Exec>
void* list_sources(int count, GemmOptions const& options) {
  void* at = options.workspace;
  std::size_t room = options.workspace_bytes;
  return std::align(list_alignment, list_source_bytes<Exec>(count), at, room);
}

/// What keeps the types, the machine or the whole list from the bulk pipeline; nullptr: nothing.
template <class Exec, class A, class B, class Epilogue>
char const* bulk_group_types_obstacle(Exec const& exec, GemmGroups const& groups) {
  if (has_bulk_pipeline<Exec> && !bulk_multiplies_blocks<A, B>)
    return "the hopper pipeline multiplies groups of fp16 and of bf16";
  if (char const* const obstacle = bulk_machine_obstacle<Exec, Epilogue>(exec)) return obstacle;
  if (!groups.multiplies) return "there is nothing to multiply";
  if (groups.list != nullptr && groups.transpose_a) return "the hopper pipeline reads A of a list along K";
  return nullptr;
}

/// The same, of the operands too.
template <class Exec, class A, class B, class Epilogue>
char const* bulk_groups_obstacle(Exec const& exec, GemmGroups const& groups, GemmOptions const& options) {
  if (char const* const obstacle = bulk_group_types_obstacle<Exec, A, B, Epilogue>(exec, groups)) return obstacle;
  if (groups.list != nullptr)
    return list_sources<Exec>(groups.count, options) != nullptr
               ? nullptr
               : "the hopper pipeline wants gemm_grouped_workspace_size() bytes of workspace for a list";
  if (groups.a.cols == 0) return "there is nothing to multiply";
  BulkAccess const left = bulk_access(groups.a), right = bulk_access(groups.b);
  if (!left.direct || left.across || !right.direct)
    return "the hopper pipeline reads A along K and B along K or N, at multiples of 16 bytes";
  if (std::max({groups.c.rows, groups.c.cols, groups.a.cols}) > INT_MAX)
    return "the hopper pipeline counts extents in 31 bits";
  return nullptr;
}

template <class Exec, class A, class B, class Epilogue>
bool runs_groups_bulk(Exec const& exec, GemmGroups const& groups, GemmOptions const& options) {
  if (options.algorithm != Algorithm::automatic && options.algorithm != Algorithm::hopper) return false;
  char const* const obstacle = bulk_groups_obstacle<Exec, A, B, Epilogue>(exec, groups, options);
  if (obstacle != nullptr && options.algorithm == Algorithm::hopper && !options.allow_fallback)
    throw Error(ErrorCode::unsupported, std::string("tessera::gemm_grouped: algorithm hopper cannot run: ") + obstacle);
  return obstacle == nullptr;
}

inline void check_grouped_algorithm(GemmOptions const& options) {
  bool const known = options.algorithm == Algorithm::automatic || options.algorithm == Algorithm::coarsened ||
                     options.algorithm == Algorithm::hopper;
  if (!known && !options.allow_fallback)
    throw Error(ErrorCode::unsupported,
                std::string("tessera::gemm_grouped: there is no ") + name(options.algorithm) + " algorithm for groups");
}

inline void check_grouped_workspace(GemmOptions const& options) {
  if (options.workspace == nullptr && options.workspace_bytes != 0)
    throw Error(ErrorCode::workspace, "tessera::gemm_grouped: a workspace of " +
                                          std::to_string(options.workspace_bytes) + " bytes without an address");
}

/// On the bulk pipeline: large tiles unless most blocks would leave half of one empty. Not in ping-pong, whose stages
/// are smaller: the matrices B of all blocks come from memory, and what is on its way must cover that. Apart, as below.
template <class Exec, class T, class Epilogue>
void run_gemm_blocks(Exec const& exec, GemmGroups const& groups, double alpha, double beta, Epilogue const& epilogue) {
  auto const run = [&]<int Rows, int Columns, bool Across>(std::integer_sequence<int, Rows, Columns>,
                                                           std::bool_constant<Across>) {
    using Atoms = BulkAtoms<Exec, T, GemmBulk<Rows, Columns, sizeof(T), false, Across>>;
    run_tiles<Atoms>("tessera::gemm_grouped", exec, GemmBlocksKernel<Atoms, Epilogue>(groups, alpha, beta, epilogue));
  };
  auto const choose = [&](auto across) {
    if (groups.c.rows > 64 * std::int64_t(groups.count))
      run(std::integer_sequence<int, 128, 256>{}, across);
    else
      run(std::integer_sequence<int, 64, 128>{}, across);
  };
  if (bulk_access(groups.b).across)
    choose(std::true_type{});
  else
    choose(std::false_type{});
}

/// A list: on the bulk pipeline what the copy engine reads, in tiles of which a small product does not waste much.
template <class Exec, class T, class Epilogue>
void run_gemm_list(Exec const& exec, GemmGroups groups, double alpha, double beta, void* workspace,
                   Epilogue const& epilogue) {
  groups.share = GemmShare::bulk;
  auto const run = [&]<bool Across>(std::bool_constant<Across>) {
    using Atoms = BulkAtoms<Exec, T, GemmBulk<gemm_list_rows, gemm_list_columns, sizeof(T), false, Across>>;
    using Left = typename Atoms::template Left<Atoms::BM, Atoms::BK>;
    using Right = typename Atoms::template Right<Atoms::BN, Atoms::BK>;
    auto* const sources = static_cast<typename Atoms::Source*>(workspace);
    BulkPipeline<Exec>::template bind<Left, Right>("tessera::gemm_grouped", exec, groups.a.type, groups.count, groups,
                                                   sources);
    run_tiles<Atoms>("tessera::gemm_grouped", exec,
                     GemmListKernel<Atoms, Epilogue>(groups, sources, alpha, beta, epilogue));
  };
  if (groups.transpose_b)
    run(std::false_type{});
  else
    run(std::true_type{});
}

/// The products, where alpha = 0 is told by `groups`.
template <class Exec, class A, class B, class Compute, class Epilogue>
void run_planned_groups(Exec const& exec, GemmGroups groups, double alpha, double beta, GemmOptions const& options,
                        Epilogue const& epilogue) {
  bool const bulk = runs_groups_bulk<Exec, A, B, Epilogue>(exec, groups, options);
  if (!groups.multiplies) alpha = 1;
  if constexpr (has_bulk_pipeline<Exec> && bulk_multiplies_blocks<A, B> &&
                (!own_epilogue<Epilogue> || compiles_bulk_kernels))
    if (bulk) {
      if (groups.list == nullptr) return run_gemm_blocks<Exec, A>(exec, groups, alpha, beta, epilogue);
      run_gemm_list<Exec, A>(exec, groups, alpha, beta, list_sources<Exec>(groups.count, options), epilogue);
      groups.share = GemmShare::rest;
    }
  run_gemm_groups<Exec, Compute>(exec, groups, alpha, beta, epilogue);
}

}  // namespace tessera::detail

#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

#define TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, T)                                                                     \
  EXTERN template void run_gemm_blocks<EXEC, T, epilogue::Identity>(EXEC const&, GemmGroups const&, double, double, \
                                                                    epilogue::Identity const&);
#define TESSERA_GEMM_BLOCKS(EXTERN, EXEC)      \
  TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, bf16_t) \
  TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BLOCKS, extern)

#define TESSERA_GEMM_LIST_OF(EXTERN, EXEC, T)                                                                     \
  EXTERN template void run_gemm_list<EXEC, T, epilogue::Identity>(EXEC const&, GemmGroups, double, double, void*, \
                                                                  epilogue::Identity const&);
#define TESSERA_GEMM_LIST(EXTERN, EXEC)      \
  TESSERA_GEMM_LIST_OF(EXTERN, EXEC, bf16_t) \
  TESSERA_GEMM_LIST_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_LIST, extern)

}  // namespace tessera::detail

#endif
