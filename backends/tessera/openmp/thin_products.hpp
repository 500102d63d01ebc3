// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_THIN_PRODUCTS_HPP
#define TESSERA_OPENMP_THIN_PRODUCTS_HPP

#include <algorithm>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>

namespace tessera::detail::openmp {

/// Products of few rows, which take as long as it takes to read B once: C = A Bᵀ, or C += A Bᵀ, of columns that cores
/// share out, without panels, into which B would be written and read again. A is (M, K), B (N, K), contiguous along K
/// as A is then, or along N as C is then.
template <class T>
class ThinProducts {
 public:
  static bool takes(MatrixStack const& a, MatrixStack const& b, MatrixStack const& c) {
    if (a.type != scalar_of<T> || b.type != scalar_of<T> || c.type != scalar_of<T>) return false;
    if (lies_across(b)) return c.rows <= most_rows_across && c.col_stride == 1 && strided_kernel<T>() != nullptr;
    return c.rows <= most_rows_along && b.col_stride == 1 && a.col_stride == 1 && dot_kernel<T>() != nullptr;
  }

  ThinProducts(MatrixStack const& a, MatrixStack const& b, MatrixStack const& c, bool add, int cores)
      : a_(a), b_(b), c_(c), add_(add), across_(lies_across(b)) {
    std::int64_t const piece = across_ ? panel_cols<T> : 4,
                       share = b.rows / ((across_ ? 2 : 4) * cores) / piece * piece;
    width_ = std::clamp<std::int64_t>(share, (across_ ? 2 : 1) * piece, across_ ? 4096 : 64);
    strips_ = (b.rows + width_ - 1) / width_;
  }
  std::int64_t strips() const { return c_.inner * strips_; }

  void operator()(std::int64_t i) const {
    std::int64_t const plane = i / strips_, first = (i - plane * strips_) * width_,
                       cols = std::min(width_, b_.rows - first);
    T const* const a = at(a_) + (a_.inner > 1 ? plane * a_.inner_stride : 0);
    T const* const b = at(b_) + (b_.inner > 1 ? plane * b_.inner_stride : 0) + first * b_.row_stride;
    T* const c = at(c_) + plane * c_.inner_stride + first * c_.col_stride;
    if (across_)
      multiply_across(a, b, c, cols);
    else
      dot_kernel<T>()({a, a_.row_stride, b, b_.row_stride, c, c_.row_stride, c_.col_stride, static_cast<int>(c_.rows),
                       static_cast<int>(cols), a_.cols, add_});
  }

 private:
  static constexpr std::int64_t most_rows_along = 4, most_rows_across = panel_rows;

  static bool lies_across(MatrixStack const& b) { return b.row_stride == 1 && b.col_stride != 1; }
  static T* at(MatrixStack const& m) { return static_cast<T*>(const_cast<void*>(m.data)); }

  /// Some k at a time along many columns: a core fetches lines of 8 k ahead side by side, and of fewer it reads and
  /// writes C too often. 1 x 8192 x 8192 on two cores with 4, 8, 16 and 64 of them 33, 25, 32 and 36 ms; in strips of
  /// 512 columns instead of 4096 39.
  void multiply_across(T const* a, T const* b, T* c, std::int64_t cols) const {
    StridedKernel<T> const multiply = strided_kernel<T>();
    std::int64_t const together = c_.rows <= 4 ? 8 : 32;
    for (std::int64_t k = 0; k < a_.cols; k += together)
      for (std::int64_t j = 0; j < cols; j += panel_cols<T>)
        multiply({a + k * a_.col_stride, a_.row_stride, a_.col_stride, b + k * b_.col_stride + j, b_.col_stride, c + j,
                  c_.row_stride, static_cast<int>(c_.rows),
                  static_cast<int>(std::min<std::int64_t>(panel_cols<T>, cols - j)),
                  static_cast<int>(std::min(together, a_.cols - k)), add_ || k > 0});
  }

  MatrixStack a_, b_, c_;
  bool add_, across_;
  std::int64_t width_, strips_;  // columns of a strip, and strips of a plane
};

}  // namespace tessera::detail::openmp

#endif
