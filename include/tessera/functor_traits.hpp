// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_FUNCTOR_TRAITS_HPP
#define TESSERA_FUNCTOR_TRAITS_HPP

/// \file
/// What a functor says of itself (see functors.hpp), and what it is given.

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <utility>

#include <tessera/element/convert.hpp>

namespace tessera {

/// True for functors that are called with the element's linear index first.
template <class F>
inline constexpr bool wants_index_v = [] {
  if constexpr (requires { F::wants_index; })
    return static_cast<bool>(F::wants_index);
  else
    return false;
}();

/// True for those that take no more of the index than the element's random word.
template <class F>
inline constexpr bool draws_words_v = wants_index_v<F>&& requires(F const& f) {
  f.seed();
  f.offset();
};

/// The functor that takes f's place for moderate arguments and gives the same: f.for_moderate(), or f where it has
/// none. A text without the rare cases of f, whose loops on a CPU so have no calls: `moderate(x...)` says whether it
/// does, of some arguments and of all that have no larger magnitudes, and is asked of 256 elements at once.
template <class F>
constexpr auto for_moderate(F const& f) {
  if constexpr (requires { f.for_moderate(); })
    return f.for_moderate();
  else
    return f;
}
template <class F, class... T>
KOKKOS_INLINE_FUNCTION constexpr bool moderate([[maybe_unused]] F const& f, T... x) {
  if constexpr (requires { f.for_moderate(); })
    return f.moderate(x...);
  else
    return true;
}

namespace detail {

template <class F>
inline constexpr bool has_moderate_v = requires(F const& f) {
  f.for_moderate();
};

/// The number a real function is evaluated for.
template <class T>
KOKKOS_INLINE_FUNCTION constexpr auto real(T x) {
  if constexpr (std::integral<T>)
    return static_cast<double>(x);
  else if constexpr (narrow_type<T>)
    return static_cast<float>(x);
  else
    return x;
}
template <class T>
using RealOf = decltype(real(std::declval<T>()));

/// Calls f with the index in front if it wants it.
template <class F, class... T>
KOKKOS_INLINE_FUNCTION constexpr auto call(F const& f, [[maybe_unused]] std::int64_t index, T... x) {
  if constexpr (wants_index_v<F>)
    return f(index, x...);
  else
    return f(x...);
}

/// What the next stage of a chain is given: 16- and 8-bit numbers as fp32.
template <class T>
KOKKOS_INLINE_FUNCTION constexpr auto stage_value(T x) {
  if constexpr (narrow_type<T>)
    return static_cast<float>(x);
  else
    return x;
}

/// True for functors whose result is as accurate, relative to itself, as what they are given, or nearly.
template <class F>
inline constexpr bool keeps_accuracy_v = requires {
  requires F::keeps_accuracy;
};

/// True for functors of which |f(x...)| <= |f(|x|...)|, which grows with every |x|.
template <class F>
inline constexpr bool keeps_magnitudes_v = requires {
  requires F::keeps_magnitudes;
};

}  // namespace detail
}  // namespace tessera

#endif
