// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/random_words.hpp>

namespace {

using tessera::detail::openmp::word_groups_together;

/// A word in the lower half of each lane. Products read nothing else, so that upper halves may hold anything.
typedef std::uint64_t Lanes __attribute__((vector_size(32)));
constexpr int lanes = 4, rounds = 10;

Lanes all(std::uint64_t x) { return reinterpret_cast<Lanes>(_mm256_set1_epi64x(static_cast<long long>(x))); }
Lanes product(Lanes x, Lanes y) {
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
}
/// Lower halves, those of `odd` behind those of `even`.
__m256i joined(Lanes even, Lanes odd) {
  return _mm256_blend_epi32(reinterpret_cast<__m256i>(even), reinterpret_cast<__m256i>(odd << 32), 0xaa);
}

/// The counters of four groups.
struct Counters {
  Lanes c0, c1, c2, c3;

  Counters(std::uint64_t group, std::uint64_t offset)
      : c0(all(group) + Lanes{0, 1, 2, 3}), c1(c0 >> 32), c2(all(offset)), c3(c2 >> 32) {}
  void round(Lanes key0, Lanes key1) {
    Lanes const p0 = product(c0, all(0xD2511F53u)), p1 = product(c2, all(0xCD9E8D57u));
    c0 = (p1 >> 32) ^ c1 ^ key0;
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ key1;
    c3 = p0;
  }
  void store(std::uint32_t* words) const {
    __m256i const first = joined(c0, c1), second = joined(c2, c3);
    __m256i const even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
    auto* const to = reinterpret_cast<__m256i*>(words);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

/// Two vectors at a time: a round waits for its products.
void fill_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t group, int groups, std::uint32_t* words) {
  static_assert(word_groups_together == 2 * lanes);
  for (int i = 0; i < groups; i += word_groups_together, words += 4 * word_groups_together) {
    Counters first(group + static_cast<std::uint64_t>(i), offset),
        second(group + static_cast<std::uint64_t>(i) + lanes, offset);
    Lanes key0 = all(seed), key1 = all(seed >> 32);
    for (int r = 0; r < rounds; ++r) {
      first.round(key0, key1);
      second.round(key0, key1);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    first.store(words);
    second.store(words + 4 * lanes);
  }
}

}  // namespace

namespace tessera::detail::openmp {

extern RandomWords const random_words_avx2;
RandomWords const random_words_avx2 = fill_words;

}  // namespace tessera::detail::openmp
