// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace {

/// Of some rows both instructions read the number, of the others a load serves two. Reading all of them takes 26 loads
/// for 24 products, which is a clock too many, none 38 instructions in place of 26, which counts where another thread
/// shares the core.
template <int Rows>
struct NumbersInMemory {
  static constexpr int rows_by_memory = Rows;
  template <class Vector>
  [[gnu::always_inline]] static inline Vector add(Vector sums, float const& left, Vector right) {
    asm("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(sums) : "m"(left), "v"(right));
    return sums;
  }
  template <class Vector>
  [[gnu::always_inline]] static inline Vector add(Vector sums, double const& left, Vector right) {
    asm("vfmadd231pd %1%{1to8%}, %2, %0" : "+v"(sums) : "m"(left), "v"(right));
    return sums;
  }
};

}  // namespace

namespace tessera::detail::openmp {

void multiply_panels_avx512(float const* a, float const* b, float* c, int k, bool add, PanelsAhead ahead) {
  multiply_panels<float, 64, 12, NumbersInMemory<6>>(a, b, c, k, add, ahead);
}

void multiply_panels_avx512(double const* a, double const* b, double* c, int k, bool add, PanelsAhead ahead) {
  multiply_panels<double, 64, 12, NumbersInMemory<3>>(a, b, c, k, add, ahead);
}

void multiply_panels_avx512(std::int32_t const* a, std::int32_t const* b, std::int32_t* c, int k, bool add,
                            PanelsAhead ahead) {
  multiply_panels<std::int32_t, 64, 12>(a, b, c, k, add, ahead);
}

}  // namespace tessera::detail::openmp
