// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_SHORT_DIVISION_HPP
#define TESSERA_QUANTIZE_SHORT_DIVISION_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/portable/pack.hpp>
#include <tessera/quantize/scale.hpp>

namespace tessera::detail {

/// Division by a scale as products with its reciprocal. `Draws`: rounding draws, and quotients are those of
/// Quotient::rounded().
template <bool Draws>
struct ShortDivision {
  /// The reciprocal of a scale in two parts, the first rounded down; where rounding draws the scale and its reciprocal.
  using Reciprocal = Pack<float, 2>;

  static constexpr MagnitudeBits moderate = 0x5d800000;  // 2^60: quotients by regular scales do not overflow

  /// Whether quotient() is right for a scale. Its error before rounding is below 2^-22 units of fp32, so that a
  /// quotient which lies as near to the middle between two numbers may become the wrong one. That is seen where one of
  /// them is the middle m between two 8-bit numbers: m = k u, k of five bits at most. x is then d m and, but for 2^-21
  /// of it, half a unit of m times d, and a multiple of u times d's last bit; of which follows that d as a number of 24
  /// bits lies 1 to 8 beside a multiple of 2^20.
  /// Where rounding draws the quotient is rounded correctly, of all scales but the largest and the smallest.
  KOKKOS_FORCEINLINE_FUNCTION static bool is_regular(float scale) {
    constexpr std::uint32_t smallest = 0x21800000, largest = 0x5d800000;  // 2^-60, 2^60
    auto const bits = __builtin_bit_cast(std::uint32_t, scale);
    std::uint32_t const beside_multiple = bits & 0xfffff;
    bool const doubtful = !Draws && beside_multiple != 0 && ((beside_multiple + 8) & 0xfffff) <= 16;
    return bits - smallest <= largest - smallest && !doubtful;
  }

  KOKKOS_FORCEINLINE_FUNCTION static Reciprocal reciprocal(float scale) {
    if constexpr (Draws) return {{scale, 1.0f / scale}};
    float first = 1.0f / scale, rest = Kokkos::fma(-scale, first, 1.0f);  // exact
    if (rest < 0) {
      first = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, first) - 1);
      rest = Kokkos::fma(-scale, first, 1.0f);
    }
    return {{first, rest / scale}};
  }
  /// x / scale where that is regular and x moderate. Both parts have the sign of x, also of -0.
  KOKKOS_FORCEINLINE_FUNCTION static float quotient(float x, Reciprocal const& by) {
    return Kokkos::fma(x, by[0], x * by[1]);
  }
};

}  // namespace tessera::detail

#endif
