// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_STOCHASTIC_HPP
#define TESSERA_STOCHASTIC_HPP

/// \file
/// Stochastic rounding: up or down with probabilities that make the result right on average, so that many small updates
/// of a number of few bits are not lost. (M. P. Connolly, N. J. Higham, T. Mary, "Stochastic rounding and its
/// probabilistic backward error analysis", 2021.)

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/derivatives.hpp>
#include <tessera/functors.hpp>
#include <tessera/limits.hpp>
#include <tessera/philox.hpp>

namespace tessera {

namespace detail {

/// 2^n, for normal results.
KOKKOS_INLINE_FUNCTION float power_of_two(int n, float) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(n + 127) << 23);
}
KOKKOS_INLINE_FUNCTION double power_of_two(int n, double) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(n + 1023) << 52);
}
/// x 2^n, in two steps because 2^n may not be a normal number.
template <class R>
KOKKOS_INLINE_FUNCTION R times_power_of_two(R x, int n) {
  return x * power_of_two(n / 2, x) * power_of_two(n - n / 2, x);
}
/// The exponent of x > 0; that of subnormal numbers is one below the normal ones'.
KOKKOS_INLINE_FUNCTION int exponent_of(float x) {
  return static_cast<int>(__builtin_bit_cast(std::uint32_t, x) >> 23 & 0xff) - 127;
}
KOKKOS_INLINE_FUNCTION int exponent_of(double x) {
  return static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 52 & 0x7ff) - 1023;
}

}  // namespace detail

/// x rounded to one of its two neighbours of T, a 16- or 8-bit type: with the random 32-bit word w to the larger one in
/// magnitude where w 2^-32 is less than the distance from the smaller one, as a fraction of that between the two. (fp32
/// uses 24 bits of w, all that its fractions have.) Numbers of T stay as they are; what is beyond the largest one
/// becomes that, infinities too; NaN stays NaN.
template <class T, std::floating_point R>
KOKKOS_INLINE_FUNCTION T round_stochastically(R x, std::uint32_t word) {
  constexpr R largest = static_cast<R>(limits<T>::max);
  R const magnitude = x < R(0) ? -x : x;
  if (!(magnitude < largest)) return T::saturate(x);
  constexpr int smallest = 1 - limits<T>::bias;  // exponent of the smallest normal number
  int const own = detail::exponent_of(magnitude), unit = (own < smallest ? smallest : own) - limits<T>::mantissa_bits;
  R const units = detail::times_power_of_two(magnitude, -unit);  // exact, below 2^(mantissa_bits + 1)
  R const whole = Kokkos::floor(units);
  R const draw = sizeof(R) == 4 ? static_cast<R>(word >> 8) * static_cast<R>(0x1p-24)
                                : static_cast<R>(word) * static_cast<R>(0x1p-32);
  R const rounded = detail::times_power_of_two(draw < units - whole ? whole + R(1) : whole, unit);
  return T::saturate(x < R(0) ? -rounded : rounded);
}

namespace fn {

/// x rounded to T by round_stochastically(), as fp32: storing it in a View of T is exact. The word is that of the
/// element's index by Philox: it depends on (seed, offset, index) alone, so the bits are the same on every backend; use
/// a new offset for every step.
template <class T>
class stochastic_cast {
 public:
  static constexpr bool wants_index = true;

  explicit constexpr stochastic_cast(std::uint64_t seed, std::uint64_t offset = 0) : seed_(seed), offset_(offset) {}

  template <class U>
  KOKKOS_INLINE_FUNCTION auto operator()(std::int64_t index, U x) const {
    std::uint32_t const word = philox_word(seed_, offset_, static_cast<std::uint64_t>(index));
    return static_cast<float>(round_stochastically<T>(detail::real(x), word));
  }

 private:
  std::uint64_t seed_, offset_;
};

}  // namespace fn

/// As if nothing were rounded.
template <class To>
struct derivative<fn::stochastic_cast<To>> {
  template <int I, class T>
  KOKKOS_INLINE_FUNCTION static auto at(fn::stochastic_cast<To> const&, std::int64_t, T) {
    return detail::RealOf<T>(1);
  }
};

}  // namespace tessera

#endif
