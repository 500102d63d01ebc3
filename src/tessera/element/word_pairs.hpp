// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_WORD_PAIRS_HPP
#define TESSERA_ELEMENT_WORD_PAIRS_HPP

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <cstring>

#include <tessera/element/strip.hpp>
#include <tessera/strip_rounding.hpp>
#include <tessera/types.hpp>

// Strips of bf16 read as words of two neighbours. bf16 is the upper half of fp32, so one of the two is widened by a
// shift and the other by a mask, one instruction for a vector of either; widened in order, a vector takes three, as its
// elements have to be spread. All that is first in its word then is in one array, what is second in another.
namespace tessera::detail {

/// The first number of a word is in its lower half.
inline constexpr bool has_word_pairs = std::endian::native == std::endian::little;

/// Numbers 2 i and 2 i + 1 from there on.
KOKKOS_FORCEINLINE_FUNCTION std::uint32_t word_of_pair(bf16_t const* from, int i) {
  std::uint32_t word = 0;
  std::memcpy(&word, from + 2 * i, sizeof word);
  return word;
}
KOKKOS_FORCEINLINE_FUNCTION float first_of_pair(std::uint32_t word) { return __builtin_bit_cast(float, word << 16); }
KOKKOS_FORCEINLINE_FUNCTION float second_of_pair(std::uint32_t word) {
  return __builtin_bit_cast(float, word & 0xffff0000u);
}

/// n pairs, rounded; past the caches where `streamed`, to whole lines of memory.
KOKKOS_INLINE_FUNCTION void write_pairs(float const* KOKKOS_RESTRICT first, float const* KOKKOS_RESTRICT second, int n,
                                        bf16_t* to, bool streamed) {
  if (RoundPairs const round = pair_rounding(streamed); round != nullptr) return round(first, second, n, to);
  for (int i = 0; i < n; ++i) {
    to[2 * i] = bf16_t(first[i]);
    to[2 * i + 1] = bf16_t(second[i]);
  }
}

}  // namespace tessera::detail

#endif
