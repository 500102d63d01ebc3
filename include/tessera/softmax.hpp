// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// softmax and log_softmax over the last dimension of a View.
#ifndef TESSERA_SOFTMAX_HPP
#define TESSERA_SOFTMAX_HPP

#include <Kokkos_Core.hpp>
#include <cmath>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/row_workspace.hpp>

namespace tessera {

struct SoftmaxOptions {
  /// Multiplies the input first: softmax(scale * in). Must be finite.
  double scale = 1;
  /// row_workspace_size() bytes, for very long rows: memory without which they take longer.
  RowWorkspace workspace = {};
};

namespace detail {

struct SoftmaxProblem {
  RowArray out, in;
  double scale = 1;
  bool log = false;
  char const* label = "";
  LentMemory lent = {};
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_softmax(Exec const& exec, SoftmaxProblem const& problem);

template <class Exec, class Out, class In>
void softmax(char const* op, bool log, Exec const& exec, Out const& out, In const& in, SoftmaxOptions const& options) {
  require_views<Exec, Out, In>();
  require_outputs<Out>();
  require_rows<Out, In>();
  auto const y = array(out);
  auto const x = array(in);
  check_same_extents(op, "out", y, "in", x);
  check_data(op, "out", y);
  check_data(op, "in", x);
  check_writable(op, "out", y);
  check_no_partial_overlap(op, "out", y, "in", x);
  check_value(std::isfinite(options.scale), op, "scale " + std::to_string(options.scale) + " must be finite");
  if (x.size() > 0)
    run_softmax(exec, SoftmaxProblem{row_array(y), row_array(x), options.scale, log, op, lent(options.workspace)});
}

}  // namespace detail

/// out(..., j) = exp(s in(..., j)) / sum_k exp(s in(..., k)) with s = options.scale.
///
/// Views of the same extents, rank 1 to 4, any layout; a row is the last dimension, of any length. `in` holds double,
/// float, fp16_t or bf16_t; `out` those or e4m3_t, e5m2_t (saturating); they may differ and may be the same elements
/// (in place). Arithmetic in fp32, in fp64 if `in` or `out` is. The row's maximum is subtracted first, so nothing
/// overflows. Deterministic: the same bits in every run.
///
/// A row that is -Inf throughout (every entry masked) gives 0, as in attention; a row with a NaN or a +Inf gives NaN
/// throughout. (With scale 0 an infinity is a NaN; a negative scale turns the infinities round.)
///
/// Errors, before anything is written: extent, null_data, overlap (partial, or `out` with stride 0), value (scale).
template <detail::execution_space Exec, detail::view Out, detail::view In>
void softmax(Exec const& exec, Out const& out, In const& in, SoftmaxOptions const& options = {}) {
  detail::softmax("tessera::softmax", false, exec, out, in, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In>
void softmax(Out const& out, In const& in, SoftmaxOptions const& options = {}) {
  softmax(typename Out::execution_space{}, out, in, options);
}

/// out(..., j) = s in(..., j) - log sum_k exp(s in(..., k)) with s = options.scale; operands and errors as softmax.
/// A row that is -Inf throughout gives -Inf.
template <detail::execution_space Exec, detail::view Out, detail::view In>
void log_softmax(Exec const& exec, Out const& out, In const& in, SoftmaxOptions const& options = {}) {
  detail::softmax("tessera::log_softmax", true, exec, out, in, options);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In>
void log_softmax(Out const& out, In const& in, SoftmaxOptions const& options = {}) {
  log_softmax(typename Out::execution_space{}, out, in, options);
}

}  // namespace tessera

#endif
