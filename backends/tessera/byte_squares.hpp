// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_BYTE_SQUARES_HPP
#define TESSERA_BYTE_SQUARES_HPP

#include <Kokkos_Macros.hpp>
#include <cstddef>

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <emmintrin.h>
#endif

namespace tessera::detail {

inline constexpr int byte_square = 16;

/// to[j * to_row + i] = from[i * from_row + j] for i and j in [0, byte_square).
KOKKOS_FORCEINLINE_FUNCTION void transpose_byte_square(unsigned char const* from, std::ptrdiff_t from_row,
                                                       unsigned char* to, std::ptrdiff_t to_row) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  // Each step shuffles the rows of the upper half into those of the lower one, like cards; after four of them a row's
  // number and a byte's place in it have changed places.
  __m128i x[byte_square], y[byte_square];
  auto const shuffle = [](__m128i const(&a)[byte_square], __m128i(&b)[byte_square]) __attribute__((always_inline)) {
    for (int i = 0; i < byte_square / 2; ++i) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + byte_square / 2]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + byte_square / 2]);
    }
  };
  for (int i = 0; i < byte_square; ++i) x[i] = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i * from_row));
  shuffle(x, y);
  shuffle(y, x);
  shuffle(x, y);
  shuffle(y, x);
  for (int i = 0; i < byte_square; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_row), x[i]);
#else
  for (int i = 0; i < byte_square; ++i)
    for (int j = 0; j < byte_square; ++j) to[j * to_row + i] = from[i * from_row + j];
#endif
}

}  // namespace tessera::detail

#endif
