// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_CROSS_ENTROPY_HPP

#include <tessera/cross_entropy.hpp>
#include <tessera/elementary.hpp>
#include <tessera/rowwise/labels.hpp>
#include <tessera/rowwise/long_cross_entropy.hpp>
#include <tessera/rowwise/own_cross_entropy.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/sums.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

template <class Exec, class Acc, class Shape>
struct CrossEntropyKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand logits, loss, d_logits, log_sum;
  LossTargets<Acc> targets;
  Acc smoothing, each;  // the part that is spread, and what of it a class gets
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team,
                                    [&](auto& row) TESSERA_INLINE_LAMBDA { one_row(row); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Walk& row) const {
    constexpr Acc lowest = -Kokkos::Experimental::infinity_v<Acc>;
    LossTarget<Acc> const target =
        targets.read(targets.place.value_offset(row.at()), targets.d_loss.value_offset(row.at()));
    // Before the first exchange: nobody has written a gradient yet, which may lie where the logits are.
    Acc const logit = target.counts() ? element(row, target.label) : Acc(0);
    auto const load = [&](std::int64_t p)
                          TESSERA_INLINE_LAMBDA { row.template load<RowInputs<Acc>>(logits, p, row.x, lowest); };
    auto const again = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if constexpr (!Shape::held) load(p);
    };
    Acc top = row.template reduce<Larger>(lowest, load, [](Acc x) TESSERA_INLINE_LAMBDA { return x; });
    if (top == lowest) top = 0;  // nothing but -Inf and NaN: the exponentials are 0 and NaN
    Acc const sum = row.sum(again, [&](Acc x) TESSERA_INLINE_LAMBDA { return exp_below(x - top); });
    Acc total = 0;
    if (smoothing != Acc(0))
      total = row.sum(
          [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
            load(p);
            row.fill_residue(p, Acc(0));
          },
          [](Acc x) TESSERA_INLINE_LAMBDA { return x; });
    Acc const whole = top + Kokkos::log(sum);
    if (row.is_first_lane()) {
      if (log_sum.present()) row.store_value(log_sum, whole);
      if (loss.present()) row.store_value(loss, loss_of(target, whole, logit, total, smoothing, each));
    }
    if (!d_logits.present()) return;
    Acc const factor = target.gradient / sum, less = target.gradient * each,
              hit = target.gradient * (Acc(1) - smoothing);
    row.for_each_portion(
        [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
          if (!Shape::held || smoothing != Acc(0)) load(p);
        },
        [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
          if (target.counts()) {
            row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return exp_below(x - top) * factor - less; });
            subtract(row, p, target.label, hit);
          } else {
            row.map([](Acc) TESSERA_INLINE_LAMBDA { return Acc(0); });
          }
          row.template store<RowInputs<Acc>>(d_logits, p);
        });
  }

  /// Element `label` of the portion, if it is there, less `hit`.
  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION static void subtract(Walk& row, std::int64_t p, std::int64_t label, Acc hit) {
    unrolled<Shape::packs>([&](int k) TESSERA_INLINE_LAMBDA {
      std::int64_t const at = label - ((p * Shape::packs + k) * row.lanes() + row.lane()) * Shape::width;
      if (at < 0 || at >= Shape::width) return;
      for (int j = 0; j < Shape::width; ++j)
        if (j == at) row.x[k][j] -= hit;
    });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION Acc element(Walk const& row, std::int64_t column) const {
    Acc value = 0;
    std::int64_t const offset = logits.offset(grid, row.at()) + column * logits.column;
    RowInputs<Acc>::visit(logits.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      value = static_cast<Acc>(static_cast<T const*>(logits.data)[offset]);
    });
    return value;
  }
};

template <class Acc, class Exec>
void start_cross_entropy(Exec const& exec, CrossEntropyProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.logits, problem.loss, problem.d_logits, problem.log_sum, problem.labels, problem.d_loss);
  TileGrid const grid = row_grid(problem.logits);
  Labels const labels{problem.labels.data, problem.wide_labels, problem.ignored_label, grid.columns};
  Operand const place = operand(problem.labels, grid, 1, wide);
  if (problem.counts != nullptr) count_labels(exec, problem, labels, place, grid);
  if (grid.tiles() == 0) return;
  LossTargets<Acc> const targets{labels, place, operand(problem.d_loss, grid, 1, wide),
                                 problem.mean ? problem.counts : nullptr};
  if constexpr (std::is_same_v<Acc, float>)
    if (start_packed_cross_entropy(exec, problem, grid, targets) ||
        start_own_cross_entropy(exec, problem, grid, targets))
      return;
  with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
    using Shape = decltype(shape);
    auto const rows = [&](RowArray const& a) { return operand(a, grid, Shape::width, wide); };
    launch_tiles<Shape>("tessera::cross_entropy", exec, grid,
                        CrossEntropyKernel<KernelSpace<Exec>, Acc, Shape>{
                            grid, rows(problem.logits), rows(problem.loss), rows(problem.d_logits),
                            rows(problem.log_sum), targets, static_cast<Acc>(problem.smoothing),
                            static_cast<Acc>(problem.smoothing / static_cast<double>(grid.columns))});
  });
}

template <class Exec>
void run_cross_entropy(Exec const& exec, CrossEntropyProblem const& problem) {
  if (any_is_double(problem.logits, problem.loss, problem.d_logits, problem.log_sum, problem.d_loss))
    start_cross_entropy<double>(exec, problem);
  else
    start_cross_entropy<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
