// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/random_words_body.hpp>

namespace {

struct Avx2 {
  typedef std::uint64_t Lanes __attribute__((vector_size(32)));
  static constexpr int lanes = 4;

  static Lanes all(std::uint64_t x) { return reinterpret_cast<Lanes>(_mm256_set1_epi64x(static_cast<long long>(x))); }
  static Lanes first() { return Lanes{0, 1, 2, 3}; }
  static Lanes product(Lanes x, Lanes y) {
    return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
  }
  static Lanes changed(Lanes x, Lanes y, Lanes z) { return x ^ y ^ z; }
  static void store(Lanes c0, Lanes c1, Lanes c2, Lanes c3, std::uint32_t* words) {
    __m256i const first = joined(c0, c1), second = joined(c2, c3);
    __m256i const even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
    auto* const to = reinterpret_cast<__m256i*>(words);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }

 private:
  /// Lower halves, those of `odd` behind those of `even`.
  static __m256i joined(Lanes even, Lanes odd) {
    return _mm256_blend_epi32(reinterpret_cast<__m256i>(even), reinterpret_cast<__m256i>(odd << 32), 0xaa);
  }
};

}  // namespace

namespace tessera::detail::openmp {

extern RandomWords const random_words_avx2;
RandomWords const random_words_avx2 = fill_words<Avx2>;

}  // namespace tessera::detail::openmp
