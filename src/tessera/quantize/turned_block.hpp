// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_TURNED_BLOCK_HPP
#define TESSERA_QUANTIZE_TURNED_BLOCK_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/portable/pack.hpp>
#include <tessera/quantize/blocks.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// A block's transposed copy while it is put together, (columns, rows): columns of 128 bytes in which the 16 pieces of
/// 8 rows lie in an order that spares bank conflicts. The pieces of 16 threads that store together, and the pairs of
/// them that 8 load together, lie in different banks.
struct TurnedBlock {
  static constexpr int side = block_side, width = 8, rows_of_pair = 2 * width;
  using Bytes = Pack<std::uint32_t, 2>;  // eight 8-bit numbers
  static_assert(side == 16 * width, "the order is made for these");

  alignas(16) unsigned char bytes[side * side];

  /// Where a thread's eight rows are in the first of its eight columns; those of the next one begin `side` behind. The
  /// thread says which piece of `rows` and of `columns` it has.
  template <class Thread>
  KOKKOS_FORCEINLINE_FUNCTION unsigned char* piece(Thread const& of) {
    unsigned const pair = (of.rows / 2) ^ (of.columns % 8), half = (of.rows % 2) ^ (of.columns / 8);
    return bytes + of.columns * (width * side) + pair * 16 + half * 8;
  }
  KOKKOS_FORCEINLINE_FUNCTION static void store(unsigned char* to, Bytes const& eight) {
    store_pack<2>(reinterpret_cast<std::uint32_t*>(to), eight);
  }
  /// All of a thread, from its rows, in words of four columns.
  template <class Atoms, class Thread>
  KOKKOS_FORCEINLINE_FUNCTION void store_rows(Thread const& of, Bytes const (&row)[width]) {
    unsigned char* const to = piece(of);
    unroll<2>([&](auto half) {
      std::uint32_t upper[4], lower[4];
      unroll<4>([&](auto k) {
        upper[k] = row[k][half];
        lower[k] = row[k + 4][half];
      });
      Atoms::transpose_bytes(upper);
      Atoms::transpose_bytes(lower);
      unroll<4>([&](auto j) { store(to + (4 * half + j) * side, Bytes{{upper[j], lower[j]}}); });
    });
  }

  /// The place of 16 rows, a pair of pieces, in one of the first 32 columns.
  KOKKOS_FORCEINLINE_FUNCTION static unsigned place_of_pair(unsigned pair, unsigned column) {
    return pair ^ (column / width);
  }
  /// These rows of the column `Below` behind it, a multiple of 32.
  template <int Below>
  KOKKOS_FORCEINLINE_FUNCTION Pack<std::uint32_t, 4> pair(unsigned column, unsigned place) const {
    static_assert(Below % 32 == 0);
    constexpr int pieces = Below / width;
    auto const x = load_pack<4>(reinterpret_cast<std::uint32_t const*>(bytes + (column + Below) * side +
                                                                       (place ^ (pieces % 8)) * rows_of_pair));
    if constexpr (pieces >= 8) return {{x[2], x[3], x[0], x[1]}};
    return x;
  }
};

}  // namespace tessera::detail

#endif
