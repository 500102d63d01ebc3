// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_PANEL_PRODUCTS_HPP
#define TESSERA_OPENMP_PANEL_PRODUCTS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/packed_factors.hpp>
#include <tessera/openmp/panels.hpp>
#include <tessera/openmp/tile_panels.hpp>

// A tile's product by micro-kernels: panel by panel of numbers, while of words a kernel walks all panels itself.
namespace tessera::detail::openmp {

/// Whether panels are of a matrix that was packed before.
template <class Panels>
inline constexpr bool packed_before = requires(Panels const& p) {
  p.next;
};

/// What micro-kernels fetch while a tile's panels are multiplied, each its share: the next right panel, which may be
/// one of the next step, and that step's left ones where all are packed before.
template <class Left, class Right>
class TileAhead {
 public:
  TileAhead(Left const& a, Right const& b, int rows, int cols)
      : a_(a), b_(b), rows_(rows), cols_(cols), right_share_(share(sizeof(b.v[0]), rows)) {
    if constexpr (packed_before<Left>)
      if (a.next != nullptr) left_share_ = share(rows * sizeof(a.v[0]), rows * cols);
  }
  /// While panel i is multiplied by panel j.
  PanelsAhead operator()(int i, int j) const {
    PanelsAhead ahead;
    ahead.next_left = reinterpret_cast<char const*>(i + 1 < rows_ ? a_.v + i + 1 : a_.v);
    char const* right = j + 1 < cols_ ? reinterpret_cast<char const*>(b_.v + j + 1) : nullptr;
    if constexpr (packed_before<Left>) {
      if (right == nullptr) right = reinterpret_cast<char const*>(b_.next);
      ahead.left = reinterpret_cast<char const*>(a_.next) + std::int64_t(j * rows_ + i) * left_share_ * line;
      ahead.left_lines = left_share_;
    }
    if (right != nullptr) {
      ahead.right = right + std::int64_t(i) * right_share_ * line;
      ahead.right_lines = right_share_;
    }
    return ahead;
  }

 private:
  static constexpr int line = 64;
  static int share(std::size_t bytes, int parts) {
    return static_cast<int>((bytes / line + static_cast<std::size_t>(parts) - 1) / static_cast<std::size_t>(parts));
  }

  Left const& a_;
  Right const& b_;
  int rows_, cols_, right_share_, left_share_ = 0;
};

/// Products of numbers, from panels of MR rows and of NR columns; `Wide` ones are for the micro-kernel of wide panels.
template <class Compute, int MR, int NR, bool Wide>
class PanelProducts {
 public:
  /// Panels of sums = a bᵀ, or += it.
  template <class A, class B, class Panel>
  static void in_panels(A const& a, B const& b, Panel* sums, bool add) {
    static MicroKernel<Compute> const micro = Wide ? wide_micro_kernel<Compute>() : micro_kernel<Compute>();
    static StridedKernel<Compute> const strided = strided_kernel<Compute>();
    int const k = std::min(a.k, b.k), rows = panels(a.rows, MR), cols = panels(b.rows, NR);
    bool const packed = a.matrix == nullptr && b.matrix == nullptr;
    TileAhead<A, B> const ahead(a, b, rows, cols);
    for (int j = 0; j < cols; ++j)
      for (int i = 0; i < rows; ++i) {
        if constexpr (!packed_before<B>) {
          if (i == 0) fetch(lines_of_panel(b, j + 1, 0, 1));
          if (j == 0) fetch(lines_of_panel(a, i + 1, 0, 1));
        }
        StridedProduct<Compute> p = of_panels(a, b, i, j);
        p.c = &sums[j][i * MR][0];
        p.add = add;
        bool const whole = Wide ? p.cols > panel_cols<Compute> : p.rows == MR && p.cols == NR;
        if (strided == nullptr || (packed && whole)) {
          micro(&a.v[i][0][0], &b.v[j][0][0], p.c, k, add, ahead(i, j));
        } else {
          if constexpr (packed_before<B>) p.factor = lines_of_panel(b, j + 1, i, rows);
          multiply_strided(strided, p);
        }
      }
  }
  /// C = a bᵀ, or C += it. The factor with fewer rows stays in the first-level cache, the other one goes by: panel by
  /// panel, the next of which is fetched meanwhile, and so are the lines that its products will be written to.
  template <class A, class B>
  static void in_place(A const& a, B const& b, Compute* c, std::int64_t c_row, bool add) {
    static StridedKernel<Compute> const strided = strided_kernel<Compute>();
    int const rows = panels(a.rows, MR), cols = panels(b.rows, NR);
    bool const left_stays = a.rows <= b.rows;
    for (int n = 0; n < rows * cols; ++n) {
      int const i = left_stays ? n % rows : n / cols, j = left_stays ? n / rows : n % cols;
      StridedProduct<Compute> p = of_panels(a, b, i, j);
      p.c = c + i * MR * c_row + j * NR;
      p.c_row = c_row;
      p.add = add;
      if (left_stays && j + 1 < cols) {
        p.factor = lines_of_panel(b, j + 1, i, rows);
        p.result = lines_of(p.c + NR, c_row, p.rows, std::min(NR, b.rows - (j + 1) * NR));
      } else if (!left_stays && i + 1 < rows) {
        p.factor = lines_of_panel(a, i + 1, j, cols);
        p.result = lines_of(p.c + MR * c_row, c_row, std::min(MR, a.rows - (i + 1) * MR), p.cols);
      }
      strided(p);
    }
  }

