// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_BACKWARD_HPP

#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/packed_softmax.hpp>
#include <tessera/softmax_backward.hpp>

namespace tessera::detail {

/// Of some elements of a row: their maximum, the sum of their weights relative to reference_of(it), and the sum of
/// weight times gradient (of the gradients alone, for the logarithm).
struct SoftmaxGradientPart {
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0, gradient = 0;
};

/// What is left to do when a row's sums are known: from a weight e and a gradient dy e (factor dy - less), or for the
/// logarithm factor dy - less e.
struct SoftmaxSlope {
  float factor, less;

  /// `relative` turns the weights at hand into those that the sums are about.
  KOKKOS_FORCEINLINE_FUNCTION SoftmaxSlope(SoftmaxGradientPart const& all, float relative, float scale, bool log) {
    bool const masked = all.sum == 0;
    float const normal = masked ? 0.0f : 1.0f / all.sum;
    factor = log ? (masked ? 0.0f : scale) : scale * normal * relative;
    less = factor * all.gradient * (log ? normal * relative : normal);
  }
  template <bool Log, int N>
  KOKKOS_FORCEINLINE_FUNCTION void apply(Pack<float, N>& e, Pack<float, N> const& dy) const {
    for (int j = 0; j < N; ++j) e[j] = Log ? factor * dy[j] - e[j] * less : e[j] * (factor * dy[j] - less);
  }
};

/// Rows that their threads hold in registers: one exchange between them.
template <class Exec, class T, class Shape>
struct PackedSoftmaxBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;

  PackedGrid grid;
  Operand d_in, d_out, in;
  float scale, outer;  // of the scores, and of their gradients: 0 for a single column, of which rounding would be left
  bool log, from_output;
  T rest;  // what lies beyond a row: its weight is 0

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const row(grid, team.league_rank());
    Raw raw, gradient;
    row.load(in, raw, rest);
    row.load(d_out, gradient, T(0.0f));
    if (from_output)
      log ? from_weights<true>(row, raw, gradient) : from_weights<false>(row, raw, gradient);
    else
      log ? from_scores<true>(row, raw, gradient) : from_scores<false>(row, raw, gradient);
  }

 private:
  template <bool Log>
  KOKKOS_FORCEINLINE_FUNCTION void from_weights(Row const& row, Raw const& raw, Raw const& gradient) const {
    typename RowExponentials<Row>::Exponential const exponential(1.0f);
    auto const weigh = [&](auto k) {
      auto e = Row::Atoms::widened(raw[k]);
      if constexpr (Log)
        for (int j = 0; j < e.size; ++j) e[j] = exponential(e[j], exponential.none());
      return e;
    };
    SoftmaxGradientPart all{0, 1, gradient_of<Log>(gradient, weigh)};
    if constexpr (Shape::warps > 1)
      all.gradient = Row::join_parts(Row::template of_warp<PackedSoftmaxBackward>(all.gradient), Add{});
    write<Log>(row, SoftmaxSlope(all, 1.0f, outer, Log), gradient, weigh);
  }

  template <bool Log>
  KOKKOS_FORCEINLINE_FUNCTION void from_scores(Row const& row, Raw const& raw, Raw const& gradient) const {
    typename RowExponentials<Row>::Exponential const exponential(scale);
    RowExponentials<Row> const exponentials(exponential, raw);
    Values e;
    SoftmaxGradientPart all{exponentials.top, exponentials(raw, e), 0};
    auto const kept = [&](auto k) { return e[k]; };
    all.gradient = gradient_of<Log>(gradient, kept);
    float relative = 1;
    if constexpr (Shape::warps > 1) {
      auto const part = Row::template of_warp<PackedSoftmaxBackward>(all);
      auto const each = [&](auto const& f, auto const& x) TESSERA_INLINE_LAMBDA { return Row::join_parts(x(part), f); };
      typename RowExponentials<Row>::Reference to;
      all = joined_exponentials<SoftmaxGradientPart>(exponential, each, to);
      all.gradient = each(Add{}, [&](auto const& x) TESSERA_INLINE_LAMBDA {
        return Log ? x.gradient : x.gradient * exponential.change(x.top, to);
      });
      relative = exponentials.change(to);
    }
    write<Log>(row, SoftmaxSlope(all, relative, outer, Log), gradient, kept);
  }

  /// Over the lanes of a warp.
  template <bool Log, class Weight>
  KOKKOS_FORCEINLINE_FUNCTION static float gradient_of(Raw const& gradient, Weight const& weight) {
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      auto dy = Row::Atoms::widened(gradient[k]);
      if constexpr (!Log) {
        auto const e = weight(k);
        for (int j = 0; j < dy.size; ++j) dy[j] *= e[j];
      }
      sum += sum_of(dy);
    });
    return Row::join(sum, Add{});
  }

  template <bool Log, class Weight>
  KOKKOS_FORCEINLINE_FUNCTION void write(Row const& row, SoftmaxSlope const& slope, Raw const& gradient,
                                         Weight const& weight) const {
    row.template store<T>(d_in, [&](auto k) {
      auto x = weight(k);
      slope.template apply<Log>(x, Row::Atoms::widened(gradient[k]));
      return x;
    });
  }
};

}  // namespace tessera::detail

#endif
