// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_OWN_SOFTMAX_BACKWARD_HPP

#include <algorithm>
#include <cmath>

#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/softmax_backward.hpp>

namespace tessera::detail {

/// The gradient of softmax of a thread's own rows, scale > 0. The weights of a row are kept between its passes where
/// there is room; of a longer one they are found again, a part after the other.
template <class Space>
struct OwnSoftmaxBackward {
  using Rows = OwnRows<Space>;
  using Ahead = typename Rows::Ahead;
  Rows rows;
  Operand d_in, d_out, in;
  float scale;
  bool log, from_output;
  std::int64_t kept;  // elements that there is room for

  std::size_t scratch() const { return room_bytes<Space>(kept); }

  void operator()(TeamMember<Space> const& team) const {
    float* const room = room_of<Space>(team, kept);
    rows.for_each(team.league_rank(), in, d_out, [&](TileIndex const& at, Ahead const& next, Ahead const& next_d_out) {
      one_row(rows.row(in, at), rows.row(d_out, at), rows.row(d_in, at), room, next, next_d_out);
    });
  }

 private:
  void one_row(char const* x, char const* dy, char* dx, float* room, Ahead const& next, Ahead const& next_d_out) const {
    std::int64_t const columns = rows.grid.columns;
    float const factor = from_output ? 1 : scale;
    float const top = from_output ? 0 : largest_reference(factor * rows.loops->largest(x, columns, {}));
    auto const weigh = [&](std::int64_t i, Ahead const& ahead, Ahead const& d_out_ahead) {
      return rows.loops->weights(x + i * rows.size, dy + i * rows.size, std::min(kept, columns - i),
                                 from_output && !log, factor, top, log, room, ahead, d_out_ahead);
    };
    auto sums = weigh(0, next, next_d_out);
    for (std::int64_t i = kept; i < columns; i += kept) {
      auto const more = weigh(i, {}, {});
      sums.first += more.first;
      sums.second += more.second;
    }
    bool const masked = !from_output && sums.first == 0;
    float const normal = from_output ? 1 : masked ? 0 : 1 / sums.first, slope = masked ? 0 : scale;
    for (std::int64_t i = 0; i < columns; i += kept) {
      if (columns > kept) weigh(i, {}, {});
      rows.loops->weight_gradients(room, dy + i * rows.size, std::min(kept, columns - i), log ? slope : slope * normal,
                                   sums.second * normal, log, dx + i * rows.size, d_in.streamed);
    }
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  if constexpr (OwnRowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.d_out, problem.d_in);
    auto const scale = static_cast<float>(problem.scale);
    if (rows.loops == nullptr || !(problem.from_output || (scale > 0 && scale < HUGE_VALF))) return false;
    if (grid.columns == 1) return false;  // whose gradient is 0, and here would be what rounding leaves of it
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnSoftmaxBackward<Space> kernel{
        rows,        as_operand(problem.d_in), as_operand(problem.d_out), as_operand(problem.in), scale,
        problem.log, problem.from_output,      kept_of(grid.columns)};
    kernel.d_in.streamed = may_stream(problem.d_in, grid, problem.in, problem.d_out);
    launch_own_rows(problem.label, exec, kernel, kernel.scratch());
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
