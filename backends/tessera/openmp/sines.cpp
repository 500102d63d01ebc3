// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/half_turns.hpp>
#include <tessera/vector_units.hpp>

// What sines.hpp declares, without it: that declaration would have g++ make the functions of vectors from these. Single
// numbers, of which loops may have some left, are the same as in vectors.
namespace tessera::detail::openmp {

float sine_avx2(float x);
float cosine_avx2(float x);

}  // namespace tessera::detail::openmp

namespace {

using tessera::detail::vector_units;
using tessera::detail::VectorUnits;

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));

template <class Vector>
__attribute__((always_inline)) inline void by_lanes(Vector& x, float (*f)(float)) {
  for (unsigned i = 0; i < sizeof x / sizeof x[0]; ++i) x[i] = f(x[i]);
}

}  // namespace

extern "C" {

float tessera_sine(float x) noexcept {
  return vector_units() == VectorUnits::baseline ? tessera::detail::sine_of_any<false>(x)
                                                 : tessera::detail::openmp::sine_avx2(x);
}
float tessera_cosine(float x) noexcept {
  return vector_units() == VectorUnits::baseline ? tessera::detail::sine_of_any<true>(x)
                                                 : tessera::detail::openmp::cosine_avx2(x);
}

// For loops of 4, and of 8 without AVX2.
Four _ZGVbN4v_tessera_sine(Four x) {
  by_lanes(x, tessera_sine);
  return x;
}
Four _ZGVbN4v_tessera_cosine(Four x) {
  by_lanes(x, tessera_cosine);
  return x;
}
__attribute__((target("avx"))) Eight _ZGVcN8v_tessera_sine(Eight x) {
  by_lanes(x, tessera_sine);
  return x;
}
__attribute__((target("avx"))) Eight _ZGVcN8v_tessera_cosine(Eight x) {
  by_lanes(x, tessera_cosine);
  return x;
}

}  // extern "C"
