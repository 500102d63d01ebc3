// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace tessera::detail::openmp {

extern MicroKernels const micro_kernels_avx2;
MicroKernels const micro_kernels_avx2{kernels_of_types<WalkOfPanels, 32, 6>};

}  // namespace tessera::detail::openmp
