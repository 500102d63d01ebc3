// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel_body.hpp>

namespace tessera::detail::openmp {

extern MicroKernels const micro_kernels_baseline;
MicroKernels const micro_kernels_baseline{kernels_of_types<WalkOfPanels, 16, 4>};

}  // namespace tessera::detail::openmp
