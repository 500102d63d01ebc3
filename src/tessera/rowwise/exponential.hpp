// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_EXPONENTIAL_HPP
#define TESSERA_ROWWISE_EXPONENTIAL_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

namespace tessera::detail {

/// e^x for a CPU, free of branches and calls, so that loops over it become SIMD code, which the C library's does not.
/// x = k ln 2 + r, |r| <= ln 2 / 2, ln 2 in two parts (Cody and Waite), a polynomial of degree 7 in r (the coefficients
/// of Cephes' expf), and 2^k in two factors, so that subnormal results are right. Error below 2 units in the last
/// place.
inline float host_exponential(float x) {
  constexpr float lowest = -104.0f, highest = 89.0f;  // beyond, the result is 0 or Inf, as it is there
  float const y = x < lowest ? lowest : x > highest ? highest : x;
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const shifted = y * 1.44269504088896341f + magic;
  float const k = shifted - magic;
  float const r = (y - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  std::uint32_t const whole = __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, magic);
  std::uint32_t const half = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1), rest = whole - half;
  auto const power = [](std::uint32_t e) { return __builtin_bit_cast(float, (e + 127u) << 23); };
  return p * power(half) * power(rest);
}

KOKKOS_FORCEINLINE_FUNCTION float exponential(float x) {
  KOKKOS_IF_ON_HOST((return host_exponential(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}
KOKKOS_FORCEINLINE_FUNCTION double exponential(double x) { return Kokkos::exp(x); }

}  // namespace tessera::detail

#endif
