// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_BACKWARD_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_BACKWARD_HPP

#include <cstdint>

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

/// What is done with a row that its threads hold in registers: one exchange between them.
template <class Row, class Shape>
struct SoftmaxGradientOfRow {
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;

  float scale, outer;  // of the scores, and of their gradients: 0 for a single column, of which rounding would be left
  bool log, from_output;

  /// store(f) stores f(k) for every part k of the row.
  template <class Store>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(Row const& row, Raw const& raw, Raw const& gradient,
                                              Store const& store) const {
    if (from_output)
      log ? from_weights<true>(row, raw, gradient, store) : from_weights<false>(row, raw, gradient, store);
    else
      log ? from_scores<true>(row, raw, gradient, store) : from_scores<false>(row, raw, gradient, store);
  }

 private:
  template <bool Log, class Store>
  KOKKOS_FORCEINLINE_FUNCTION void from_weights(Row const&, Raw raw, Raw gradient, Store const& store) const {
    typename RowExponentials<Row>::Exponential const exponential(1.0f);
    auto const weigh = [&](auto k) {
      auto e = Row::Atoms::widened(raw[k]);
      if constexpr (Log)
        for (int j = 0; j < e.size; ++j) e[j] = exponential(e[j], exponential.none());
      return e;
    };
    SoftmaxGradientPart all{0, 1, gradient_of<Log>(gradient, weigh)};
    if constexpr (Shape::warps > 1)
      all.gradient = Row::join_parts(Row::template of_warp<SoftmaxGradientOfRow>(all.gradient), Add{});
    if constexpr (Shape::packs > 7)  // as values, of which there is no room for so many, they would be kept
      unroll<Shape::packs>([&](auto k) {
        Row::Atoms::renew(raw[k]);
        Row::Atoms::renew(gradient[k]);
      });
    write<Log>(store, SoftmaxSlope(all, 1.0f, outer, Log), gradient, weigh);
  }

  template <bool Log, class Store>
  KOKKOS_FORCEINLINE_FUNCTION void from_scores(Row const&, Raw const& raw, Raw const& gradient,
                                               Store const& store) const {
    typename RowExponentials<Row>::Exponential const exponential(scale);
    RowExponentials<Row> const exponentials(exponential, raw);
    Values e;
    SoftmaxGradientPart all{exponentials.top, exponentials(raw, e), 0};
    auto const kept = [&](auto k) { return e[k]; };
    all.gradient = gradient_of<Log>(gradient, kept);
    float relative = 1;
    if constexpr (Shape::warps > 1) {
      auto const part = Row::template of_warp<SoftmaxGradientOfRow>(all);
      auto const each = [&](auto const& f, auto const& x) TESSERA_INLINE_LAMBDA { return Row::join_parts(x(part), f); };
      typename RowExponentials<Row>::Reference to;
      all = joined_exponentials<SoftmaxGradientPart>(exponential, each, to);
      all.gradient = each(Add{}, [&](auto const& x) TESSERA_INLINE_LAMBDA {
        return Log ? x.gradient : x.gradient * exponential.change(x.top, to);
      });
      relative = exponentials.change(to);
    }
    write<Log>(store, SoftmaxSlope(all, relative, outer, Log), gradient, kept);
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

  template <bool Log, class Store, class Weight>
  KOKKOS_FORCEINLINE_FUNCTION void write(Store const& store, SoftmaxSlope const& slope, Raw const& gradient,
                                         Weight const& weight) const {
    store([&](auto k) {
      auto x = weight(k);
      slope.template apply<Log>(x, Row::Atoms::widened(gradient[k]));
      return x;
    });
  }
};

/// Rows of any layout.
template <class Exec, class T, class Shape>
struct PackedSoftmaxBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand d_in, d_out, in;
  SoftmaxGradientOfRow<Row, Shape> of_row;
  T rest;  // what lies beyond a row: its weight is 0

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Row const row(grid, team.league_rank());
    Raw raw, gradient;
    row.load(in, raw, rest);
    row.load(d_out, gradient, T(0.0f));
    of_row(row, raw, gradient, [&](auto const& part) { row.template store<T>(d_in, part); });
  }
};

/// Few rows of whole packs in one matrix, a team each, which take two or three microseconds: every multiprocessor
/// fetches the parameters anew, of which there are few.
template <class Exec, class T, class Shape>
struct FewRowsSoftmaxBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  static constexpr bool starts_early = true;

  T const *in, *d_out;
  T* d_in;
  int in_row, d_out_row, d_in_row, packs;
  SoftmaxGradientOfRow<Row, Shape> of_row;
  T rest;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const at = team.league_rank();
    Row const row(Row::Atoms::thread(), packs);
    Raw raw, gradient;
    wait_for_kernels_before<Exec>();
    row.load(in + std::int64_t{at} * in_row, raw, rest);
    row.load(d_out + std::int64_t{at} * d_out_row, gradient, T(0.0f));
    T* const to = d_in + std::int64_t{at} * d_in_row;
    of_row(row, raw, gradient, [&](auto const& part) { row.store(to, part); });
  }
};

/// Starts it where rows are few. Whether it has.
template <class Exec, class T>
bool start_few_rows_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem, PackedGrid const& rows,
                                     float scale, float outer, T rest) {
  for (RowArray const* a : {&problem.in, &problem.d_out, &problem.d_in})
    if (!has_short_steps(*a)) return false;
  auto const data = [](RowArray const& a) { return static_cast<T*>(const_cast<void*>(a.data)); };
  return launch_few_rows(problem.label, exec, rows, [&](auto shape) {
    return FewRowsSoftmaxBackward<KernelSpace<Exec>, T, decltype(shape)>{
        data(problem.in),
        data(problem.d_out),
        data(problem.d_in),
        static_cast<int>(problem.in.stride[2]),
        static_cast<int>(problem.d_out.stride[2]),
        static_cast<int>(problem.d_in.stride[2]),
        rows.packs,
        {scale, outer, problem.log, problem.from_output},
        rest};
  });
}

}  // namespace tessera::detail

#endif
