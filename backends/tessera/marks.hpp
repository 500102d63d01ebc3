// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MARKS_HPP
#define TESSERA_MARKS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

// A flag beside each element of an accumulator, where there are no registers for it: its last bit.
namespace tessera::detail {

template <class T>
using MarkBits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
KOKKOS_FORCEINLINE_FUNCTION bool marked(T x) {
  return (Kokkos::bit_cast<MarkBits<T>>(x) & 1) != 0;
}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T with_mark(T x, bool mark) {
  using Bits = MarkBits<T>;
  return Kokkos::bit_cast<T>(static_cast<Bits>((Kokkos::bit_cast<Bits>(x) & ~Bits(1)) | Bits(mark)));
}

/// The word of a row or column out of the four for eight of 32.
template <class Words>
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t word_of(Words const& four, int place) {
  int const k = place / 8 % 4;
  return k < 2 ? (k == 0 ? four[0] : four[1]) : (k == 2 ? four[2] : four[3]);
}
/// f.flag() of the element in (row, column).
template <class F>
KOKKOS_FORCEINLINE_FUNCTION bool flag_at(F const& f, int row, int col) {
  int const place = F::words_for_rows ? row : col;
  return f.flag(word_of(f.words(row, col), place), place % 2 != 0);
}

}  // namespace tessera::detail

#endif
