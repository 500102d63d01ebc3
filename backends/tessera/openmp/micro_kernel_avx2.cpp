// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace tessera::detail::openmp {

extern MicroKernelsOfTypes const micro_kernels_avx2;
MicroKernelsOfTypes const micro_kernels_avx2 = kernels_of_panels<32, 6>;

}  // namespace tessera::detail::openmp
