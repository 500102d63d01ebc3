// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_GROUPED_DETAIL_HPP
#define TESSERA_GEMM_GROUPED_DETAIL_HPP

#include <algorithm>
#include <climits>
#include <string>

#include <tessera/gemm/run.hpp>

// Many matrix products of different sizes in one launch. The sizes lie in the memory of the execution space and are
// read by the kernel, so that what computes them need not be waited for.
namespace tessera::detail {

/// A GemmGroup without its element types.
struct AnyGemmGroup {
  std::int64_t m, n, k;
  void const* a;
  std::int64_t lda;
  void const* b;
  std::int64_t ldb;
  void* c;
  std::int64_t ldc;
};

/// The operands of one product in the form kernels know: A (M, K), B (N, K), C (M, N).
struct GemmOperands {
  MatrixStack a, b, c;
};

/// The products: a list of them, or blocks of rows of one A and one C, a matrix of a stack B for each.
struct GemmGroups {
  int count = 0;
  bool multiplies = true;                         // else alpha = 0, and A and B are not read
  AnyGemmGroup const* list = nullptr;             // of a, b and c the types are valid then
  bool transpose_a = false, transpose_b = false;  // as the list has them
  void const* offsets = nullptr;                  // of the rows, count + 1 of 32 or 64 bits
  bool long_offsets = false;
  MatrixStack a, b, c;

  struct Extents {
    std::int64_t m, n;
  };
  struct Rows {
    std::int64_t first, end;
  };
  /// Of block g of rows.
  KOKKOS_FUNCTION Rows rows(int g) const { return {begin(g), begin(g + 1)}; }
  KOKKOS_FUNCTION Extents extents(int g) const {
    if (list != nullptr) return {list[g].m, list[g].n};
    Rows const r = rows(g);
    return {r.end - r.first, c.cols};
  }
  KOKKOS_FUNCTION GemmOperands of(int g) const {
    GemmOperands x{a, b, c};
    if (list != nullptr) {
      AnyGemmGroup const& from = list[g];
      std::int64_t const k = multiplies && from.k > 0 ? from.k : 0;
      place(x.a, from.a, from.m, k, from.lda, transpose_a);
      place(x.b, from.b, from.n, k, from.ldb, !transpose_b);
      place(x.c, from.c, from.m, from.n, from.ldc, false);
    } else {
      Rows const r = rows(g);
      take_rows(x.a, r);
      take_rows(x.c, r);
      x.b.data = static_cast<char const*>(b.data) + g * b.inner_stride * static_cast<std::int64_t>(size_of(b.type));
      x.b.inner = 1;
      if (!multiplies) x.a.cols = x.b.cols = 0;
    }
    return x;
  }

 private:
  KOKKOS_FUNCTION static void place(MatrixStack& x, void const* data, std::int64_t rows, std::int64_t cols,
                                    std::int64_t pitch, bool transposed) {
    x.data = data;
    x.rows = rows;
    x.cols = cols;
    x.row_stride = transposed ? 1 : pitch;
    x.col_stride = transposed ? pitch : 1;
  }
  KOKKOS_FUNCTION static void take_rows(MatrixStack& x, Rows const& r) {
    x.data = static_cast<char const*>(x.data) + r.first * x.row_stride * static_cast<std::int64_t>(size_of(x.type));
    x.rows = r.end - r.first;
  }
  /// Where block g begins; offsets that lead out of C are taken for its ends.
  KOKKOS_FUNCTION std::int64_t begin(int g) const {
    std::int64_t const at =
        long_offsets ? static_cast<std::int64_t const*>(offsets)[g] : static_cast<std::int32_t const*>(offsets)[g];
    return at < 0 ? 0 : (at < c.rows ? at : c.rows);
  }
};

/// C(M,N) = finish(A(M,K) B(N,K)ᵀ) for each of the groups, a tile of one of them a step of the scheduler.
template <class Atoms, class Epilogue>
struct GemmGroupsKernel {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, BK = Atoms::BK;
  static constexpr bool counts_tiles_in_place = true;
  using Compute = typename Atoms::Compute;

  struct Tile {
    GemmOperands of;
    int group, steps;
    std::int64_t row, col;
  };
  using Stage = GemmStage<Atoms>;
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Inputs = Streams<Stage>;
  using Held = Fragments<Accumulator>;

  GemmGroups groups;
  Finish<Compute, Epilogue> finish;

  GemmGroupsKernel(GemmGroups const& all, double alpha, double beta, Epilogue const& epilogue)
      : groups(all), finish(GemmProblem{all.a, all.b, all.c, alpha, beta}, epilogue) {}

  KOKKOS_FUNCTION std::int64_t tiles() const {
    std::int64_t sum = 0;
    for (int g = 0; g < groups.count; ++g) sum += tiles(groups.extents(g));
    return sum;
  }
  KOKKOS_FUNCTION Tile tile(int t) const {
    int g = 0;
    std::int64_t rest = t;
    GemmGroups::Extents extents = groups.extents(0);
    for (std::int64_t here = tiles(extents); rest >= here; here = tiles(extents)) {
      rest -= here;
      extents = groups.extents(++g);
    }
    TilePlace const at = TileOrderBy<int>(count(extents.m, BM), count(extents.n, BN))(static_cast<int>(rest));
    GemmOperands const x = groups.of(g);
    return {x, g, count(x.a.cols, BK), std::int64_t(at.row) * BM, std::int64_t(at.col) * BN};
  }
  KOKKOS_FUNCTION int steps(Stage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k) const {
    copy(t.of.a, Plane{}, t.row, std::int64_t(k) * BK, stage.a);
    copy(t.of.b, Plane{}, t.col, std::int64_t(k) * BK, stage.b);
  }
  template <class Math, class In>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, In& in) const {
    Accumulator acc(math);
    if (t.steps > 0)
      gemm_sum(math, t.steps, in, acc);
    else
      math.clear(acc);
    MatrixStack c = t.of.c;
    c.inner_stride = 0;
    Plane const plane{0, t.group};  // as the epilogue sees it
    Finish<Compute, Epilogue>(finish, c).template operator()<BM, BN>(math, acc, c, plane, t.row, t.col);
  }

