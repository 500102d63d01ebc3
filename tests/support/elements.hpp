// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ELEMENTS_HPP
#define TESSERA_TESTS_ELEMENTS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>

// Copies between Views and the host by bytes, compiled once: Kokkos::deep_copy for every element type and layout would
// be most of what the tests compile.
namespace tessera::test {

/// A View without its type; strides are in bytes.
struct Elements {
  unsigned char* data;
  std::size_t count, bytes;  // elements, and bytes of each
  std::size_t extent[8] = {}, stride[8] = {};
  int rank;
};

template <class View>
Elements elements_of(View const& v) {
  using T = typename View::non_const_value_type;
  Elements e;
  e.data = reinterpret_cast<unsigned char*>(const_cast<T*>(v.data()));
  e.count = v.size();
  e.bytes = sizeof(T);
  e.rank = static_cast<int>(View::rank());
  for (int d = 0; d < e.rank; ++d) {
    e.extent[d] = v.extent(d);
    e.stride[d] = v.stride(d) * sizeof(T);
  }
  return e;
}

/// From a flat array on the host, last index fastest, into a View's memory, and back. Both fence.
template <class Memory>
void write_elements(Elements const& to, void const* flat);
template <class Memory>
void read_elements(Elements const& from, void* flat);

}  // namespace tessera::test

#endif
