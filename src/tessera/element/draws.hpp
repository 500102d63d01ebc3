// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_DRAWS_HPP
#define TESSERA_ELEMENT_DRAWS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/philox.hpp>
#include <tessera/random_words.hpp>

namespace tessera::detail {

/// The random words of up to Most neighbouring elements, which four by four share an evaluation of Philox.
template <int Most>
class Draws {
 public:
  /// Of elements `first` to `first` + n - 1; as long as this object lives.
  KOKKOS_INLINE_FUNCTION std::uint32_t const* operator()(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                                                         int n) {
    std::uint64_t const group = first / a_group;
    int const skipped = static_cast<int>(first % a_group), groups = (skipped + n + a_group - 1) / a_group;
    if (RandomWords const fill = random_words_of_runs(); fill != nullptr) {
      fill(seed, offset, group, (groups + word_groups_together - 1) / word_groups_together * word_groups_together,
           words_);
    } else {
      for (int i = 0; i < groups; ++i) {
        PhiloxCounter const four = philox_words(seed, offset, group + static_cast<std::uint64_t>(i));
        for (unsigned w = 0; w < a_group; ++w) words_[i * a_group + static_cast<int>(w)] = four[w];
      }
    }
    return words_ + skipped;
  }

 private:
  static constexpr int a_group = 4, together = a_group * word_groups_together;
  std::uint32_t words_[(Most + a_group - 1 + together - 1) / together * together];
};

/// The same where two neighbours share a word: philox_shared_word().
template <int Most>
class SharedDraws {
 public:
  KOKKOS_INLINE_FUNCTION std::uint32_t const* operator()(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                                                         int n) {
    int const skipped = static_cast<int>(first % 2), pairs = (skipped + n + 1) / 2;
    std::uint32_t const* const shared = draws_(seed, offset, first / 2, pairs);
    for (int i = 0; i < pairs; ++i) {
      words_[2 * i] = shared[i];
      words_[2 * i + 1] = halves_exchanged(shared[i]);
    }
    return words_ + skipped;
  }

 private:
  static constexpr int most_pairs = Most / 2 + 1;
  Draws<most_pairs> draws_;
  std::uint32_t words_[2 * most_pairs];
};

}  // namespace tessera::detail

#endif
