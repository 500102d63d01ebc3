// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_COMMON_MODEL_FORMAT_HPP
#define TESSERA_COMMON_MODEL_FORMAT_HPP

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <tessera/error.hpp>

namespace tessera::model::detail {

/// Throws Error{code} with "model::<function>: <message>" unless the condition holds.
inline void require(bool condition, ErrorCode code, char const* function, std::string const& message) {
  if (!condition) throw Error(code, std::string("model::") + function + ": " + message);
}

inline void require_extent(char const* function, char const* name, std::int64_t value) {
  require(value >= 0, ErrorCode::extent, function,
          std::string(name) + " is " + std::to_string(value) + ", must be >= 0");
}

inline void require_at_least_one(char const* function, char const* name, std::int64_t value) {
  require(value >= 1, ErrorCode::value, function,
          std::string(name) + " is " + std::to_string(value) + ", must be >= 1");
}

/// Four significant digits.
inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// A figure with a decimal prefix: 3.35e12 and "B/s" -> "3.35 TB/s"; seconds get milli, micro and nano.
inline std::string with_unit(double value, char const* unit) {
  struct Prefix {
    double factor;
    char const* name;
  };
  static constexpr Prefix large[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  static constexpr Prefix small[] = {{1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}};
  double const magnitude = std::fabs(value);
  for (Prefix const& p : large)
    if (magnitude >= p.factor) return number(value / p.factor) + " " + p.name + unit;
  if (magnitude > 0 && magnitude < 1) {
    for (Prefix const& p : small)
      if (magnitude >= p.factor) return number(value / p.factor) + " " + p.name + unit;
    return number(value * 1e9) + " n" + unit;
  }
  return number(value) + " " + unit;
}

inline std::string percent(double fraction) { return number(100 * fraction) + " %"; }

}  // namespace tessera::model::detail

#endif
