// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/column_loops_avx512.hpp>

namespace tessera::detail::openmp {

extern ColumnLoopsOfPanels const column_loops_avx512;
ColumnLoopsOfPanels const column_loops_avx512 = columns_of_panels<Avx512>;

}  // namespace tessera::detail::openmp
