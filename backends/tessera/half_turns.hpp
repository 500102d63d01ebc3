// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_HALF_TURNS_HPP
#define TESSERA_HALF_TURNS_HPP

#include <cstdint>

// Before a function for sources that need no Kokkos, which compilers for devices read too.
#if defined(__CUDACC__)
#define TESSERA_PLAIN_FUNCTION __host__ __device__ __forceinline__
#else
#define TESSERA_PLAIN_FUNCTION __attribute__((always_inline)) inline
#endif

// Sine and cosine of any fp32 number on a CPU, without a branch or a call, so that loops become SIMD code.
namespace tessera::detail {

/// 2^e / pi without its even whole part, in two numbers, for e = 0 ... 104 (M. H. Payne, R. N. Hanek, "Radian reduction
/// for trigonometric functions", 1983); the last entry is NaN. The product of the first with 24 bits is exact.
struct HalfTurns {
  static constexpr int entries = 106, high_bits = 29, low_bits = 53;
  double high[entries] = {}, low[entries] = {};

  constexpr HalfTurns() {
    constexpr std::uint64_t digits[] = {0x517cc1b727220a94, 0xfe13abe8fa9a6ee0, 0x6db14acc9e21c820};  // of 1 / pi
    for (int e = 0; e + 1 < entries; ++e) {
      double weight = 1;
      for (int k = e; k < e + high_bits + low_bits; ++k, weight /= 2)
        if (k > 0 && (digits[(k - 1) / 64] >> (63 - (k - 1) % 64) & 1) != 0)
          (k < e + high_bits ? high : low)[e] += weight;
    }
    high[entries - 1] = __builtin_nan("");
  }
};
inline constexpr HalfTurns half_turns;

/// sin x, or with `Ahead` cos x, a quarter of a turn more; within 2.1 units in the last place. x = v 2^e with |v| <
/// 2^24 and e >= 0; of the half turns v (2^e / pi) the nearest whole number decides the sign, and the rest, an angle of
/// up to pi / 2 with an error of 2^-55, goes into a polynomial.
template <bool Ahead>
TESSERA_PLAIN_FUNCTION float sine_of_any(float x) {
  constexpr double magic = 6755399441055744.0;  // 1.5 2^52: a sum with it has no fraction bits
  std::uint32_t const bits = __builtin_bit_cast(std::uint32_t, x);
  auto const exponent = static_cast<std::int32_t>(bits >> 23 & 255);
  std::int32_t const e = exponent > 150 ? exponent - 150 : 0;
  std::int64_t const at = e;  // compilers find vector loads for indices of 64 bits
  double const v = __builtin_bit_cast(float, bits - (static_cast<std::uint32_t>(e) << 23));
  double whole = v * half_turns.high[at];
  if constexpr (Ahead) whole += 0.5;
  double const rest = v * half_turns.low[at], shifted = (whole + rest) + magic;
  auto const r = static_cast<float>(((whole - (shifted - magic)) + rest) * 3.14159265358979324);
  float const square = r * r;
  float p = 2.60562979e-6f * square - 1.98095382e-4f;
  p = p * square + 8.33306555e-3f;
  p = p * square - 1.66666597e-1f;
  // The angle's sign is that of its sine, also of a zero; an odd number of half turns changes it.
  std::uint32_t const sign = __builtin_bit_cast(std::uint32_t, r) & 0x80000000u;
  std::uint32_t const y = __builtin_bit_cast(std::uint32_t, r * square * p + r) | sign;
  return __builtin_bit_cast(float, y ^ static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, shifted)) << 31);
}

/// Up to it, the difference of a number and its half turns is exact but for its roundings.
inline constexpr float largest_turned = 3e4f;

/// The same for |x| < largest_turned, to the bits that openmp/sines_body.hpp has, from which it differs in being the
/// text of a loop and not a call in one: x - turns pi, pi in three parts. Where a product and a sum are not rounded
/// together in one instruction each of them is a call.
template <bool Ahead>
TESSERA_PLAIN_FUNCTION float sine_of_moderate(float x) {
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  float const half_turns = __builtin_fmaf(x, 0.318309873f, Ahead ? -0.5f : magic);
  float const shifted = Ahead ? half_turns + magic : half_turns;
  float const turns = Ahead ? (shifted - magic) + 0.5f : shifted - magic;
  float r = __builtin_fmaf(-turns, 3.1415925f, x);
  r = __builtin_fmaf(-turns, 1.50995788e-7f, r);
  r = __builtin_fmaf(-turns, 1.07806059e-14f, r);
  float const square = r * r;
  float p = __builtin_fmaf(square, 2.60562979e-6f, -1.98095382e-4f);
  p = __builtin_fmaf(p, square, 8.33306555e-3f);
  p = __builtin_fmaf(p, square, -1.66666597e-1f);
  std::uint32_t y = __builtin_bit_cast(std::uint32_t, __builtin_fmaf(r * square, p, r));
  // -0 stays; no number is a quarter of a turn and its half turns.
  if constexpr (!Ahead) y |= __builtin_bit_cast(std::uint32_t, r) & 0x80000000u;
  std::uint32_t const odd = __builtin_bit_cast(std::uint32_t, shifted) ^ (Ahead ? 1u : 0u);
  return __builtin_bit_cast(float, y ^ odd << 31);
}

}  // namespace tessera::detail

#endif
