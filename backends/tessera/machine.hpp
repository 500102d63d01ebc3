// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MACHINE_HPP
#define TESSERA_MACHINE_HPP

#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/launch.hpp>
#include <tessera/openmp/atoms.hpp>
#include <tessera/openmp/column_atoms.hpp>
#include <tessera/openmp/direct_products.hpp>
#include <tessera/openmp/either_atoms.hpp>
#include <tessera/openmp/thin_products.hpp>
#include <tessera/portable/pipeline.hpp>

// Which atoms a machine offers a kernel, by what they are good at. A kernel family asks for one of them with its sizes.
namespace tessera::detail {

/// One output or a few a thread, team scratch shared: valid everywhere.
template <class Exec, class Compute, class Sizes>
using ScratchAtoms = portable::Atoms<KernelSpace<Exec>, Compute, Sizes>;

/// Register tiles: a micro-kernel on a CPU, many outputs a thread elsewhere.
template <class Exec, class Compute, class Sizes>
using RegisterAtoms = std::conditional_t<Machine<Exec>::is_host, openmp::Atoms<KernelSpace<Exec>, Compute, Sizes>,
                                         portable::Atoms<KernelSpace<Exec>, Compute, Sizes>>;

/// The same for kernels that work on rows between two products.
template <class Exec, class Compute, class Sizes>
using RowAtoms = std::conditional_t<Machine<Exec>::is_host, openmp::ColumnAtoms<KernelSpace<Exec>, Compute, Sizes>,
                                    portable::Atoms<KernelSpace<Exec>, Compute, Sizes>>;

/// The same for chains of products whose last sums are formed in memory, a team's own: where a core has a team.
template <class Exec, class Compute, class Sizes>
using EitherAtoms = openmp::EitherAtoms<KernelSpace<Exec>, Compute, Sizes>;
template <class Exec, class Compute>
inline constexpr bool has_either_atoms = Machine<Exec>::is_host&& std::is_same_v<Compute, float>;

/// Register tiles of factors that are multiplied as they are, not widened to the type of the sum: Element is bf16_t or
/// int8_t. Whether they run for factors of two types is known where the program runs.
template <class Exec, class Element, class Sizes>
using NarrowAtoms =
    openmp::Atoms<KernelSpace<Exec>, std::conditional_t<std::is_same_v<Element, std::int8_t>, std::int32_t, float>,
                  Sizes, Element>;
template <class Exec, class Compute>
inline constexpr bool has_narrow_atoms = Machine<Exec>::is_host && !std::is_same_v<Compute, double>;
template <class Exec, class Element>
bool multiplies_narrow(Scalar a, Scalar b) {
  return Machine<Exec>::is_host && openmp::multiplies_words<Element>(a, b);
}

/// The same two of factors that are packed before, once for all tiles, where a machine gains by it: Element is Compute
/// or one of the narrow ones.
template <class Exec, class Compute, class Element, class Sizes>
using PackedAtoms = openmp::Atoms<KernelSpace<Exec>, Compute, Sizes, Element, true>;
template <class Exec>
inline constexpr bool has_packed_atoms = Machine<Exec>::is_host;
/// f(std::type_identity<Atoms>) of Compute, whose panels have the shape that suits the vector units at hand.
template <class Exec, class Compute, class Sizes, class F>
auto with_packed_atoms(F const& f) {
  using Wide = openmp::Atoms<KernelSpace<Exec>, Compute, Sizes, Compute, true, true>;
  static bool const wide = openmp::wide_micro_kernel<Compute>() != nullptr;
  return wide ? f(std::type_identity<Wide>{}) : f(std::type_identity<PackedAtoms<Exec, Compute, Compute, Sizes>>{});
}
template <class Tile>
std::size_t packed_bytes(MatrixStack const& m) {
  return openmp::packed_bytes<Tile>(m);
}

/// Small products that a core multiplies as they lie, and those of few rows.
template <class Exec, class Compute>
using DirectProducts = openmp::DirectProducts<Compute>;
template <class Exec, class Compute>
using ThinProducts = openmp::ThinProducts<Compute>;
template <class Exec, class Compute>
inline constexpr bool has_direct_products = Machine<Exec>::is_host&& std::is_floating_point_v<Compute>;

/// The pipeline of asynchronous bulk copies and warpgroup products, where a machine has it: specialised by its backend.
template <class Exec>
struct BulkPipeline {
  static constexpr bool available = false;
};
template <class Exec>
inline constexpr bool has_bulk_pipeline = BulkPipeline<Exec>::available;
template <class Exec, class Element, class Sizes, class RightElement = Element>
using BulkAtoms = typename BulkPipeline<Exec>::template Atoms<Element, Sizes, RightElement>;

/// The pipeline of asynchronous copies by the threads and products of warps, likewise.
template <class Exec>
struct AsyncPipeline {
  static constexpr bool available = false;
};
template <class Exec>
inline constexpr bool has_async_pipeline = AsyncPipeline<Exec>::available;
template <class Exec, class Element, class Sizes>
using AsyncAtoms = typename AsyncPipeline<Exec>::template Atoms<Element, Sizes>;
/// The same for kernels that work on rows between two products.
template <class Exec, class Element, class Sizes>
using AsyncRowAtoms = typename AsyncPipeline<Exec>::template RowAtoms<Element, Sizes>;
/// The same for kernels with several products of what they round, which warps share.
template <class Exec, class Element, class Sizes>
using AsyncGridAtoms = typename AsyncPipeline<Exec>::template GridAtoms<Element, Sizes>;

/// Whether the source at hand is compiled for the bulk pipeline's instructions: then a functor of the caller's can be
/// part of it.
#if defined(TESSERA_TARGET_HOPPER)
inline constexpr bool compiles_bulk_kernels = true;
#else
inline constexpr bool compiles_bulk_kernels = false;
#endif

/// Atoms say which pipeline they are made for; those that say nothing run on the portable one.
template <class Atoms>
concept bulk_atoms = requires {
  Atoms::take_turns;
};
template <class Atoms>
concept async_atoms = requires {
  Atoms::asynchronous;
};

/// Runs a kernel on the pipeline of its atoms, asynchronously on `exec`.
template <class Atoms, class Exec, TileKernel Kernel>
void run_tiles(char const* label, Exec const& exec, Kernel const& kernel) {
  if constexpr (bulk_atoms<Atoms>)
    BulkPipeline<Exec>::template run<Atoms>(label, exec, kernel);
  else if constexpr (async_atoms<Atoms>)
    AsyncPipeline<Exec>::template run<Atoms>(label, exec, kernel);
  else
    portable::run<Atoms>(label, exec, kernel);
}

/// Bytes of team scratch the kernel takes on the pipeline of its atoms.
template <class Atoms, class Exec, TileKernel Kernel>
constexpr std::size_t scratch_of() {
  if constexpr (bulk_atoms<Atoms>)
    return BulkPipeline<Exec>::template Pipeline<Atoms, Kernel>::scratch_bytes;
  else if constexpr (async_atoms<Atoms>)
    return AsyncPipeline<Exec>::template Pipeline<Atoms, Kernel>::scratch_bytes;
  else
    return portable::Pipeline<Kernel, Atoms, typename Kernel::Inputs>::scratch_bytes;
}

}  // namespace tessera::detail

#if defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/async_pipeline.hpp>
#endif
#if defined(TESSERA_ENABLE_HOPPER) && defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/bulk_pipeline.hpp>
#endif

#endif
