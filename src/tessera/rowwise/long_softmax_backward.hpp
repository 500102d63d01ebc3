// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_LONG_SOFTMAX_BACKWARD_HPP

#include <type_traits>

#include <tessera/rowwise/long_rows.hpp>
#include <tessera/rowwise/mailed_pairs.hpp>
#include <tessera/rowwise/packed_softmax_backward.hpp>

namespace tessera::detail {

/// The gradient of softmax for long rows, weights relative to the maximum so far. `Log` and `FromOutput` are bool, or
/// constants, for a shorter text.
template <class Rows, class Log = bool, class FromOutput = bool>
struct LongSoftmaxBackward {
  using Exec = typename Rows::Space;
  using T = typename Rows::Element;
  using State = RelativeState<SoftmaxGradientPart>;
  using Values = typename Rows::Values;
  static constexpr int width = Rows::width;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand d_in, d_out, in;
  float scale;
  Log log;
  FromOutput from_output;
  T rest;  // what lies beyond a row: its weight is 0
  RowStream stream = {};

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<LongSoftmaxBackward>(stream);
    wait_for_kernels_before<Exec>();
    RelativeExponential const exponential(scale);
    Rows rows(team, grid, stream, {in, d_out}, {rest, T(0.0f)});
    rows.template each_row<LongSoftmaxBackward>(
        [&] {
          return State{from_output ? SoftmaxGradientPart{0, 1, 0} : SoftmaxGradientPart{}, exponential.none()};
        },
        [&](State& row, auto const& packs) {
          if (from_output)
            add_given(row.part, packs);
          else
            add(row, packs, exponential);
        },
        [&](auto const& each, int) {
          if (from_output) return SoftmaxGradientPart{0, 1, each(Add{}, [](auto const& x) { return x.gradient; })};
          RelativeExponential::Reference to;
          auto all = joined_exponentials<SoftmaxGradientPart>(exponential, each, to);
          all.gradient =
              each(Add{}, [&](auto const& x) { return log ? x.gradient : x.gradient * exponential.change(x.top, to); });
          return all;
        },
        [&](SoftmaxGradientPart const& all, auto const& run) { write_row(rows, all, exponential, run); });
  }

 private:
  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_row(Rows const& rows, SoftmaxGradientPart const& all,
                                             RelativeExponential const& exponential, Run const& run) const {
    SoftmaxSlope const slope(all, 1.0f, scale, log);
    auto const to = exponential.reference(all.top);
    T* const out = rows.data(d_in);
    auto const put = [&](auto const& packs) {
      unroll<batch_of<decltype(packs)>>([&](auto k) {
        Values x = packs.template values<0>(k);
        Values const dy = packs.template values<1>(k);
        weigh(x, to, exponential);
        log ? slope.template apply<true>(x, dy) : slope.template apply<false>(x, dy);
        rows.store(out, packs, k, Rows::Atoms::template narrowed<T>(x));
      });
      rows.store_ends(out, packs);
    };
    run(put, std::true_type{});
  }

  KOKKOS_FORCEINLINE_FUNCTION void weigh(Values& x, RelativeExponential::Reference const& to,
                                         RelativeExponential const& exponential) const {
    if (!from_output) {
      for (int j = 0; j < width; ++j) x[j] = exponential(x[j], to);
    } else if (log) {
      for (int j = 0; j < width; ++j) x[j] = exponential_below(x[j]);
    }
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add_given(SoftmaxGradientPart& part, Packs const& packs) const {
    unroll<batch_of<decltype(packs)>>([&](auto k) {
      Values const x = packs.template values<0>(k), dy = packs.template values<1>(k);
      for (int j = 0; j < width; ++j) part.gradient += log ? dy[j] : x[j] * dy[j];
    });
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(State& row, Packs const& packs, RelativeExponential const& exponential) const {
    Values gradients{};
    float const top = exponential.template top_of<Rows>(row.part.top, packs);
    float const factor = exponential.take(row, top, packs, [&](auto k, Values const& x) {
      Values const dy = packs.template values<1>(k);
      if (log)
        for (int j = 0; j < width; ++j) gradients[j] += dy[j];
      else
        for (int j = 0; j < width; ++j) gradients[j] += x[j] * dy[j];
    });
    float& gradient = row.part.gradient;
    gradient = (log ? gradient : gradient * factor) + sum_of(gradients);
  }
};

/// Packs of the longest rows of scores that are best held by teams, of which a multiprocessor has two, so that it waits
/// where all of them compute: of two of them and a half.
inline constexpr int most_held_scores = 5 * held_threads * held_packs / 2;

/// Starts make(Rows type, log, from_output) over rows that are shared by mail, if there is a way. The loop over rows is
/// unrolled there: with both choices open in it, its text is longer than the caches of instructions.
template <class Exec, class T, class Space, class Make>
bool launch_mailed_softmax_backward(Space const& exec, SoftmaxBackwardProblem const& problem, PackedGrid const& rows,
                                    Make const& make) {
  if (!are_mailed<T>(rows, problem.lent)) return false;
  using Rows = MailedPairs<Exec, T>;
  auto const start = [&](auto log, auto from_output) {
    return launch_mailed_pairs<Rows>(problem.label, exec, make(std::type_identity<Rows>{}, log, from_output),
                                     problem.lent);
  };
  auto const start_of = [&](auto log) {
    return problem.from_output ? start(log, std::true_type{}) : start(log, std::false_type{});
  };
  return problem.log ? start_of(std::true_type{}) : start_of(std::false_type{});
}

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem, TileGrid const& grid) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    if (problem.scale == 0 && !problem.from_output) return false;
    RowInputs<float>::visit_on_host(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      PackedGrid rows(grid, width);
      rows.pass(2, 1);
      bool whole = packed_rows(grid, type);
      for (RowArray const* a : {&problem.in, &problem.d_in, &problem.d_out})
        whole = whole && is_packed_operand(*a, grid, width, type);
      if (!whole && !make_ragged<T>(rows, grid, problem.in, problem.d_in, problem.d_out)) return;
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      Operand const d_in = packed(problem.d_in), d_out = packed(problem.d_out), in = packed(problem.in);
      auto const scale = static_cast<float>(problem.scale),
                 outer = problem.from_output || grid.columns > 1 ? scale : 0.0f;
      T const rest(problem.from_output && !problem.log        ? 0.0f
                   : problem.from_output || problem.scale > 0 ? -HUGE_VALF
                                                              : HUGE_VALF);
      using Space = KernelSpace<Exec>;
      if (start_few_rows_softmax_backward<Exec, T>(exec, problem, rows, scale, outer, rest))
        started = true;
      else if (fits_a_team(rows, longest_team_pair<T>, longest_ragged_pair<T>))
        with_pair_shape<T>(rows, [&](auto shape) {
          using Shape = decltype(shape);
          launch_packed<Shape>(problem.label, exec, rows,
                               PackedSoftmaxBackward<Space, T, Shape>{
                                   rows, d_in, d_out, in, {scale, outer, problem.log, problem.from_output}, rest});
          started = true;
        });
      else {
        auto const make = [&](auto kind, auto log, auto from_output) {
          return LongSoftmaxBackward<typename decltype(kind)::type, decltype(log), decltype(from_output)>{
              rows, d_in, d_out, in, scale, log, from_output, rest};
        };
        started = launch_mailed_softmax_backward<Space, T>(exec, problem, rows, make) ||
                  launch_long<Space, T, 2>(problem.label, exec, rows, problem.lent,
                                           !problem.from_output && rows.packs > most_held_scores,
                                           [&](auto kind) { return make(kind, problem.log, problem.from_output); });
      }
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
