// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_LEAVES_HPP
#define TESSERA_ELEMENT_LEAVES_HPP

#include <Kokkos_Macros.hpp>
#include <cstddef>
#include <utility>

// One value per operand, each of its own type, in registers and kernel arguments. std::tuple's functions are not marked
// for devices.
namespace tessera::detail {

template <std::size_t I, class T>
struct Leaf {
  T value;
};

template <class Indices, class... T>
struct LeavesOf;
template <std::size_t... I, class... T>
struct LeavesOf<std::index_sequence<I...>, T...> : Leaf<I, T>... {};

template <class... T>
using Leaves = LeavesOf<std::index_sequence_for<T...>, T...>;

template <std::size_t I, class T>
KOKKOS_INLINE_FUNCTION constexpr T& leaf(Leaf<I, T>& leaves) {
  return leaves.value;
}
template <std::size_t I, class T>
KOKKOS_INLINE_FUNCTION constexpr T const& leaf(Leaf<I, T> const& leaves) {
  return leaves.value;
}

}  // namespace tessera::detail

#endif
