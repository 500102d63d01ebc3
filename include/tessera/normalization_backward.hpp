// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of layer_norm and rms_norm, recomputed from the row that was normalised and its statistics.
#ifndef TESSERA_NORMALIZATION_BACKWARD_HPP
#define TESSERA_NORMALIZATION_BACKWARD_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/row_workspace.hpp>

namespace tessera {

/// What norm_backward_workspace_size() is the size of.
using NormBackwardWorkspace = RowWorkspace;

/// Options of layer_norm_backward and rms_norm_backward; the type of the optional View is deduced.
template <class DSum = None>
struct NormBackwardOptions {
  /// Input, extents of `in`: a gradient that reaches the normalised row on another way, as that of NormOptions::sum. It
  /// is added to d_in, which is then the gradient of the sum and with that of both its terms.
  DSum d_sum = {};
  /// At least norm_backward_workspace_size() bytes, aligned to 16; not needed when no gradient of a parameter is
  /// wanted.
  NormBackwardWorkspace workspace = {};
};

namespace detail {

struct NormBackwardProblem {
  RowArray d_in, d_weight, d_bias;                // outputs; the last two may be absent
  RowArray d_out, in, mean, rstd, weight, d_sum;  // inputs
  bool centered = false;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  char const* label = "";
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_norm_backward(Exec const& exec, NormBackwardProblem const& problem);
template <class Exec>
std::size_t norm_backward_workspace(Exec const& exec, NormBackwardProblem const& problem);

template <class Exec, class V, class In>
void add_gradient_input(char const* op, char const* name, V const& v, In const& x, RowArray& operand) {
  if constexpr (is_present<V>) {
    require_views<Exec, V>();
    static_assert(static_cast<int>(V::rank()) == In::slots, "d_out and d_sum have the rank of in");
    static_assert(is_row_input<typename V::non_const_value_type>,
                  "d_out and d_sum must hold double, float, fp16_t or bf16_t");
    auto const a = array(v);
    check_same_extents(op, name, a, "in", x);
    check_data(op, name, a);
    operand = row_array(a);
  }
}

template <class Exec, int Rank, class V, class In>
void add_row_statistic(char const* op, char const* name, V const& v, In const& x, RowArray& operand) {
  if constexpr (is_present<V>) {
    require_views<Exec, V>();
    static_assert(static_cast<int>(V::rank()) == Rank - 1, "mean and rstd have the extents of in without the last");
    static_assert(std::is_same_v<typename V::non_const_value_type, float> ||
                      std::is_same_v<typename V::non_const_value_type, double>,
                  "mean and rstd must hold float or double");
    auto const a = array(v);
    for (int i = 0; i + 1 < Rank; ++i)
      check_extent(op, name, a, i, x.extent[i], "extent " + std::to_string(i) + " of in");
    check_data(op, name, a);
    operand = value_per_row(a);
  }
}

/// A parameter of the columns, or its gradient.
template <class Exec, class V, class In>
void add_column_vector(char const* op, char const* name, V const& v, In const& x, RowArray& operand) {
  if constexpr (is_present<V>) {
    require_views<Exec, V>();
    static_assert(V::rank() == 1, "weight, d_weight and d_bias are Views of rank 1, or tessera::none");
    static_assert(is_row_input<typename V::non_const_value_type>,
                  "weight, d_weight and d_bias must hold double, float, fp16_t or bf16_t");
    auto const a = array(v);
    check_extent(op, name, a, 0, x.extent[In::slots - 1], "the length of a row of in");
    check_data(op, name, a);
    operand = broadcast_row(a);
  }
}

/// An output shares nothing with any of the others.
template <class V, class Others>
void check_output_apart(char const* op, char const* name, V const& v, Others const& for_each_other) {
  if constexpr (is_present<V>) {
    require_outputs<V>();
    auto const a = array(v);
    check_writable(op, name, a);
    for_each_other([&](char const* other_name, auto const& other) {
      if constexpr (is_present<std::remove_cvref_t<decltype(other)>>)
        check_no_overlap(op, name, a, other_name, array(other));
    });
  }
}

template <class Exec, class DIn, class DWeight, class DBias, class DOut, class In, class Mean, class Rstd, class Weight,
          class Options>
NormBackwardProblem norm_backward_problem(char const* op, bool centered, DIn const& d_in, DWeight const& d_weight,
                                          DBias const& d_bias, DOut const& d_out, In const& in, Mean const& mean,
                                          Rstd const& rstd, Weight const& weight, Options const& options) {
  require_views<Exec, DIn, In>();
  require_outputs<DIn>();
  require_rows<DIn, In>();
  static_assert(is_row_input<typename DIn::value_type>, "d_in must hold double, float, fp16_t or bf16_t");
  constexpr int rank = static_cast<int>(In::rank());
  auto const dx = array(d_in);
  auto const x = array(in);
  check_same_extents(op, "d_in", dx, "in", x);
  check_data(op, "d_in", dx);
  check_data(op, "in", x);
  NormBackwardProblem problem;
  problem.d_in = row_array(dx);
  problem.in = row_array(x);
  problem.centered = centered;
  problem.label = op;
  add_gradient_input<Exec>(op, "d_out", d_out, x, problem.d_out);
  add_gradient_input<Exec>(op, "d_sum", options.d_sum, x, problem.d_sum);
  add_row_statistic<Exec, rank>(op, "mean", mean, x, problem.mean);
  add_row_statistic<Exec, rank>(op, "rstd", rstd, x, problem.rstd);
  add_column_vector<Exec>(op, "weight", weight, x, problem.weight);
  add_column_vector<Exec>(op, "d_weight", d_weight, x, problem.d_weight);
  add_column_vector<Exec>(op, "d_bias", d_bias, x, problem.d_bias);
  return problem;
}

template <class Exec, class DIn, class DWeight, class DBias, class DOut, class In, class Mean, class Rstd, class Weight,
          class Options>
void norm_backward(char const* op, bool centered, Exec const& exec, DIn const& d_in, DWeight const& d_weight,
                   DBias const& d_bias, DOut const& d_out, In const& in, Mean const& mean, Rstd const& rstd,
                   Weight const& weight, Options const& options) {
  NormBackwardProblem problem =
      norm_backward_problem<Exec>(op, centered, d_in, d_weight, d_bias, d_out, in, mean, rstd, weight, options);
  auto const dx = array(d_in);
  check_writable(op, "d_in", dx);
  auto const check_in_place = [&](char const* name, auto const& v) {
    if constexpr (is_present<std::remove_cvref_t<decltype(v)>>)
      check_no_partial_overlap(op, "d_in", dx, name, array(v));
  };
  check_in_place("in", in);
  check_in_place("d_out", d_out);
  check_in_place("d_sum", options.d_sum);
  auto const parameters = [&](auto const& f) {
    f("mean", mean);
    f("rstd", rstd);
    f("weight", weight);
  };
  auto const rows = [&](auto const& f) {
    f("in", in);
    f("d_out", d_out);
    f("d_sum", options.d_sum);
    f("d_in", d_in);
  };
  auto const of_columns = [&](auto const& f) {
    rows(f);
    parameters(f);
  };
  check_output_apart(op, "d_in", d_in, parameters);
  check_output_apart(op, "d_weight", d_weight, of_columns);
  check_output_apart(op, "d_bias", d_bias, [&](auto const& f) {
    of_columns(f);
    f("d_weight", d_weight);
  });
  std::size_t const needed = norm_backward_workspace(exec, problem);
  auto const& workspace = options.workspace;
  bool const aligned = reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 == 0;
  if (needed > 0 && (workspace.size() < needed || !aligned))
    throw Error(ErrorCode::workspace, std::string(op) + ": in " + shape(array(in)) + " needs a workspace of " +
                                          std::to_string(needed) + " bytes aligned to 16, " +
                                          std::to_string(workspace.size()) + " were passed" +
                                          (workspace.size() < needed ? "" : " unaligned"));
  if (workspace.size() > 0 && aligned) {
    check_output_apart(op, "workspace", workspace, [&](auto const& f) {
      of_columns(f);
      f("d_weight", d_weight);
      f("d_bias", d_bias);
    });
    problem.workspace = workspace.data();
    problem.workspace_bytes = workspace.size();
  }
  run_norm_backward(exec, problem);
}

}  // namespace detail

/// Bytes of workspace that layer_norm_backward() and rms_norm_backward() need for rows of `in` when they are asked for
/// gradients of parameters, whatever the types of the operands: sums over the rows of a team, which are added in a
/// second launch. Without these none is needed, but on GPUs rows of more than 131072 elements, or of more than 4096
/// that are not whole 16 bytes, are faster with one.
template <detail::execution_space Exec, detail::view In>
std::size_t norm_backward_workspace_size(Exec const& exec, In const& in) {
  detail::NormBackwardProblem problem;
  problem.in = detail::row_array(detail::array(in));
  problem.d_weight.data = problem.d_bias.data = &problem;  // present
  problem.d_weight.type = Scalar::fp64;                    // the widest
  return detail::norm_backward_workspace(exec, problem);
}

/// Gradients of layer_norm. With a row x of `in`, its mean and rstd, xhat = (x - mean) rstd and g_j = weight(j) d_out_j
///
///     d_in_j      = rstd (g_j - sum_k g_k / n - xhat_j sum_k g_k xhat_k / n)  [+ d_sum_j]
///     d_weight(j) = sum over rows of d_out_j xhat_j,   d_bias(j) = sum over rows of d_out_j.
///
/// xhat is recomputed: `in` is what the forward operation normalised (NormOptions::sum where a residual was added),
/// mean and rstd what it stored. Two tensors are read and one is written, once where those teams have room for a row
/// that run at the same time, else the first two twice; with options.d_sum three are read.
///
/// `d_in`, `d_out`, `in` and d_sum have the same extents, rank 1 to 4, any layout, rows of any length; mean and rstd
/// (float or double) the extents of `in` without the last; weight, d_weight and d_bias are Views of the row's length or
/// tessera::none. They hold double, float, fp16_t or bf16_t, independently. `d_in` may be the same elements as `in`,
/// `d_out` or d_sum. Arithmetic in fp32, in fp64 if an operand is double.
///
/// Sums over rows are made in an order that follows from the extents and the machine's number of multiprocessors alone,
/// without atomics, through options.workspace: the same bits in every run on one machine. Without rows d_weight and
/// d_bias are 0. A NaN or an infinity makes its row of d_in and its columns of d_weight and d_bias NaN.
///
/// Errors, before anything is written: extent, null_data, overlap, workspace.
template <detail::execution_space Exec, detail::view DIn, class DWeight, class DBias, detail::view DOut,
          detail::view In, detail::view Mean, detail::view Rstd, class Weight = None,
          class Options = NormBackwardOptions<>>
void layer_norm_backward(Exec const& exec, DIn const& d_in, DWeight const& d_weight, DBias const& d_bias,
                         DOut const& d_out, In const& in, Mean const& mean, Rstd const& rstd, Weight const& weight = {},
                         Options const& options = {}) {
  detail::norm_backward("tessera::layer_norm_backward", true, exec, d_in, d_weight, d_bias, d_out, in, mean, rstd,
                        weight, options);
}

/// Gradients of rms_norm, as of layer_norm without mean and bias: xhat = x rstd and
///
///     d_in_j = rstd (g_j - xhat_j sum_k g_k xhat_k / n)  [+ d_sum_j],   d_weight(j) = sum over rows of d_out_j xhat_j.
template <detail::execution_space Exec, detail::view DIn, class DWeight, detail::view DOut, detail::view In,
          detail::view Rstd, class Weight = None, class Options = NormBackwardOptions<>>
void rms_norm_backward(Exec const& exec, DIn const& d_in, DWeight const& d_weight, DOut const& d_out, In const& in,
                       Rstd const& rstd, Weight const& weight = {}, Options const& options = {}) {
  detail::norm_backward("tessera::rms_norm_backward", false, exec, d_in, d_weight, none, d_out, in, none, rstd, weight,
                        options);
}

}  // namespace tessera

#endif
