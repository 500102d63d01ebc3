// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_COLUMN_LOOPS_HPP
#define TESSERA_OPENMP_COLUMN_LOOPS_HPP

// Loops over a panel of fp32 accumulators: columns of panel_cols<float> rows side by side. Compiled like the
// micro-kernels for each instruction set.
namespace tessera::detail::openmp {

/// For the first half of the rows, or for all of them.
struct ColumnLoops {
  /// top[r] becomes the larger of it, which is no NaN, and what row r has, of which NaN does not count.
  void (*largest)(float const* x, int columns, float* top);
  /// x = 2^(x scale - base[r]) with a relative error of 2e-7 and of the exponent's rounding, 0 below 2^-126; exponents
  /// are below 128. Row r's sum of these is added to sums[r].
  void (*exponentials)(float* x, int columns, float scale, float const* base, float* sums);
  /// x = x factors[r].
  void (*scaled)(float* x, int columns, float const* factors);
  /// x = 2^(x scale - base[c]) in column c, as above.
  void (*exponentials_of_columns)(float* x, int columns, float scale, float const* base);
  /// x = factor (x - base[c]), where factors lie as x does.
  void (*differences)(float* x, float const* factors, int columns, float const* base);
};
struct ColumnLoopsOfPanels {
  ColumnLoops half, whole;
};
/// nullptr: no instruction set that runs is better than what compilers make of plain loops.
ColumnLoopsOfPanels const* column_loops();

}  // namespace tessera::detail::openmp

#endif
