// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <emmintrin.h>

#include <tessera/openmp/byte_moves_body.hpp>

namespace {

struct Baseline {
  using Bytes = __m128i;
  static constexpr int squares = 1;

  static Bytes gathered(unsigned char const* from, std::ptrdiff_t) {
    return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
  }
  static Bytes lower(Bytes x, Bytes y) { return _mm_unpacklo_epi8(x, y); }
  static Bytes upper(Bytes x, Bytes y) { return _mm_unpackhi_epi8(x, y); }
  static void store(Bytes x, unsigned char* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), x); }
  static void stream(Bytes x, unsigned char* to) { _mm_stream_si128(reinterpret_cast<__m128i*>(to), x); }
};

}  // namespace

namespace tessera::detail::openmp {

extern ByteMoves const byte_moves_baseline;
ByteMoves const byte_moves_baseline = all_byte_moves<Baseline>;

}  // namespace tessera::detail::openmp
