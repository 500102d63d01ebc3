// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_OWN_SOFTMAX_BACKWARD_HPP

#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/softmax_backward.hpp>

namespace tessera::detail {

/// The gradient of softmax of a thread's own rows, scale > 0. The weights of a row are kept between its passes.
template <class Space>
struct OwnSoftmaxBackward {
  using Rows = OwnRows<Space>;
  using Ahead = typename Rows::Ahead;
  static constexpr std::int64_t most_columns = 32768;  // 128 KB beside the rows in a second-level cache
  Rows rows;
  Operand d_in, d_out, in;
  float scale;
  bool log, from_output;

  std::size_t scratch() const { return room_bytes<Space>(rows.grid.columns); }

  void operator()(TeamMember<Space> const& team) const {
    float* const room = room_of<Space>(team, rows.grid.columns);
    rows.for_each(team.league_rank(), in, d_out, [&](TileIndex const& at, Ahead const& next, Ahead const& next_d_out) {
      one_row(rows.row(in, at), rows.row(d_out, at), rows.row(d_in, at), room, next, next_d_out);
    });
  }

 private:
  void one_row(char const* x, char const* dy, char* dx, float* room, Ahead const& next, Ahead const& next_d_out) const {
    std::int64_t const columns = rows.grid.columns;
    float const factor = from_output ? 1 : scale;
    float const top = from_output ? 0 : largest_reference(factor * rows.loops->largest(x, columns, {}));
    auto const sums =
        rows.loops->weights(x, dy, columns, from_output && !log, factor, top, log, room, next, next_d_out);
    bool const masked = !from_output && sums.first == 0;
    float const normal = from_output ? 1 : masked ? 0 : 1 / sums.first, slope = masked ? 0 : scale;
    rows.loops->weight_gradients(room, dy, columns, log ? slope : slope * normal, sums.second * normal, log, dx,
                                 d_in.streamed);
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  if constexpr (RowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.d_out, problem.d_in);
    auto const scale = static_cast<float>(problem.scale);
    if (rows.loops == nullptr || grid.columns > OwnSoftmaxBackward<Space>::most_columns) return false;
    if (!problem.from_output && !(scale > 0 && scale < HUGE_VALF)) return false;
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnSoftmaxBackward<Space> kernel{
        rows,        as_operand(problem.d_in), as_operand(problem.d_out), as_operand(problem.in), scale,
        problem.log, problem.from_output};
    kernel.d_in.streamed = may_stream(problem.d_in, grid, problem.in, problem.d_out);
    launch_own_rows(problem.label, exec, kernel, kernel.scratch());
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
