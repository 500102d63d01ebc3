// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_ARRAY_HPP
#define TESSERA_DETAIL_ARRAY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/checks.hpp>
#include <tessera/error.hpp>

// Views are turned at once into Arrays: a pointer, extents and element strides, all 64 bits. Every layout of Kokkos
// becomes the same type, so that the kernels behind are instantiated once per scalar type and not once per layout.
namespace tessera::detail {

template <class T>
concept execution_space = Kokkos::is_execution_space_v<T>;

template <class T>
concept view = Kokkos::is_view_v<T>;

template <class T, int Rank>
struct Array {
  static constexpr int slots = Rank > 0 ? Rank : 1;
  T* data = nullptr;
  std::int64_t extent[slots] = {};
  std::int64_t stride[slots] = {};  // in elements

  KOKKOS_FUNCTION std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < Rank; ++i) n *= extent[i];
    return n;
  }
  template <class... I>
  KOKKOS_FUNCTION T& operator()(I... i) const {
    static_assert(sizeof...(I) == Rank);
    std::int64_t at = 0;
    int d = 0;
    ((at += static_cast<std::int64_t>(i) * stride[d++]), ...);
    return data[at];
  }
  operator AnyArray() const {
    AnyArray a;
    a.data = data;
    a.bytes = sizeof(T);
    a.rank = Rank;
    for (int i = 0; i < Rank; ++i) {
      a.extent[i] = extent[i];
      a.stride[i] = stride[i];
    }
    return a;
  }
};

template <view V>
auto array(V const& v) {
  Array<typename V::value_type, static_cast<int>(V::rank())> a;
  a.data = v.data();
  for (int i = 0; i < static_cast<int>(V::rank()); ++i) {
    a.extent[i] = static_cast<std::int64_t>(v.extent(i));
    a.stride[i] = static_cast<std::int64_t>(v.stride(i));
  }
  return a;
}

template <class Exec, class... V>
constexpr void require_views() {
  static_assert(execution_space<Exec>, "the first argument must be an instance of a Kokkos execution space");
  static_assert((view<V> && ...), "operands must be Kokkos::Views");
  static_assert((Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible && ...),
                "the execution space cannot access the memory of one of the Views: pass Views in its memory space");
}

template <class... V>
constexpr void require_outputs() {
  static_assert((!std::is_const_v<typename V::value_type> && ...), "an output View must not be of const elements");
}

}  // namespace tessera::detail

#endif
