// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PHILOX_HPP
#define TESSERA_PHILOX_HPP

/// \file
/// Philox4x32-10: random numbers without a state. A counter and a key give four random words, so the number that
/// belongs to an element is a function of its index: the same on every backend, in every order, and again in a
/// backward pass that stores nothing. Algorithm: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
/// numbers: as easy as 1, 2, 3", SC 2011; it passes their known-answer vectors.

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/unroll.hpp>

namespace tessera {

/// Four words of 32 bits.
using PhiloxCounter = Kokkos::Array<std::uint32_t, 4>;
/// Two words of 32 bits.
using PhiloxKey = Kokkos::Array<std::uint32_t, 2>;

namespace detail {

KOKKOS_INLINE_FUNCTION constexpr PhiloxCounter philox_round(PhiloxCounter const& counter, PhiloxKey const& key) {
  std::uint64_t const p0 = std::uint64_t{0xD2511F53u} * counter[0];
  std::uint64_t const p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
  return {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
}
KOKKOS_INLINE_FUNCTION constexpr PhiloxKey next_philox_key(PhiloxKey const& key) {
  return {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
}

}  // namespace detail

/// Four independent, uniformly distributed words for a counter and a key, by ten rounds of Philox4x32. Seven are the
/// fewest that pass every test of BigCrush; ten are their authors' choice, with a margin.
template <int Rounds = 10>
KOKKOS_INLINE_FUNCTION constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < Rounds; ++round) {
    counter = detail::philox_round(counter, key);
    key = detail::next_philox_key(key);
  }
  return counter;
}

/// The keys of all rounds of a seed, for those who have many counters: as a kernel's parameter they cost nothing there.
struct PhiloxKeys {
  static constexpr int rounds = 10;
  PhiloxKey of_round[rounds];

  constexpr explicit PhiloxKeys(std::uint64_t seed) : of_round{} {
    of_round[0] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    for (int round = 1; round < rounds; ++round) of_round[round] = detail::next_philox_key(of_round[round - 1]);
  }
  /// philox_words() of that seed.
  KOKKOS_INLINE_FUNCTION constexpr PhiloxCounter words(std::uint64_t offset, std::uint64_t group) const {
    PhiloxCounter counter{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
                          static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)};
    TESSERA_UNROLL
    for (int round = 0; round < rounds; ++round) counter = detail::philox_round(counter, of_round[round]);
    return counter;
  }
};

/// The random words of elements 4 `group` to 4 `group` + 3 in the sequence `offset` of `seed`: those of the counter
/// (group, offset).
KOKKOS_INLINE_FUNCTION constexpr PhiloxCounter philox_words(std::uint64_t seed, std::uint64_t offset,
                                                            std::uint64_t group) {
  return philox4x32(PhiloxCounter{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
                                  static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)},
                    PhiloxKey{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// The random word of element `index` in the sequence `offset` of `seed`: word index mod 4 of the counter
/// (index / 4, offset), so that four neighbours share one evaluation.
KOKKOS_INLINE_FUNCTION constexpr std::uint32_t philox_word(std::uint64_t seed, std::uint64_t offset,
                                                           std::uint64_t index) {
  PhiloxCounter const words = philox_words(seed, offset, index / 4);
  auto const word = static_cast<unsigned>(index % 4);
  // Selections and no dynamic index: an array indexed at run time would not stay in registers.
  return word < 2 ? (word == 0 ? words[0] : words[1]) : (word == 2 ? words[2] : words[3]);
}

/// A word with its halves exchanged.
KOKKOS_INLINE_FUNCTION constexpr std::uint32_t halves_exchanged(std::uint32_t word) { return word << 16 | word >> 16; }

/// The word of element j of eight where two neighbours share one, the second with its halves exchanged.
KOKKOS_FORCEINLINE_FUNCTION constexpr std::uint32_t shared_word(PhiloxCounter const& words, int j) {
  return j % 2 == 0 ? words[j / 2] : halves_exchanged(words[j / 2]);
}

/// The random word of element `index` where two neighbours share one and so eight an evaluation: word index / 2 of the
/// sequence, for the second of the two with its halves exchanged. Each of them is uniform over all 32 bits; beyond its
/// upper 16, which are its own, it tells of the other's.
KOKKOS_INLINE_FUNCTION constexpr std::uint32_t philox_shared_word(std::uint64_t seed, std::uint64_t offset,
                                                                  std::uint64_t index) {
  std::uint32_t const word = philox_word(seed, offset, index / 2);
  return index % 2 == 0 ? word : halves_exchanged(word);
}

/// A uniform number in [0, 1) with 24 random bits, exact in fp32.
KOKKOS_INLINE_FUNCTION constexpr float philox_uniform(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  return static_cast<float>(philox_word(seed, offset, index) >> 8) * 0x1p-24f;
}

}  // namespace tessera

#endif
