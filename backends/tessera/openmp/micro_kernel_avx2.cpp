// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace tessera::detail::openmp {

void multiply_panels_avx2(float const* a, float const* b, float* c, int k, bool add, PanelsAhead ahead) {
  multiply_panels<float, 32, 6>(a, b, c, k, add, ahead);
}

void multiply_panels_avx2(double const* a, double const* b, double* c, int k, bool add, PanelsAhead ahead) {
  multiply_panels<double, 32, 6>(a, b, c, k, add, ahead);
}

void multiply_panels_avx2(std::int32_t const* a, std::int32_t const* b, std::int32_t* c, int k, bool add,
                          PanelsAhead ahead) {
  multiply_panels<std::int32_t, 32, 6>(a, b, c, k, add, ahead);
}

}  // namespace tessera::detail::openmp
