// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_CONVERT_HPP
#define TESSERA_ELEMENT_CONVERT_HPP

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/pack_conversion.hpp>
#include <tessera/types.hpp>

// Between the types that are stored and the types that are computed with.
namespace tessera::detail {

template <class T>
concept narrow_type = float_type<T> && !std::floating_point<T>;

/// Types of no more than eight significant bits.
template <class T>
inline constexpr bool few_bits = false;
template <narrow_type T>
inline constexpr bool few_bits<T> = FloatFormat<T>::mantissa_bits < 8;

/// fp64 when one of the operands is, fp32 otherwise.
template <class... T>
using Real = std::conditional_t<(std::is_same_v<T, double> || ...), double, float>;

/// What a functor is given for a stored x: floating-point numbers in `R` (fp32 or fp64), everything else as it is.
template <class R, class T>
KOKKOS_INLINE_FUNCTION constexpr auto widen(T x) {
  if constexpr (narrow_type<T> || std::is_same_v<T, float>)
    return static_cast<R>(x);
  else
    return x;
}
template <class R, class T>
using Widened = decltype(widen<R>(std::declval<T>()));

/// The nearest integer, ties to even, saturated; NaN gives 0. Selections only, so that loops over it become SIMD code.
template <std::integral To, std::floating_point From>
KOKKOS_INLINE_FUNCTION To round_to_integer(From x) {
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  constexpr From end = static_cast<From>(high / 2 + 1) * 2;  // 2^digits, the first value too large
  From const floor = Kokkos::floor(x);
  From const rest = x - floor;
  bool const odd = Kokkos::floor(floor * From(0.5)) * 2 != floor;
  From const nearest = rest > From(0.5) || (rest == From(0.5) && odd) ? floor + 1 : floor;
  bool const inside = nearest > static_cast<From>(low) && nearest < end;
  To const whole = static_cast<To>(inside ? nearest : From(0));
  To const outside = x != x ? To(0) : (nearest < end ? low : high);
  return inside ? whole : outside;
}

template <std::integral To, std::integral From>
KOKKOS_INLINE_FUNCTION constexpr To saturate_integer(From x) {
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  if (x > 0 && static_cast<std::uint64_t>(x) > static_cast<std::uint64_t>(high)) return high;
  if constexpr (std::is_signed_v<From>)
    if (x < 0 && static_cast<std::int64_t>(x) < static_cast<std::int64_t>(low)) return low;
  return static_cast<To>(x);
}

/// Converts a result to the type it is stored in: floating-point types with one rounding to nearest even, integers the
/// same and saturated (NaN gives 0), bool as "is not zero", other types by their own conversion.
template <class To, class From>
KOKKOS_INLINE_FUNCTION To round_to(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (narrow_type<From>)
    return round_to<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != From(0);
  else if constexpr (std::integral<To> && std::is_same_v<From, bool>)
    return static_cast<To>(x);
  else if constexpr (std::integral<To> && std::integral<From>)
    return saturate_integer<To>(x);
  else if constexpr (std::integral<To> && std::floating_point<From>)
    return round_to_integer<To>(x);
  else if constexpr (narrow_type<To> && std::integral<From>)
    return To(static_cast<double>(x));
  else
    return static_cast<To>(x);
}

/// Both for whole packs.
template <class R, class T, int N>
KOKKOS_FORCEINLINE_FUNCTION Pack<Widened<R, T>, N> widen_pack(Pack<T, N> const& x) {
  if constexpr (narrow_type<T> && std::is_same_v<R, float>) {
    return widened_pack(x);
  } else {
    Pack<Widened<R, T>, N> y;
    unroll<N>([&](auto i) { y[i] = widen<R>(x[i]); });
    return y;
  }
}
template <class To, class From, int N>
KOKKOS_FORCEINLINE_FUNCTION Pack<To, N> round_pack(Pack<From, N> const& x) {
  if constexpr (narrow_type<To> && std::is_same_v<From, float>) {
    return rounded_pack<To>(x);
  } else {
    Pack<To, N> y;
    unroll<N>([&](auto i) { y[i] = round_to<To>(x[i]); });
    return y;
  }
}

/// The same with the largest finite number of a 16- or 8-bit type instead of overflow.
template <class To, class From>
KOKKOS_INLINE_FUNCTION To saturate_to(From x) {
  if constexpr (narrow_type<To> && std::floating_point<From>)
    return To::saturate(x);
  else
    return round_to<To>(x);
}

}  // namespace tessera::detail

#endif