 private:
  /// Panel i times panel j.
  template <class A, class B>
  static StridedProduct<Compute> of_panels(A const& a, B const& b, int i, int j) {
    StridedProduct<Compute> p{&a.v[i][0][0], 1, MR, &b.v[j][0][0], NR, nullptr, NR, 0, 0, std::min(a.k, b.k), false};
    p.rows = std::min(MR, a.rows - i * MR);
    p.cols = std::min(NR, b.rows - j * NR);
    if (a.matrix != nullptr) p.a = a.matrix + i * MR * a.row_stride, p.a_row = a.row_stride, p.a_k = a.k_stride;
    if (b.matrix != nullptr) p.b = b.matrix + j * NR, p.b_k = b.k_stride;
    return p;
  }
  /// In halves where a panel has more rows than such kernels take.
  static void multiply_strided(StridedKernel<Compute> kernel, StridedProduct<Compute> p) {
    constexpr int most = MR > panel_rows ? MR / 2 : MR;
    for (int rows = p.rows; rows > 0; rows -= most, p.a += most * p.a_row, p.c += most * p.c_row) {
      p.rows = std::min(rows, most);
      kernel(p);
    }
  }
};

/// The panels of words of a from `first` on times those of b.
template <class Element, class A, class B, class Sum>
WordProduct<Sum> word_product(A const& a, B const& b, int first, Sum* c, std::int64_t c_panel, bool add) {
  constexpr int a_line = line_bytes / static_cast<int>(sizeof(Element));
  int const lines = (std::min(a.k, b.k) + a_line - 1) / a_line;
  WordProduct<Sum> w{a.v + first, b.v, sizeof(a.v[0]), sizeof(b.v[0]), c, c_panel, a.rows - first * word_panel, b.rows,
                     lines,       add};
  if constexpr (requires { a.matrix; })
    if (a.matrix != nullptr) {
      w.a_row = a.row_bytes;
      w.a_panel = word_panel * a.row_bytes;
      w.a = a.matrix + first * w.a_panel;
    }
  return w;
}
/// C = a bᵀ by way of `sums`, where M x N of them have room: a few panels of rows after the others, whose sums are
/// rounded while the first-level cache has them. Rows of them are a line of the cache longer than C's, since those that
/// lie a power of two apart drive each other out of it.
template <int M, int N, class Element, class Kernel, class A, class B, class Sum>
void word_product_into(Kernel const& kernel, A const& a, B const& b, Sum* sums, MatrixStack const& m, Plane p,
                       std::int64_t row0, std::int64_t col0) {
  constexpr int line = line_bytes / static_cast<int>(sizeof(Sum)), together = (32 << 10) / sizeof(Sum);
  static_assert(M >= 2 * word_panel && M * N >= together, "there is no room where the accumulator would be");
  int const pitch = panels(b.rows, word_panel) * word_panel + line,
            rows_together = std::max(together / pitch / word_panel, 1) * word_panel;
  auto const size = static_cast<std::int64_t>(size_of(m.type));
  char* const to = static_cast<char*>(const_cast<void*>(m.data)) + m.offset(p, row0, col0) * size;
  bool const rounds = m.type == Scalar::bf16 && kernel.round_rows != nullptr;
  for (int i = 0; i < a.rows; i += rows_together) {
    WordProduct<Sum> w = word_product<Element>(a, b, i / word_panel, sums, word_panel, false);
    w.rows = std::min(rows_together, a.rows - i);
    w.c_row = pitch;
    kernel.multiply(w);
    char* const rows_at = to + i * m.row_stride * size;
    if (rounds)
      kernel.round_rows(sums, pitch, w.rows, b.rows, rows_at, m.row_stride * size);
    else
      store_panel(m.type, sums, pitch, w.rows, b.rows, rows_at, m.row_stride, 1);
  }
}

}  // namespace tessera::detail::openmp

#endif
