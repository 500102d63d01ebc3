// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/half_turns.hpp>

// What sines.hpp declares, without it: that declaration would have g++ make the functions of vectors from these.
// Vectors whose processors may have no fused products go lane by lane.
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));

template <bool Ahead, class Vector>
__attribute__((always_inline)) inline void by_lanes(Vector& x) {
  for (unsigned i = 0; i < sizeof x / sizeof x[0]; ++i) x[i] = tessera::detail::sine_of_any<Ahead>(x[i]);
}

}  // namespace

extern "C" float tessera_sine(float x) noexcept { return tessera::detail::sine_of_any<false>(x); }
extern "C" float tessera_cosine(float x) noexcept { return tessera::detail::sine_of_any<true>(x); }
extern "C" Four _ZGVbN4v_tessera_sine(Four x) {
  by_lanes<false>(x);
  return x;
}
extern "C" Four _ZGVbN4v_tessera_cosine(Four x) {
  by_lanes<true>(x);
  return x;
}
extern "C" __attribute__((target("avx"))) Eight _ZGVcN8v_tessera_sine(Eight x) {
  by_lanes<false>(x);
  return x;
}
extern "C" __attribute__((target("avx"))) Eight _ZGVcN8v_tessera_cosine(Eight x) {
  by_lanes<true>(x);
  return x;
}
