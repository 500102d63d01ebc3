// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_GROUPED_DETAIL_HPP
#define TESSERA_GEMM_GROUPED_DETAIL_HPP

#include <climits>

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

/// Which products of a list a kernel takes: all, those whose factors the copy engine reads, or the others. The sizes
/// say it, where they are read.
enum class GemmShare : std::uint8_t { all, bulk, rest };

/// The products: a list of them, or blocks of rows of one A and one C, a matrix of a stack B for each.
struct GemmGroups {
  int count = 0;
  bool multiplies = true;                         // else alpha = 0, and A and B are not read
  AnyGemmGroup const* list = nullptr;             // of a, b and c the types are valid then
  bool transpose_a = false, transpose_b = false;  // as the list has them
  void const* offsets = nullptr;                  // of the rows, count + 1 of 32 or 64 bits
  bool long_offsets = false;
  MatrixStack a, b, c;
  GemmShare share = GemmShare::all;

  struct Extents {
    std::int64_t m, n;
  };
  struct Rows {
    std::int64_t first, end;
  };
  /// Of block g of rows.
  KOKKOS_FUNCTION Rows rows(int g) const { return {begin(g), begin(g + 1)}; }
  KOKKOS_FUNCTION Extents extents(int g) const {
    if (list != nullptr) return takes(g) ? Extents{list[g].m, list[g].n} : Extents{0, 0};
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
  /// Of a list, as a source is bound to it: A, or B where `right`.
  KOKKOS_FUNCTION MatrixStack operator()(int right, int g) const {
    GemmOperands const x = of(g);
    return right ? x.b : x.a;
  }

 private:
  /// A contiguous along K, B along K or N.
  KOKKOS_FUNCTION bool takes(int g) const {
    if (share == GemmShare::all) return true;
    GemmOperands const x = of(g);
    bool const read = x.a.cols > 0 && bulk_copyable(x.a) && bulk_copyable(transpose_b ? x.b : x.b.transposed()) &&
                      x.c.cols <= INT_MAX;
    return read == (share == GemmShare::bulk);
  }
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

/// Tiles of `size` over an extent that is read where the kernel runs and may be nothing.
KOKKOS_INLINE_FUNCTION int group_tile_count(std::int64_t extent, int size) {
  return extent > 0 ? static_cast<int>((extent + size - 1) / size) : 0;
}

KOKKOS_INLINE_FUNCTION std::int64_t group_tiles(GemmGroups::Extents const& e, int rows, int cols) {
  return std::int64_t(group_tile_count(e.m, rows)) * group_tile_count(e.n, cols);
}

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
    TilePlace const at =
        TileOrderBy<int>(group_tile_count(extents.m, BM), group_tile_count(extents.n, BN))(static_cast<int>(rest));
    GemmOperands const x = groups.of(g);
    return {x, g, group_tile_count(x.a.cols, BK), std::int64_t(at.row) * BM, std::int64_t(at.col) * BN};
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
  KOKKOS_FUNCTION static std::int64_t tiles(GemmGroups::Extents const& e) { return group_tiles(e, BM, BN); }
};

/// Apart, so that the library holds instances.
template <class Exec, class Compute, class Epilogue>
void run_gemm_groups(Exec const& exec, GemmGroups const& groups, double alpha, double beta, Epilogue const& epilogue) {
  if constexpr (has_narrow_atoms<Exec, Compute>) {
    using Element = GemmNarrowElement<Compute>;
    using Narrow = NarrowAtoms<Exec, Element, GemmGroupedNarrow<Element>>;
    if (multiplies_narrow<Exec, Element>(groups.a.type, groups.b.type))
      return run_tiles<Narrow>("tessera::gemm_grouped", exec,
                               GemmGroupsKernel<Narrow, Epilogue>(groups, alpha, beta, epilogue));
  }
  using Atoms = RegisterAtoms<Exec, Compute, GemmGrouped<Machine<Exec>::is_host, Compute>>;
  run_tiles<Atoms>("tessera::gemm_grouped", exec, GemmGroupsKernel<Atoms, Epilogue>(groups, alpha, beta, epilogue));
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

}  // namespace tessera::detail

#endif
