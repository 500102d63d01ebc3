// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_SOFTMAX_HPP
#define TESSERA_ROWWISE_OWN_SOFTMAX_HPP

#include <cmath>

#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/softmax.hpp>

namespace tessera::detail {

/// Softmax of a thread's own rows, scale > 0. The exponentials of a row are kept where there is room; of a longer one
/// they are found twice, the second time a part after the other.
template <class Space>
struct OwnSoftmax {
  using Rows = OwnRows<Space>;
  using Ahead = typename Rows::Ahead;
  Rows rows;
  Operand out, in;
  float scale;
  bool log;
  std::int64_t kept;  // elements that there is room for

  std::size_t scratch() const { return log ? 0 : room_bytes<Space>(kept); }

  void operator()(TeamMember<Space> const& team) const {
    float* const room = log ? nullptr : room_of<Space>(team, kept);
    rows.for_each(team.league_rank(), in, {}, [&](TileIndex const& at, Ahead const& next, Ahead const&) {
      one_row(rows.row(in, at), rows.row(out, at), room, next);
    });
  }

 private:
  void one_row(char const* x, char* y, float* room, Ahead const& next) const {
    std::int64_t const columns = rows.grid.columns;
    bool const keeps = !log && columns <= kept;
    float const top = largest_reference(scale * rows.loops->largest(x, columns, {}));
    float const total = rows.loops->exponentials(x, columns, scale, top, keeps ? room : nullptr, next);
    if (log) return rows.loops->shifted(x, columns, scale, top, total == 0 ? 0 : std::log(total), y, out.streamed, {});
    float const factor = total == 0 ? 0 : 1 / total;
    if (keeps) return rows.loops->scaled(room, columns, factor, 0, y, out.streamed, {});
    for (std::int64_t i = 0; i < columns; i += kept) {
      std::int64_t const here = std::min(kept, columns - i);
      rows.loops->exponentials(x + i * rows.size, here, scale, top, room, {});
      rows.loops->scaled(room, here, factor, 0, y + i * rows.size, out.streamed, {});
    }
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_softmax(Exec const& exec, SoftmaxProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  if constexpr (OwnRowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.out);
    auto const scale = static_cast<float>(problem.scale);
    if (rows.loops == nullptr || !(scale > 0 && scale < HUGE_VALF)) return false;
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnSoftmax<Space> kernel{rows,        as_operand(problem.out), as_operand(problem.in), scale,
                             problem.log, kept_of(grid.columns)};
    kernel.out.streamed = may_stream(problem.out, grid, problem.in);
    launch_own_rows(problem.label, exec, kernel, kernel.scratch());
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
