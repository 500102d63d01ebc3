// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <immintrin.h>

#include <tessera/openmp/byte_moves_body.hpp>

namespace {

struct Avx512 {
  using Bytes = __m512i;
  static constexpr int squares = 4;

  /// Inserted from memory, which takes no shuffle.
  static Bytes gathered(unsigned char const* from, std::ptrdiff_t apart) {
    auto const at = [&](int i) { return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i * apart)); };
    Bytes x = _mm512_castsi128_si512(at(0));
    x = _mm512_inserti32x4(x, at(1), 1);
    x = _mm512_inserti32x4(x, at(2), 2);
    return _mm512_inserti32x4(x, at(3), 3);
  }
  static Bytes lower(Bytes x, Bytes y) { return _mm512_unpacklo_epi8(x, y); }
  static Bytes upper(Bytes x, Bytes y) { return _mm512_unpackhi_epi8(x, y); }
  static void store(Bytes x, unsigned char* to) { _mm512_storeu_si512(to, x); }
  static void stream(Bytes x, unsigned char* to) { _mm512_stream_si512(reinterpret_cast<__m512i*>(to), x); }
};

}  // namespace

namespace tessera::detail::openmp {

extern ByteMoves const byte_moves_avx512;
ByteMoves const byte_moves_avx512 = all_byte_moves<Avx512>;

}  // namespace tessera::detail::openmp
