// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DUAL_HPP
#define TESSERA_DUAL_HPP

/// \file
/// Forward-mode differentiation: a function of one argument, called with a Dual whose slope is 1, returns its value and
/// its derivative (Griewank and Walther, "Evaluating Derivatives", 2008). Functions are found by their argument: a
/// functor that is to be differentiated calls them without a namespace, as in `using Kokkos::tanh; return tanh(s);`.

#include <Kokkos_Core.hpp>
#include <type_traits>

namespace tessera {

/// value + slope·e with e² = 0. Comparisons are those of the values.
template <class T>
struct Dual {
  T value = 0, slope = 0;

  Dual() = default;
  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual(T x, T derivative) : value(x), slope(derivative) {}
  /// A constant.
  template <class Number>
  requires std::is_arithmetic_v<Number> KOKKOS_FORCEINLINE_FUNCTION constexpr Dual(Number x)
      : value(static_cast<T>(x)) {}

  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual operator-() const { return {-value, -slope}; }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr Dual operator+(Dual a, Dual b) {
    return {a.value + b.value, a.slope + b.slope};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr Dual operator-(Dual a, Dual b) {
    return {a.value - b.value, a.slope - b.slope};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.slope * b.value + a.value * b.slope};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr Dual operator/(Dual a, Dual b) {
    T const quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual& operator+=(Dual b) { return *this = *this + b; }
  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual& operator-=(Dual b) { return *this = *this - b; }
  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual& operator*=(Dual b) { return *this = *this * b; }
  KOKKOS_FORCEINLINE_FUNCTION constexpr Dual& operator/=(Dual b) { return *this = *this / b; }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr bool operator==(Dual a, Dual b) { return a.value == b.value; }
  KOKKOS_FORCEINLINE_FUNCTION friend constexpr auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }

  KOKKOS_FORCEINLINE_FUNCTION friend Dual exp(Dual x) {
    T const y = Kokkos::exp(x.value);
    return {y, y * x.slope};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual log(Dual x) { return {Kokkos::log(x.value), x.slope / x.value}; }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual sqrt(Dual x) {
    T const y = Kokkos::sqrt(x.value);
    return {y, x.slope / (2 * y)};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual tanh(Dual x) {
    T const y = Kokkos::tanh(x.value);
    return {y, (1 - y * y) * x.slope};
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual sin(Dual x) { return {Kokkos::sin(x.value), Kokkos::cos(x.value) * x.slope}; }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual cos(Dual x) {
    return {Kokkos::cos(x.value), -Kokkos::sin(x.value) * x.slope};
  }
  /// The slope at 0 is that to the right.
  KOKKOS_FORCEINLINE_FUNCTION friend Dual abs(Dual x) { return x.value < 0 ? -x : x; }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual fabs(Dual x) { return x.value < 0 ? -x : x; }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual fmin(Dual a, Dual b) { return b.value < a.value ? b : a; }
  KOKKOS_FORCEINLINE_FUNCTION friend Dual fmax(Dual a, Dual b) { return a.value < b.value ? b : a; }
};

}  // namespace tessera

#endif
