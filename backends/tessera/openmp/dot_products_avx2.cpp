// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/dot_products_body.hpp>

namespace tessera::detail::openmp {

void dot_products_avx2(DotProducts<float> const& p) { dot_products<float, 32>(p); }
void dot_products_avx2(DotProducts<double> const& p) { dot_products<double, 32>(p); }

}  // namespace tessera::detail::openmp
