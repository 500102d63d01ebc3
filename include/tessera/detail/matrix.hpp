// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_MATRIX_HPP
#define TESSERA_DETAIL_MATRIX_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/types.hpp>

namespace tessera::detail {

/// Which matrix of a stack: (batch, head) for attention, (0, batch) for a batched matrix product.
struct Plane {
  std::int64_t outer = 0, inner = 0;
};

/// A stack of matrices of one size in memory, element type known at run time: kernels are instantiated per accumulator
/// type, not per combination of operand types. Strides in elements.
struct MatrixStack {
  void const* data = nullptr;
  Scalar type = Scalar::fp32;
  std::int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 0;
  std::int64_t outer = 1, inner = 1, outer_stride = 0, inner_stride = 0;

  KOKKOS_FUNCTION std::int64_t offset(Plane p, std::int64_t row, std::int64_t col) const {
    return p.outer * outer_stride + p.inner * inner_stride + row * row_stride + col * col_stride;
  }
  MatrixStack transposed() const {
    MatrixStack t = *this;
    std::swap(t.rows, t.cols);
    std::swap(t.row_stride, t.col_stride);
    return t;
  }
};

template <class T>
struct ScalarTag {
  using type = T;
};

/// Calls f(ScalarTag<T>{}) for the type behind `type`, among those that widen to Compute without loss.
template <class Compute, class F>
KOKKOS_FORCEINLINE_FUNCTION void visit_scalar(Scalar type, F const& f) {
  if constexpr (std::is_same_v<Compute, double>) {
    if (type == Scalar::fp64)
      f(ScalarTag<double>{});
    else
      f(ScalarTag<float>{});
  } else if constexpr (std::is_same_v<Compute, std::int32_t>) {
    if (type == Scalar::int8)
      f(ScalarTag<std::int8_t>{});
    else
      f(ScalarTag<std::int32_t>{});
  } else {
    switch (type) {
      case Scalar::fp16:
        f(ScalarTag<fp16_t>{});
        break;
      case Scalar::bf16:
        f(ScalarTag<bf16_t>{});
        break;
      case Scalar::e4m3:
        f(ScalarTag<e4m3_t>{});
        break;
      case Scalar::e5m2:
        f(ScalarTag<e5m2_t>{});
        break;
      default:
        f(ScalarTag<float>{});
        break;
    }
  }
}

}  // namespace tessera::detail

#endif
