// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_ASYNC_HPP
#define TESSERA_GEMM_ASYNC_HPP

#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm_plan.hpp>
#include <tessera/machine.hpp>

// The matrix product on the pipeline of asynchronous copies: fp64 on tensor cores.
namespace tessera::detail {

/// What keeps a product from this pipeline; nullptr: nothing. Packs that do not fit are copied element by element, so
/// that any strides will do.
template <class Exec, class Compute>
char const* async_gemm_obstacle([[maybe_unused]] Exec const& exec, [[maybe_unused]] GemmProblem const& p) {
  if constexpr (!has_async_pipeline<Exec>)
    return "tensor_core needs the CUDA backend";
  else if constexpr (!std::is_same_v<Compute, double>)
    return "tensor_core multiplies fp64";
  else if (!AsyncPipeline<Exec>::runs_on(exec))
    return "tensor_core needs a device of compute capability 8.0 or more";
  else
    return p.k() == 0 ? "there is nothing to multiply" : nullptr;
}

/// f(atoms) of the large or the small tile.
template <class Exec, class F>
void visit_gemm_async(bool small, F const& f) {
  if (small)
    f(AsyncAtoms<Exec, double, GemmAsyncSmall>{});
  else
    f(AsyncAtoms<Exec, double, GemmAsync>{});
}

/// Apart, so that the library holds instances.
template <class Exec, class Epilogue>
void run_gemm_async([[maybe_unused]] Exec const& exec, [[maybe_unused]] GemmProblem const& p,
                    [[maybe_unused]] GemmPlan const& plan, [[maybe_unused]] Epilogue const& epilogue) {
  if constexpr (has_async_pipeline<Exec>)
    visit_gemm_async<Exec>(plan.tile_m == GemmAsyncSmall::BM, [&](auto atoms) {
      using Atoms = decltype(atoms);
      run_tiles<Atoms>("tessera::gemm", exec, GemmKernel<Atoms, Epilogue>(p, epilogue));
    });
}

}  // namespace tessera::detail

#endif
