// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_OWN_NORMALIZATION_BACKWARD_HPP

#include <algorithm>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/shapes.hpp>

namespace tessera::detail {

/// Gradients of LayerNorm and RMSNorm of a thread's own rows. A team takes rows.rows_a_team neighbouring rows, a few at
/// a time, so that what they give to the gradients of the parameters goes through the caches once for all of these, and
/// leaves the sums in a row of its own of the workspace.
template <class Space>
struct OwnNormBackward {
  using Rows = OwnRows<Space>;
  using Gradient = typename Rows::Atoms::NormGradientRow;
  static constexpr std::int64_t most_columns = 32768;  // the sums of both parameters are 256 KB
  static constexpr int most_together = 4;
  Rows rows;
  Operand d_in, d_out, in, mean, rstd, weight, d_sum;
  float *d_weights, *d_biases;  // (teams, columns), either may be nullptr
  bool centered;
  int together;  // rows, which lie in the second-level cache

  std::size_t scratch() const { return 2 * room_bytes<Space>(rows.grid.columns); }

  void operator()(TeamMember<Space> const& team) const {
    std::int64_t const columns = rows.grid.columns, room = Rows::Atoms::room(columns), worker = team.league_rank();
    float* const sums = room_of<Space>(team, 2 * room);
    float* const weights = d_weights == nullptr ? nullptr : sums;
    float* const biases = d_biases == nullptr ? nullptr : sums + room;
    std::fill_n(sums, 2 * room, 0.0f);
    std::int64_t const begin = worker * rows.rows_a_team, end = std::min(begin + rows.rows_a_team, rows.grid.tiles());
    for (std::int64_t i = begin; i < end; i += together)
      some_rows(i, static_cast<int>(std::min<std::int64_t>(together, end - i)), end, weights, biases);
    streaming_done();
    if (weights != nullptr) rows.loops->in_order(weights, columns, d_weights + worker * columns);
    if (biases != nullptr) rows.loops->in_order(biases, columns, d_biases + worker * columns);
  }

 private:
  /// Meanwhile as many rows behind them are fetched, and what is added to their gradients.
  void some_rows(std::int64_t first, int n, std::int64_t end, float* weights, float* biases) const {
    std::int64_t const columns = rows.grid.columns;
    auto const length = static_cast<float>(columns);
    TileIndex const parameters;
    Gradient row[most_together];
    for (int r = 0; r < n; ++r) {
      std::int64_t const i = first + r;
      TileIndex const at = tile_index(rows.grid, i);
      Gradient& own = row[r];
      own.x = rows.row(in, at);
      own.g = rows.row(d_out, at);
      own.added = rows.row(d_sum, at);
      own.y = rows.row(d_in, at);
      own.center = centered ? value_of(mean, at) : 0;
      own.factor = value_of(rstd, at);
      auto const sums = rows.loops->norm_sums(own.x, own.g, rows.row(weight, parameters), columns, own.center,
                                              own.factor, rows.ahead(in, i + together, end), rows.ahead(d_sum, i, end));
      own.mean = centered ? sums.first / length : 0;
      own.mean_product = sums.second / length;
      own.g_ahead = rows.ahead(d_out, i + together, end);
    }
    rows.loops->norm_gradients(row, n, columns, rows.row(weight, parameters), weights, biases, d_in.streamed);
  }
};

/// Starts the problem if it is one of a thread's own rows; returns how many rows of the workspace then have sums, at
/// most `parts`.
template <class Exec>
std::int64_t start_own_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid,
                                     std::int64_t parts, float* d_weights, float* d_biases) {
  using Space = KernelSpace<Exec>;
  if constexpr (OwnRowAtoms<Space>::available) {
    using Kernel = OwnNormBackward<Space>;
    auto rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.d_out, problem.d_in, problem.weight,
                                problem.d_sum);
    if (rows.loops == nullptr || parts == 0 || grid.columns > Kernel::most_columns) return 0;
    rows.rows_a_team = (grid.tiles() + parts - 1) / parts;
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    constexpr std::int64_t room = 256 << 10;
    Kernel kernel{
        rows,
        as_operand(problem.d_in),
        as_operand(problem.d_out),
        as_operand(problem.in),
        as_operand(problem.mean),
        as_operand(problem.rstd),
        as_operand(problem.weight),
        as_operand(problem.d_sum),
        d_weights,
        d_biases,
        problem.centered,
        static_cast<int>(std::clamp<std::int64_t>(room / (2 * grid.columns * rows.size), 1, Kernel::most_together))};
    kernel.d_in.streamed = may_stream(problem.d_in, grid, problem.in, problem.d_out, problem.d_sum);
    launch_own_rows(problem.label, exec, kernel, kernel.scratch());
    return rows.teams();
  }
  return 0;
}

}  // namespace tessera::detail

#endif
