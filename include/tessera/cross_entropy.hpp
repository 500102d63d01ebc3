// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Cross-entropy of logits and labels, and its gradient, in one pass.
#ifndef TESSERA_CROSS_ENTROPY_HPP
#define TESSERA_CROSS_ENTROPY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>

namespace tessera {

/// Options of cross_entropy; the types of the optional Views are deduced:
/// `cross_entropy(exec, loss, logits, labels, CrossEntropyOptions{.d_logits = logits, .counts = counts, .mean =
/// true})`.
template <class DLogits = None, class DLoss = None, class LogSum = None, class Counts = None>
struct CrossEntropyOptions {
  /// Output, extents of the logits: the gradient of the sum of d_loss * loss. May be the logits themselves.
  DLogits d_logits = {};
  /// Input, float or double: the gradient of each row's loss, with the extents of the labels, or one for all (rank 0).
  DLoss d_loss = {};
  /// Output, float or double, extents of the labels: the logarithm of the sum of exponentials of each row.
  LogSum log_sum = {};
  /// Output, std::int64_t, 2 elements: the rows that count, and those whose label is out of range.
  Counts counts = {};
  /// In [0, 1]: this part of each label's weight is spread over all classes.
  double label_smoothing = 0;
  /// Rows with this label do not count.
  std::int64_t ignored_label = -100;
  /// Loss and gradient of each row are divided by the number of rows that count, so that the losses add up to their
  /// mean. Needs `counts`.
  bool mean = false;
};

namespace detail {

struct CrossEntropyProblem {
  RowArray loss, d_logits, log_sum;  // outputs, may be absent
  RowArray logits, labels, d_loss;   // labels: data and strides alone
  std::int64_t* counts = nullptr;    // may be absent
  bool wide_labels = false;          // of 64 bits
  bool mean = false;
  std::int64_t ignored_label = -100;
  double smoothing = 0;
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_cross_entropy(Exec const& exec, CrossEntropyProblem const& problem);

template <class V>
constexpr void require_real_values() {
  static_assert(std::is_same_v<typename V::non_const_value_type, float> ||
                    std::is_same_v<typename V::non_const_value_type, double>,
                "loss, d_loss and log_sum hold float or double");
}

/// An operand with the extents of the labels.
template <int Rank, class V, class Logits>
RowArray per_row(char const* op, char const* name, V const& v, Logits const& x) {
  require_real_values<V>();
  static_assert(static_cast<int>(V::rank()) == Rank - 1, "loss and log_sum have the extents of the labels");
  auto const a = array(v);
  for (int i = 0; i + 1 < Rank; ++i)
    check_extent(op, name, a, i, x.extent[i], "extent " + std::to_string(i) + " of the logits");
  check_data(op, name, a);
  return value_per_row(a);
}

template <class A, class B>
void check_output_from(char const* op, char const* name, A const& out, char const* other_name, B const& other) {
  if constexpr (is_present<std::remove_cvref_t<A>> && is_present<std::remove_cvref_t<B>>)
    check_no_overlap(op, name, array(out), other_name, array(other));
}

}  // namespace detail

/// Cross-entropy of each row of logits x with its label l, V classes and e = options.label_smoothing:
///
///     loss = log sum_j exp(x_j) - (1 - e) x_l - e / V sum_j x_j,
///     d_logits(j) = d_loss (softmax(x)_j - (1 - e) [j = l] - e / V),
///
/// the latter where options.d_logits is given. Row maxima are subtracted first, so nothing overflows.
///
/// `logits` (rank 1 to 4, any layout, rows of any length) and d_logits hold double, float, fp16_t or bf16_t; `labels`,
/// of std::int32_t or std::int64_t, have their extents without the last, as `loss` and options.log_sum (float or
/// double). `loss` may be tessera::none. Arithmetic in fp32, in fp64 if an operand is double. Deterministic.
///
/// A row with options.ignored_label has loss and gradient 0, whatever its logits. A label outside of [0, V) is an error
/// that nobody waits for: the row's loss is NaN, its gradient 0, and options.counts tells how many there were; neither
/// of these rows counts for the mean. A masked class (-Inf) has gradient 0; with smoothing the loss is then Inf. A row
/// with a NaN or +Inf, or -Inf throughout, has loss and gradient NaN. Gradients below 2^-126 may be 0.
///
/// Logits are read once and the gradient is written once where a row fits into the registers and scratch of those who
/// share it (131072 classes of 16 bits on an H100); of longer rows the rest is read twice.
///
/// Errors, before anything is written: extent, null_data, overlap (outputs with inputs or each other; only d_logits may
/// be the logits), value (smoothing; mean without counts).
template <detail::execution_space Exec, class Loss, detail::view Logits, detail::view Labels,
          class Options = CrossEntropyOptions<>>
void cross_entropy(Exec const& exec, Loss const& loss, Logits const& logits, Labels const& labels,
                   Options const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::cross_entropy";
  constexpr int rank = static_cast<int>(Logits::rank());
  require_views<Exec, Logits, Labels>();
  static_assert(rank >= 1 && rank <= 4, "cross_entropy takes logits of rank 1 to 4");
  static_assert(is_row_input<typename Logits::non_const_value_type>,
                "logits must hold double, float, fp16_t or bf16_t");
  using Label = typename Labels::non_const_value_type;
  static_assert(std::is_same_v<Label, std::int32_t> || std::is_same_v<Label, std::int64_t>,
                "labels must hold std::int32_t or std::int64_t");
  static_assert(static_cast<int>(Labels::rank()) == rank - 1, "labels have the extents of the logits without the last");
  using DLogits = std::remove_cvref_t<decltype(options.d_logits)>;
  using DLoss = std::remove_cvref_t<decltype(options.d_loss)>;
  using LogSum = std::remove_cvref_t<decltype(options.log_sum)>;
  using Counts = std::remove_cvref_t<decltype(options.counts)>;

  auto const x = array(logits);
  auto const t = array(labels);
  for (int i = 0; i + 1 < rank; ++i)
    check_extent(op, "labels", t, i, x.extent[i], "extent " + std::to_string(i) + " of the logits");
  check_data(op, "logits", x);
  check_data(op, "labels", t);
  CrossEntropyProblem problem;
  problem.logits = row_array(x);
  problem.labels.data = t.data;
  for (int i = 0; i + 1 < rank; ++i) problem.labels.stride[4 - rank + i] = t.stride[i];
  problem.wide_labels = sizeof(Label) == 8;
  problem.ignored_label = options.ignored_label;
  problem.smoothing = options.label_smoothing;
  problem.mean = options.mean;
  check_value(options.label_smoothing >= 0 && options.label_smoothing <= 1, op,
              "label_smoothing " + std::to_string(options.label_smoothing) + " must lie in [0, 1]");
  check_value(!options.mean || is_present<Counts>, op, "the mean needs options.counts");
  auto const apart = [&](char const* name, auto const& out) {
    check_output_from(op, name, out, "labels", labels);
    check_output_from(op, name, out, "d_loss", options.d_loss);
  };
  if constexpr (is_present<Loss>) {
    require_views<Exec, Loss>();
    require_outputs<Loss>();
    problem.loss = per_row<rank>(op, "loss", loss, x);
    check_writable(op, "loss", array(loss));
    check_output_from(op, "loss", loss, "logits", logits);
    apart("loss", loss);
  }
  if constexpr (is_present<DLogits>) {
    require_views<Exec, DLogits>();
    require_outputs<DLogits>();
    static_assert(static_cast<int>(DLogits::rank()) == rank, "d_logits has the rank of the logits");
    static_assert(is_row_input<typename DLogits::value_type>, "d_logits must hold double, float, fp16_t or bf16_t");
    auto const d = array(options.d_logits);
    check_same_extents(op, "d_logits", d, "logits", x);
    check_data(op, "d_logits", d);
    check_writable(op, "d_logits", d);
    check_no_partial_overlap(op, "d_logits", d, "logits", x);
    apart("d_logits", options.d_logits);
    check_output_from(op, "loss", loss, "d_logits", options.d_logits);
    problem.d_logits = row_array(d);
  }
  if constexpr (is_present<DLoss>) {
    require_views<Exec, DLoss>();
    require_real_values<DLoss>();
    if constexpr (DLoss::rank() == 0) {
      auto const d = array(options.d_loss);
      check_data(op, "d_loss", d);
      problem.d_loss.data = d.data;
      problem.d_loss.type = scalar_of<typename DLoss::non_const_value_type>;
    } else {
      problem.d_loss = per_row<rank>(op, "d_loss", options.d_loss, x);
    }
  }
  if constexpr (is_present<LogSum>) {
    require_views<Exec, LogSum>();
    require_outputs<LogSum>();
    problem.log_sum = per_row<rank>(op, "log_sum", options.log_sum, x);
    check_writable(op, "log_sum", array(options.log_sum));
    check_output_from(op, "log_sum", options.log_sum, "logits", logits);
    check_output_from(op, "log_sum", options.log_sum, "loss", loss);
    check_output_from(op, "log_sum", options.log_sum, "d_logits", options.d_logits);
    apart("log_sum", options.log_sum);
  }
  if constexpr (is_present<Counts>) {
    require_views<Exec, Counts>();
    require_outputs<Counts>();
    static_assert(Counts::rank() == 1 && std::is_same_v<typename Counts::value_type, std::int64_t>,
                  "counts is a View of rank 1 of std::int64_t");
    auto const c = array(options.counts);
    check_extent(op, "counts", c, 0, 2, "the rows that count and the labels out of range");
    check_value(c.stride[0] == 1, op, "counts must be contiguous");
    check_data(op, "counts", c);
    check_output_from(op, "counts", options.counts, "logits", logits);
    check_output_from(op, "counts", options.counts, "loss", loss);
    check_output_from(op, "counts", options.counts, "d_logits", options.d_logits);
    check_output_from(op, "counts", options.counts, "log_sum", options.log_sum);
    apart("counts", options.counts);
    problem.counts = c.data;
  }
  run_cross_entropy(exec, problem);
}

/// The same on the default instance of the logits' execution space.
template <class Loss, detail::view Logits, detail::view Labels, class Options = CrossEntropyOptions<>>
requires(!detail::execution_space<Loss>) void cross_entropy(Loss const& loss, Logits const& logits,
                                                            Labels const& labels, Options const& options = {}) {
  cross_entropy(typename Logits::execution_space{}, loss, logits, labels, options);
}

}  // namespace tessera

#endif
