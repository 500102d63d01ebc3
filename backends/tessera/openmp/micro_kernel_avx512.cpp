// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace {

/// Each instruction reads the number itself: 26 of them a step of k in place of 38, which counts where another thread
/// shares the core. Compilers load a number that two instructions need into a register first.
struct NumberInMemory {
  template <class Vector>
  static inline Vector add(Vector sums, float const& left, Vector right) {
    asm volatile("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(sums) : "m"(left), "v"(right));
    return sums;
  }
  template <class Vector>
  static inline Vector add(Vector sums, double const& left, Vector right) {
    asm volatile("vfmadd231pd %1%{1to8%}, %2, %0" : "+v"(sums) : "m"(left), "v"(right));
    return sums;
  }
};

}  // namespace

namespace tessera::detail::openmp {

void multiply_panels_avx512(float const* a, float const* b, float* c, int k, bool add) {
  multiply_panels<float, 64, 12, NumberInMemory>(a, b, c, k, add);
}

void multiply_panels_avx512(double const* a, double const* b, double* c, int k, bool add) {
  multiply_panels<double, 64, 12, NumberInMemory>(a, b, c, k, add);
}

void multiply_panels_avx512(std::int32_t const* a, std::int32_t const* b, std::int32_t* c, int k, bool add) {
  multiply_panels<std::int32_t, 64, 12>(a, b, c, k, add);
}

}  // namespace tessera::detail::openmp
