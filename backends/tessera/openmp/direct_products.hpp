// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_DIRECT_PRODUCTS_HPP
#define TESSERA_OPENMP_DIRECT_PRODUCTS_HPP

#include <algorithm>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>

namespace tessera::detail::openmp {

/// Products so small that all of their operands stay in the first-level cache: C = A Bᵀ, or C += A Bᵀ, from where the
/// factors are to where C is, without panels, accumulators in scratch or a tile's description. A is (M, K), B (N, K)
/// with its rows' index contiguous, C (M, N) with its columns' index contiguous, all of T.
template <class T>
class DirectProducts {
 public:
  static bool takes(MatrixStack const& a, MatrixStack const& b, MatrixStack const& c) {
    constexpr std::int64_t most = 64;
    constexpr std::int64_t farthest = 1024 / sizeof(T);  // lines further apart may drive each other out of the cache
    auto const near = [](std::int64_t stride) { return stride >= 0 && stride <= farthest; };
    return strided_kernel<T>() != nullptr && a.type == scalar_of<T> && b.type == scalar_of<T> &&
           c.type == scalar_of<T> && c.rows <= most && c.cols <= most && a.cols <= most && b.row_stride == 1 &&
           c.col_stride == 1 && near(a.row_stride) && near(a.col_stride) && near(b.col_stride) && near(c.row_stride);
  }

  DirectProducts(MatrixStack const& a, MatrixStack const& b, MatrixStack const& c, bool add)
      : kernel_(strided_kernel<T>()),
        a_(first(a)),
        b_(first(b)),
        c_(first(c)),
        a_plane_(a.inner > 1 ? a.inner_stride : 0),
        b_plane_(b.inner > 1 ? b.inner_stride : 0),
        c_plane_(c.inner_stride),
        product_{nullptr,
                 a.row_stride,
                 a.col_stride,
                 nullptr,
                 b.col_stride,
                 nullptr,
                 c.row_stride,
                 0,
                 0,
                 static_cast<int>(a.cols),
                 add},
        rows_(static_cast<int>(c.rows)),
        cols_(static_cast<int>(c.cols)) {}

  void operator()(std::int64_t plane) const {
    T const *const a = a_ + plane * a_plane_, *const b = b_ + plane * b_plane_;
    T* const c = c_ + plane * c_plane_;
    StridedProduct<T> p = product_;
    for (int j = 0; j < cols_; j += panel_cols<T>)
      for (int i = 0; i < rows_; i += panel_rows) {
        p.a = a + i * p.a_row;
        p.b = b + j;
        p.c = c + i * p.c_row + j;
        p.rows = std::min(panel_rows, rows_ - i);
        p.cols = std::min(panel_cols<T>, cols_ - j);
        kernel_(p);
      }
  }

 private:
  static T* first(MatrixStack const& m) { return static_cast<T*>(const_cast<void*>(m.data)); }

  StridedKernel<T> kernel_;
  T const *a_, *b_;
  T* c_;
  std::int64_t a_plane_, b_plane_, c_plane_;
  StridedProduct<T> product_;
  int rows_, cols_;
};

}  // namespace tessera::detail::openmp

#endif
