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

/// A row's parts as one: join(x, f) is f over the x of all of them.
struct JoinSoftmaxGradient {
  bool log;
  template <class Join>
  KOKKOS_FORCEINLINE_FUNCTION SoftmaxGradientPart operator()(SoftmaxGradientPart x, Join const& join) const {
    float const top = join(x.top, [](float a, float b) { return larger(a, b); });
    float const factor = packed_exponential(x.top - reference_of(top));
    return {top, join(x.sum * factor, Add{}), join(log ? x.gradient : x.gradient * factor, Add{})};
  }
};

/// What is left to do when a row's sums are known: d_in = slope (e, dy) of each weight e relative to `top`.
struct SoftmaxSlope {
  float factor, offset;
  bool log;

  /// `relative` turns the weights at hand into those that the sums are about.
  KOKKOS_FORCEINLINE_FUNCTION SoftmaxSlope(SoftmaxGradientPart const& all, float relative, float scale, bool is_log)
      : log(is_log) {
    bool const masked = all.sum == 0;
    float const normal = masked ? 0.0f : 1.0f / all.sum;
    factor = log ? (masked ? 0.0f : scale) : scale * normal * relative;
    offset = log ? all.gradient * normal * relative : all.gradient * normal;
  }
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float e, float dy) const {
    return log ? factor * (dy - e * offset) : factor * e * (dy - offset);
  }
};

/// Rows that their threads hold in registers: one exchange between them.
template <class Exec, class T, class Shape>
struct PackedSoftmaxBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;

  PackedGrid grid;
  Operand d_in, d_out, in;
  float scale;
  bool log, from_output;
  T rest;  // what lies beyond a row: its weight is 0

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const row(grid, team.league_rank());
    Raw raw, gradient;
    row.load(in, raw, rest);
    row.load(d_out, gradient, T(0.0f));
    Values e;
    SoftmaxGradientPart own{0, 1, 0};
    if (from_output)
      weights_given(raw, e);
    else
      weights(raw, e, own);
    own.gradient = 0;
    unroll<Row::parts>([&](auto k) {
      auto const dy = Row::Atoms::widened(gradient[k]);
      for (int j = 0; j < dy.size; ++j) own.gradient += log ? dy[j] : e[k][j] * dy[j];
    });
    own.gradient = Row::join(own.gradient, Add{});
    SoftmaxGradientPart const all = whole(own);
    float const relative =
        Shape::warps > 1 && !from_output ? packed_exponential(own.top - reference_of(all.top)) : 1.0f;
    SoftmaxSlope const slope(all, relative, scale, log);
    row.template store<T>(d_in, [&](auto k) {
      auto const dy = Row::Atoms::widened(gradient[k]);
      for (int j = 0; j < dy.size; ++j) e[k][j] = slope(e[k][j], dy[j]);
      return e[k];
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION void weights_given(Raw const& raw, Values& e) const {
    unroll<Row::parts>([&](auto k) {
      e[k] = Row::Atoms::widened(raw[k]);
      if (log)
        for (int j = 0; j < e[k].size; ++j) e[k][j] = packed_exponential(e[k][j]);
    });
  }

  /// Relative to the maximum over the lanes of a warp.
  KOKKOS_FORCEINLINE_FUNCTION void weights(Raw const& raw, Values& e, SoftmaxGradientPart& own) const {
    float top = lowest;
    unroll<Row::parts>([&](auto k) {
      e[k] = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < e[k].size; ++j) {
        e[k][j] *= scale;
        top = larger(top, e[k][j]);
      }
    });
    own.top = Row::join(top, [](float a, float b) { return larger(a, b); });
    float const relative_to = reference_of(own.top);
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      for (int j = 0; j < e[k].size; ++j) {
        e[k][j] = packed_exponential(e[k][j] - relative_to);
        sum += e[k][j];
      }
    });
    own.sum = Row::join(sum, Add{});
  }

  KOKKOS_FORCEINLINE_FUNCTION SoftmaxGradientPart whole(SoftmaxGradientPart part) const {
    if constexpr (Shape::warps == 1) {
      return part;
    } else {
      part = Row::template of_warp<PackedSoftmaxBackward>(part);
      if (from_output) return {0, 1, Row::join_parts(part.gradient, Add{})};
      return JoinSoftmaxGradient{log}(part, [](float x, auto const& f) { return Row::join_parts(x, f); });
    }
  }
};

}  // namespace tessera::detail

#endif
