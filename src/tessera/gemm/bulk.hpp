// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BULK_HPP
#define TESSERA_GEMM_BULK_HPP

#include <algorithm>
#include <climits>
#include <iterator>

#include <tessera/gemm/bulk_choice.hpp>
#include <tessera/gemm/bulk_factors.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/machine.hpp>

// The matrix product on the bulk pipeline: what keeps it from there, and how it runs there.
namespace tessera::detail {

/// What keeps a product from the bulk pipeline, where there is one; nullptr: nothing.
inline char const* bulk_gemm_obstacle(GemmProblem const& p, GemmOptions const& options) {
  if (!bulk_multiplies(p.a.type, p.b.type))
    return "the hopper pipeline multiplies fp16, bf16 and int8 with their own and e4m3 with 8-bit floating-point types";
  if (p.a.type == Scalar::fp32 && !options.allow_tf32)
    return "the hopper pipeline would round fp32 operands to tf32, which allow_tf32 does not permit";
  if (p.k() == 0) return "there is nothing to multiply";
  if (std::max({p.m(), p.n(), p.k(), p.batch()}) > INT_MAX) return "the hopper pipeline counts extents in 31 bits";
  if (options.workspace_bytes < bulk_workspace(p))
    return "the hopper pipeline reads factors in multiples of 16 bytes, fp32 and 8-bit ones along K: others are "
           "repacked, for which options.workspace is missing or too small (gemm_workspace_size)";
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
      auto const run = [&](auto form) {
        using Sizes = GemmBulk<tile.rows, tile.columns, static_cast<int>(sizeof(A)), LeftAcross, RightAcross, promoted,
                               form.value>;
        static_assert(holds_gemm_slices(Sizes::consumers, tile.max_slices, 4 * tile.rows * tile.columns,
                                        Sizes::depth * Sizes::lines * 128 * (tile.rows + tile.columns)));
        f(BulkAtoms<Exec, A, Sizes, B>{});
      };
      if (plan.tile_m != tile.rows || plan.tile_n != tile.columns || plan.schedule != tile.schedule) return;
      using enum GemmBulkForm;
      constexpr GemmBulkForm base = tile.turned() ? turned : (tile.ping_pong() ? ping_pong : plain),
                             shared = base == plain && tile.max_slices > 1 ? sliced : base,
                             alone = OwnEpilogue ? shared : base;  // who compiles kernels has one for both
      if (plan.slices > 1)
        run(std::integral_constant<GemmBulkForm, shared>{});
      else
        run(std::integral_constant<GemmBulkForm, alone>{});
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
  GemmProblem p = planned_problem<Epilogue>(problem, plan);
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
