// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/random_words_body.hpp>

namespace {

struct Avx512 {
  typedef std::uint64_t Lanes __attribute__((vector_size(64)));
  static constexpr int lanes = 8;

  static Lanes all(std::uint64_t x) { return reinterpret_cast<Lanes>(_mm512_set1_epi64(static_cast<long long>(x))); }
  static Lanes first() { return Lanes{0, 1, 2, 3, 4, 5, 6, 7}; }
  static Lanes product(Lanes x, Lanes y) {
    return reinterpret_cast<Lanes>(_mm512_mul_epu32(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
  }
  static Lanes changed(Lanes x, Lanes y, Lanes z) {
    constexpr int a_xor_b_xor_c = 0x96;
    return reinterpret_cast<Lanes>(_mm512_ternarylogic_epi64(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y),
                                                             reinterpret_cast<__m512i>(z), a_xor_b_xor_c));
  }
  static void store(Lanes c0, Lanes c1, Lanes c2, Lanes c3, std::uint32_t* words) {
    __m512i const first = joined(c0, c1), second = joined(c2, c3);
    __m512i const low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(first, high, second));
  }

 private:
  /// Lower halves, those of `odd` behind those of `even`.
  static __m512i joined(Lanes even, Lanes odd) {
    return _mm512_mask_shuffle_epi32(reinterpret_cast<__m512i>(even), 0xaaaa, reinterpret_cast<__m512i>(odd),
                                     _MM_PERM_CCAA);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RandomWords const random_words_avx512;
RandomWords const random_words_avx512 = fill_words<Avx512>;

}  // namespace tessera::detail::openmp
