// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_MATRIX_HPP
#define TESSERA_DETAIL_MATRIX_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/types.hpp>

namespace tessera::detail {

/// n becomes n / d; the remainder. For indices into extents: 64-bit division takes several times as long as 32-bit one.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t take_remainder(std::int64_t& n, std::int64_t d) {
  std::int64_t const whole = (n | d) >> 32 == 0 ? static_cast<std::uint32_t>(n) / static_cast<std::uint32_t>(d) : n / d;
  std::int64_t const r = n - whole * d;
  n = whole;
  return r;
}

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
  KOKKOS_FUNCTION MatrixStack transposed() const {
    return {data, type, cols, rows, col_stride, row_stride, outer, inner, outer_stride, inner_stride};
  }
  bool operator==(MatrixStack const&) const = default;
};

/// Sequences whose rows lie in pages, planes of a stack: row i of sequence b is row i % rows of page table(b, i /
/// rows).
struct PageTable {
  int const* data = nullptr;  // (sequences, columns)
  std::int64_t row_stride = 0, col_stride = 0;
  int columns = 0, pages = 0, rows = 0;  // pages a sequence has at most, in the stack, and rows of a page

  KOKKOS_FUNCTION bool present() const { return rows > 0; }
  KOKKOS_FUNCTION std::int64_t sequence_rows() const { return std::int64_t(columns) * rows; }
};

/// One sequence of them, in an inner plane of the stack.
struct PagedRows {
  PageTable const& table;
  std::int64_t sequence, inner;

  /// Where a row lies. What the table lacks or has wrong is brought into range: nothing outside of the stack is read.
  KOKKOS_FUNCTION Plane plane(std::int64_t row) const {
    auto const within = [](int i, int n) { return i < 0 ? 0 : (i < n ? i : n - 1); };
    int const column = within(static_cast<int>(row) / table.rows, table.columns);
    return {within(table.data[sequence * table.row_stride + column * table.col_stride], table.pages), inner};
  }
  KOKKOS_FUNCTION int in_page(std::int64_t row) const { return static_cast<int>(row) % table.rows; }
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

/// A floating-point type of at most 32 bits known at run time: its bits widen to fp32 by one sequence of instructions
/// whose constants say which it is. Where a tile is unrolled, a switch over the types at every element would be most of
/// a kernel's code. As detail::widen_bits, which explains the steps.
class AnyFloat {
 public:
  KOKKOS_FUNCTION explicit AnyFloat(Scalar type) : bytes_(static_cast<int>(size_of(type))) {
    switch (type) {
      case Scalar::fp16:
        set<fp16_t>();
        break;
      case Scalar::bf16:
        set<bf16_t>();
        break;
      case Scalar::e4m3:
        set<e4m3_t>();
        break;
      case Scalar::e5m2:
        set<e5m2_t>();
        break;
      default:
        set<float>();
        break;
    }
  }

  /// Element `at` of an array.
  KOKKOS_FORCEINLINE_FUNCTION float read(void const* data, std::int64_t at) const {
    std::uint32_t pattern;
    if (bytes_ == 2)
      pattern = static_cast<std::uint16_t const*>(data)[at];
    else if (bytes_ == 4)
      pattern = static_cast<std::uint32_t const*>(data)[at];
    else
      pattern = static_cast<std::uint8_t const*>(data)[at];
    return widen(pattern);
  }
  KOKKOS_FORCEINLINE_FUNCTION float widen(std::uint32_t pattern) const {
    std::uint32_t const magnitude = pattern & magnitude_mask_;
    std::uint32_t const sign = (pattern - magnitude) << (32 - 8 * bytes_);
    bool const subnormal = magnitude < smallest_normal_;
    std::uint32_t shifted = (magnitude << gained_) + rebias_ + (subnormal ? one_exponent : 0);
    shifted |= magnitude >= first_special_ ? special_exponent : 0;
    std::uint32_t const power = subnormal ? rebias_ + one_exponent : 0;
    float const difference = __builtin_bit_cast(float, shifted) - __builtin_bit_cast(float, power);
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, difference) | sign);
  }

 private:
  static constexpr std::uint32_t one_exponent = 1u << 23, special_exponent = 0xffu << 23;

  template <class T>
  KOKKOS_FUNCTION constexpr void set() {
    using Source = FloatFormat<T>;
    using Target = FloatFormat<float>;
    magnitude_mask_ = Source::nan_bits;
    gained_ = Target::mantissa_bits - Source::mantissa_bits;
    rebias_ = static_cast<std::uint32_t>(Target::bias - Source::bias) << Target::mantissa_bits;
    if (rebias_ == 0) return;  // its subnormals and special values are fp32's
    smallest_normal_ = Source::min_normal_bits;
    first_special_ = Source::finite ? Source::nan_bits : Source::last_bits;
  }

  int bytes_, gained_ = 0;
  std::uint32_t magnitude_mask_ = 0, rebias_ = 0, smallest_normal_ = 0, first_special_ = ~0u;
};

}  // namespace tessera::detail

#endif
