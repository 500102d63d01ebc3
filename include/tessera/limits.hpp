// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_LIMITS_HPP
#define TESSERA_LIMITS_HPP

/// \file
/// The properties of the six floating-point element types.

#include <Kokkos_Macros.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// Properties of the floating-point type T. The numbers are given as double, which holds all of them exactly.
///
/// | type | bits | exponent, mantissa bits | bias | epsilon | max | min_normal | min_subnormal |
/// |------|------|-------------------------|------|---------|-----|------------|---------------|
/// | fp64 | 64 | 11, 52 | 1023 | 2^-52 | 1.798e308 | 2^-1022 | 2^-1074 |
/// | fp32 | 32 | 8, 23 | 127 | 2^-23 | 3.403e38 | 2^-126 | 2^-149 |
/// | fp16 | 16 | 5, 10 | 15 | 2^-10 | 65504 | 2^-14 | 2^-24 |
/// | bf16 | 16 | 8, 7 | 127 | 2^-7 | 3.390e38 | 2^-126 | 2^-133 |
/// | e4m3 | 8 | 4, 3 | 7 | 2^-3 | 448 | 2^-6 | 2^-9 |
/// | e5m2 | 8 | 5, 2 | 15 | 2^-2 | 57344 | 2^-14 | 2^-16 |
template <float_type T>
struct limits {
 private:
  using Format = detail::FloatFormat<T>;
  using Bits = typename Format::bits_type;

  KOKKOS_FUNCTION static constexpr T number(Bits bits) { return __builtin_bit_cast(T, bits); }
  KOKKOS_FUNCTION static constexpr double power_of_two(int exponent) {
    double result = 1;
    for (; exponent < 0; ++exponent) result /= 2;
    for (; exponent > 0; --exponent) result *= 2;
    return result;
  }

 public:
  static constexpr int bits = Format::bits;
  static constexpr int exponent_bits = Format::exponent_bits;
  /// Bits stored after the binary point, without the leading one.
  static constexpr int mantissa_bits = Format::mantissa_bits;
  static constexpr int bias = Format::bias;
  static constexpr bool has_infinity = !Format::finite;
  /// The canonical NaN, the one every conversion gives.
  static constexpr Bits nan_bits = Format::nan_bits;

  /// Distance from 1 to the next larger number, 2^-p for p mantissa bits.
  static constexpr double epsilon = power_of_two(-mantissa_bits);
  /// Largest relative error of one rounding to nearest, epsilon / 2.
  static constexpr double roundoff = epsilon / 2;
  static constexpr double max = static_cast<double>(number(Format::max_bits));
  static constexpr double lowest = -max;
  static constexpr double min_normal = static_cast<double>(number(Format::min_normal_bits));
  static constexpr double min_subnormal = static_cast<double>(number(1));

  /// The largest finite number, as a T.
  KOKKOS_FUNCTION static constexpr T largest() { return number(Format::max_bits); }
  /// The canonical NaN, as a T.
  KOKKOS_FUNCTION static constexpr T quiet_nan() { return number(nan_bits); }
  /// Infinity, as a T; e4m3 has none.
  KOKKOS_FUNCTION static constexpr T infinity() requires(has_infinity) { return number(Format::overflow_bits); }
};

}  // namespace tessera

#endif  // TESSERA_LIMITS_HPP
