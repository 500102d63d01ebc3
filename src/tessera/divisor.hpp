// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DIVISOR_HPP
#define TESSERA_DIVISOR_HPP

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <limits>

namespace tessera::detail {

/// Division by a number known at launch: by multiplication where 31 bits suffice (T. Granlund, P. L. Montgomery,
/// "Division by invariant integers using multiplication", PLDI 1994). A GPU takes over a hundred clocks to divide.
struct Divisor {
  std::int64_t by = 1;
  std::uint32_t magic = 0, shift = 0;

  Divisor() = default;
  KOKKOS_FUNCTION explicit constexpr Divisor(std::int64_t divisor) : by(divisor) {
    if (divisor < 1 || divisor > std::numeric_limits<std::int32_t>::max()) return;
    shift = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(divisor - 1)));
    magic = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - static_cast<std::uint64_t>(divisor)) << 32) /
                                           static_cast<std::uint64_t>(divisor) +
                                       1);
  }
  KOKKOS_FORCEINLINE_FUNCTION explicit constexpr operator int() const { return static_cast<int>(by); }
  /// n / by; `small` says that n and by are below 2^31.
  KOKKOS_INLINE_FUNCTION constexpr std::int64_t quotient(std::int64_t n, bool small) const {
    return small ? static_cast<int>(n) / *this : n / by;
  }
  /// 0 <= n / by, by below 2^31
  friend KOKKOS_FORCEINLINE_FUNCTION constexpr int operator/(int n, Divisor const& d) {
    auto const m = static_cast<std::uint32_t>(n);
    auto const high = static_cast<std::uint32_t>((std::uint64_t{m} * d.magic) >> 32);
    return static_cast<int>((high + m) >> d.shift);
  }
};

}  // namespace tessera::detail

#endif
