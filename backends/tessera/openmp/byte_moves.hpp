// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_BYTE_MOVES_HPP
#define TESSERA_OPENMP_BYTE_MOVES_HPP

#include <cstddef>

// Bytes on their way to memory, one version an instruction set.
namespace tessera::detail::openmp {

/// transpose() takes multiples of these.
inline constexpr int transposed_rows = 64, transposed_columns = 16;

struct ByteMoves {
  /// to[c * to_row + r] = from[r * from_row + c].
  void (*transpose)(unsigned char const* from, std::ptrdiff_t from_row, int rows, int columns, unsigned char* to,
                    std::ptrdiff_t to_row);
  /// Copies lines of 64 bytes past the caches to where lines begin; in order with other stores only after a fence.
  void (*stream_lines)(void* to, void const* from, std::size_t lines);
};

/// The best versions this processor runs, within the cap; nullptr: none, but on x86-64.
ByteMoves const* byte_moves();

}  // namespace tessera::detail::openmp

#endif
