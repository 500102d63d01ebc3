// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_HPP

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/relative_exponential.hpp>
#include <tessera/softmax.hpp>

namespace tessera::detail {

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

/// The packs that a thread holds of a row, as RelativeExponential takes them.
template <class Row>
struct PacksInRegisters {
  static constexpr int batch = Row::packs;
  typename Row::RawParts const& parts;

  template <int, class K>
  KOKKOS_FORCEINLINE_FUNCTION auto const& raw(K k) const {
    return parts[k];
  }
};

/// The exponentials of a row that its threads hold, relative to the largest of a warp. Of 16-bit rows those below
/// 2^-126, where bf16 has no normal numbers and fp16 none at all, are 0.
template <class Row>
struct RowExponentials {
  using Exponential = std::conditional_t<Row::width == packed_width<float>, DifferenceExponential, RelativeExponential>;
  using Reference = typename Exponential::Reference;
  Exponential const& exponential;
  float top;
  Reference to;

  KOKKOS_FORCEINLINE_FUNCTION RowExponentials(Exponential const& of_scale, typename Row::RawParts const& raw)
      : exponential(of_scale), top(-Kokkos::Experimental::infinity_v<float>) {
    top = exponential.template top_of<Row>(top, PacksInRegisters<Row>{raw});
    unroll<Row::parts - Row::packs>([&](auto single) {
      float const x = Row::Atoms::widened(raw[Constant<Row::packs + decltype(single)::value>{}])[0];
      top = larger(top, exponential.factor < 0 ? -x : x);
    });
    top = Row::join(top, Larger{});
    to = exponential.reference(top);
  }
  /// Those of a part.
  template <int N, class T>
  KOKKOS_FORCEINLINE_FUNCTION Pack<float, N> operator()(Pack<T, N> const& raw) const {
    Pack<float, N> x = Row::Atoms::widened(raw);
    for (int j = 0; j < N; ++j) x[j] = exponential(x[j], to);
    return x;
  }
  /// Those of a row, and their sum over the lanes of a warp.
  KOKKOS_FORCEINLINE_FUNCTION float operator()(typename Row::RawParts const& raw, typename Row::ValueParts& e) const {
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      e[k] = (*this)(raw[k]);
      sum += sum_of(e[k]);
    });
    return Row::join(sum, Add{});
  }
  /// What they are to be multiplied by to be relative to the largest of the row.
  KOKKOS_FORCEINLINE_FUNCTION float change(Reference const& to_row) const {
    return exponential.change(top, to, to_row);
  }
};

/// One maximum, then every part relative to it: parts of other warps are read once.
template <class Exec, class T, class Shape>
struct PackedSoftmax {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;

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

  /// The row's maximum and sum from those of its warps, and what the sum is relative to.
  KOKKOS_FORCEINLINE_FUNCTION static SoftmaxPart whole(typename RowExponentials<Row>::Exponential const& exponential,
                                                       SoftmaxPart part, typename RowExponentials<Row>::Reference& to) {
    if constexpr (Shape::warps == 1) {
      return part;
    } else {
      part = Row::template of_warp<PackedSoftmax>(part);
      auto const each = [&](auto const& f, auto const& x) TESSERA_INLINE_LAMBDA { return Row::join_parts(x(part), f); };
      return joined_exponentials<SoftmaxPart>(exponential, each, to);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Raw const& raw) const {
    typename RowExponentials<Row>::Exponential const exponential(scale);
    RowExponentials<Row> const exponentials(exponential, raw);
    Values e;
    auto to = exponentials.to;
    SoftmaxPart const of_warp{exponentials.top, exponentials(raw, e)}, all = whole(exponential, of_warp, to);
    float factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
    if constexpr (Shape::warps > 1) factor *= exponentials.change(to);
    write(row, [&](auto k) {
      auto x = e[k];
      for (int j = 0; j < x.size; ++j) x[j] *= factor;
      return x;
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION void log_of_row(Row const& row, Raw const& raw) const {
    typename RowExponentials<Row>::Exponential const exponential(scale);
    RowExponentials<Row> const exponentials(exponential, raw);
    float sum = 0;
    unroll<Row::parts>([&](auto k) { sum += sum_of(exponentials(raw[k])); });
    auto to = exponentials.to;
    SoftmaxPart const of_warp{exponentials.top, Row::join(sum, Add{})}, all = whole(exponential, of_warp, to);
    float const top = reference_of(scale < 0 ? -all.top : all.top),
                denominator = all.sum == 0 ? 0.0f : exponential.log_of_sum(all.sum, all.top, to);
    write(row, [&](auto k) {
      auto x = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < x.size; ++j) x[j] = (x[j] - top) * scale - denominator;
      return x;
    });
  }

  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION void write(Row const& row, Value const& value) const {
    Row::Outputs::visit(out.type, [&](auto tag) { row.template store<typename decltype(tag)::type>(out, value); });
  }
};

}  // namespace tessera::detail

#endif
