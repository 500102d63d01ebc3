// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_MAGNITUDE_HPP
#define TESSERA_ELEMENT_MAGNITUDE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

namespace tessera::detail {

/// Maxima of |x| are taken of the bits, as integers: exact in any order, and a NaN is larger than everything.
using MagnitudeBits = std::int32_t;

KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits magnitude_bits(float x) {
  return static_cast<MagnitudeBits>(__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu);
}

/// Magnitudes as T, fp32 or a float of 16 bits, stores them: those of 16 bits are twice as many a vector, and not
/// widened.
template <class T>
struct StoredMagnitude {
  using Bits = std::conditional_t<sizeof(T) == 2, std::int16_t, MagnitudeBits>;

  KOKKOS_FORCEINLINE_FUNCTION static Bits of(T x) {
    if constexpr (sizeof(T) == 2)
      return static_cast<Bits>(x.bits() & 0x7fff);
    else
      return magnitude_bits(x);
  }
  KOKKOS_FORCEINLINE_FUNCTION static MagnitudeBits widened(Bits bits) {
    if constexpr (sizeof(T) == 2)
      return magnitude_bits(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(bits))));
    else
      return bits;
  }
};

/// The largest magnitude of n neighbours; a NaN is larger than everything.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits largest_magnitude(T const* from, int n) {
  using Stored = StoredMagnitude<T>;
  typename Stored::Bits top = 0;
  for (int i = 0; i < n; ++i) {
    auto const x = Stored::of(from[i]);
    top = x > top ? x : top;
  }
  return Stored::widened(top);
}

}  // namespace tessera::detail

#endif
