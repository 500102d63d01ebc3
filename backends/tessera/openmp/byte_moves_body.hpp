// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_BYTE_MOVES_BODY_HPP
#define TESSERA_OPENMP_BYTE_MOVES_BODY_HPP

#include <tessera/openmp/byte_moves.hpp>

// The loops, for a source compiled with the instructions of an instruction set `V`, which provides
//
//     Bytes                   a vector of `squares` times 16 bytes
//     gathered(from, apart)   16 bytes each from there on, so many bytes apart
//     lower(x, y), upper(x, y)  in each 16 bytes, the lower or the upper halves of both, a byte of each in turn
//     store(x, to)            anywhere
//     stream(x, to)           past the caches, to a multiple of the vector's size
namespace {

constexpr int square = 16, line = 64;

/// Squares one below the other. Each step shuffles the rows of the upper half into those of the lower one, like cards;
/// after four of them a row's number and a byte's place in it have changed places.
template <class V>
void transpose_squares(unsigned char const* from, std::ptrdiff_t from_row, unsigned char* to, std::ptrdiff_t to_row) {
  using Bytes = typename V::Bytes;
  Bytes x[square], y[square];
  auto const shuffle = [](Bytes const(&a)[square], Bytes(&b)[square]) __attribute__((always_inline)) {
    for (int i = 0; i < square / 2; ++i) {
      b[2 * i] = V::lower(a[i], a[i + square / 2]);
      b[2 * i + 1] = V::upper(a[i], a[i + square / 2]);
    }
  };
  for (int i = 0; i < square; ++i) x[i] = V::gathered(from + i * from_row, square * from_row);
  shuffle(x, y);
  shuffle(y, x);
  shuffle(x, y);
  shuffle(y, x);
  for (int i = 0; i < square; ++i) V::store(x[i], to + i * to_row);
}

template <class V>
void transpose_bytes(unsigned char const* from, std::ptrdiff_t from_row, int rows, int columns, unsigned char* to,
                     std::ptrdiff_t to_row) {
  for (int r = 0; r < rows; r += V::squares * square)
    for (int c = 0; c < columns; c += square)
      transpose_squares<V>(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
}

template <class V>
void stream_all_lines(void* to, void const* from, std::size_t lines) {
  using Bytes = typename V::Bytes;
  constexpr int vectors = line / static_cast<int>(sizeof(Bytes));
  auto* out = static_cast<unsigned char*>(to);
  auto const* in = static_cast<unsigned char const*>(from);
  for (; lines > 0; --lines, in += line, out += line) {
    Bytes x[vectors];
    __builtin_memcpy(x, in, sizeof x);
    for (int i = 0; i < vectors; ++i) V::stream(x[i], out + i * sizeof(Bytes));
  }
}

template <class V>
constexpr tessera::detail::openmp::ByteMoves all_byte_moves{transpose_bytes<V>, stream_all_lines<V>};

}  // namespace

#endif
