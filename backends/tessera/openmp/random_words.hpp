// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_RANDOM_WORDS_HPP
#define TESSERA_OPENMP_RANDOM_WORDS_HPP

#include <cstdint>

// Random words of many counters side by side, one version an instruction set. What compilers make of products of 32
// bits whose 64 are kept is mostly shuffles.
namespace tessera::detail::openmp {

/// Groups of four words that are written together.
inline constexpr int word_groups_together = 8;

/// words[4 i + w] = word w of Philox4x32-10 for the counter (group + i, offset) and the key `seed`, for i in [0,
/// groups), of which there are a multiple of word_groups_together.
using RandomWords = void (*)(std::uint64_t seed, std::uint64_t offset, std::uint64_t group, int groups,
                             std::uint32_t* words);

/// The best version this processor runs, within the cap; nullptr: none is better than what compilers make of the plain
/// formula.
RandomWords random_words();

}  // namespace tessera::detail::openmp

#endif
