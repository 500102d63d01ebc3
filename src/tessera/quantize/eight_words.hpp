// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_EIGHT_WORDS_HPP
#define TESSERA_QUANTIZE_EIGHT_WORDS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/portable/pack.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/unroll.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// Eight elements of T as the words they came in: a compiler that sees 16-bit numbers takes words apart.
template <class Exec, class T>
struct EightWords {
  static constexpr int width = 8, words = width * static_cast<int>(sizeof(T)) / 4;
  using Atoms = WarpAtoms<Exec>;
  using Words = Pack<std::uint32_t, words>;
  using Values = Pack<float, width>;

  KOKKOS_FORCEINLINE_FUNCTION static MagnitudeBits magnitude_of(std::uint32_t word) {
    if constexpr (sizeof(T) == 2) {
      std::uint32_t const larger = Atoms::template larger_magnitudes<T>(word, word >> 16);
      return magnitude_bits(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(larger))));
    } else {
      return static_cast<MagnitudeBits>(word);
    }
  }
  /// Elements 2 j and 2 j + 1.
  KOKKOS_FORCEINLINE_FUNCTION static Pack<float, 2> pair(Words const& raw, int j) {
    if constexpr (sizeof(T) == 2) {
      using Pair = Pack<T, 2>;
      return Atoms::widened(__builtin_bit_cast(Pair, raw[j]));
    } else {
      return {{__builtin_bit_cast(float, raw[2 * j]), __builtin_bit_cast(float, raw[2 * j + 1])}};
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION static Values elements(Words const& raw) {
    Values x;
    unroll<width / 2>([&](auto j) {
      Pack<float, 2> const two = pair(raw, j);
      x[2 * j] = two[0];
      x[2 * j + 1] = two[1];
    });
    return x;
  }
};

}  // namespace tessera::detail

#endif
