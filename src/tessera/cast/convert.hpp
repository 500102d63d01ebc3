// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_CONVERT_HPP
#define TESSERA_CAST_CONVERT_HPP

#include <Kokkos_Macros.hpp>
#include <tessera/types.hpp>
#include <type_traits>

// One element of a cast. The same integer arithmetic on every backend, hence the same bits.
namespace tessera::detail {

/// The type in which a value of `In` is exact and from which `Out` is reached with one rounding.
template <class Out, class In>
using CastThrough = std::conditional_t<std::is_same_v<Out, double> || std::is_same_v<In, double>, double, float>;

/// The magnitude that overflow becomes.
template <class T>
constexpr typename FloatFormat<T>::bits_type cast_overflow(bool saturate) {
  return saturate ? FloatFormat<T>::max_bits : FloatFormat<T>::overflow_bits;
}

template <class Out, class In>
KOKKOS_INLINE_FUNCTION constexpr Out convert(In value, typename FloatFormat<Out>::bits_type overflow) {
  using Through = CastThrough<Out, In>;
  Through exact;
  if constexpr (std::is_same_v<In, Through>)
    exact = value;
  else
    exact = widen_bits<Through, In>(__builtin_bit_cast(typename FloatFormat<In>::bits_type, value));
  return __builtin_bit_cast(Out, round_bits<Out>(exact, overflow));
}

}  // namespace tessera::detail

#endif
