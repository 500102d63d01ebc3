// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_NORMALIZATION_BACKWARD_HPP

#include <algorithm>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/column_sums.hpp>
#include <tessera/rowwise/own_normalization_backward.hpp>
#include <tessera/rowwise/packed_normalization_backward.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/sums.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// A worker takes `rows_each` neighbouring rows and adds what they give to the gradients of the parameters to a row of
/// its own in the workspace.
template <class Exec, class Acc, class Shape>
struct NormBackwardKernel {
  static constexpr bool vectorises = true;
  TileGrid grid;
  Operand d_in, d_out, in, mean, rstd, weight, d_sum;
  Operand d_weights, d_biases;  // (workers, columns) of Acc, either may be absent
  bool centered;
  std::int64_t workers, rows_each;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Lanes<Exec, Shape::by> const lanes(team);
    constexpr int a_team = Shape::template workers<Exec>;
    std::int64_t const worker =
        std::int64_t{team.league_rank()} * a_team + (Shape::by == Worker::team ? 0 : team.team_rank());
    if (worker >= workers) return;
    std::int64_t const first = worker * rows_each, left = grid.tiles() - first;
    std::int64_t const end = first + (left < rows_each ? left : rows_each);
    Operand sums[2] = {d_weights, d_biases};
    for (Operand& sum : sums)
      if (sum.present()) {
        sum.data = static_cast<Acc const*>(sum.data) + worker * grid.columns;
        Walk<Exec, Acc, Shape> row(lanes, grid, TileIndex{});
        auto const clear = [&](std::int64_t)
                               TESSERA_INLINE_LAMBDA { row.map([](Acc) TESSERA_INLINE_LAMBDA { return Acc(0); }); };
        row.for_each_portion(clear,
                             [&](std::int64_t p) TESSERA_INLINE_LAMBDA { row.template store<TypeList<Acc>>(sum, p); });
      }
    for (std::int64_t i = first; i < end; ++i) {
      Walk<Exec, Acc, Shape> row(lanes, grid, tile_index(grid, i));
      one_row(row, sums[0], sums[1]);
    }
  }

  template <class Row>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row& row, Operand const& weights, Operand const& biases) const {
    Acc const length = static_cast<Acc>(grid.columns);
    Acc const center = centered ? value(row, mean) : Acc(0), factor = value(row, rstd);
    typename Row::Portion g;
    auto const normalise = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      row.template load<RowInputs<Acc>>(in, p, row.x, Acc(0));
      row.map([&](Acc x) TESSERA_INLINE_LAMBDA { return (x - center) * factor; });
      row.fill_residue(p, Acc(0));
    };
    auto const read = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      if (weight.present()) {
        row.template load<RowInputs<Acc>>(d_out, p, row.x, Acc(0));
        row.template load<RowInputs<Acc>>(weight, p, g, Acc(0));
        row.map(g, [](Acc dy, Acc w) TESSERA_INLINE_LAMBDA { return dy * w; });
        copy(row.used(), g, row.x);
      } else {
        row.template load<RowInputs<Acc>>(d_out, p, g, Acc(0));
      }
      normalise(p);
    };
    TwoSums<Acc> const sums = two_sums<Acc>(
        row, g, read, [](Acc, Acc gradient) TESSERA_INLINE_LAMBDA { return gradient; },
        [](Acc x, Acc gradient) TESSERA_INLINE_LAMBDA { return x * gradient; });
    Acc const mean_gradient = centered ? sums.first / length : Acc(0), mean_product = sums.second / length;
    auto const write = [&](std::int64_t p) TESSERA_INLINE_LAMBDA {
      typename Row::Portion dy;  // read before d_in is written, which may lie there
      if (weights.present() || biases.present()) row.template load<RowInputs<Acc>>(d_out, p, dy, Acc(0));
      typename Row::Portion kept;
      if (weights.present()) copy(row.used(), kept, row.x);
      row.map(g, [&](Acc x, Acc gradient)
                     TESSERA_INLINE_LAMBDA { return factor * (gradient - mean_gradient - x * mean_product); });
      if (d_sum.present()) {
        row.template load<RowInputs<Acc>>(d_sum, p, g, Acc(0));
        row.map(g, [](Acc x, Acc other) TESSERA_INLINE_LAMBDA { return x + other; });
      }
      row.template store<RowInputs<Acc>>(d_in, p);
      if (weights.present()) {
        row.template load<TypeList<Acc>>(weights, p, g, Acc(0));
        copy(row.used(), row.x, kept);
        row.map(dy, [](Acc x, Acc gradient) TESSERA_INLINE_LAMBDA { return x * gradient; });
        row.map(g, [](Acc x, Acc sum) TESSERA_INLINE_LAMBDA { return sum + x; });
        row.template store<TypeList<Acc>>(weights, p);
      }
      if (biases.present()) {
        row.template load<TypeList<Acc>>(biases, p, row.x, Acc(0));
        row.map(dy, [](Acc sum, Acc gradient) TESSERA_INLINE_LAMBDA { return sum + gradient; });
        row.template store<TypeList<Acc>>(biases, p);
      }
    };
    if constexpr (Shape::held)
      row.for_each_portion([](std::int64_t) TESSERA_INLINE_LAMBDA {}, write);
    else
      row.for_each_portion(read, write);
  }

  template <class Portion>
  KOKKOS_FORCEINLINE_FUNCTION static void copy(int used, Portion& to, Portion const& from) {
    unrolled<Shape::packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < used; ++j) to[k][j] = from[k][j];
    });
  }
  /// The one value that an operand has for a row.
  template <class Row>
  KOKKOS_FORCEINLINE_FUNCTION static Acc value(Row const& row, Operand const& from) {
    std::int64_t const offset = from.value_offset(row.at());
    if (from.type == Scalar::fp64) return static_cast<Acc>(static_cast<double const*>(from.data)[offset]);
    return static_cast<Acc>(static_cast<float const*>(from.data)[offset]);
  }
};

