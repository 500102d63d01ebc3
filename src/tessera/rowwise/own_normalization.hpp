// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_NORMALIZATION_HPP
#define TESSERA_ROWWISE_OWN_NORMALIZATION_HPP

#include <cmath>

#include <tessera/normalization.hpp>
#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/shapes.hpp>

namespace tessera::detail {

/// LayerNorm if `centered`, else RMSNorm, of a thread's own rows. With a residual the row is the sum, as it is stored.
template <class Space>
struct OwnNorm {
  using Rows = OwnRows<Space>;
  using Ahead = typename Rows::Ahead;
  Rows rows;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon;
  bool centered;

  void operator()(TeamMember<Space> const& team) const {
    rows.for_each(team.league_rank(), in, {},
                  [&](TileIndex const& at, Ahead const& next, Ahead const&) { one_row(at, next); });
  }

 private:
  void one_row(TileIndex const& at, Ahead const& next) const {
    auto const& loops = *rows.loops;
    std::int64_t const columns = rows.grid.columns;
    auto const length = static_cast<float>(columns);
    char const* x = rows.row(in, at);
    float total = 0;
    if (residual.present()) {
      char* const both = rows.row(sum, at);
      total = loops.add(x, rows.row(residual, at), columns, both, {});
      x = both;
    } else if (centered) {
      total = loops.sum(x, columns, {});
    }
    float const center = centered ? total / length : 0;
    float const factor = 1 / std::sqrt(loops.squares(x, columns, center, {}) / length + epsilon);
    if (mean.present()) value_of(mean, at) = center;
    if (rstd.present()) value_of(rstd, at) = factor;
    loops.normalise(x, columns, center, factor, rows.row(weight, at), rows.row(bias, at), rows.row(out, at),
                    out.streamed, next);
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_norm(Exec const& exec, NormProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  if constexpr (OwnRowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.out, problem.weight,
                                      problem.bias, problem.residual, problem.sum);
    bool const fits =
        problem.residual.present() == problem.sum.present() && (problem.weight.present() || !problem.bias.present());
    if (rows.loops == nullptr || !fits) return false;
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnNorm<Space> kernel{rows,
                          as_operand(problem.out),
                          as_operand(problem.in),
                          as_operand(problem.weight),
                          as_operand(problem.bias),
                          as_operand(problem.mean),
                          as_operand(problem.rstd),
                          as_operand(problem.residual),
                          as_operand(problem.sum),
                          static_cast<float>(problem.epsilon),
                          problem.centered};
    kernel.out.streamed = may_stream(problem.out, grid, problem.in, problem.residual, problem.sum);
    launch_own_rows(problem.label, exec, kernel);
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