 private:
  KOKKOS_FUNCTION static int count(std::int64_t extent, int size) {
    return extent > 0 ? static_cast<int>((extent + size - 1) / size) : 0;
  }
  KOKKOS_FUNCTION static std::int64_t tiles(GemmGroups::Extents const& e) {
    return std::int64_t(count(e.m, BM)) * count(e.n, BN);
  }
};

/// The same for blocks of rows on the bulk pipeline, whose operands are bound as a whole before the sizes are known: a
/// tile that hangs over the end of its block reads rows of the next, and does not store what it makes of them.
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
  KOKKOS_FUNCTION static int tile_rows(GemmGroups::Rows const& r) {
    return r.end > r.first ? static_cast<int>((r.end - r.first + BM - 1) / BM) : 0;
  }
};

/// The types that the library has kernels of the bulk pipeline for.
template <class A, class B>
inline constexpr bool bulk_multiplies_blocks = std::is_same_v<A, B> &&
                                               (std::is_same_v<A, bf16_t> || std::is_same_v<A, fp16_t>);

/// What keeps blocks of rows from the bulk pipeline; nullptr: nothing.
template <class Exec, class A, class B, class Epilogue>
char const* bulk_groups_obstacle(Exec const& exec, GemmGroups const& groups) {
  if (has_bulk_pipeline<Exec> && !bulk_multiplies_blocks<A, B>)
    return "the hopper pipeline multiplies groups of fp16 and of bf16";
  if (char const* const obstacle = bulk_machine_obstacle<Exec, Epilogue>(exec)) return obstacle;
  if (groups.list != nullptr) return "the hopper pipeline multiplies blocks of rows, not lists";
  if (!groups.multiplies || groups.a.cols == 0) return "there is nothing to multiply";
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
  char const* const obstacle = bulk_groups_obstacle<Exec, A, B, Epilogue>(exec, groups);
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

/// Apart, so that the library holds instances.
template <class Exec, class Compute, class Epilogue>
void run_gemm_groups(Exec const& exec, GemmGroups const& groups, double alpha, double beta, Epilogue const& epilogue) {
  using Atoms = RegisterAtoms<Exec, Compute, GemmGrouped<Machine<Exec>::is_host, Compute>>;
  run_tiles<Atoms>("tessera::gemm_grouped", exec, GemmGroupsKernel<Atoms, Epilogue>(groups, alpha, beta, epilogue));
}

/// The products, where alpha = 0 is told by `groups`.
template <class Exec, class A, class B, class Compute, class Epilogue>
void run_planned_groups(Exec const& exec, GemmGroups const& groups, double alpha, double beta,
                        GemmOptions const& options, Epilogue const& epilogue) {
  bool const bulk = runs_groups_bulk<Exec, A, B, Epilogue>(exec, groups, options);
  if (!groups.multiplies) alpha = 1;
  if constexpr (has_bulk_pipeline<Exec> && bulk_multiplies_blocks<A, B> &&
                (!own_epilogue<Epilogue> || compiles_bulk_kernels))
    if (bulk) return run_gemm_blocks<Exec, A>(exec, groups, alpha, beta, epilogue);
  run_gemm_groups<Exec, Compute>(exec, groups, alpha, beta, epilogue);
}

}  // namespace tessera::detail

#include <tessera/compiled_spaces.hpp>

namespace tessera::detail {

#define TESSERA_GEMM_GROUPS_OF(EXTERN, EXEC, COMPUTE)                                                             \
  EXTERN template void run_gemm_groups<EXEC, COMPUTE, epilogue::Identity>(EXEC const&, GemmGroups const&, double, \
                                                                          double, epilogue::Identity const&);
#define TESSERA_GEMM_GROUPS(EXTERN, EXEC)      \
  TESSERA_GEMM_GROUPS_OF(EXTERN, EXEC, float)  \
  TESSERA_GEMM_GROUPS_OF(EXTERN, EXEC, double) \
  TESSERA_GEMM_GROUPS_OF(EXTERN, EXEC, std::int32_t)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_GEMM_GROUPS, extern)

#define TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, T)                                                                     \
  EXTERN template void run_gemm_blocks<EXEC, T, epilogue::Identity>(EXEC const&, GemmGroups const&, double, double, \
                                                                    epilogue::Identity const&);
#define TESSERA_GEMM_BLOCKS(EXTERN, EXEC)      \
  TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, bf16_t) \
  TESSERA_GEMM_BLOCKS_OF(EXTERN, EXEC, fp16_t)
TESSERA_FOR_BULK_SPACE(TESSERA_GEMM_BLOCKS, extern)

}  // namespace tessera::detail

#endif
