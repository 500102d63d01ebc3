// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SOFTMAX_HPP
#define TESSERA_ROWWISE_SOFTMAX_HPP

#include <tessera/rowwise/long_softmax.hpp>
#include <tessera/rowwise/own_softmax.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/softmax.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

template <class Exec, class Acc, class Shape>
struct SoftmaxKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand out, in;
  Acc scale;
  bool log;
  std::int64_t kept = 0;  // elements that scratch has room for: exponentials are then computed once
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team, [&](auto& row) TESSERA_INLINE_LAMBDA {
      if constexpr (Machine<Exec>::is_host)
        if (kept > 0) row.keep_in(static_cast<Acc*>(team.team_scratch(0).get_shmem_aligned(kept_bytes(), 64)));
      one_row(row);
    });
  }
  /// What the team needs of scratch.
  KOKKOS_FUNCTION std::size_t kept_bytes() const { return static_cast<std::size_t>(kept) * sizeof(Acc); }

  template <class Walk>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Walk& row) const {
    constexpr Acc lowest = -Kokkos::Experimental::infinity_v<Acc>;
    auto const keep = [](Acc x) TESSERA_INLINE_LAMBDA { return x; };
    auto const load = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      row.template load<RowInputs<Acc>>(in, p, row.x, lowest);
      if (scale == Acc(1)) return;
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return scale * x; });
      row.fill_residue(p, lowest);
    };
    Acc top = row.template reduce<Larger>(lowest, load, keep);
    if (top == lowest) top = 0;  // nothing but -Inf and NaN: the exponentials are 0 and NaN

    auto const shift = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if constexpr (!Shape::held) load(p);
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return x - top; });
    };
    auto const exponentiate = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if constexpr (!Shape::held) load(p);
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return exp_below(x - top); });
      row.keep(p);
    };
    auto const exponentials = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (row.keeps())
        row.recall(p);
      else
        exponentiate(p);
    };
    auto const already_done = [&](std::int64_t) TESSERA_INLINE_LAMBDA {};

    if (log) {
      Acc const total = row.sum(shift, [](Acc x) TESSERA_INLINE_LAMBDA { return exp_below(x); });
      Acc const denominator = total == Acc(0) ? Acc(0) : Kokkos::log(total);
      auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
        row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return x - denominator; });
        row.template store<RowOutputs<Acc>>(out, p);
      };
      if constexpr (Shape::held)
        row.for_each_portion(already_done, write);
      else
        row.for_each_portion(shift, write);
    } else {
      Acc const total = row.sum(exponentiate, keep);
      Acc const factor = total == Acc(0) ? Acc(0) : Acc(1) / total;
      auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
        row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return x * factor; });
        row.template store<RowOutputs<Acc>>(out, p);
      };
      if constexpr (Shape::held)
        row.for_each_portion(already_done, write);
      else
        row.for_each_portion(exponentials, write);
    }
  }
};

template <class Acc, class Exec>
void start_softmax(Exec const& exec, SoftmaxProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.in, problem.out);
  TileGrid const grid = row_grid(problem.in);
  if (std::is_same_v<Acc, float> &&
      (start_packed_softmax(exec, problem, grid) || start_own_softmax(exec, problem, grid)))
    return;
  with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
    using Shape = decltype(shape);
    SoftmaxKernel<KernelSpace<Exec>, Acc, Shape> kernel{grid, operand(problem.out, grid, Shape::width, wide),
                                                        operand(problem.in, grid, Shape::width, wide),
                                                        static_cast<Acc>(problem.scale), problem.log};
    if constexpr (Machine<Exec>::is_host) {
      kernel.out.streamed = may_stream(problem.out, grid, problem.in);
      if (!problem.log) kernel.kept = kept_elements<Shape>(grid, sizeof(Acc));
    }
    launch_tiles<Shape>(problem.label, exec, grid, kernel, kernel.kept > 0 ? kernel.kept_bytes() + 64 : 0);
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
