// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of softmax and log_softmax, recomputed from their input.
#ifndef TESSERA_SOFTMAX_BACKWARD_HPP
#define TESSERA_SOFTMAX_BACKWARD_HPP

#include <Kokkos_Core.hpp>
#include <cmath>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/row_workspace.hpp>

namespace tessera {

struct SoftmaxBackwardOptions {
  /// What the forward operation multiplied its input by. Must be finite.
  double scale = 1;
  /// `in` is what the forward operation gave, not what it was given.
  bool from_output = false;
  /// row_workspace_size() bytes, for very long rows: memory without which they take longer.
  RowWorkspace workspace = {};
};

namespace detail {

struct SoftmaxBackwardProblem {
  RowArray d_in, d_out, in;
  double scale = 1;
  bool log = false, from_output = false;
  char const* label = "";
  LentMemory lent = {};
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem);

template <class Exec, class DIn, class DOut, class In>
void softmax_backward(char const* op, bool log, Exec const& exec, DIn const& d_in, DOut const& d_out, In const& in,
                      SoftmaxBackwardOptions const& options) {
  require_views<Exec, DIn, DOut, In>();
  require_outputs<DIn>();
  require_rows<DIn, In>();
  require_rows<DOut, In>();
  static_assert(is_row_input<typename DIn::value_type> && is_row_input<typename DOut::non_const_value_type>,
                "d_in and d_out must hold double, float, fp16_t or bf16_t");
  auto const dx = array(d_in);
  auto const dy = array(d_out);
  auto const x = array(in);
  check_same_extents(op, "d_in", dx, "in", x);
  check_same_extents(op, "d_out", dy, "in", x);
  check_data(op, "d_in", dx);
  check_data(op, "d_out", dy);
  check_data(op, "in", x);
  check_writable(op, "d_in", dx);
  check_no_partial_overlap(op, "d_in", dx, "in", x);
  check_no_partial_overlap(op, "d_in", dx, "d_out", dy);
  check_value(std::isfinite(options.scale), op, "scale " + std::to_string(options.scale) + " must be finite");
  if (x.size() > 0)
    run_softmax_backward(exec, SoftmaxBackwardProblem{row_array(dx), row_array(dy), row_array(x), options.scale, log,
                                                      options.from_output, op, lent(options.workspace)});
}

}  // namespace detail

/// The gradient of softmax: with p = softmax(in) of a row and s = options.scale
///
///     d_in(j) = s p_j (d_out(j) - sum_k p_k d_out(k)).
///
/// p is recomputed from `in`, the forward operation's input: nothing needs to be kept for the backward pass. With
/// options.from_output `in` is p itself. Either way two tensors are read and one is written, once where a row fits into
/// the registers of those who share it.
///
/// Views of the same extents, rank 1 to 4, any layout; a row is the last dimension, of any length. All hold double,
/// float, fp16_t or bf16_t, independently. `d_in` may be the same elements as `in` or `d_out`. Arithmetic in fp32, in
/// fp64 if an operand is. Deterministic: the same bits in every run.
///
/// A row of `in` that is -Inf throughout (masked) has gradient 0; one with a NaN or a +Inf has NaN throughout. In
/// long rows p below 2^-126 may count as 0.
///
/// Errors, before anything is written: extent, null_data, overlap (partial, or `d_in` with stride 0), value (scale).
template <detail::execution_space Exec, detail::view DIn, detail::view DOut, detail::view In>
void softmax_backward(Exec const& exec, DIn const& d_in, DOut const& d_out, In const& in,
                      SoftmaxBackwardOptions const& options = {}) {
  detail::softmax_backward("tessera::softmax_backward", false, exec, d_in, d_out, in, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view DIn, detail::view DOut, detail::view In>
void softmax_backward(DIn const& d_in, DOut const& d_out, In const& in, SoftmaxBackwardOptions const& options = {}) {
  softmax_backward(typename DIn::execution_space{}, d_in, d_out, in, options);
}

/// The gradient of log_softmax: d_in(j) = s (d_out(j) - p_j sum_k d_out(k)) with p = softmax(in), or e^in with
/// options.from_output; operands and errors as softmax_backward. A masked row has gradient 0.
template <detail::execution_space Exec, detail::view DIn, detail::view DOut, detail::view In>
void log_softmax_backward(Exec const& exec, DIn const& d_in, DOut const& d_out, In const& in,
                          SoftmaxBackwardOptions const& options = {}) {
  detail::softmax_backward("tessera::log_softmax_backward", true, exec, d_in, d_out, in, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view DIn, detail::view DOut, detail::view In>
void log_softmax_backward(DIn const& d_in, DOut const& d_out, In const& in,
                          SoftmaxBackwardOptions const& options = {}) {
  log_softmax_backward(typename DIn::execution_space{}, d_in, d_out, in, options);
}

}  // namespace tessera

#endif
