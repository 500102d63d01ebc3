// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/byte_moves_body.hpp>

namespace {

struct Avx2 {
  using Bytes = __m256i;
  static constexpr int squares = 2;

  static Bytes gathered(unsigned char const* from, std::ptrdiff_t apart) {
    auto const at = [&](int i) { return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i * apart)); };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(1), 1);
  }
  static Bytes lower(Bytes x, Bytes y) { return _mm256_unpacklo_epi8(x, y); }
  static Bytes upper(Bytes x, Bytes y) { return _mm256_unpackhi_epi8(x, y); }
  static void store(Bytes x, unsigned char* to) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static void stream(Bytes x, unsigned char* to) { _mm256_stream_si256(reinterpret_cast<__m256i*>(to), x); }
};

}  // namespace

namespace tessera::detail::openmp {

extern ByteMoves const byte_moves_avx2;
ByteMoves const byte_moves_avx2 = all_byte_moves<Avx2>;

}  // namespace tessera::detail::openmp
