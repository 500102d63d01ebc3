// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REFERENCE_FLOAT_FORMATS_HPP
#define TESSERA_TESTS_REFERENCE_FLOAT_FORMATS_HPP

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <tessera/types.hpp>
#include <type_traits>
#include <vector>

// The floating-point formats from their definitions, with nothing taken from the library but the names of the types:
// numbers are decoded with ldexp, and rounding looks for the nearest entry of the sorted table of all finite numbers.
namespace tessera::reference {

struct FormatParameters {
  int bits, exponent_bits, mantissa_bits, bias;
  bool infinities;
};

template <class T>
constexpr FormatParameters parameters() {
  if constexpr (std::is_same_v<T, double>) return {64, 11, 52, 1023, true};
  if constexpr (std::is_same_v<T, float>) return {32, 8, 23, 127, true};
  if constexpr (std::is_same_v<T, fp16_t>) return {16, 5, 10, 15, true};
  if constexpr (std::is_same_v<T, bf16_t>) return {16, 8, 7, 127, true};
  if constexpr (std::is_same_v<T, e4m3_t>) return {8, 4, 3, 7, false};
  if constexpr (std::is_same_v<T, e5m2_t>) return {8, 5, 2, 15, true};
}

template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

template <class T>
BitsOf<T> bits_of(T x) {
  return std::bit_cast<BitsOf<T>>(x);
}

/// The one NaN that conversions give: positive, all other bits set.
template <class T>
constexpr BitsOf<T> canonical_nan() {
  return std::numeric_limits<BitsOf<T>>::max() / 2;
}

/// The value of a pattern, from the definition of the format.
template <class T>
double decode(BitsOf<T> pattern) {
  constexpr FormatParameters f = parameters<T>();
  std::uint64_t const wide = pattern;
  bool const negative = (wide >> (f.bits - 1)) & 1;
  int const exponent = static_cast<int>((wide >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1));
  std::uint64_t const mantissa = wide & ((std::uint64_t{1} << f.mantissa_bits) - 1);
  bool const last_exponent = exponent == (1 << f.exponent_bits) - 1;
  bool const last_mantissa = mantissa == (std::uint64_t{1} << f.mantissa_bits) - 1;
  double magnitude = 0;
  if (f.infinities && last_exponent)
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (!f.infinities && last_exponent && last_mantissa)
    magnitude = std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissa_bits);
  else
    magnitude = std::ldexp(static_cast<double>(mantissa) + std::ldexp(1.0, f.mantissa_bits),
                           exponent - f.bias - f.mantissa_bits);
  return std::copysign(magnitude, negative ? -1.0 : 1.0);
}

template <class T>
double decode(T x) {
  return decode<T>(bits_of(x));
}

/// All finite numbers of a 16- or 8-bit format that are not negative, ascending; their index is their pattern.
template <class T>
std::vector<double> const& finite_numbers() {
  static std::vector<double> const table = [] {
    std::vector<double> numbers;
    for (BitsOf<T> pattern = 0; std::isfinite(decode<T>(pattern)); ++pattern) numbers.push_back(decode<T>(pattern));
    return numbers;
  }();
  return table;
}

