// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_GEMM_PRODUCT_HPP
#define TESSERA_TESTS_GEMM_PRODUCT_HPP

#include <tessera/gemm.hpp>

#include "reference/gemm.hpp"
#include "support/tensor_cores.hpp"

namespace tessera::test {

/// A batch of products. Rows of all operands are `pad` elements longer than they need be and begin `begin` late.
struct Product {
  int m, n, k, batch = 1;
  bool transpose_a = false, transpose_b = false, c_by_columns = false, one_b = false;
  int pad = 0, begin = 0;
  double alpha = 1, beta = 0;
};

/// The elements of a padded stack of matrices, between others that are NaN in every floating-point type.
template <class Exec, class T>
struct Padded {
  using Wide = ViewOf<Exec, T***>;
  Wide wide;
  int pad, begin, cols;
  Padded(int batch, int rows, int columns, int padding, int first)
      : wide("padded", batch, rows, columns + padding + first), pad(padding), begin(first), cols(columns) {
    poison(wide, 0xFF);
  }
  auto view() const { return Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, std::pair(begin, begin + cols)); }
  /// Whether what lies around the elements is as it was.
  bool margins_untouched() const {
    auto const all = values(wide);
    for (std::size_t i = 0; i < all.size(); ++i) {
      int const col = static_cast<int>(i % wide.extent(2)) - begin;
      unsigned char raw[sizeof(T)];
      std::memcpy(raw, &all[i], sizeof(T));
      for (unsigned char const byte : raw)
        if ((col < 0 || col >= cols) && byte != 0xFF) return false;
    }
    return true;
  }
};

template <class T>
std::vector<T> transposed_planes(std::vector<T> const& x, int batch, int rows, int cols) {
  auto y = x;
  for (int p = 0; p < batch; ++p)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        y[(std::size_t(p) * cols + j) * rows + i] = x[(std::size_t(p) * rows + i) * cols + j];
  return y;
}

/// Plane p of a batch.
template <class T>
std::vector<T> plane_of(std::vector<T> const& x, int p, int size) {
  return std::vector<T>(x.begin() + std::ptrdiff_t(p) * size, x.begin() + std::ptrdiff_t(p + 1) * size);
}

/// The products through gemm(), with the workspace it asks for, and through the reference. With beta = 0, C is NaN
/// before. On a machine with tensor cores an algorithm that is asked for must be the one that runs.
template <class Exec, class T, class TC>
void check_product(Product const& p, GemmOptions options) {
  CAPTURE(p.m);
  CAPTURE(p.n);
  CAPTURE(p.k);
  CAPTURE(p.batch);
  CAPTURE(p.transpose_a);
  CAPTURE(p.transpose_b);
  CAPTURE(p.pad);
  int const planes_b = p.one_b ? 1 : p.batch;
  auto const ah = uniform<T>(std::size_t(p.batch) * p.m * p.k, 1),
             bh = uniform<T>(std::size_t(planes_b) * p.k * p.n, 2);
  auto const ch = uniform<TC>(std::size_t(p.batch) * p.m * p.n, 3);
  Padded<Exec, T> const a(p.batch, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.pad, p.begin);
  Padded<Exec, T> const b(planes_b, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.pad, p.begin);
  Padded<Exec, TC> const c(p.batch, p.c_by_columns ? p.n : p.m, p.c_by_columns ? p.m : p.n, p.pad, p.begin);
  fill(a.view(), p.transpose_a ? transposed_planes(ah, p.batch, p.m, p.k) : ah);
  fill(b.view(), p.transpose_b ? transposed_planes(bh, planes_b, p.k, p.n) : bh);
  if (p.beta != 0) fill(c.view(), p.c_by_columns ? transposed_planes(ch, p.batch, p.m, p.n) : ch);
  options.op_a = p.transpose_a ? Op::transpose : Op::none;
  options.op_b = p.transpose_b ? Op::transpose : Op::none;

  // One type of View for every layout of C: each is a gemm() to compile.
  auto const c_view = c.view();
  using Strided = Kokkos::View<TC***, Kokkos::LayoutStride, typename Exec::memory_space>;
  std::size_t const row = c_view.stride(1), col = c_view.stride(2);
  Strided const cv(c_view.data(), p.c_by_columns ? Kokkos::LayoutStride(p.batch, c_view.stride(0), p.m, col, p.n, row)
                                                 : Kokkos::LayoutStride(p.batch, c_view.stride(0), p.m, row, p.n, col));
  options.workspace_bytes = gemm_workspace_size(Exec{}, p.alpha, a.view(), b.view(), p.beta, cv, options);
  GuardedWorkspace<Exec> const workspace(options.workspace_bytes);
  options.workspace = workspace.data();
  GemmPlan const plan = gemm_plan(Exec{}, p.alpha, a.view(), b.view(), p.beta, cv, options);
  if (has_tensor_cores<Exec>() && options.algorithm != Algorithm::automatic) CHECK(plan.algorithm == options.algorithm);
  gemm(Exec{}, p.alpha, a.view(), b.view(), p.beta, cv, options);
  auto const out = values(cv);
  CHECK(c.margins_untouched());
  CHECK(workspace.margins_untouched());

  using Compute = std::conditional_t<std::is_same_v<TC, double>, double, float>;
  double const lost = options.allow_tf32 ? std::ldexp(1.0, -10) : 0;  // two factors rounded to 11 bits
  for (int i = 0; i < p.batch; ++i)
    check_gemm<Compute>(gemm_reference(p.m, p.n, p.k, p.alpha, plane_of(ah, i, p.m * p.k),
                                       plane_of(bh, p.one_b ? 0 : i, p.k * p.n), p.beta, plane_of(ch, i, p.m * p.n)),
                        plane_of(out, i, p.m * p.n), p.k, lost);
}

}  // namespace tessera::test

#endif
