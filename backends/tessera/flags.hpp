// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_FLAGS_HPP
#define TESSERA_FLAGS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

// Flags of the elements of an accumulator, f.flag(word, odd): of words that eight rows or columns of 32 have in common.
namespace tessera::detail {

/// All are set.
struct NoFlags {};

/// The word of a row or column out of the four for eight of 32.
template <class Words>
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t word_of(Words const& four, int place) {
  int const k = place / 8 % 4;
  return k < 2 ? (k == 0 ? four[0] : four[1]) : (k == 2 ? four[2] : four[3]);
}
/// f.flag() of the element in (row, column), by the words there. f.place() is its own row or column among all there
/// are.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION bool flag_at(F const& f, int row, int col) {
  int const place = f.place(row, col);
  return f.flag(word_of(f.words(row, col), place), place % 2 != 0);
}
KOKKOS_FORCEINLINE_FUNCTION bool flag_at(NoFlags, int, int) { return true; }

}  // namespace tessera::detail

#endif
