// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace {

/// Of some rows all instructions read the number, of the others a load serves them. Reading all of 12 rows takes 26
/// loads for 24 products, which is a clock too many, none 38 instructions in place of 26, which counts where another
/// thread shares the core.
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

extern MicroKernels const micro_kernels_avx512;
MicroKernels const micro_kernels_avx512{{multiply_panels<float, WalkOfPanels<float, 64, 12>, NumbersInMemory<6>>,
                                         multiply_panels<double, WalkOfPanels<double, 64, 12>, NumbersInMemory<3>>,
                                         multiply_panels<std::int32_t, WalkOfPanels<std::int32_t, 64, 12>>},
                                        kernels_of_types<WalkOfWide, 64, 8>};

}  // namespace tessera::detail::openmp
