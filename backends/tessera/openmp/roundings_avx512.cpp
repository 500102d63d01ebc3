// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/roundings_avx512.hpp>

namespace tessera::detail::openmp {

extern Roundings const roundings_avx512;
Roundings const roundings_avx512 = with_steps<Avx512>;

}  // namespace tessera::detail::openmp
