// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_ASYNC_HPP
#define TESSERA_GEMM_ASYNC_HPP

#include <tessera/gemm/bulk.hpp>

// The matrix product on the pipeline of asynchronous copies: fp64, fp16, bf16, int8 and, rounded to tf32, fp32 on
// tensor cores; fp32 as it is without them.
namespace tessera::detail {

/// Whether the pipeline multiplies factors of this type.
constexpr bool async_multiplies(Scalar type) {
  return type == Scalar::fp64 || type == Scalar::fp32 || type == Scalar::fp16 || type == Scalar::bf16 ||
         type == Scalar::int8;
}

/// What keeps a product from this pipeline; nullptr: nothing. Factors of fp32 and fp64 are copied element by element
/// where packs do not fit, so that any strides will do; smaller elements cannot be.
template <class Exec>
char const* async_gemm_obstacle([[maybe_unused]] Exec const& exec, [[maybe_unused]] GemmProblem const& p,
                                [[maybe_unused]] GemmOptions const& options, [[maybe_unused]] bool tensor_cores) {
  if constexpr (!has_async_pipeline<Exec>) {
    return "tensor_core needs the CUDA backend";
  } else {
    if (!AsyncPipeline<Exec>::runs_on(exec)) return "tensor_core needs a device of compute capability 8.0 or more";
    if (p.a.type != p.b.type || !async_multiplies(p.a.type))
      return "tensor_core multiplies fp64, fp32, fp16, bf16 and int8, each with itself";
    if (p.k() == 0) return "there is nothing to multiply";
    if (tensor_cores && p.a.type == Scalar::fp32 && !options.allow_tf32)
      return "tensor_core would round fp32 operands to tf32, which allow_tf32 does not permit";
    if (size_of(p.a.type) <= 2 && options.workspace_bytes < bulk_workspace(p))
      return "tensor_core reads factors of 16 and 8 bits in multiples of 16 bytes: others are repacked, for which "
             "options.workspace is missing or too small (gemm_workspace_size)";
    return nullptr;
  }
}

/// Whether there are flat tiles, and the least: of fp64 and of fp32 as it is.
template <class T, bool TensorCores>
inline constexpr bool has_flat_tile = std::is_same_v<T, double> || (std::is_same_v<T, float> && !TensorCores);

/// f(atoms) of a tile. With an epilogue of the caller's, who compiles them, the large one only.
template <class Exec, class T, bool TensorCores, bool LeftAcross, bool RightAcross, bool OwnEpilogue, class F>
void visit_gemm_async_tile(GemmTeamTile tile, F const& f) {
  if constexpr (!OwnEpilogue && has_flat_tile<T, TensorCores>) {
    if (tile == GemmTeamTile::flat)
      return f(AsyncAtoms<Exec, T, GemmAsync<T, TensorCores, GemmTeamTile::flat, false, RightAcross>>{});
    if (tile == GemmTeamTile::least)
      return f(AsyncAtoms<Exec, T, GemmAsync<T, TensorCores, GemmTeamTile::least, LeftAcross, RightAcross>>{});
  }
  if constexpr (!OwnEpilogue)
    if (tile == GemmTeamTile::small)
      return f(AsyncAtoms<Exec, T, GemmAsync<T, TensorCores, GemmTeamTile::small, LeftAcross, RightAcross>>{});
  f(AsyncAtoms<Exec, T, GemmAsync<T, TensorCores, GemmTeamTile::large, LeftAcross, RightAcross>>{});
}

/// Whether tiles of a factor lie in scratch as in memory, across K. Of fp32 they do so anyway.
inline bool async_lies_across(MatrixStack const& m) {
  if (size_of(m.type) == 2) return bulk_access(m).across;
  return !bulk_copyable(m) && (bulk_copyable(m.transposed()) || (m.row_stride == 1 && m.col_stride != 1));
}

/// The same with the layouts of a problem's factors.
template <class Exec, class T, bool TensorCores, bool OwnEpilogue, class F>
void visit_gemm_async(GemmProblem const& p, GemmTeamTile tile, F const& f) {
  if constexpr (sizeof(T) == 2 || std::is_same_v<T, double>) {
    bool const left = async_lies_across(p.a), right = async_lies_across(p.b);
    if (left && right) return visit_gemm_async_tile<Exec, T, TensorCores, true, true, OwnEpilogue>(tile, f);
    if (left) return visit_gemm_async_tile<Exec, T, TensorCores, true, false, OwnEpilogue>(tile, f);
    if (right) return visit_gemm_async_tile<Exec, T, TensorCores, false, true, OwnEpilogue>(tile, f);
  }
  visit_gemm_async_tile<Exec, T, TensorCores, false, false, OwnEpilogue>(tile, f);
}

/// Runs what the plan says. Apart, so that the library holds instances, each in a source of its own.
template <class Exec, class T, bool TensorCores, class Epilogue>
void run_gemm_async([[maybe_unused]] Exec const& exec, [[maybe_unused]] GemmProblem const& problem,
                    [[maybe_unused]] GemmPlan const& plan, [[maybe_unused]] Epilogue const& epilogue) {
  if constexpr (has_async_pipeline<Exec>) {
    GemmTeamTile tile =
        plan.tile_m < GemmAsync<T, TensorCores, GemmTeamTile::large>::BM ? GemmTeamTile::small : GemmTeamTile::large;
    if (plan.tile_m == gemm_least_rows) tile = GemmTeamTile::least;
    if (has_flat_tiles(plan)) tile = GemmTeamTile::flat;
    GemmProblem p = planned_problem<Epilogue>(problem, plan);
    if constexpr (sizeof(T) <= 2) repack_factors(exec, p);
    visit_gemm_async<Exec, T, TensorCores, own_epilogue<Epilogue>>(p, tile, [&](auto atoms) {
      using Atoms = decltype(atoms);
      run_tiles<Atoms>("tessera::gemm", exec, GemmKernel<Atoms, Epilogue>(p, epilogue, 1, {}, {}, {}, plan.splits));
    });
  }
}

}  // namespace tessera::detail

#endif
