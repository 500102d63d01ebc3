// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_NORMAL_DISTRIBUTION_HPP
#define TESSERA_DETAIL_NORMAL_DISTRIBUTION_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/elementary.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// x 2^n, both normal, where `shifted` is n + 1.5 2^23.
KOKKOS_INLINE_FUNCTION float times_power(float x, float shifted) {
  std::uint32_t const n = __builtin_bit_cast(std::uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) + n);
}

/// The normal distribution left of -z for z = |x|, Phi(-z) = ratio power, power = e^(-z^2 / 2); from z = 13.19 on,
/// where it falls below 2^-126, z counts as 0. The ratio, c = log2(e) / 2, is a rational function within 3.5e-7
/// (relative). The power is that of a whole number, added to an exponent, and of a rest, which includes the rounding of
/// the square. Each step is done for all N before the next, the order in which a GPU's compiler leaves them: it would
/// not have one number's steps overlap those of another.
template <int N>
KOKKOS_INLINE_FUNCTION void normal_tails(float const (&x)[N], float (&z)[N], float (&ratio)[N], float (&power)[N]) {
  constexpr float c = 0.72134752f, magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float square[N], shifted[N], rest[N], p[N], q[N];
  auto const each = [](auto const& f) {
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) f(i);
  };
  each([&](int i) { z[i] = chosen(Kokkos::abs(x[i]) > 13.19f, 0.0f, Kokkos::abs(x[i])); });
  each([&](int i) { square[i] = z[i] * z[i]; });
  each([&](int i) { q[i] = z[i] + 7.0502677f; });
  each([&](int i) { shifted[i] = Kokkos::fma(square[i], -c, magic); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 22.539587f); });
  each([&](int i) { rest[i] = Kokkos::fma(square[i], -c, magic - shifted[i]); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 36.091877f); });
  each([&](int i) { square[i] = Kokkos::fma(z[i], z[i], -square[i]); });
  each([&](int i) { q[i] = Kokkos::fma(q[i], z[i], 23.7806969f); });
  each([&](int i) { q[i] = reciprocal_of_normal(q[i]); });
  each([&](int i) { rest[i] = exp2_approximate(Kokkos::fma(square[i], -c, rest[i])); });
  each([&](int i) { p[i] = Kokkos::fma(0.39888674f, z[i], 2.81476879f); });
  each([&](int i) { p[i] = Kokkos::fma(p[i], z[i], 8.55901527f); });
  each([&](int i) { p[i] = Kokkos::fma(p[i], z[i], 11.8903446f); });
  each([&](int i) { power[i] = times_power(rest[i], shifted[i]); });  // perhaps 2^-126
  each([&](int i) { ratio[i] = p[i] * q[i]; });
}

/// x Phi(x) as max(x, 0) - z Phi(-z), within 8 units in the last place until that falls below 2^-126, where it is 0.
template <int N>
KOKKOS_INLINE_FUNCTION void normal_products(float (&x)[N]) {
  float z[N], ratio[N], power[N];
  normal_tails(x, z, ratio, power);
  TESSERA_UNROLL
  for (int i = 0; i < N; ++i) x[i] = Kokkos::fma(-(ratio[i] * z[i]), power[i], larger(x[i], 0.0f));
}

}  // namespace tessera::detail

#endif
