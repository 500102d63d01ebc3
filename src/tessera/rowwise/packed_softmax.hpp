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

/// e^(s x) as 2^(factor x - offset), in one multiply-add and a power of two, 0 below 2^-126. Offsets are integers, so
/// that sums relative to different ones are joined without an error, and what rounding has made of `factor` only counts
/// with the distance to the maximum.
struct RelativeExponential {
  float factor;   // log2(e) |s|
  bool negative;  // s: x and top are those of -x

  struct Reference {
    float factor, offset;
  };

  KOKKOS_FORCEINLINE_FUNCTION explicit RelativeExponential(float scale)
      : factor(1.44269504088896341f * (scale < 0 ? -scale : scale)), negative(scale < 0) {}

  /// For elements up to `top`, which may be -Inf: all exponentials are 0 then.
  KOKKOS_FORCEINLINE_FUNCTION Reference reference(float top) const {
    float const offset = Kokkos::floor(top * factor);
    return Kokkos::fabs(offset) < largest_offset ? Reference{factor, offset} : far_reference(top);
  }

  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void turn(Pack<float, N>& x) const {
    if (negative)
      for (int j = 0; j < N; ++j) x[j] = -x[j];
  }
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float x, Reference const& to) const {
    return power_of_two(Kokkos::fma(x, to.factor, -to.offset));
  }
  /// What a sum up to `top` and relative to `from` is to be multiplied by to be relative to `to`, of larger elements.
  KOKKOS_FORCEINLINE_FUNCTION static float change(float top, Reference const& from, Reference const& to) {
    bool const counts = top != -Kokkos::Experimental::infinity_v<float> && from.factor == to.factor;
    return power_of_two(counts ? from.offset - to.offset : -Kokkos::Experimental::infinity_v<float>);
  }
  /// If that is reference(top).
  KOKKOS_FORCEINLINE_FUNCTION float change(float top, Reference const& to) const {
    return change(top, reference(top), to);
  }
  /// The logarithm of a sum, relative to that of its largest exponential.
  KOKKOS_FORCEINLINE_FUNCTION static float log_of_sum(float sum, float top, Reference const& to) {
    float const beyond =
        top == -Kokkos::Experimental::infinity_v<float> ? 0.0f : Kokkos::fma(top, -to.factor, to.offset);
    return Kokkos::log(sum) + 0.693147180559945309f * beyond;
  }

 private:
  /// Below it the rounding of an offset is a small part of an exponent.
  static constexpr float largest_offset = 2147483648.0f;

  KOKKOS_FORCEINLINE_FUNCTION static float power_of_two(float exponent) {
    KOKKOS_IF_ON_HOST((return exponent < -126 ? 0.0f : Kokkos::exp2(exponent);))
    KOKKOS_IF_ON_DEVICE((return exp2_approximate(exponent);))
  }
  /// So far from 0 other elements are so far from the largest that their exponentials are 0 beside its own. To find
  /// that a factor need not be right, but its products exact.
  KOKKOS_FORCEINLINE_FUNCTION Reference far_reference(float top) const {
    if (top == -Kokkos::Experimental::infinity_v<float>) return {factor, 0};
    float const exact = Kokkos::fabs(top) < 0x1p64f
                            ? __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, factor) & 0x7f800000u)
                            : 0x1p-30f;
    return {exact, top * exact};
  }
};

/// The maximum of some elements of a row and the sum of their exponentials relative to reference_of(it).
struct SoftmaxPart {
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0;
};

/// What has been found of a row that is read, and what its sums are relative to.
template <class Part>
struct RelativeState {
  Part part;
  RelativeExponential::Reference to;
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
  using State = RelativeState<SoftmaxPart>;
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
          return State{{}, exponential.reference(SoftmaxPart{}.top)};
        },
        [&](State& row, auto const& packs) { add(row, packs, exponential); },
        [&](auto const& each, int) {
          float const top = each(Larger{}, [](auto const& x) { return x.top; });
          auto const to = exponential.reference(top);
          return SoftmaxPart{top, each(Add{}, [&](auto const& x) { return x.sum * exponential.change(x.top, to); })};
        },
        [&](SoftmaxPart const& all, auto const& run) { write_row(rows, all, exponential, run); });
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(State& row, Packs const& packs, RelativeExponential const& exponential) const {
    Values x[Rows::batch];
    float top = row.part.top, sum = 0;
    unroll<Rows::batch>([&](auto k) {
      x[k] = Rows::Atoms::widened(packs.raw[0][k]);
      exponential.turn(x[k]);
      top = larger(top, largest(x[k]));
    });
    auto const to = exponential.reference(top);
    unroll<Rows::batch>([&](auto k) {
      for (int j = 0; j < width; ++j) x[k][j] = exponential(x[k][j], to);
      sum += sum_of(x[k]);
    });
    row = {{top, row.part.sum * exponential.change(row.part.top, row.to, to) + sum}, to};
  }

  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_row(Rows const& rows, SoftmaxPart const& all,
                                             RelativeExponential const& exponential, Run const& run) const {
    auto const to = exponential.reference(all.top);
    if (log) {
      float const top = reference_of(all.top), size = scale < 0 ? -scale : scale,
                  denominator = all.sum == 0 ? 0.0f : exponential.log_of_sum(all.sum, all.top, to);
      write(rows, exponential, run, [&](float x) { return (x - top) * size - denominator; });
    } else {
      float const factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
      write(rows, exponential, run, [&](float x) { return exponential(x, to) * factor; });
    }
  }

  template <class Run, class F>
  KOKKOS_FORCEINLINE_FUNCTION void write(Rows const& rows, RelativeExponential const& exponential, Run const& run,
                                         F const& f) const {
    std::conditional_t<Ragged, TypeList<T>, PackedOutputs<T>>::visit(out.type, [&](auto tag) {
      using To = typename decltype(tag)::type;
      To* const to = rows.template data<To>(out);
      run(
          [&](auto const& packs) {
            unroll<Rows::batch>([&](auto k) {
              Values x = Rows::Atoms::widened(packs.raw[0][k]);
              exponential.turn(x);
              for (int j = 0; j < width; ++j) x[j] = f(x[j]);
              rows.store(to, packs, k, Rows::Atoms::template narrowed<To>(x));
            });
            rows.store_ends(to, packs);
          },
          std::true_type{});
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
