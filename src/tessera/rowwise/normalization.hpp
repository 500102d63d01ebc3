// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_NORMALIZATION_HPP
#define TESSERA_ROWWISE_NORMALIZATION_HPP

#include <tessera/normalization.hpp>
#include <tessera/rowwise/long_normalization.hpp>
#include <tessera/rowwise/own_normalization.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// LayerNorm if `centered`, else RMSNorm, which is the same without the mean.
template <class Exec, class Acc, class Shape>
struct NormKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  Acc epsilon;
  bool centered;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team,
                                    [&](auto& row) TESSERA_INLINE_LAMBDA { one_row(row); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Walk& row) const {
    Acc const length = grid.columns > 0 ? static_cast<Acc>(grid.columns) : Acc(1);
    auto const keep = [](Acc x) TESSERA_INLINE_LAMBDA { return x; };
    auto const square = [](Acc x) TESSERA_INLINE_LAMBDA { return x * x; };
    // Where a sum is written the row is that sum, rounded; a row that is read again is read from there, because the
    // sum may have taken the place of the residual.
    auto const read_first = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      row.template load<RowInputs<Acc>>(in, p, row.x, Acc(0));
      if (!residual.present()) return;
      typename Walk::Portion added;
      row.template load<RowInputs<Acc>>(residual, p, added, Acc(0));
      row.map(added, [](Acc x, Acc y) TESSERA_INLINE_LAMBDA { return x + y; });
      if (sum.present()) row.template store<RowInputs<Acc>, true>(sum, p);
    };
    auto const read = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (sum.present())
        row.template load<RowInputs<Acc>>(sum, p, row.x, Acc(0));
      else
        read_first(p);
    };
    auto const already_read = [](std::int64_t) TESSERA_INLINE_LAMBDA {};

    Acc center = 0;
    auto const subtract_center = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (!centered) return;
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return x - center; });
      row.fill_residue(p, Acc(0));
    };
    auto const read_centered = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      read(p);
      subtract_center(p);
    };
    Acc squares = 0;
    if (centered) {
      center = row.sum(read_first, keep) / length;
      if constexpr (Shape::held)
        squares = row.sum(subtract_center, square);
      else
        squares = row.sum(read_centered, square);
    } else {
      squares = row.sum(read_first, square);
    }
    Acc const factor = Acc(1) / Kokkos::sqrt(squares / length + epsilon);

    if (row.is_first_lane()) {
      if (mean.present()) row.store_value(mean, center);
      if (rstd.present()) row.store_value(rstd, factor);
    }
    auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return x * factor; });
      typename Walk::Portion parameter;
      if (weight.present()) {
        row.template load<RowInputs<Acc>>(weight, p, parameter, Acc(0));
        row.map(parameter, [](Acc x, Acc w) TESSERA_INLINE_LAMBDA { return x * w; });
      }
      if (bias.present()) {
        row.template load<RowInputs<Acc>>(bias, p, parameter, Acc(0));
        row.map(parameter, [](Acc x, Acc b) TESSERA_INLINE_LAMBDA { return x + b; });
      }
      row.template store<RowOutputs<Acc>>(out, p);
    };
    if constexpr (Shape::held)
      row.for_each_portion(already_read, write);
    else
      row.for_each_portion(read_centered, write);
  }
};

template <class Acc, class Exec>
void start_norm(Exec const& exec, NormProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.in, problem.out, problem.weight, problem.bias, problem.mean, problem.rstd, problem.residual,
           problem.sum);
  TileGrid const grid = row_grid(problem.in);
  if (std::is_same_v<Acc, float> && (start_packed_norm(exec, problem, grid) || start_own_norm(exec, problem, grid)))
    return;
  with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
    using Shape = decltype(shape);
    auto const rows = [&](RowArray const& a) { return operand(a, grid, Shape::width, wide); };
    NormKernel<KernelSpace<Exec>, Acc, Shape> kernel{grid,
                                                     rows(problem.out),
                                                     rows(problem.in),
                                                     rows(problem.weight),
                                                     rows(problem.bias),
                                                     rows(problem.mean),
                                                     rows(problem.rstd),
                                                     rows(problem.residual),
                                                     rows(problem.sum),
                                                     static_cast<Acc>(problem.epsilon),
                                                     problem.centered};
    if constexpr (Machine<Exec>::is_host)
      kernel.out.streamed = may_stream(problem.out, grid, problem.in, problem.residual, problem.sum);
    launch_tiles<Shape>(problem.label, exec, grid, kernel);
  });
}

template <class Exec>
void run_norm(Exec const& exec, NormProblem const& problem) {
  if (any_is_double(problem.out, problem.in, problem.weight, problem.bias, problem.mean, problem.rstd, problem.residual,
                    problem.sum))
    start_norm<double>(exec, problem);
  else
    start_norm<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
