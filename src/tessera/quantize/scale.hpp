// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_SCALE_HPP
#define TESSERA_QUANTIZE_SCALE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/rowwise/operand.hpp>

namespace tessera::detail {

using WideTypes = TypeList<bf16_t, fp16_t, float, double>;
using QuantizedTypes = TypeList<e4m3_t, e5m2_t, std::int8_t>;

/// Maxima of |x| are taken of the bits, as integers: exact in any order, and a NaN is larger than everything.
using MagnitudeBits = std::int32_t;

KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits magnitude_bits(float x) {
  return static_cast<MagnitudeBits>(__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu);
}

/// The one canonical NaN in place of whichever had the largest payload.
KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits canonical(MagnitudeBits bits) {
  return bits > 0x7f800000 ? 0x7fffffff : bits;
}

KOKKOS_FORCEINLINE_FUNCTION float scale_of(MagnitudeBits amax, float largest) {
  constexpr float smallest = 1.17549435e-38f;  // 2^-126
  if (amax == 0) return 1.0f;
  if (amax > 0x7f800000) return __builtin_bit_cast(float, MagnitudeBits{0x7fffffff});
  float const scale = __builtin_bit_cast(float, amax) / largest;
  return scale < smallest ? smallest : scale;
}

/// *to = max(*to, amax) among the teams; looks before it writes, as few tiles raise the maximum.
KOKKOS_FORCEINLINE_FUNCTION void raise(float* to, MagnitudeBits amax) {
  auto* const bits = reinterpret_cast<MagnitudeBits*>(to);
  if (amax > Kokkos::atomic_load(bits)) Kokkos::atomic_max(bits, amax);
}

}  // namespace tessera::detail

#endif
