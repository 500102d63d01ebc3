// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_STRIP_HPP
#define TESSERA_ELEMENT_STRIP_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/element/convert.hpp>
#include <tessera/strip_rounding.hpp>

// Runs of elements between memory and the arrays that loops on a CPU work on.
namespace tessera::detail {

/// Bytes of a strip of `n` elements so many bytes apart; 0 if they are no neighbours.
KOKKOS_INLINE_FUNCTION std::size_t bytes_of_neighbours(std::int64_t by, int n) {
  return by > 0 && by <= 8 ? static_cast<std::size_t>(by * n) : 0;
}

/// to[i] = from[i * by], widened, for i in [0, n).
template <class To, class From>
KOKKOS_INLINE_FUNCTION void read_strip(From const* from, std::int64_t by, int n, To* KOKKOS_RESTRICT to) {
  if (by == 1) {
    for (int i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
  } else if (by == 0) {
    To const x = static_cast<To>(*from);
    for (int i = 0; i < n; ++i) to[i] = x;
  } else {
    for (int i = 0; i < n; ++i) to[i] = static_cast<To>(from[i * by]);
  }
}

/// x rounded to odd: what a narrow type makes of it is what it makes of x, as by one rounding.
KOKKOS_FORCEINLINE_FUNCTION float round_to_odd(double x) {
  auto const nearest = static_cast<float>(x);
  auto const widened = static_cast<double>(nearest);
  auto const bits = __builtin_bit_cast(std::uint32_t, nearest);
  auto const away = static_cast<std::uint32_t>(Kokkos::abs(widened) > Kokkos::abs(x));
  auto const inexact = static_cast<std::uint32_t>(widened != x);
  return __builtin_bit_cast(float, (bits - away) | inexact);
}

/// to[i * by] = from[i], rounded, for i in [0, n).
template <class To, class From>
KOKKOS_INLINE_FUNCTION void write_strip(From const* KOKKOS_RESTRICT from, int n, To* to, std::int64_t by) {
  if constexpr (narrow_type<To> && std::is_same_v<From, double>) {
    constexpr int strip = 64;
    for (int first = 0; first < n; first += strip) {
      int const here = n - first < strip ? n - first : strip;
      float odd[strip];
      for (int i = 0; i < here; ++i) odd[i] = round_to_odd(from[first + i]);
      write_strip(odd, here, to + first * by, by);
    }
    return;
  }
  if constexpr (narrow_type<To> && std::is_same_v<From, float>)
    if (RoundStrip const round = strip_rounding<To>(false); round != nullptr && by == 1) return round(from, n, to);
  if (by == 1) {
    for (int i = 0; i < n; ++i) to[i] = round_to<To>(from[i]);
  } else {
    for (int i = 0; i < n; ++i) to[i * by] = round_to<To>(from[i]);
  }
}

}  // namespace tessera::detail

#endif
