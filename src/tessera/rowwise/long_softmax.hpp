// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_SOFTMAX_HPP
#define TESSERA_ROWWISE_LONG_SOFTMAX_HPP

#include <tessera/rowwise/long_rows.hpp>
#include <tessera/rowwise/packed_softmax.hpp>

namespace tessera::detail {

/// Softmax of long rows: maximum and sum together, pack by pack; exponentials are computed a second time.
template <class Rows>
struct LongSoftmax {
  using Exec = typename Rows::Space;
  using T = typename Rows::Element;
  using State = RelativeState<SoftmaxPart>;
  using Values = typename Rows::Values;
  static constexpr int width = Rows::width;
  static constexpr bool starts_early = true, has_room_for_more = true;

  PackedGrid grid;
  Operand out, in;
  float scale;
  bool log;
  T rest;  // what lies beyond a row; scaled it is -Inf
  RowStream stream = {};

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<LongSoftmax>(stream);
    wait_for_kernels_before<Exec>();
    RelativeExponential const exponential(scale);
    Rows rows(team, grid, stream, {in}, {rest});
    rows.template each_row<LongSoftmax>(
        [&] {
          return State{{}, exponential.none()};
        },
        [&](State& row, auto const& packs) {
          float const top = exponential.template top_of<Rows>(row.part.top, packs);
          exponential.take(row, top, packs, [](auto, Values const&) {});
        },
        [&](auto const& each, int) {
          RelativeExponential::Reference to;
          return joined_exponentials<SoftmaxPart>(exponential, each, to);
        },
        [&](SoftmaxPart const& all, auto const& run) { write_row(rows, all, exponential, run); });
  }

  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_row(Rows const& rows, SoftmaxPart const& all,
                                             RelativeExponential const& exponential, Run const& run) const {
    auto const to = exponential.reference(all.top);
    if (log) {
      float const top = reference_of(scale < 0 ? -all.top : all.top),
                  denominator = all.sum == 0 ? 0.0f : exponential.log_of_sum(all.sum, all.top, to);
      write(rows, run, [&](float x) { return (x - top) * scale - denominator; });
    } else {
      float const factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
      write(rows, run, [&](float x) { return exponential(x, to) * factor; });
    }
  }

  template <class Run, class F>
  KOKKOS_FORCEINLINE_FUNCTION void write(Rows const& rows, Run const& run, F const& f) const {
    LongOutput<Rows> const output(rows, out);
    run(
        [&](auto const& packs) {
          unroll<batch_of<decltype(packs)>>([&](auto k) {
            Values x = packs.template values<0>(k);
            for (int j = 0; j < width; ++j) x[j] = f(x[j]);
            output.store(packs, k, x);
          });
          output.store_ends(packs);
        },
        std::true_type{});
  }
};

/// Packs of the longest rows that are best held by teams, of which a multiprocessor has three: of eight of them.
inline constexpr int most_held_softmax = 8 * held_threads * held_packs;

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_softmax(Exec const& exec, SoftmaxProblem const& problem, TileGrid const& grid) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    if (problem.scale == 0) return false;
    RowInputs<float>::visit_on_host(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      PackedGrid rows(grid, width);
      rows.pass(1, 1);
      bool const whole = packed_rows(grid, type) && is_packed_operand(problem.in, grid, width, type) &&
                         is_packed_output<T>(problem.out, grid);
      if (!whole && !make_ragged<T>(rows, grid, problem.in, problem.out)) return;
      Operand const out = operand(problem.out, grid, width, true), in = operand(problem.in, grid, width, true);
      auto const scale = static_cast<float>(problem.scale);
      T const rest(problem.scale < 0 ? HUGE_VALF : -HUGE_VALF);
      using Space = KernelSpace<Exec>;
      if (start_few_rows_softmax<Exec, T>(exec, problem, rows, rest))
        started = true;
      else if (!fits_a_team(rows, longest_team_row<T>, longest_ragged_team_row<T>))
        started = launch_long<Space, T, 1>(
            problem.label, exec, rows, problem.lent, rows.packs > most_held_softmax, [&](auto kind) {
              return LongSoftmax<typename decltype(kind)::type>{rows, out, in, scale, problem.log, rest};
            });
      else
        with_packed_shape<T>(rows, [&](auto shape) {
          using Shape = decltype(shape);
          launch_packed<Shape>(problem.label, exec, rows,
                               PackedSoftmax<Space, T, Shape>{rows, out, in, {scale}, problem.log, rest});
          started = true;
        });
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
