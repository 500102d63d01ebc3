// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROUNDINGS_BODY_HPP
#define TESSERA_OPENMP_ROUNDINGS_BODY_HPP

#include <cstdint>

#include <tessera/openmp/roundings.hpp>

// The loops, for a source compiled with the instructions of an instruction set `V`, which provides
//
//     Halves                          a vector of `lanes` elements of 16 bits
//     Floats                          a vector of half as many of fp32
//     number(x)                       that of fp32 in all elements
//     load(Fp32{}, from)              as many numbers of fp32, or of fp16, bf16 or int8 widened to it
//     all(x)                          that of 16 bits in all elements
//     load_bytes(from)                `lanes` bytes as elements of 16 bits
//     half_of(x, 0), half_of(x, 1)    the lower and the upper half of a vector of fp16, widened
//     divides_slowly                  whether fp32 is not to be divided; where that is so,
//     remainder(x, y, z)              x y - z, rounded once
//     corrected(x, y, z)              x - y z, rounded once
//     within(x, limit)                the nearest to x from -limit to limit; NaN stays
//     nearest(Fp16{}, low, high)      `lanes` numbers of fp32 as fp16, to nearest even, overflow to infinity
//     nearest(Bf16{}, low, high)      the same as bf16, NaN as its one
//     alternating(Bf16{}, x, y)       the same of the numbers of x and y in turn
//     cut(low, high)                  the same, cut to 7 bits, the last of which is set where what was cut off is not
//                                     zero, and then to fp16
//     smaller(x, y)                   unsigned
//     where_greater(x, limit, y, z)   y where x > limit as signed numbers, else z
//     stream(x, to)                   past the caches to a multiple of the vector's size
//     store_bytes(x, to)              the lower bytes of the elements
//     store_int8(low, high, to)       `lanes` numbers of fp32 as int8
//
// Conversions to fp16 have their rounding mode in the instruction: that of the thread takes no part.
namespace {

/// Bits of fp32 that are cut off. 6 are left behind the leading one: so many has fp16 behind the smallest that 8-bit
/// types do not round to 0, half of their smallest number, which is 2^-18 as e4m3 is scaled and 2^-17 as e5m2 is.
constexpr int cut_bits = 0x1ffff;
constexpr std::uint16_t all_but_sign = 0x7fff, fp16_infinity = 0x7c00;

struct Fp32 {
  static constexpr int size = 4;
};
struct Fp16 {
  static constexpr int size = 2;
  static constexpr std::uint16_t infinity = fp16_infinity, largest = infinity - 1;
  static constexpr bool one_nan = false;  // what nearest() gives
};
struct Bf16 {
  static constexpr int size = 2;
  static constexpr std::uint16_t infinity = 0x7f80, largest = infinity - 1;
  static constexpr bool one_nan = true;
};

struct E4m3 {
  static constexpr int size = 1, dropped = 7;
  static constexpr float unit = 0x1p-8f;                       // times that, numbers have the exponents of fp16
  static constexpr std::uint16_t largest = 0x7e, last = 0x7e;  // behind the largest number there is NaN
};
struct E5m2 {
  static constexpr int size = 1, dropped = 8;
  static constexpr float unit = 1;
  static constexpr std::uint16_t largest = 0x7b, last = 0x7c;  // behind it there is infinity
};
struct Int8 {
  static constexpr int size = 1;
};

/// V::lanes numbers.
template <class V>
struct Numbers {
  typename V::Floats low, high;
};

template <class V, class Type>
Numbers<V> load(Type type, unsigned char const* from) {
  return {V::load(type, from), V::load(type, from + V::lanes / 2 * Type::size)};
}
/// An 8-bit float is the upper bits of one of fp16 with other exponents.
template <class V>
Numbers<V> load(E4m3, unsigned char const* from) {
  typename V::Halves const x = V::load_bytes(from), magnitude = (x << 7) & 0x3f80, sign = (x << 8) & 0x8000;
  typename V::Halves const y = V::where_greater(magnitude, 0x3f7f, V::all(all_but_sign), magnitude) | sign;
  return {V::half_of(y, 0) * (1 / E4m3::unit), V::half_of(y, 1) * (1 / E4m3::unit)};
}
template <class V>
Numbers<V> load(E5m2, unsigned char const* from) {
  typename V::Halves const y = V::load_bytes(from) << 8;
  return {V::half_of(y, 0), V::half_of(y, 1)};
}

template <class V, class Type, bool Saturate, bool Streamed = false>
struct ToSixteenBits {
  static constexpr int size = 2;
  static constexpr float unit = 1;
  static void store(Numbers<V> const& numbers, unsigned char* to) {
    using Halves = typename V::Halves;
    Halves const x = V::nearest(Type{}, numbers.low, numbers.high), magnitude = x & all_but_sign;
    Halves y = x;
    if constexpr (Saturate) y = V::smaller(magnitude, V::all(Type::largest)) | (x ^ magnitude);
    if constexpr (Saturate || !Type::one_nan) y = V::where_greater(magnitude, Type::infinity, V::all(all_but_sign), y);
    if constexpr (Streamed)
      V::stream(y, to);
    else
      __builtin_memcpy(to, &y, sizeof y);
  }
};

/// An 8-bit type is the upper bits of fp16, subnormal numbers and all, once its numbers are in its `unit`. What has
/// been cut to fp16 is rounded to them by integers, which a double rounding would not be.
template <class V, class Type, bool Saturate>
struct ToEightBits {
  static constexpr int size = 1;
  static constexpr float unit = Type::unit;
  static void store(Numbers<V> const& numbers, unsigned char* to) {
    using Halves = typename V::Halves;
    constexpr int dropped = Type::dropped;
    Halves const x = V::cut(numbers.low, numbers.high), magnitude = x & all_but_sign;
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

template <class V>
struct ToInt8 {
  static constexpr int size = 1;
  static constexpr float unit = 1;
  static void store(Numbers<V> const& x, unsigned char* to) { V::store_int8(x.low, x.high, to); }
};

/// work(i, from, to) for `lanes` elements each time, from the i-th on, the last of them through arrays.
template <class V, class From, class To, class Work>
[[gnu::always_inline]] inline void for_all(void const* from, int n, void* to, Work const& work) {
  auto const* const in = static_cast<unsigned char const*>(from);
  auto* const out = static_cast<unsigned char*>(to);
  int i = 0;
  for (; i + V::lanes <= n; i += V::lanes) work(i, in + i * From::size, out + i * To::size);
  if (i == n) return;
  unsigned char rest[V::lanes * From::size] = {}, results[V::lanes * To::size];
  __builtin_memcpy(rest, in + i * From::size, static_cast<unsigned>((n - i) * From::size));
  work(i, rest, results);
  __builtin_memcpy(out + i * To::size, results, static_cast<unsigned>((n - i) * To::size));
}

template <class V, class To>
void round_all(float const* from, int n, void* to) {
  for_all<V, Fp32, To>(from, n, to, [](int, unsigned char const* in, unsigned char* out) {
    Numbers<V> x = load<V>(Fp32{}, in);
    if constexpr (To::unit != 1) x = {x.low * To::unit, x.high * To::unit};
    To::store(x, out);
  });
}

template <class V, class Type>
void stream_all(float const* from, int n, void* to) {
  bool const at_vector = reinterpret_cast<std::uintptr_t>(to) % sizeof(typename V::Halves) == 0;
  int const whole = at_vector ? n - n % V::lanes : 0;
  round_all<V, ToSixteenBits<V, Type, false, true>>(from, whole, to);
  round_all<V, ToSixteenBits<V, Type, false>>(from + whole, n - whole,
                                              static_cast<unsigned char*>(to) + whole * Type::size);
}
template <class V, class Type>
constexpr tessera::detail::openmp::RoundingsOfType to_sixteen_bits{
    round_all<V, ToSixteenBits<V, Type, false>>, round_all<V, ToSixteenBits<V, Type, true>>, stream_all<V, Type>};

/// Pairs of bf16, n of them a multiple of V::lanes / 2.
template <class V, bool Streamed>
void round_whole_pairs(unsigned char const* first, unsigned char const* second, int n, unsigned char* to) {
  for (int i = 0; i < n; i += V::lanes / 2) {
    typename V::Halves const x =
        V::alternating(Bf16{}, V::load(Fp32{}, first + i * Fp32::size), V::load(Fp32{}, second + i * Fp32::size));
    unsigned char* const out = to + i * 2 * Bf16::size;
    if constexpr (Streamed)
      V::stream(x, out);
    else
      __builtin_memcpy(out, &x, sizeof x);
  }
}
template <class V, bool Streamed>
void round_pairs(float const* first, float const* second, int n, void* to) {
  auto const *x = reinterpret_cast<unsigned char const*>(first), *y = reinterpret_cast<unsigned char const*>(second);
  auto* const out = static_cast<unsigned char*>(to);
  bool const at_vector = reinterpret_cast<std::uintptr_t>(to) % sizeof(typename V::Halves) == 0;
  int const rest = n % (V::lanes / 2), whole = n - rest;
  if (Streamed && at_vector)
    round_whole_pairs<V, true>(x, y, whole, out);
  else
    round_whole_pairs<V, false>(x, y, whole, out);
  if (rest == 0) return;
  constexpr int of_vector = V::lanes / 2 * Fp32::size;
  unsigned char rest_x[of_vector] = {}, rest_y[of_vector] = {}, results[V::lanes * Bf16::size];
  auto const bytes = static_cast<unsigned>(rest * Fp32::size);  // as many of the results
  __builtin_memcpy(rest_x, x + whole * Fp32::size, bytes);
  __builtin_memcpy(rest_y, y + whole * Fp32::size, bytes);
  round_whole_pairs<V, false>(rest_x, rest_y, V::lanes / 2, results);
  __builtin_memcpy(out + whole * 2 * Bf16::size, results, bytes);
}
template <class V>
constexpr tessera::detail::openmp::RoundingsOfType to_bf16 = [] {
  tessera::detail::openmp::RoundingsOfType all = to_sixteen_bits<V, Bf16>;
  all.pairs = round_pairs<V, false>;
  all.streamed_pairs = round_pairs<V, true>;
  return all;
}();

template <class V, class From, class To>
void multiply_all(void const* from, int n, float const* scales, int shift, void* to) {
  for_all<V, From, To>(from, n, to, [=](int i, unsigned char const* in, unsigned char* out) {
    typename V::Floats const factor = V::number(scales[i >> shift]) * To::unit;
    Numbers<V> const x = load<V>(From{}, in);
    To::store({x.low * factor, x.high * factor}, out);
  });
}

/// x / divisor where a division takes longer than what its rounded reciprocal does: two steps of the remainder, which
/// is exact in a fused product and sum, round the quotient correctly (P. W. Markstein, "Computation of elementary
/// functions on the IBM RISC System/6000 processor", 1990). Quotients below 2^-18, whose remainders may be subnormal,
/// all types of 8 bits round to 0, and those from 2^17 on, which are made 2^17, to their largest.
template <class V>
typename V::Floats quotient(typename V::Floats x, typename V::Floats divisor, typename V::Floats reciprocal) {
  if constexpr (V::divides_slowly) {
    x = V::within(x, divisor * 0x1p17f);
    typename V::Floats q = x * reciprocal;
    q = V::corrected(q, V::remainder(divisor, q, x), reciprocal);
    return V::corrected(q, V::remainder(divisor, q, x), reciprocal);
  } else {
    return x / divisor;
  }
}

template <class V, class From, class To>
void divide_each(void const* from, int n, float const* scales, float const* reciprocals, void* to) {
  auto const divided = [](typename V::Floats x, float const* divisor, float const* reciprocal) {
    auto const of = [](float const* p) { return V::load(Fp32{}, reinterpret_cast<unsigned char const*>(p)); };
    return quotient<V>(x, of(divisor) * (1 / To::unit), of(reciprocal) * To::unit);
  };
  for_all<V, From, To>(from, n, to, [=](int i, unsigned char const* in, unsigned char* out) {
    float const *divisor = scales + i, *reciprocal = reciprocals + i;
    constexpr int half = V::lanes / 2;
    Numbers<V> const x = load<V>(From{}, in);
    To::store({divided(x.low, divisor, reciprocal), divided(x.high, divisor + half, reciprocal + half)}, out);
  });
}
template <class V, class From, class To>
void divide_all(void const* from, int n, float const* scales, float const* reciprocals, int shift, void* to) {
  if (shift == 0) return divide_each<V, From, To>(from, n, scales, reciprocals, to);
  auto const* const in = static_cast<unsigned char const*>(from);
  auto* const out = static_cast<unsigned char*>(to);
  int const group = 1 << shift;
  for (int i = 0; i < n; i += group, ++scales, ++reciprocals) {
    typename V::Floats const divisor = V::number(*scales / To::unit), reciprocal = V::number(*reciprocals * To::unit);
    for_all<V, From, To>(
        in + i * From::size, n - i < group ? n - i : group, out + i * To::size,
        [=](int, unsigned char const* part, unsigned char* results) {
          Numbers<V> const x = load<V>(From{}, part);
          To::store({quotient<V>(x.low, divisor, reciprocal), quotient<V>(x.high, divisor, reciprocal)}, results);
        });
  }
}

template <class V, class To>
constexpr tessera::detail::openmp::Quotients all_quotients{divide_all<V, Fp32, To>, divide_all<V, Fp16, To>,
                                                           divide_all<V, Bf16, To>};
template <class V, class To>
constexpr tessera::detail::openmp::Products all_products{multiply_all<V, Fp32, To>, multiply_all<V, Fp16, To>,
                                                         multiply_all<V, Bf16, To>};
template <class V, class From>
constexpr tessera::detail::openmp::Widenings all_widenings{multiply_all<V, From, ToSixteenBits<V, Fp16, false>>,
                                                           multiply_all<V, From, ToSixteenBits<V, Bf16, false>>};

template <class V>
constexpr tessera::detail::openmp::Roundings all_roundings{
    to_sixteen_bits<V, Fp16>,
    to_bf16<V>,
    {round_all<V, ToEightBits<V, E4m3, false>>, round_all<V, ToEightBits<V, E4m3, true>>},
    {round_all<V, ToEightBits<V, E5m2, false>>, round_all<V, ToEightBits<V, E5m2, true>>},
    round_all<V, ToInt8<V>>,
    {all_quotients<V, ToEightBits<V, E4m3, true>>, all_quotients<V, ToEightBits<V, E5m2, true>>,
     all_quotients<V, ToInt8<V>>},
    {},
    {all_products<V, ToEightBits<V, E4m3, true>>, all_products<V, ToEightBits<V, E5m2, true>>},
    {all_widenings<V, E4m3>, all_widenings<V, E5m2>, all_widenings<V, Int8>}};

}  // namespace

#endif
