// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_MX_ROWS_HPP
#define TESSERA_QUANTIZE_MX_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/divisor.hpp>
#include <tessera/mx.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/stochastic.hpp>

namespace tessera::detail {

/// The scale of a block, as e8m0, from the bits of its largest magnitude.
KOKKOS_FORCEINLINE_FUNCTION std::uint8_t mx_scale(MagnitudeBits amax, Scalar quantized, MxScale how) {
  if (amax >= 0x7f800000) return 255;
  if (amax == 0) return 127;
  // 448 = 1.75 2^8, 57344 = 1.75 2^15; a subnormal magnitude counts as the smallest normal one, whose scale is the
  // smallest there is.
  constexpr MagnitudeBits three_quarters = 0x600000;
  int scale = (amax >> 23) - (quantized == Scalar::e4m3 ? 8 : 15);
  if (how == MxScale::up && (amax & 0x7fffff) > three_quarters) ++scale;
  return static_cast<std::uint8_t>(scale < 0 ? 0 : scale);
}
/// 1 / scale, a power of two from 2^-127 to 2^127.
KOKKOS_FORCEINLINE_FUNCTION float mx_factor(std::uint8_t scale) {
  return static_cast<float>(e8m0_t::from_bits(scale == 255 ? 255 : static_cast<std::uint8_t>(254 - scale)));
}

/// What both kernels of a direction know.
struct MxRows {
  Operand out, in;
  std::uint8_t* scales;
  std::int64_t scale_row, scale_column, columns, blocks;  // blocks of a row
  Divisor by_blocks;
  bool small;  // fewer than 2^31 blocks
  Scalar quantized;
  MxOptions options;

  struct Place {
    std::int64_t row, block;
  };
  KOKKOS_FORCEINLINE_FUNCTION Place place(std::int64_t index) const {
    std::int64_t const row = by_blocks.quotient(index, small);
    return {row, index - row * blocks};
  }
  /// Elements of a block.
  KOKKOS_FORCEINLINE_FUNCTION int count(Place const& at) const {
    std::int64_t const left = columns - at.block * mx_block;
    return static_cast<int>(left < mx_block ? left : mx_block);
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint8_t& scale(Place const& at) const {
    return scales[at.row * scale_row + at.block * scale_column];
  }
  /// Of an element, in Philox's sequence.
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::uint64_t>(row * columns + column);
  }
  /// Element `column` of a row, already divided by its scale.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION To rounded(float x, std::int64_t row, std::int64_t column) const {
    if (!options.stochastic) return To::saturate(x);
    return round_stochastically<To>(x, philox_shared_word(options.seed, options.offset, index(row, column)));
  }
};

}  // namespace tessera::detail

#endif
