// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_CONVERT_HPP
#define TESSERA_CAST_CONVERT_HPP

#include <Kokkos_Macros.hpp>
#include <tessera/pack_conversion.hpp>
#include <tessera/types.hpp>
#include <type_traits>

// One element of a cast by integer arithmetic, the same on every backend, and a pack of them by the machine's own
// instructions where they give the same bits.
namespace tessera::detail {

/// The type in which a value of `In` is exact and from which `Out` is reached with one rounding.
template <class Out, class In>
using CastThrough = std::conditional_t<std::is_same_v<Out, double> || std::is_same_v<In, double>, double, float>;

/// The magnitude that overflow becomes.
template <class T>
constexpr typename FloatFormat<T>::bits_type cast_overflow(bool saturate) {
  return saturate ? FloatFormat<T>::max_bits : FloatFormat<T>::overflow_bits;
}

// Not bit_cast for the storage types: g++ 12 fails on it in loops that it makes SIMD code of.
template <class T>
KOKKOS_INLINE_FUNCTION constexpr typename FloatFormat<T>::bits_type pattern_of(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return __builtin_bit_cast(typename FloatFormat<T>::bits_type, value);
  else
    return value.bits();
}
template <class T>
KOKKOS_INLINE_FUNCTION constexpr T from_pattern(typename FloatFormat<T>::bits_type pattern) {
  if constexpr (std::is_floating_point_v<T>)
    return __builtin_bit_cast(T, pattern);
  else
    return T::from_bits(pattern);
}

template <class Out, class In>
KOKKOS_INLINE_FUNCTION constexpr Out convert(In value, typename FloatFormat<Out>::bits_type overflow) {
  using Through = CastThrough<Out, In>;
  Through exact;
  if constexpr (std::is_same_v<In, Through>)
    exact = value;
  else
    exact = widen_bits<Through, In>(pattern_of(value));
  return from_pattern<Out>(round_bits<Out>(exact, overflow));
}

/// All elements of a pack, by the machine's instructions where there are any: the same bits.
template <class Out, class In, int N>
KOKKOS_FORCEINLINE_FUNCTION Pack<Out, N> convert_pack(Pack<In, N> const& x, bool saturate) {
  if constexpr (!std::is_floating_point_v<Out> && !std::is_same_v<In, double>) {
    constexpr float largest = widen_bits<float, Out>(FloatFormat<Out>::max_bits);
    Pack<float, N> exact;
    if constexpr (std::is_same_v<In, float>)
      exact = x;
    else
      exact = widened_pack(x);
    if (saturate)
      unroll<N>([&](auto i) {  // NaN stays
        exact[i] = exact[i] > largest ? largest : exact[i];
        exact[i] = exact[i] < -largest ? -largest : exact[i];
      });
    return rounded_pack<Out>(exact);
  } else if constexpr (std::is_same_v<Out, float> && !std::is_floating_point_v<In>) {
    constexpr float infinity = widen_bits<float, bf16_t>(FloatFormat<bf16_t>::last_bits);
    constexpr float largest = from_pattern<float>(FloatFormat<float>::max_bits);
    constexpr float nan = from_pattern<float>(FloatFormat<float>::nan_bits);
    Pack<float, N> y = widened_pack(x);
    if (saturate)
      unroll<N>([&](auto i) {
        y[i] = y[i] == infinity ? largest : y[i];
        y[i] = y[i] == -infinity ? -largest : y[i];
      });
    unroll<N>([&](auto i) { y[i] = y[i] == y[i] ? y[i] : nan; });
    return y;
  } else {
    Pack<Out, N> y;
    unroll<N>([&](auto i) { y[i] = convert<Out>(x[i], cast_overflow<Out>(saturate)); });
    return y;
  }
}

}  // namespace tessera::detail

#endif
