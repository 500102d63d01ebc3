// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/interchange.hpp>

#include "reference/float_formats.hpp"
#include "support/support.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace {

using namespace tessera;
using namespace tessera::reference;

template <class T>
concept has_kokkos_peer = requires(T x) {
  to_kokkos(x);
};
template <class T>
concept has_cuda_peer = requires {
  typename detail::CudaPeers<T>::other;
};

/// Patterns that survive the way there and back, and that mean the same number there.
template <class T, class There, class Back, class Value>
long wrong_exchanges(There there, Back back, Value value) {
  long wrong = 0;
  for (std::uint32_t i = 0; i < (1u << (8 * sizeof(T))); ++i) {
    T const x = T::from_bits(static_cast<BitsOf<T>>(i));
    auto const other = there(x);
    double const wanted = decode(x), got = value(other);
    wrong += back(other).bits() != x.bits() || !(got == wanted || (std::isnan(got) && std::isnan(wanted)));
  }
  return wrong;
}

template <class T>
void check_kokkos() {
  if constexpr (has_kokkos_peer<T>) {
    CHECK(wrong_exchanges<T>([](T x) { return to_kokkos(x); }, [](auto y) { return from_kokkos(y); },
                             [](auto y) { return static_cast<double>(static_cast<float>(y)); }) == 0);
  }
}

TEST_CASE("Kokkos' half-precision types are exchanged bit for bit where they exist") {
  CHECK(has_kokkos_peer<fp16_t> == (sizeof(Kokkos::Experimental::half_t) == 2));
  CHECK(has_kokkos_peer<bf16_t> == (sizeof(Kokkos::Experimental::bhalf_t) == 2));
  CHECK(!has_kokkos_peer<e4m3_t>);
  CHECK(!has_kokkos_peer<float>);
  check_kokkos<fp16_t>();
  check_kokkos<bf16_t>();
}

TEST_CASE("only the types that CUDA has too are exchanged with it") {
  CHECK(has_cuda_peer<fp16_t>);
  CHECK(has_cuda_peer<e5m2_t>);
  CHECK(!has_cuda_peer<float>);
}

#if defined(KOKKOS_ENABLE_CUDA)
TEST_CASE_TEMPLATE("CUDA's types are exchanged bit for bit", T, fp16_t, bf16_t, e4m3_t, e5m2_t) {
  CHECK(wrong_exchanges<T>([](T x) { return to_cuda(x); }, [](auto y) { return from_cuda(y); },
                           [](auto y) { return static_cast<double>(static_cast<float>(y)); }) == 0);
}
#endif

}  // namespace
