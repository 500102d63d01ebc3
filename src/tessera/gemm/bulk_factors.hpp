// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BULK_FACTORS_HPP
#define TESSERA_GEMM_BULK_FACTORS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/problem.hpp>
#include <tessera/gemm/repack.hpp>
#include <tessera/gemm_plan.hpp>

// What the bulk pipeline multiplies, and how it gets at factors: as they lie, or repacked in the caller's workspace.
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
  return sum == BulkSum::promoted || (sum == BulkSum::either && !(fast && (tile.columns == 256 || tile.ping_pong())));
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

/// The problem with the fewer of its rows and columns as rows, which flat tiles are for.
inline GemmProblem flat_problem(GemmProblem const& p) { return p.n() < p.m() ? p.transposed() : p; }
inline bool has_flat_tiles(GemmPlan const& plan) { return plan.tile_m == gemm_flat_rows && plan.stages > 1; }
/// Products without tiles, of fewer rows still.
inline bool is_thin(GemmPlan const& plan) { return plan.algorithm == Algorithm::coarsened && plan.stages == 0; }
/// A problem as the tiles of its plan on a GPU see it.
template <class Epilogue>
GemmProblem planned_problem(GemmProblem const& problem, GemmPlan const& plan) {
  GemmProblem const p = bulk_problem<Epilogue>(problem);
  if (plan.schedule == Schedule::turned) return p.transposed();
  return has_flat_tiles(plan) || is_thin(plan) ? flat_problem(p) : p;
}

/// Beside scales of blocks there are no registers for the largest tile, and of 192 columns none for two steps' scales.
constexpr bool has_block_scaled_tile(int columns) { return columns < 192; }

}  // namespace tessera::detail

#endif
