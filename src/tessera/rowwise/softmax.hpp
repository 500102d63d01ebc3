// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SOFTMAX_HPP
#define TESSERA_ROWWISE_SOFTMAX_HPP

#include <tessera/rowwise/exponential.hpp>
#include <tessera/rowwise/packed_softmax.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/softmax.hpp>

namespace tessera::detail {

template <class Exec, class Acc, class Shape>
struct SoftmaxKernel {
  TileGrid grid;
  Operand out, in;
  Acc scale;
  bool log;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team, [&](auto& row) { one_row(row); });
  }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Walk& row) const {
    constexpr Acc lowest = -Kokkos::Experimental::infinity_v<Acc>;
    auto const keep = [](Acc x) { return x; };
    auto const load = [&](std::int64_t p) {
      row.template load<RowInputs<Acc>>(in, p, row.x, lowest);
      if (scale == Acc(1)) return;
      row.map([&](Acc x) { return scale * x; });
      row.fill_residue(p, lowest);
    };
    Acc top = row.template reduce<Larger>(lowest, load, keep);
    if (top == lowest) top = 0;  // nothing but -Inf and NaN: the exponentials are 0 and NaN

    auto const shift = [&](std::int64_t p) {
      if constexpr (!Shape::held) load(p);
      row.map([&](Acc x) { return x - top; });
    };
    auto const exponentiate = [&](std::int64_t p) {
      if constexpr (!Shape::held) load(p);
      row.map([&](Acc x) { return exponential(x - top); });
    };
    auto const already_done = [&](std::int64_t) {};

    if (log) {
      Acc const total = row.sum(shift, [](Acc x) { return exponential(x); });
      Acc const denominator = total == Acc(0) ? Acc(0) : Kokkos::log(total);
      auto const write = [&](std::int64_t p) {
        row.map([&](Acc x) { return x - denominator; });
        row.template store<RowOutputs<Acc>>(out, p);
      };
      if constexpr (Shape::held)
        row.for_each_portion(already_done, write);
      else
        row.for_each_portion(shift, write);
    } else {
      Acc const total = row.sum(exponentiate, keep);
      Acc const factor = total == Acc(0) ? Acc(0) : Acc(1) / total;
      auto const write = [&](std::int64_t p) {
        row.map([&](Acc x) { return x * factor; });
        row.template store<RowOutputs<Acc>>(out, p);
      };
      if constexpr (Shape::held)
        row.for_each_portion(already_done, write);
      else
        row.for_each_portion(exponentiate, write);
    }
  }
};

template <class Acc, class Exec>
void start_softmax(Exec const& exec, SoftmaxProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.in, problem.out);
  TileGrid const grid = row_grid(problem.in);
  if (std::is_same_v<Acc, float> && start_packed_softmax(exec, problem, grid)) return;
  with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
    using Shape = decltype(shape);
    launch_tiles<Shape>(
        problem.label, exec, grid,
        SoftmaxKernel<KernelSpace<Exec>, Acc, Shape>{grid, operand(problem.out, grid, Shape::width, wide),
                                                     operand(problem.in, grid, Shape::width, wide),
                                                     static_cast<Acc>(problem.scale), problem.log});
  });
}

template <class Exec>
void run_softmax(Exec const& exec, SoftmaxProblem const& problem) {
  if (any_is_double(problem.out, problem.in))
    start_softmax<double>(exec, problem);
  else
    start_softmax<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
