// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_OWN_CROSS_ENTROPY_HPP

#include <algorithm>
#include <cmath>
#include <cstring>

#include <tessera/cross_entropy.hpp>
#include <tessera/elementary.hpp>
#include <tessera/rowwise/labels.hpp>
#include <tessera/rowwise/own_rows.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>

namespace tessera::detail {

/// Loss and gradient of a thread's own rows. The exponentials of a row are kept where there is room; of a longer one
/// they are found again, a part after the other.
template <class Space>
struct OwnCrossEntropy {
  using Rows = OwnRows<Space>;
  using Ahead = typename Rows::Ahead;
  Rows rows;
  Operand logits, loss, d_logits, log_sum;
  LossTargets<float> targets;
  float smoothing, each;  // the part that is spread, and what of it a class gets
  std::int64_t kept;      // elements that there is room for

  std::size_t scratch() const { return room_bytes<Space>(kept); }

  void operator()(TeamMember<Space> const& team) const {
    float* const room = room_of<Space>(team, kept);
    rows.for_each(team.league_rank(), logits, {},
                  [&](TileIndex const& at, Ahead const& next, Ahead const&) { one_row(at, room, next); });
  }

 private:
  void one_row(TileIndex const& at, float* room, Ahead const& next) const {
    std::int64_t const columns = rows.grid.columns;
    bool const keeps = d_logits.present() && columns <= kept;
    char const* const x = rows.row(logits, at);
    LossTarget<float> const target = targets.read(targets.place.value_offset(at), targets.d_loss.value_offset(at));
    float const logit = target.counts() ? element(x, target.label) : 0;  // before a gradient lies there
    float top = rows.loops->largest(x, columns, {});
    if (top == -HUGE_VALF) top = 0;  // nothing but -Inf and NaN: the exponentials are 0 and NaN
    float const sum = rows.loops->exponentials_below(x, columns, top, keeps ? room : nullptr, next);
    float const total = smoothing != 0 ? rows.loops->sum(x, columns, {}) : 0;
    float const whole = top + std::log(sum);
    if (log_sum.present()) value_of(log_sum, at) = whole;
    if (loss.present()) value_of(loss, at) = loss_of(target, whole, logit, total, smoothing, each);
    if (!d_logits.present()) return;
    char* const y = rows.row(d_logits, at);
    if (!target.counts()) {
      std::memset(y, 0, static_cast<std::size_t>(columns * rows.size));
      return;
    }
    float const factor = target.gradient / sum, less = target.gradient * each;
    if (keeps)
      rows.loops->scaled(room, columns, factor, less, y, d_logits.streamed, {});
    else
      by_parts(x, y, room, top, factor, less);
    RowInputs<float>::visit(logits.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      float const others = exp_below(logit - top) * factor - less;
      reinterpret_cast<T*>(y)[target.label] = stored<T>(others - target.gradient * (1 - smoothing));
    });
  }
  void by_parts(char const* x, char* y, float* room, float top, float factor, float less) const {
    for (std::int64_t i = 0; i < rows.grid.columns; i += kept) {
      std::int64_t const here = std::min(kept, rows.grid.columns - i);
      rows.loops->exponentials_below(x + i * rows.size, here, top, room, {});
      rows.loops->scaled(room, here, factor, less, y + i * rows.size, d_logits.streamed, {});
    }
  }

  float element(char const* x, std::int64_t column) const {
    float value = 0;
    RowInputs<float>::visit(logits.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      value = static_cast<float>(reinterpret_cast<T const*>(x)[column]);
    });
    return value;
  }
};

/// Whether the problem was one of a thread's own rows, and has been started.
template <class Exec>
bool start_own_cross_entropy(Exec const& exec, CrossEntropyProblem const& problem, TileGrid const& grid,
                             LossTargets<float> const& targets) {
  using Space = KernelSpace<Exec>;
  if constexpr (OwnRowAtoms<Space>::available) {
    auto const rows = own_rows<Space>(exec, grid, problem.logits.type, problem.logits, problem.d_logits);
    if (rows.loops == nullptr) return false;
    auto const as_operand = [&](RowArray const& a) { return operand(a, grid, 1, false); };
    OwnCrossEntropy<Space> kernel{rows,
                                  as_operand(problem.logits),
                                  as_operand(problem.loss),
                                  as_operand(problem.d_logits),
                                  as_operand(problem.log_sum),
                                  targets,
                                  static_cast<float>(problem.smoothing),
                                  static_cast<float>(problem.smoothing / static_cast<double>(grid.columns)),
                                  kept_of(grid.columns)};
    if (problem.d_logits.present()) kernel.d_logits.streamed = may_stream(problem.d_logits, grid, problem.logits);
    launch_own_rows("tessera::cross_entropy", exec, kernel, kernel.scratch());
    return true;
  }
  return false;
}

}  // namespace tessera::detail

#endif
