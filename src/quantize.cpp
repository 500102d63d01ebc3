// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/quantize/quantize.hpp>

namespace tessera::detail {

template void run_quantize(TESSERA_EXECUTION_SPACE const&, QuantizeProblem const&);
template void run_dequantize(TESSERA_EXECUTION_SPACE const&, QuantizeProblem const&);

}  // namespace tessera::detail
