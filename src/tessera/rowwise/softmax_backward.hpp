// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_SOFTMAX_BACKWARD_HPP

#include <tessera/elementary.hpp>
#include <tessera/rowwise/long_softmax_backward.hpp>
#include <tessera/rowwise/own_softmax_backward.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/sums.hpp>
#include <tessera/softmax_backward.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// Weights e of a row, relative to its maximum unless they are given; their sum and that of e dy (of dy, for the
/// logarithm); then the gradient. A row that is not held is read again in each of these passes.
template <class Exec, class Acc, class Shape>
struct SoftmaxBackwardKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand d_in, d_out, in;
  Acc scale;
  bool log, from_output;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team,
                                    [&](auto& row) TESSERA_INLINE_LAMBDA { one_row(row); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Walk& row) const {
    constexpr Acc lowest = -Kokkos::Experimental::infinity_v<Acc>;
    Acc const rest = from_output && !log ? Acc(0) : lowest;
    auto const load = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      row.template load<RowInputs<Acc>>(in, p, row.x, rest);
      if (from_output || scale == Acc(1)) return;
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return scale * x; });
      row.fill_residue(p, rest);
    };
    Acc top = 0;
    if (!from_output) {
      top = row.template reduce<Larger>(lowest, load, [](Acc x) TESSERA_INLINE_LAMBDA { return x; });
      if (top == lowest) top = 0;  // nothing but -Inf and NaN: the exponentials are 0 and NaN
    }
    typename Walk::Portion dy;
    auto const read = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (!Shape::held || from_output) load(p);
      if (log || !from_output) row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return exp_below(x - top); });
      row.template load<RowInputs<Acc>>(d_out, p, dy, Acc(0));
    };
    auto const weight = [](Acc e, Acc) TESSERA_INLINE_LAMBDA { return e; };
    TwoSums<Acc> const sums =
        log ? two_sums<Acc>(row, dy, read, weight, [](Acc, Acc g) TESSERA_INLINE_LAMBDA { return g; })
            : two_sums<Acc>(row, dy, read, weight, [](Acc e, Acc g) TESSERA_INLINE_LAMBDA { return e * g; });
    bool const masked = !from_output && sums.first == Acc(0);
    Acc const normal = from_output ? Acc(1) : masked ? Acc(0) : Acc(1) / sums.first;
    Acc const factor = masked ? Acc(0) : scale;
    auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (log) {
        Acc const total = sums.second * normal;
        row.map(dy, [&](Acc e, Acc g) TESSERA_INLINE_LAMBDA { return factor * (g - e * total); });
      } else {
        Acc const mean = sums.second * normal, each = factor * normal;
        row.map(dy, [&](Acc e, Acc g) TESSERA_INLINE_LAMBDA { return each * e * (g - mean); });
      }
      row.template store<RowInputs<Acc>>(d_in, p);
    };
    if constexpr (Shape::held)
      row.for_each_portion([](std::int64_t) TESSERA_INLINE_LAMBDA {}, write);
    else
      row.for_each_portion(read, write);
  }
};

template <class Acc, class Exec>
void start_softmax_backward(Exec const& exec, SoftmaxBackwardProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.in, problem.d_in, problem.d_out);
  TileGrid const grid = row_grid(problem.in);
  if (std::is_same_v<Acc, float> &&
      (start_packed_softmax_backward(exec, problem, grid) || start_own_softmax_backward(exec, problem, grid)))
    return;
  with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
    using Shape = decltype(shape);
    auto const rows = [&](RowArray const& a) { return operand(a, grid, Shape::width, wide); };
    launch_tiles<Shape>(problem.label, exec, grid,
                        SoftmaxBackwardKernel<KernelSpace<Exec>, Acc, Shape>{
                            grid, rows(problem.d_in), rows(problem.d_out), rows(problem.in),
                            static_cast<Acc>(problem.scale), problem.log, problem.from_output});
  });
}

template <class Exec>
void run_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem) {
  if (any_is_double(problem.d_in, problem.d_out, problem.in))
    start_softmax_backward<double>(exec, problem);
  else
    start_softmax_backward<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
