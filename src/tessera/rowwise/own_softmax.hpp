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

  std::size_t scratch() const {
    return log ? 0 : static_cast<std::size_t>(Rows::Atoms::room(kept)) * sizeof(float) + line_of_memory;
  }

  void operator()(TeamMember<Space> const& team) const {
    float* room = nullptr;
    if (!log)
      room = static_cast<float*>(team.team_scratch(0).get_shmem_aligned(scratch() - line_of_memory, line_of_memory));
    rows.for_each(team.league_rank(), in, [&](TileIndex const& at, Ahead const& next) {
      one_row(rows.row(in, at), rows.row(out, at), room, next);
    });
  }

 private:
  void one_row(char const* x, char* y, float* room, Ahead const& next) const {
    std::int64_t const columns = rows.grid.columns;
    bool const keeps = !log && columns <= kept;
    float const top = reference(scale * rows.loops->largest(x, columns, {}));
    float const total = rows.loops->exponentials(x, columns, scale, top, keeps ? room : nullptr, next);
    if (log) return rows.loops->shifted(x, columns, scale, top, total == 0 ? 0 : std::log(total), y, out.streamed, {});
    float const factor = total == 0 ? 0 : 1 / total;
    if (keeps) return rows.loops->scaled(room, columns, factor, y, out.streamed, {});
    for (std::int64_t i = 0; i < columns; i += kept) {
      std::int64_t const here = std::min(kept, columns - i);
      rows.loops->exponentials(x + i * rows.size, here, scale, top, room, {});
      rows.loops->scaled(room, here, factor, y + i * rows.size, out.streamed, {});
    }
  }

  /// What exponents are relative to: the maximum; 0 where there is nothing but -Inf and NaN, whose exponentials are
  /// then 0 and NaN; NaN, as all results then are, where that is Inf.
  static float reference(float top) {
    if (top == -HUGE_VALF) return 0;
    return top == HUGE_VALF ? NAN : top;
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_softmax(Exec const& exec, SoftmaxProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  if constexpr (RowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.in.type, problem.in, problem.out);
    auto const scale = static_cast<float>(problem.scale);
    if (rows.loops == nullptr || !(scale > 0 && scale < HUGE_VALF)) return false;
    constexpr std::int64_t room = 32768, part = 4096;  // 128 KB beside the row in a second-level cache, or 16 KB
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnSoftmax<Space> kernel{rows,
                             as_operand(problem.out),
                             as_operand(problem.in),
                             scale,
                             problem.log,
                             grid.columns <= room ? grid.columns : part};
    kernel.out.streamed = may_stream(problem.out, grid, problem.in);
    launch_own_rows(problem.label, exec, kernel, kernel.scratch());
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
