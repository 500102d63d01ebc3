// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_HPP

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/softmax.hpp>

namespace tessera::detail {

/// e^x; the two roundings of its argument put 2 |x| u into the result.
KOKKOS_FORCEINLINE_FUNCTION float packed_exponential(float x) { return Kokkos::exp2(x * 1.44269504088896341f); }

/// What exponents are relative to: the maximum, or 0 where there is nothing but -Inf and NaN, whose exponentials are
/// then 0 and NaN.
KOKKOS_FORCEINLINE_FUNCTION float reference_of(float top) {
  return top == -Kokkos::Experimental::infinity_v<float> ? 0.0f : top;
}

/// e^x for x <= 0, 0 below 2^-126: such a weight is nothing beside that of the maximum.
KOKKOS_FORCEINLINE_FUNCTION float exponential_below(float x) {
  KOKKOS_IF_ON_HOST((return exp_below(x);))
  KOKKOS_IF_ON_DEVICE((return exp2_approximate(x * 1.44269504088896341f);))
}

/// The maximum of some elements of a row and the sum of their exponentials relative to reference_of(it).
struct SoftmaxPart {
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0;
};

/// One maximum, then every part relative to it: parts of other warps are read once.
template <class Exec, class T, class Shape>
struct PackedSoftmax {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;

  PackedGrid grid;
  Operand out, in;
  float scale;
  bool log;
  T rest;  // what lies beyond a row; scaled it is -Inf

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const row(grid, team.league_rank());
    Raw raw;
    row.load(in, raw, rest);
    if (log)
      log_of_row(row, raw);
    else
      one_row(row, raw);
  }

  /// x = scale * raw, and the maximum over the lanes of a warp.
  KOKKOS_FORCEINLINE_FUNCTION float top_of(Raw const& raw, Values& x) const {
    float top = lowest;
    unroll<Row::parts>([&](auto k) {
      x[k] = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < x[k].size; ++j) {
        x[k][j] *= scale;
        top = larger(top, x[k][j]);
      }
    });
    return Row::join(top, [](float a, float b) { return larger(a, b); });
  }

  /// The row's maximum and sum from those of its warps.
  KOKKOS_FORCEINLINE_FUNCTION static SoftmaxPart whole(SoftmaxPart part) {
    if constexpr (Shape::warps == 1) {
      return part;
    } else {
      part = Row::template of_warp<PackedSoftmax>(part);
      float const top = Row::join_parts(part.top, [](float a, float b) { return larger(a, b); });
      return {top, Row::join_parts(part.sum * packed_exponential(part.top - reference_of(top)), Add{})};
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Raw const& raw) const {
    Values x;
    float const top = top_of(raw, x), relative_to = reference_of(top);
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      for (int j = 0; j < x[k].size; ++j) {
        x[k][j] = packed_exponential(x[k][j] - relative_to);
        sum += x[k][j];
      }
    });
    SoftmaxPart const all = whole({top, Row::join(sum, Add{})});
    float factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
    if constexpr (Shape::warps > 1) factor *= packed_exponential(top - reference_of(all.top));
    write(row, x, [&](float e) { return e * factor; });
  }

  KOKKOS_FORCEINLINE_FUNCTION void log_of_row(Row const& row, Raw const& raw) const {
    Values x;
    float const top = top_of(raw, x), relative_to = reference_of(top);
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      for (int j = 0; j < x[k].size; ++j) sum += packed_exponential(x[k][j] - relative_to);
    });
    SoftmaxPart const all = whole({top, Row::join(sum, Add{})});
    float const to = reference_of(all.top), denominator = all.sum == 0 ? 0.0f : Kokkos::log(all.sum);
    write(row, x, [&](float value) { return value - to - denominator; });
  }

  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void write(Row const& row, Values& x, F const& f) const {
    Row::Outputs::visit(out.type, [&](auto tag) {
      row.template store<typename decltype(tag)::type>(out, [&](auto k) {
        for (int j = 0; j < x[k].size; ++j) x[k][j] = f(x[k][j]);
        return x[k];
      });
    });
  }
};

}  // namespace tessera::detail

#endif
