// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "elements.hpp"

namespace tessera::test {

namespace {

using Bytes = Kokkos::View<unsigned char*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

struct CopyElement {
  Elements strided;
  unsigned char* flat;
  bool to_strided;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    std::size_t at = 0, rest = i;
    for (int d = strided.rank - 1; d >= 0; --d) {
      at += rest % strided.extent[d] * strided.stride[d];
      rest /= strided.extent[d];
    }
    for (std::size_t b = 0; b < strided.bytes; ++b) {
      unsigned char& one = strided.data[at + b];
      unsigned char& other = flat[i * strided.bytes + b];
      if (to_strided)
        one = other;
      else
        other = one;
    }
  }
};

}  // namespace

template <class Memory>
void write_elements(Elements const& to, void const* flat) {
  using Exec = typename Memory::execution_space;
  Kokkos::View<unsigned char*, Memory> const staged("flat", to.count * to.bytes);
  Kokkos::deep_copy(staged, Bytes(static_cast<unsigned char*>(const_cast<void*>(flat)), staged.size()));
  Kokkos::parallel_for("write_elements", Kokkos::RangePolicy<Exec>(0, to.count), CopyElement{to, staged.data(), true});
  Kokkos::fence();
}

template <class Memory>
void read_elements(Elements const& from, void* flat) {
  using Exec = typename Memory::execution_space;
  Kokkos::View<unsigned char*, Memory> const staged("flat", from.count * from.bytes);
  Kokkos::parallel_for("read_elements", Kokkos::RangePolicy<Exec>(0, from.count),
                       CopyElement{from, staged.data(), false});
  Kokkos::deep_copy(Bytes(static_cast<unsigned char*>(flat), staged.size()), staged);
}

template void write_elements<Kokkos::HostSpace>(Elements const&, void const*);
template void read_elements<Kokkos::HostSpace>(Elements const&, void*);
#if defined(KOKKOS_ENABLE_CUDA)
template void write_elements<Kokkos::CudaSpace>(Elements const&, void const*);
template void read_elements<Kokkos::CudaSpace>(Elements const&, void*);
#endif

}  // namespace tessera::test
