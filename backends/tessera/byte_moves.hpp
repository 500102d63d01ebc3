// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_BYTE_MOVES_HPP
#define TESSERA_BYTE_MOVES_HPP

#include <Kokkos_Macros.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/openmp/byte_moves.hpp>
#include <tessera/streaming.hpp>

namespace tessera::detail {

using openmp::ByteMoves;
using openmp::transposed_columns, openmp::transposed_rows;

/// What moves bytes by whole vectors; nullptr: nothing, or a compiler for devices reads this, as with vector units.
KOKKOS_INLINE_FUNCTION ByteMoves const* byte_moves() {
#if !defined(__CUDACC__)
  static ByteMoves const* const moves = openmp::byte_moves();
  return moves;
#else
  return nullptr;
#endif
}

/// As stream(), by `moves` if these are there.
KOKKOS_FORCEINLINE_FUNCTION void stream(ByteMoves const* moves, void* to, void const* from, std::size_t bytes) {
  if (moves == nullptr || reinterpret_cast<std::uintptr_t>(to) % line_of_memory != 0 || bytes % line_of_memory != 0)
    return stream(to, from, bytes);
  moves->stream_lines(to, from, bytes / line_of_memory);
}

}  // namespace tessera::detail

#endif
