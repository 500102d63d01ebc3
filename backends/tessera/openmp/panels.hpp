// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_PANELS_HPP
#define TESSERA_OPENMP_PANELS_HPP

#include <cstdint>

#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/types.hpp>

// Between matrices in memory and the panels of the micro-kernel. Compiled once for each pair of element types, not in
// every kernel that packs: these conversions are most of the code of a tile kernel on a CPU.
namespace tessera::detail::openmp {

/// to[c * Width + r] = element (r, c) of the n x k elements of `type` at `from`, strides in elements; rows from n up to
/// Width become zero. For the widths of panels and 1.
template <class Compute, int Width>
void pack_panel(Scalar type, void const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k,
                Compute* to);

/// The same for any number of rows that are contiguous, of Compute itself: panels `panel` elements apart. A column of
/// all panels after the other, as they lie in memory.
template <class Compute, int Width>
void pack_panels_across(Compute const* from, std::int64_t col_stride, int n, int k, Compute* to, std::int64_t panel);

/// The n x k elements of `type` at `from` become a panel of words as the kernel wants it, see WordKernel. bf16, e4m3
/// and e5m2 are bf16 there, int8 is int8.
template <class Kernel>
void pack_words(Kernel const& kernel, bool left, Scalar type, void const* from, std::int64_t row_stride,
                std::int64_t col_stride, int n, int k, void* to);

/// The rows x n elements of `type` at `to`, strides in elements, become those of a panel whose rows lie `pitch` apart,
/// rounded.
template <class Compute>
void store_panel(Scalar type, Compute const* from, int pitch, int rows, int n, void* to, std::int64_t row_stride,
                 std::int64_t col_stride);

}  // namespace tessera::detail::openmp

#endif
