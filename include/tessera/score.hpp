// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_SCORE_HPP
#define TESSERA_SCORE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

/// Changes to attention scores before the softmax. A score functor is trivially copyable,
///
///     template <class T> KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const;
///
/// called with the scaled score s of query i and key j in batch b and query head h, for every visible pair; what it
/// returns goes into the softmax, −∞ hiding the key.
namespace tessera::score {

/// Leaves the scores as they are.
struct Identity {
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int, int, int) const {
    return s;
  }
};

/// limit·tanh(s / limit), as Gemma 2 bounds its scores.
struct SoftCap {
  double limit;
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int, int, int) const {
    return T(limit) * Kokkos::tanh(s / T(limit));
  }
};

/// Attention with linear biases (Press, Smith and Lewis 2022): s + slope(h)·(j − i − offset), where offset aligns the
/// last query with the last key (keys − queries).
template <class V>
struct Alibi {
  V slopes;
  int offset = 0;
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int h, int i, int j) const {
    return s + static_cast<T>(slopes(h)) * static_cast<T>(j - i - offset);
  }
};
template <class V>
Alibi<V> alibi(V const& slopes, int offset = 0) {
  static_assert(V::rank() == 1, "ALiBi slopes are a View of rank 1: one a head");
  return {slopes, offset};
}

/// s + values(b, h, i, j); extents of 1 are shared.
template <class V>
struct AdditiveBias {
  V values;
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const {
    return s + static_cast<T>(values(values.extent(0) == 1 ? 0 : b, values.extent(1) == 1 ? 0 : h,
                                     values.extent(2) == 1 ? 0 : i, values.extent(3) == 1 ? 0 : j));
  }
};
template <class V>
AdditiveBias<V> additive_bias(V const& values) {
  static_assert(V::rank() == 4, "an additive bias is a View of rank 4: batch, head, query, key");
  return {values};
}

}  // namespace tessera::score

#endif
