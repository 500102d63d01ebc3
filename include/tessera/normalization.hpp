// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// layer_norm and rms_norm over the last dimension of a View, with an optional residual add.
#ifndef TESSERA_NORMALIZATION_HPP
#define TESSERA_NORMALIZATION_HPP

#include <Kokkos_Core.hpp>
#include <cmath>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/row_workspace.hpp>

namespace tessera {

/// Options of layer_norm and rms_norm; the types of the optional Views are deduced:
/// `rms_norm(exec, out, in, weight, NormOptions{.epsilon = 1e-6, .residual = r, .sum = r})`.
template <class Mean = None, class Rstd = None, class Residual = None, class Sum = None>
struct NormOptions {
  /// Added to the variance (the mean square for rms_norm) under the root; not negative.
  double epsilon = 1e-5;
  /// Output, extents of `in` without the last, of float or double: the mean of each row (layer_norm only).
  Mean mean = {};
  /// Output of the same extents: 1 / sqrt(variance + epsilon) of each row.
  Rstd rstd = {};
  /// Input, extents of `in`: added to `in` first; the row that is normalised is the sum.
  Residual residual = {};
  /// Output, extents of `in`: the sum in + residual. What is normalised is then the sum as it was rounded to this
  /// View's type, as if the steps were separate. May be the same elements as `residual` or `in`.
  Sum sum = {};
  /// row_workspace_size() bytes, for very long rows: memory without which they take longer.
  RowWorkspace workspace = {};
};

namespace detail {

struct NormProblem {
  RowArray out, in, weight, bias, mean, rstd, residual, sum;
  double epsilon = 0;
  bool centered = false;
  char const* label = "";
  LentMemory lent = {};
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_norm(Exec const& exec, NormProblem const& problem);

/// Adds an optional vector of the row's length to the problem.
template <class Exec, class V, class In, class Out>
void add_row_vector(char const* op, char const* name, V const& v, In const& x, Out const& y, RowArray& operand) {
  if constexpr (is_present<V>) {
    require_views<Exec, V>();
    static_assert(V::rank() == 1, "weight and bias are Views of rank 1, or tessera::none");
    static_assert(is_row_input<typename V::non_const_value_type>,
                  "weight and bias must hold double, float, fp16_t or bf16_t");
    auto const a = array(v);
    check_extent(op, name, a, 0, x.extent[In::slots - 1], "the length of a row of in");
    check_data(op, name, a);
    check_no_overlap(op, "out", y, name, a);
    operand = broadcast_row(a);
  }
}

/// Adds an optional output of one value a row.
template <class Exec, int Rank, class V, class In, class Out>
void add_statistic(char const* op, char const* name, V const& v, In const& x, Out const& y, RowArray& operand) {
  if constexpr (is_present<V>) {
    require_views<Exec, V>();
    require_outputs<V>();
    static_assert(static_cast<int>(V::rank()) == Rank - 1, "mean and rstd have the extents of in without the last");
    static_assert(std::is_same_v<typename V::value_type, float> || std::is_same_v<typename V::value_type, double>,
                  "mean and rstd must hold float or double");
    auto const a = array(v);
    for (int i = 0; i + 1 < Rank; ++i)
      check_extent(op, name, a, i, x.extent[i], "extent " + std::to_string(i) + " of in");
    check_data(op, name, a);
    check_writable(op, name, a);
    check_no_overlap(op, name, a, "in", x);
    check_no_overlap(op, name, a, "out", y);
    operand = value_per_row(a);
  }
}

/// An output of statistics and another operand, either of which may be absent, share no byte.
template <class A, class B>
void check_apart(char const* op, char const* name, A const& a, char const* name2, B const& b) {
  if constexpr (is_present<A> && is_present<B>) check_no_overlap(op, name, array(a), name2, array(b));
}

template <class Exec, class Options, class In, class Out>
void add_residual(char const* op, Options const& options, In const& x, Out const& y, NormProblem& problem) {
  using Residual = decltype(options.residual);
  using Sum = decltype(options.sum);
  if constexpr (is_present<Residual>) {
    require_views<Exec, Residual>();
    static_assert(static_cast<int>(Residual::rank()) == In::slots, "residual has the rank of in");
    static_assert(is_row_input<typename Residual::non_const_value_type>,
                  "residual must hold double, float, fp16_t or bf16_t");
    auto const r = array(options.residual);
    check_same_extents(op, "residual", r, "in", x);
    check_data(op, "residual", r);
    check_no_partial_overlap(op, "out", y, "residual", r);
    problem.residual = row_array(r);
  }
  if constexpr (is_present<Sum>) {
    static_assert(is_present<Residual>, "sum is in + residual: give a residual as well");
    require_views<Exec, Sum>();
    require_outputs<Sum>();
    static_assert(static_cast<int>(Sum::rank()) == In::slots, "sum has the rank of in");
    static_assert(is_row_input<typename Sum::value_type>, "sum must hold double, float, fp16_t or bf16_t");
    auto const s = array(options.sum);
    check_same_extents(op, "sum", s, "in", x);
    check_data(op, "sum", s);
    check_writable(op, "sum", s);
    check_no_overlap(op, "sum", s, "out", y);
    check_no_partial_overlap(op, "sum", s, "in", x);
    if constexpr (is_present<Residual>) check_no_partial_overlap(op, "sum", s, "residual", array(options.residual));
    problem.sum = row_array(s);
  }
}

template <class Exec, class Out, class In, class Weight, class Bias, class Options>
void norm(char const* op, bool centered, Exec const& exec, Out const& out, In const& in, Weight const& weight,
          Bias const& bias, Options const& options) {
  require_views<Exec, Out, In>();
  require_outputs<Out>();
  require_rows<Out, In>();
  constexpr int rank = static_cast<int>(In::rank());
  auto const y = array(out);
  auto const x = array(in);
  check_same_extents(op, "out", y, "in", x);
  check_data(op, "out", y);
  check_data(op, "in", x);
  check_writable(op, "out", y);
  check_no_partial_overlap(op, "out", y, "in", x);
  check_value(std::isfinite(options.epsilon) && options.epsilon >= 0, op,
              "epsilon " + std::to_string(options.epsilon) + " must be finite and not negative");
  NormProblem problem;
  problem.out = row_array(y);
  problem.in = row_array(x);
  problem.epsilon = options.epsilon;
  problem.centered = centered;
  problem.label = op;
  problem.lent = lent(options.workspace);
  add_row_vector<Exec>(op, "weight", weight, x, y, problem.weight);
  add_row_vector<Exec>(op, "bias", bias, x, y, problem.bias);
  add_statistic<Exec, rank>(op, "mean", options.mean, x, y, problem.mean);
  add_statistic<Exec, rank>(op, "rstd", options.rstd, x, y, problem.rstd);
  add_residual<Exec>(op, options, x, y, problem);
  check_apart(op, "mean", options.mean, "rstd", options.rstd);
  auto const check_output = [&](char const* name, auto const& a) {
    check_apart(op, name, a, "weight", weight);
    check_apart(op, name, a, "bias", bias);
  };
  check_output("mean", options.mean);
  check_output("rstd", options.rstd);
  check_output("sum", options.sum);
  auto const check_statistic = [&](char const* name, auto const& a) {
    check_apart(op, name, a, "residual", options.residual);
    check_apart(op, name, a, "sum", options.sum);
  };
  check_statistic("mean", options.mean);
  check_statistic("rstd", options.rstd);
  if (problem.in.rows() > 0) run_norm(exec, problem);
}

}  // namespace detail

/// out(..., j) = (x_j - mean) / sqrt(variance + epsilon) weight(j) + bias(j), where x is a row (the last dimension) of
/// `in`, plus options.residual if that is given; mean and variance (the biased one) are the row's.
///
/// `out` and `in` have the same extents, rank 1 to 4, any layout, rows of any length; `in`, weight, bias, residual and
/// sum hold double, float, fp16_t or bf16_t, `out` those or e4m3_t, e5m2_t (saturating), all independently. weight and
/// bias are Views of the row's length or tessera::none. `out` may be the same elements as `in` or as the residual.
/// Arithmetic in fp32, in fp64 if any operand is. The variance is the mean of the squares about the mean, in a second
/// pass. Deterministic: the same bits in every run.
///
/// A NaN or an infinity makes its row NaN. Rows of length 0 have mean 0 and rstd 1 / sqrt(epsilon).
///
/// Errors, before anything is written: extent, null_data, overlap, value (epsilon).
template <detail::execution_space Exec, detail::view Out, detail::view In, class Weight = None, class Bias = None,
          class Options = NormOptions<>>
void layer_norm(Exec const& exec, Out const& out, In const& in, Weight const& weight = {}, Bias const& bias = {},
                Options const& options = {}) {
  detail::norm("tessera::layer_norm", true, exec, out, in, weight, bias, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In, class Weight = None, class Bias = None, class Options = NormOptions<>>
void layer_norm(Out const& out, In const& in, Weight const& weight = {}, Bias const& bias = {},
                Options const& options = {}) {
  layer_norm(typename Out::execution_space{}, out, in, weight, bias, options);
}

/// out(..., j) = x_j / sqrt(mean of x^2 + epsilon) weight(j); operands and errors as layer_norm, without mean and bias.
///
/// A NaN makes its row NaN; an infinity makes rstd 0, its own element NaN and the others 0. Squares must not overflow
/// the accumulator: beyond 1.8e19 in fp32 an element counts as infinite.
template <detail::execution_space Exec, detail::view Out, detail::view In, class Weight = None,
          class Options = NormOptions<>>
void rms_norm(Exec const& exec, Out const& out, In const& in, Weight const& weight = {}, Options const& options = {}) {
  static_assert(!detail::is_present<std::remove_cvref_t<decltype(options.mean)>>,
                "rms_norm has no mean: leave options.mean out");
  detail::norm("tessera::rms_norm", false, exec, out, in, weight, none, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In, class Weight = None, class Options = NormOptions<>>
void rms_norm(Out const& out, In const& in, Weight const& weight = {}, Options const& options = {}) {
  rms_norm(typename Out::execution_space{}, out, in, weight, options);
}

}  // namespace tessera

#endif
