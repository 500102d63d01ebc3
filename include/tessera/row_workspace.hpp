// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Memory that is lent to operations on rows.
#ifndef TESSERA_ROW_WORKSPACE_HPP
#define TESSERA_ROW_WORKSPACE_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/detail/array.hpp>

namespace tessera {

/// Memory of the execution space lent to an operation; a View<std::byte*> of any memory space converts to it. Not to be
/// touched before the operation is done.
using RowWorkspace = Kokkos::View<std::byte*, Kokkos::AnonymousSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

namespace detail {

/// As problems carry it.
struct LentMemory {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// What can be used: nothing, if it does not begin at a multiple of 16 bytes.
inline LentMemory lent(RowWorkspace const& workspace) {
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 != 0) return {};
  return {workspace.data(), workspace.size()};
}

/// Compiled in the library, once per execution space.
template <class Exec>
std::size_t row_workspace(Exec const& exec, std::int64_t columns);

}  // namespace detail

/// Bytes, aligned to 16, or better to 128, with which softmax, log_softmax, their gradients, layer_norm and rms_norm
/// share rows as long as those of `in` among all multiprocessors: through them parts of a machine that do not reach
/// each other's scratch tell each other what they have found of a row. 0 where rows are short enough, and on a CPU.
/// With fewer bytes, or none, the result is the same within rounding, and takes longer.
template <detail::execution_space Exec, detail::view In>
std::size_t row_workspace_size(Exec const& exec, In const& in) {
  return detail::row_workspace(exec, static_cast<std::int64_t>(in.extent(In::rank() - 1)));
}

}  // namespace tessera

#endif
