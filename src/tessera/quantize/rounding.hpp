// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_ROUNDING_HPP
#define TESSERA_QUANTIZE_ROUNDING_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/elementary.hpp>
#include <tessera/quantize.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/stochastic.hpp>

namespace tessera::detail {

/// The scale of each element: groups are 2^row_shift rows by 2^column_shift columns, or whole rows or columns, along
/// which the stride is 0.
struct ScaleMap {
  float* data = nullptr;
  std::int64_t row = 0, column = 0;
  int row_shift = 0, column_shift = 0;

  KOKKOS_FUNCTION bool present() const { return data != nullptr; }
  KOKKOS_FORCEINLINE_FUNCTION float& operator()(std::int64_t i, std::int64_t j) const {
    return data[(i >> row_shift) * row + (j >> column_shift) * column];
  }
  /// Of the transposed matrix.
  ScaleMap transposed() const { return {data, column, row, column_shift, row_shift}; }
};

inline ScaleMap scale_map(RowArray const& scales, Granularity granularity) {
  constexpr int tile_shift = 7;
  static_assert(quantized_tile == 1 << tile_shift);
  bool const square = granularity == Granularity::tile_128x128,
             tiles = square || granularity == Granularity::tile_1x128;
  return {static_cast<float*>(const_cast<void*>(scales.data)), scales.stride[2], scales.stride[3],
          square ? tile_shift : 0, tiles ? tile_shift : 0};
}

/// round_stochastically<To>() of many fp32 numbers, none of them a NaN or an infinity, as numbers of To or, beyond the
/// largest, as what saturates to it.
template <class To>
struct DrawnRounding {
  static constexpr int dropped = 23 - limits<To>::mantissa_bits;
  static constexpr float power(int exponent) { return exponent < 0 ? power(exponent + 1) / 2 : 1.0f; }
  static constexpr float smallest_normal = power(1 - limits<To>::bias),
                         unit = power(1 - limits<To>::bias - limits<To>::mantissa_bits);  // of subnormal numbers

  /// Of 0 and what is no smaller than the normal numbers. The magnitude goes up where the bits that are dropped are
  /// more than those of the word: where their sum with its complement carries.
  KOKKOS_FORCEINLINE_FUNCTION static float normal(float x, std::uint32_t word) {
    std::uint32_t const sum = __builtin_bit_cast(std::uint32_t, x) + (~word >> (32 - dropped));
    return __builtin_bit_cast(float, sum & ~((1u << dropped) - 1));
  }
  /// Of any, the same with units of subnormal numbers in fixed point, 24 bits behind the point. `is_zero`: what was
  /// rounded to x is.
  KOKKOS_FORCEINLINE_FUNCTION static float any(float x, std::uint32_t word, bool is_zero) {
    float const magnitude = Kokkos::fabs(x);
    if (magnitude >= smallest_normal) return normal(x, word);
    auto units = static_cast<std::uint32_t>(Kokkos::ceil(magnitude * (0x1p24f / unit)));
    units = is_zero ? 0 : units > 1 ? units : 1;
    return Kokkos::copysign(static_cast<float>((units + (~word >> 8)) >> 24) * unit, x);
  }
};

/// How quotients become 8-bit numbers.
struct QuotientRounding {
  bool stochastic = false;
  std::uint64_t seed = 0, offset = 0;
  std::int64_t row = 0, column = 0;  // what an element's index grows by
  float cut_off = 0;                 // the smallest magnitude that no number of the type is rounded from

  explicit QuotientRounding(QuantizeProblem const& problem)
      : stochastic(problem.stochastic),
        seed(problem.seed),
        offset(problem.offset),
        row(problem.in.extent[3]),
        column(1),
        cut_off(first_cut_off(problem.out.type)) {}

  /// 448 and 57344 are followed by half a step to what would be 480 and 65536: the first tie goes down to even, the
  /// others up.
  static float first_cut_off(Scalar type) {
    return type == Scalar::e4m3 ? 464.000031f : type == Scalar::e5m2 ? 61440.0f : 127.5f;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool cuts_off(float x, float quotient) const {
    return magnitude_bits(x) < 0x7f800000 && Kokkos::fabs(quotient) >= cut_off;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t index(std::int64_t i, std::int64_t j) const {
    return static_cast<std::uint64_t>(i * row + j * column);
  }
  /// Stochastically, with the word of the element.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION static To with_word(float quotient, std::uint32_t word) {
    if constexpr (std::is_same_v<To, std::int8_t>) {
      float const given = Kokkos::fabs(quotient);
      float const magnitude = chosen(given < 127.0f, given, chosen(quotient == quotient, 127.0f, 0.0f));  // of NaN 0
      auto const whole = static_cast<std::int32_t>(magnitude);
      float const part = magnitude - static_cast<float>(whole);
      bool const up = static_cast<std::int32_t>(word >> 8) < static_cast<std::int32_t>(Kokkos::ceil(part * 0x1p24f));
      std::int32_t const rounded = whole + (up ? 1 : 0);
      return static_cast<To>(quotient < 0 ? -rounded : rounded);
    } else {
      return round_stochastically<To>(quotient, word);
    }
  }
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION To operator()(float quotient, std::int64_t i, std::int64_t j) const {
    return stochastic ? with_word<To>(quotient, philox_shared_word(seed, offset, index(i, j))) : stored<To>(quotient);
  }
};

}  // namespace tessera::detail

#endif
