// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_HPP

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/streamed_rows.hpp>
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

/// e^(s x) relative to e^(s top), 0 below 2^-126.
struct RelativeExponential {
  float factor;   // log2(e) |s|
  bool negative;  // s: x and top are those of -x

  KOKKOS_FORCEINLINE_FUNCTION explicit RelativeExponential(float scale)
      : factor(1.44269504088896341f * (scale < 0 ? -scale : scale)), negative(scale < 0) {}

  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void turn(Pack<float, N>& x) const {
    if (negative)
      for (int j = 0; j < N; ++j) x[j] = -x[j];
  }
  /// `to` is reference_of(top). The difference comes first: the product of x alone could overflow.
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float x, float to) const {
    float const exponent = (x - to) * factor;
    KOKKOS_IF_ON_HOST((return exponent < -126 ? 0.0f : Kokkos::exp2(exponent);))
    KOKKOS_IF_ON_DEVICE((return exp2_approximate(exponent);))
  }
};

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

/// The same for long rows: maximum and sum together, pack by pack; exponentials are computed a second time.
template <class Exec, class T, bool Ragged>
struct StreamedSoftmax {
  using Rows = StreamedRows<Exec, T, 1, Ragged>;
  using Values = typename Rows::Values;
  static constexpr int width = Rows::width;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in;
  float scale;
  bool log;
  T rest;  // what lies beyond a row; scaled it is -Inf
  RowStream stream = {};

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<StreamedSoftmax>(stream);
    wait_for_kernels_before<Exec>();
    RelativeExponential const exponential(scale);
    Rows rows(team, grid, stream, {in}, {rest});
    rows.template each_row<StreamedSoftmax>(
        [&] {
          SoftmaxPart part;
          rows.arriving(true, [&](auto const& packs) { add(part, packs, exponential); });
          return part;
        },
        [&](SoftmaxPart x, auto const& join, int) {
          float const top = join(x.top, [](float a, float b) { return larger(a, b); });
          return SoftmaxPart{top, join(x.sum * exponential(x.top, reference_of(top)), Add{})};
        },
        [&](SoftmaxPart const& all) { write_row(rows, all, exponential); });
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(SoftmaxPart& part, Packs const& packs,
                                       RelativeExponential const& exponential) const {
    Values x[Rows::batch];
    float top = part.top, sum = 0;
    unroll<Rows::batch>([&](auto k) {
      x[k] = Rows::Atoms::widened(packs.raw[0][k]);
      exponential.turn(x[k]);
      top = larger(top, largest(x[k]));
    });
    float const to = reference_of(top);
    unroll<Rows::batch>([&](auto k) {
      for (int j = 0; j < width; ++j) x[k][j] = exponential(x[k][j], to);
      sum += sum_of(x[k]);
    });
    part = {top, part.sum * exponential(part.top, to) + sum};
  }

  KOKKOS_FORCEINLINE_FUNCTION void write_row(Rows& rows, SoftmaxPart const& all,
                                             RelativeExponential const& exponential) const {
    float const to = reference_of(all.top);
    if (log) {
      float const size = scale < 0 ? -scale : scale, denominator = all.sum == 0 ? 0.0f : Kokkos::log(all.sum);
      write(rows, exponential, [&](float x) { return (x - to) * size - denominator; });
    } else {
      float const factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
      write(rows, exponential, [&](float x) { return exponential(x, to) * factor; });
    }
  }

  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void write(Rows& rows, RelativeExponential const& exponential, F const& f) const {
    std::conditional_t<Ragged, TypeList<T>, PackedOutputs<T>>::visit(out.type, [&](auto tag) {
      using To = typename decltype(tag)::type;
      To* const to = rows.template data<To>(out);
      rows.again([&](auto const& packs) {
        unroll<Rows::batch>([&](auto k) {
          Values x = Rows::Atoms::widened(packs.raw[0][k]);
          exponential.turn(x);
          for (int j = 0; j < width; ++j) x[j] = f(x[j]);
          rows.store(to, packs, k, Rows::Atoms::template narrowed<To>(x));
        });
        rows.store_ends(to, packs);
      });
    });
  }
};

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
      bool const whole = packed_rows(grid, type) && is_packed_operand(problem.in, grid, width, type) &&
                         is_packed_output<T>(problem.out, grid);
      if (!whole && !make_ragged<T>(rows, grid, problem.in, problem.out)) return;
      Operand const out = operand(problem.out, grid, width, true), in = operand(problem.in, grid, width, true);
      auto const scale = static_cast<float>(problem.scale);
      T const rest(problem.scale < 0 ? HUGE_VALF : -HUGE_VALF);
      using Space = KernelSpace<Exec>;
      if (!fits_a_team(rows))
        with_row_kind(rows, [&](auto ragged) {
          using Kernel = StreamedSoftmax<Space, T, decltype(ragged)::value>;
          started = launch_streamed<typename Kernel::Rows>(problem.label, exec,
                                                           Kernel{rows, out, in, scale, problem.log, rest});
        });
      else
        with_packed_shape(rows, [&](auto shape) {
          using Shape = decltype(shape);
          launch_packed<Shape>(problem.label, exec, rows,
                               PackedSoftmax<Space, T, Shape>{rows, out, in, scale, problem.log, rest});
          started = true;
        });
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