/// How many rows of the workspace the kernel above fills; on a CPU it does not depend on the number of cores.
template <class Exec>
std::int64_t norm_backward_workers(Exec const& exec, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t room = std::int64_t{1} << 22;  // elements
  std::int64_t most = 64, fewest = 8;
  if constexpr (Machine<Exec>::lanes > 1) {
    most = 16 * Machine<Exec>::concurrency(exec);
    fewest = 16;
  }
  return std::min(rows, std::clamp(room / std::max<std::int64_t>(columns, 1), fewest, most));
}

inline bool accumulates_fp64(NormBackwardProblem const& p) {
  return any_is_double(p.d_in, p.d_weight, p.d_bias, p.d_out, p.in, p.mean, p.rstd, p.weight, p.d_sum);
}

template <class Exec>
std::size_t norm_backward_workspace(Exec const& exec, NormBackwardProblem const& problem) {
  std::int64_t const rows = problem.in.rows(), columns = problem.in.extent[3];
  std::int64_t workers = norm_backward_workers(exec, rows, columns);
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available)
    workers = std::max({workers, packed_norm_backward_teams<true>(exec, rows, columns),
                        packed_norm_backward_teams<false>(exec, rows, columns)});
  int const gradients = (problem.d_weight.present() ? 1 : 0) + (problem.d_bias.present() ? 1 : 0);
  std::size_t bytes = static_cast<std::size_t>(gradients * workers * columns) * (accumulates_fp64(problem) ? 8 : 4);
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available)
    if (gradients > 0 && rows > 0 && columns > shortest_strips)
      bytes = std::max({bytes, strip_workspace(exec, rows, columns, gradients),
                        mailed_norm_backward_workspace(exec, rows, columns, gradients)});
  return bytes;
}

/// The sums of parts in the workspace.
template <class Acc, class Exec>
void finish_norm_backward(Exec const& exec, NormBackwardProblem const& problem, NormBackwardSums<Acc> const& sums,
                          NormBackwardParts const& parts) {
  if (parts.are_gradients || (!problem.d_weight.present() && !problem.d_bias.present())) return;
  auto const out = [](RowArray const& a) { return const_cast<void*>(a.data); };
  launch_column_sums<Exec, Acc>(problem.label, exec,
                                {{sums.weights, sums.biases},
                                 {out(problem.d_weight), out(problem.d_bias)},
                                 {problem.d_weight.type, problem.d_bias.type},
                                 {problem.d_weight.stride[3], problem.d_bias.stride[3]},
                                 parts.count,
                                 problem.in.extent[3]});
}

template <class Acc, class Exec>
void start_norm_backward(Exec const& exec, NormBackwardProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.in, problem.d_in, problem.d_out, problem.mean, problem.rstd, problem.weight, problem.d_sum);
  TileGrid const grid = row_grid(problem.in);
  if constexpr (std::is_same_v<Acc, float>)
    if (NormBackwardParts const packed = start_packed_norm_backward(exec, problem, grid); packed.count > 0)
      return finish_norm_backward(exec, problem, NormBackwardSums<Acc>(problem, packed.count), packed);
  std::int64_t parts = norm_backward_workers(exec, grid.tiles(), grid.columns);
  NormBackwardSums<Acc> const sums(problem, parts);
  if constexpr (std::is_same_v<Acc, float>)
    if (auto const own = start_own_norm_backward(exec, problem, grid, parts, sums.weights, sums.biases); own > 0)
      return finish_norm_backward(exec, problem, sums, own);
  if (parts > 0)
    with_row_shape<Exec, Acc>(grid.columns, [&](auto shape) {
      using Shape = decltype(shape);
      using Space = KernelSpace<Exec>;
      auto const rows = [&](RowArray const& a) { return operand(a, grid, Shape::width, wide); };
      auto const vector = [&](Acc* data) {
        RowArray a;
        a.data = data;
        a.type = scalar_of<Acc>;
        a.stride[3] = 1;
        Operand o = operand(a, grid, Shape::width, wide);
        o.packed = o.packed && (!wide || grid.columns % Shape::width == 0);
        return o;
      };
      std::int64_t const each = (grid.tiles() + parts - 1) / parts, workers = (grid.tiles() + each - 1) / each;
      constexpr int a_team = Shape::template workers<Space>;
      // Rows of the workspace that nobody works on would be added as they are.
      parts = workers;
      launch<Shape::threads>(KernelLabel{problem.label, Shape::held ? "element by element, in registers"
                                                                    : "element by element, in passes"},
                             exec, (workers + a_team - 1) / a_team, 0,
                             NormBackwardKernel<Space, Acc, Shape>{
                                 grid, rows(problem.d_in), rows(problem.d_out), rows(problem.in), rows(problem.mean),
                                 rows(problem.rstd), rows(problem.weight), rows(problem.d_sum), vector(sums.weights),
                                 vector(sums.biases), problem.centered, workers, each});
    });
  finish_norm_backward(exec, problem, sums, parts);
}

template <class Exec>
void run_norm_backward(Exec const& exec, NormBackwardProblem const& problem) {
  if (problem.in.extent[3] == 0) return;
  if (accumulates_fp64(problem))
    start_norm_backward<double>(exec, problem);
  else
    start_norm_backward<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
