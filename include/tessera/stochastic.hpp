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
KOKKOS_INLINE_FUNCTION double power_of_two(int n) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(n + 1023) << 52);
}
/// x 2^n, in two steps because 2^n may not be a normal number.
KOKKOS_INLINE_FUNCTION double times_power_of_two(double x, int n) {
  return x * power_of_two(n / 2) * power_of_two(n - n / 2);
}
/// The exponent of x > 0; that of subnormal numbers is one below the normal ones'.
KOKKOS_INLINE_FUNCTION int exponent_of(double x) {
  return static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 52 & 0x7ff) - 1023;
}

/// The bits of x rounded to T by a random word. Integers and selections only, so that loops over it become SIMD code.
template <class T>
KOKKOS_INLINE_FUNCTION std::uint32_t drawn_bits(float x, std::uint32_t word) {
  using Format = FloatFormat<T>;
  constexpr int dropped = FloatFormat<float>::mantissa_bits - Format::mantissa_bits;
  constexpr int rebias = FloatFormat<float>::bias - Format::bias;
  constexpr std::uint32_t nan = FloatFormat<float>::nan_bits, infinity = FloatFormat<float>::last_bits;
  std::uint32_t const pattern = __builtin_bit_cast(std::uint32_t, x), magnitude = pattern & nan;
  // Up where the bits that are dropped are more than those of the word: where their sum with its complement carries.
  std::uint32_t bits =
      ((magnitude + (~word >> (32 - dropped))) >> dropped) - (std::uint32_t{rebias} << Format::mantissa_bits);
  if constexpr (rebias > 0) {
    // Below the normal numbers of T its numbers count units. What is less than 2^-24 of one goes up as that would.
    constexpr std::uint32_t smallest_normal = std::uint32_t{rebias + 1} << FloatFormat<float>::mantissa_bits;
    constexpr std::uint32_t scale = std::uint32_t{127 - 1 + Format::bias + Format::mantissa_bits} << 23;
    std::uint32_t const small = magnitude < smallest_normal ? magnitude : 0;
    float const units = __builtin_bit_cast(float, small) * __builtin_bit_cast(float, scale),
                whole = Kokkos::floor(units);
    auto const part = static_cast<std::int32_t>(Kokkos::ceil((units - whole) * 0x1p24f));
    std::uint32_t const up = static_cast<std::int32_t>(word >> 8) < part ? 1 : 0;
    bits = magnitude < smallest_normal ? static_cast<std::uint32_t>(static_cast<std::int32_t>(whole)) + up : bits;
  }
  bits = magnitude < __builtin_bit_cast(std::uint32_t, static_cast<float>(limits<T>::max)) ? bits : Format::max_bits;
  std::uint32_t const sign = pattern >> (32 - Format::bits) & Format::sign_bit;
  return magnitude > infinity ? std::uint32_t{Format::nan_bits} : bits | sign;
}

/// x of fp64 rounded to T by a random word.
template <class T>
KOKKOS_INLINE_FUNCTION T drawn(double x, std::uint32_t word) {
  double const magnitude = x < 0 ? -x : x;
  if (!(magnitude < limits<T>::max)) return T::saturate(x);
  constexpr int smallest = 1 - limits<T>::bias;  // exponent of the smallest normal number
  int const own = exponent_of(magnitude), unit = (own < smallest ? smallest : own) - limits<T>::mantissa_bits;
  double const units = times_power_of_two(magnitude, -unit);  // exact, below 2^(mantissa_bits + 1)
  double const whole = Kokkos::floor(units), draw = static_cast<double>(word) * 0x1p-32;
  double const rounded = times_power_of_two(draw < units - whole ? whole + 1 : whole, unit);
  return T::saturate(x < 0 ? -rounded : rounded);
}

}  // namespace detail

/// x rounded to one of its two neighbours of T, a 16- or 8-bit type: with the random 32-bit word w to the larger one in
/// magnitude where w 2^-32 is less than the distance from the smaller one, as a fraction of that between the two. (fp32
/// uses 24 bits of w, all that its fractions have.) Numbers of T stay as they are; what is beyond the largest one
/// becomes that, infinities too; NaN stays NaN.
template <class T, std::floating_point R>
KOKKOS_INLINE_FUNCTION T round_stochastically(R x, std::uint32_t word) {
  if constexpr (std::is_same_v<R, float>)
    return T::from_bits(static_cast<typename T::bits_type>(detail::drawn_bits<T>(x, word)));
  else
    return detail::drawn<T>(x, word);
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
    return drawn(philox_word(seed_, offset_, static_cast<std::uint64_t>(index)), x);
  }

  KOKKOS_FUNCTION constexpr std::uint64_t seed() const { return seed_; }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const { return offset_; }
  /// The same with the word of the element.
  template <class U>
  KOKKOS_INLINE_FUNCTION auto drawn(std::uint32_t word, U x) const {
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
