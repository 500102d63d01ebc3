// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_RANDOM_WORDS_BODY_HPP
#define TESSERA_OPENMP_RANDOM_WORDS_BODY_HPP

#include <tessera/openmp/random_words.hpp>

// The loop, for a source compiled with the instructions of an instruction set `V`, which provides
//
//     Lanes                   a vector of `lanes` integers of 64 bits, up to word_groups_together
//     all(x), first()         x in all lanes; 0, 1, 2 and so on
//     product(x, y)           of the lower halves of lanes
//     changed(x, y, z)        x ^ y ^ z
//     store(c0, ..., c3, to)  the lower halves, those of a lane side by side
namespace {

using tessera::detail::openmp::word_groups_together;

/// The counters of `lanes` groups, a word in the lower half of each lane. Products read nothing else, so that upper
/// halves may hold anything.
template <class V>
struct Counters {
  using Lanes = typename V::Lanes;
  Lanes c0, c1, c2, c3;

  Counters(std::uint64_t group, std::uint64_t offset)
      : c0(V::all(group) + V::first()), c1(c0 >> 32), c2(V::all(offset)), c3(c2 >> 32) {}
  void round(Lanes key0, Lanes key1) {
    Lanes const p0 = V::product(c0, V::all(0xD2511F53u)), p1 = V::product(c2, V::all(0xCD9E8D57u));
    c0 = V::changed(p1 >> 32, c1, key0);
    c1 = p1;
    c2 = V::changed(p0 >> 32, c3, key1);
    c3 = p0;
  }
};

/// Several vectors at a time: a round waits for its products.
template <class V, int Vectors>
[[gnu::always_inline]] inline void fill_together(std::uint64_t seed, std::uint64_t offset, std::uint64_t group,
                                                 std::uint32_t* words) {
  constexpr int rounds = 10;
  static_assert(Vectors == 1 || Vectors == 2);
  Counters<V> first(group, offset), second(group + V::lanes, offset);
  typename V::Lanes key0 = V::all(seed), key1 = V::all(seed >> 32);
  for (int r = 0; r < rounds; ++r) {
    first.round(key0, key1);
    if (Vectors == 2) second.round(key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  V::store(first.c0, first.c1, first.c2, first.c3, words);
  if (Vectors == 2) V::store(second.c0, second.c1, second.c2, second.c3, words + 4 * V::lanes);
}

template <class V>
void fill_words(std::uint64_t seed, std::uint64_t offset, std::uint64_t group, int groups, std::uint32_t* words) {
  static_assert(word_groups_together % V::lanes == 0);
  int i = 0;
  for (; i + 2 * V::lanes <= groups; i += 2 * V::lanes)
    fill_together<V, 2>(seed, offset, group + static_cast<std::uint64_t>(i), words + 4 * i);
  if (i < groups) fill_together<V, 1>(seed, offset, group + static_cast<std::uint64_t>(i), words + 4 * i);
}

}  // namespace

#endif
