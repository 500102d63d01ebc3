// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_ROW_TYPES_HPP
#define TESSERA_ROWWISE_ROW_TYPES_HPP

#include <type_traits>

#include <tessera/detail/rows.hpp>
#include <tessera/rowwise/operand.hpp>

namespace tessera::detail {

/// Kernels that accumulate in fp32 are chosen when no operand is fp64, so they never meet one.
template <class Acc>
using RowInputs = std::conditional_t<std::is_same_v<Acc, double>, TypeList<double, float, fp16_t, bf16_t>,
                                     TypeList<bf16_t, fp16_t, float>>;
template <class Acc>
using RowOutputs =
    std::conditional_t<std::is_same_v<Acc, double>, TypeList<double, float, fp16_t, bf16_t, e4m3_t, e5m2_t>,
                       TypeList<bf16_t, fp16_t, e4m3_t, e5m2_t, float>>;

template <class... Array>
bool any_is_double(Array const&... a) {
  return ((a.present() && a.type == Scalar::fp64) || ...);
}

}  // namespace tessera::detail

#endif