/// The pattern that x must be rounded to: nearest, ties to the even pattern. Exact: a point halfway between two numbers
/// of 16 or 8 bits is a double.
template <class T>
BitsOf<T> nearest_pattern(double x, bool saturate) {
  if (std::isnan(x)) return canonical_nan<T>();
  auto const sign = static_cast<BitsOf<T>>(std::signbit(x) ? canonical_nan<T>() + 1 : 0);
  double const magnitude = std::fabs(x);
  std::size_t pattern = 0;
  bool overflow = false;
  if constexpr (std::is_same_v<T, double>) {
    pattern = std::bit_cast<std::uint64_t>(magnitude);
    overflow = std::isinf(x);
  } else if constexpr (std::is_same_v<T, float>) {
    pattern = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));  // the machine's own rounding
    overflow = std::isinf(static_cast<float>(magnitude));
  } else {
    auto const& table = finite_numbers<T>();
    std::size_t const last = table.size() - 1;
    pattern = static_cast<std::size_t>(std::upper_bound(table.begin(), table.end(), magnitude) - table.begin()) - 1;
    double const above = pattern < last ? table[pattern + 1] : 2 * table[last] - table[last - 1];
    double const halfway = table[pattern] + (above - table[pattern]) / 2;
    if (magnitude > halfway || (magnitude == halfway && pattern % 2 == 1)) ++pattern;
    overflow = pattern > last;
  }
  if (!overflow) return static_cast<BitsOf<T>>(sign | pattern);
  if (saturate) {
    auto const largest = parameters<T>().infinities
                             ? canonical_nan<T>() - (std::uint64_t{1} << parameters<T>().mantissa_bits)
                             : canonical_nan<T>() - 1;
    return static_cast<BitsOf<T>>(sign | largest);
  }
  if (!parameters<T>().infinities) return canonical_nan<T>();
  return static_cast<BitsOf<T>>(sign | (canonical_nan<T>() + 1 - (std::uint64_t{1} << parameters<T>().mantissa_bits)));
}

/// Every number of a 16- or 8-bit format and every point halfway between neighbours, with the `From` next to each on
/// both sides: where rounding changes its mind.
template <class From, class T>
void append_decision_points(std::vector<From>& sample) {
  auto const append = [&](double x) {
    auto const point = static_cast<From>(x);
    for (From const y :
         {std::nextafter(point, From(0)), point, std::nextafter(point, std::numeric_limits<From>::max())}) {
      sample.push_back(y);
      sample.push_back(-y);
    }
  };
  auto const& table = finite_numbers<T>();
  for (std::size_t i = 0; i < table.size(); ++i) {
    double const above = i + 1 < table.size() ? table[i + 1] : 2 * table[i] - table[i - 1];
    append(table[i]);
    append(table[i] + (above - table[i]) / 2);
  }
}

/// Inputs of a cast from float or double: steps through all patterns, the neighbourhood of every exponent, the decision
/// points of every narrower format, every kind of NaN, infinities, zeros, extremes.
template <class From>
std::vector<From> dense_sample() {
  using Bits = BitsOf<From>;
  constexpr FormatParameters f = parameters<From>();
  std::vector<From> sample;
  Bits const stride = static_cast<Bits>((std::uint64_t{1} << (f.bits - 18)) + 0x1357);
  for (std::uint64_t i = 0; i < (1u << 18); ++i) sample.push_back(std::bit_cast<From>(static_cast<Bits>(i * stride)));
  for (Bits exponent = 0; exponent < (Bits{1} << (f.exponent_bits + 1)); ++exponent)
    for (int near = -3; near <= 3; ++near)
      sample.push_back(std::bit_cast<From>(static_cast<Bits>((exponent << f.mantissa_bits) + static_cast<Bits>(near))));
  append_decision_points<From, fp16_t>(sample);
  append_decision_points<From, bf16_t>(sample);
  append_decision_points<From, e4m3_t>(sample);
  append_decision_points<From, e5m2_t>(sample);
  if constexpr (std::is_same_v<From, double>) {
    // Around random floats and the points halfway between them: what two roundings in a row would get wrong.
    std::mt19937_64 engine(20);
    for (int i = 0; i < 50000; ++i) {
      auto const pattern = static_cast<std::uint32_t>(engine()) & 0x7f7fffffu;
      double const low = std::bit_cast<float>(pattern), high = std::bit_cast<float>(pattern + 1);
      for (double const point : {low, low + (high - low) / 2})
        for (double const x : {std::nextafter(point, 0.0), point, std::nextafter(point, 1e300)}) {
          sample.push_back(x);
          sample.push_back(-x);
        }
    }
  }
  return sample;
}

}  // namespace tessera::reference

#endif
