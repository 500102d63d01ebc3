// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROUNDINGS_BODY_HPP
#define TESSERA_OPENMP_ROUNDINGS_BODY_HPP

#include <cstdint>

#include <tessera/openmp/roundings.hpp>

// The loops, for a source compiled with the instructions of an instruction set `V`, which provides
//
//     Halves                          a vector of `lanes` elements of 16 bits
//     nearest(Fp16, from)             `lanes` numbers of fp32 as fp16, to nearest even, overflow to infinity
//     nearest(Bf16, from)             the same as bf16, NaN as its one
//     cut<Exponent>(from)             2^Exponent times the same, cut to 7 bits, the last of which is set where what
//                                     was cut off is not zero, and then to fp16
//     smaller(x, y)                   unsigned
//     where_greater(x, limit, y, z)   y where x > limit as signed numbers, else z
//     store_bytes(x, to)              the lower bytes of the elements
//     store_int8(from, to)            `lanes` numbers of fp32 as int8
//
// Conversions to fp16 have their rounding mode in the instruction: that of the thread takes no part.
namespace {

/// Bits of fp32 that are cut off. 6 are left behind the leading one: so many has fp16 behind the smallest that 8-bit
/// types do not round to 0, half of their smallest number, which is 2^-18 as e4m3 is scaled and 2^-17 as e5m2 is.
constexpr int cut_bits = 0x1ffff;
constexpr std::uint16_t all_but_sign = 0x7fff, fp16_infinity = 0x7c00;

struct Fp16 {
  static constexpr std::uint16_t infinity = fp16_infinity, largest = infinity - 1;
  static constexpr bool one_nan = false;  // what nearest() gives
};
struct Bf16 {
  static constexpr std::uint16_t infinity = 0x7f80, largest = infinity - 1;
  static constexpr bool one_nan = true;
};

template <class V, class Type, bool Saturate>
struct ToSixteenBits {
  static constexpr int size = 2;
  static void round(float const* from, unsigned char* to) {
    using Halves = typename V::Halves;
    Halves const x = V::nearest(Type{}, from), magnitude = x & all_but_sign;
    Halves y = x;
    if constexpr (Saturate) y = V::smaller(magnitude, V::all(Type::largest)) | (x ^ magnitude);
    if constexpr (Saturate || !Type::one_nan) y = V::where_greater(magnitude, Type::infinity, V::all(all_but_sign), y);
    __builtin_memcpy(to, &y, sizeof y);
  }
};

/// An 8-bit type is the upper bits of fp16, subnormal numbers and all, once its numbers are scaled to the exponents of
/// fp16. What has been cut to fp16 is rounded to them by integers, which a double rounding would not be.
template <class V, class Type, bool Saturate>
struct ToEightBits {
  static constexpr int size = 1;
  static void round(float const* from, unsigned char* to) {
    using Halves = typename V::Halves;
    constexpr int dropped = Type::dropped;
    Halves const x = V::template cut<Type::exponent>(from), magnitude = x & all_but_sign;
    Halves const odd = (magnitude >> dropped) & 1;
    Halves const rounded = (magnitude + ((1 << (dropped - 1)) - 1) + odd) >> dropped;
    Halves const sign = (x >> 8) & 0x80;
    if constexpr (Saturate)
      V::store_bytes(
          V::where_greater(magnitude, fp16_infinity, V::all(0x7f), V::smaller(rounded, V::all(Type::largest)) | sign),
          to);
    else
      V::store_bytes(V::where_greater(rounded, Type::last, V::all(0x7f), rounded | sign), to);
  }
};

struct E4m3 {
  static constexpr int dropped = 7, exponent = -8;             // 2^-8 x has the exponents of fp16
  static constexpr std::uint16_t largest = 0x7e, last = 0x7e;  // behind the largest number there is NaN
};
struct E5m2 {
  static constexpr int dropped = 8, exponent = 0;
  static constexpr std::uint16_t largest = 0x7b, last = 0x7c;  // behind it there is infinity
};

template <class V>
struct ToInt8 {
  static constexpr int size = 1;
  static void round(float const* from, unsigned char* to) { V::store_int8(from, to); }
};

template <class V, class To>
void round_all(float const* from, int n, void* to) {
  auto* const bytes = static_cast<unsigned char*>(to);
  int i = 0;
  for (; i + V::lanes <= n; i += V::lanes) To::round(from + i, bytes + i * To::size);
  if (i == n) return;
  float rest[V::lanes] = {};
  unsigned char rounded[V::lanes * To::size];
  __builtin_memcpy(rest, from + i, static_cast<unsigned>(n - i) * sizeof(float));
  To::round(rest, rounded);
  __builtin_memcpy(bytes + i * To::size, rounded, static_cast<unsigned>((n - i) * To::size));
}

template <class V>
constexpr tessera::detail::openmp::Roundings all_roundings{
    {round_all<V, ToSixteenBits<V, Fp16, false>>, round_all<V, ToSixteenBits<V, Fp16, true>>},
    {round_all<V, ToSixteenBits<V, Bf16, false>>, round_all<V, ToSixteenBits<V, Bf16, true>>},
    {round_all<V, ToEightBits<V, E4m3, false>>, round_all<V, ToEightBits<V, E4m3, true>>},
    {round_all<V, ToEightBits<V, E5m2, false>>, round_all<V, ToEightBits<V, E5m2, true>>},
    round_all<V, ToInt8<V>>};

}  // namespace

#endif
