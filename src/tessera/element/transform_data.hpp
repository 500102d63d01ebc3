// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_TRANSFORM_DATA_HPP
#define TESSERA_ELEMENT_TRANSFORM_DATA_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/element/convert.hpp>
#include <tessera/element/leaves.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/narrow_functors.hpp>

namespace tessera::detail {

/// What a transform has beside its loops. Operand 0 is the output, operands 1..n are the inputs and, for a functor that
/// wants it, the last operand is the linear index: it has strides like the others and no memory.
template <class F, class To, class... From>
struct Elements {
  static constexpr int inputs = static_cast<int>(sizeof...(From));
  static constexpr bool indexed = wants_index_v<F>;
  static constexpr int operands = 1 + inputs + (indexed ? 1 : 0);
  using Real = detail::Real<To, From...>;
  /// Whether the functor's text for usual arguments does for the results.
  static constexpr bool may_be_usual = few_bits<To> && std::is_same_v<Real, float> && has_usual_v<F> && !indexed;

  /// Whether the functor has a text for moderate arguments.
  static constexpr bool may_be_moderate = std::is_same_v<Real, float> && has_moderate_v<F> && !indexed;

  F f;
  To* out;
  Leaves<From const*...> in;

  template <class... X>
  KOKKOS_INLINE_FUNCTION To evaluate(std::int64_t index, X... x) const {
    return round_to<To>(call(f, index, x...));
  }
};

}  // namespace tessera::detail

#endif
