// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_SOFTMAX_HPP
#define TESSERA_ROWWISE_PACKED_SOFTMAX_HPP

#include <cstdint>
#include <type_traits>

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

/// What is done with a row that its threads hold in registers: one maximum, then every part relative to it. Parts of
/// other warps are read once.
template <class Row, class Shape>
struct SoftmaxOfRow {
  using Raw = typename Row::RawParts;
  using Exponential = typename RowExponentials<Row>::Exponential;
  using Reference = typename RowExponentials<Row>::Reference;

  float scale;

  /// store(f) stores f(k) for every part k of the row.
  template <bool Log, class Store>
  KOKKOS_FORCEINLINE_FUNCTION void apply(Raw const& raw, Store const& store) const {
    Exponential const exponential(scale);
    RowExponentials<Row> const exponentials(exponential, raw);
    if constexpr (Log)
      store_logarithm(exponential, exponentials, raw, store);
    else
      store_weights(exponential, exponentials, raw, store);
  }

 private:
  /// The row's maximum and sum from those of its warps, and what the sum is relative to.
  KOKKOS_FORCEINLINE_FUNCTION static SoftmaxPart whole(Exponential const& exponential, SoftmaxPart part,
                                                       Reference& to) {
    if constexpr (Shape::warps == 1) {
      return part;
    } else {
      part = Row::template of_warp<SoftmaxOfRow>(part);
      auto const each = [&](auto const& f, auto const& x) TESSERA_INLINE_LAMBDA { return Row::join_parts(x(part), f); };
      return joined_exponentials<SoftmaxPart>(exponential, each, to);
    }
  }

  template <class Store>
  KOKKOS_FORCEINLINE_FUNCTION void store_weights(Exponential const& exponential,
                                                 RowExponentials<Row> const& exponentials, Raw const& raw,
                                                 Store const& store) const {
    typename Row::ValueParts e;
    auto to = exponentials.to;
    SoftmaxPart const of_warp{exponentials.top, exponentials(raw, e)}, all = whole(exponential, of_warp, to);
    float factor = all.sum == 0 ? 0.0f : 1.0f / all.sum;
    if constexpr (Shape::warps > 1) factor *= exponentials.change(to);
    store([&](auto k) {
      auto x = e[k];
      for (int j = 0; j < x.size; ++j) x[j] *= factor;
      return x;
    });
  }

  template <class Store>
  KOKKOS_FORCEINLINE_FUNCTION void store_logarithm(Exponential const& exponential,
                                                   RowExponentials<Row> const& exponentials, Raw const& raw,
                                                   Store const& store) const {
    float sum = 0;
    unroll<Row::parts>([&](auto k) { sum += sum_of(exponentials(raw[k])); });
    auto to = exponentials.to;
    SoftmaxPart const of_warp{exponentials.top, Row::join(sum, Add{})}, all = whole(exponential, of_warp, to);
    float const top = reference_of(scale < 0 ? -all.top : all.top),
                denominator = all.sum == 0 ? 0.0f : exponential.log_of_sum(all.sum, all.top, to);
    store([&](auto k) {
      auto x = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < x.size; ++j) x[j] = (x[j] - top) * scale - denominator;
      return x;
    });
  }
};

/// Rows of any layout.
template <class Exec, class T, class Shape>
struct PackedSoftmax {
  using Row = PackedRow<Exec, Shape, T>;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in;
  SoftmaxOfRow<Row, Shape> of_row;
  bool log;
  T rest;  // what lies beyond a row; scaled it is -Inf

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Row const row(grid, team.league_rank());
    typename Row::RawParts raw;
    row.load(in, raw, rest);
    auto const store = [&](auto const& part) {
      Row::Outputs::visit(out.type, [&](auto tag) { row.template store<typename decltype(tag)::type>(out, part); });
    };
    if (log)
      of_row.template apply<true>(raw, store);
    else
      of_row.template apply<false>(raw, store);
  }
};

/// Few rows of whole packs in one matrix, a team each, which take two or three microseconds: every multiprocessor
/// fetches text and parameters anew, of which there are few.
template <class Exec, class T, class Shape, bool Log>
struct FewRowsSoftmax {
  using Row = PackedRow<Exec, Shape, T>;
  static constexpr bool starts_early = true;

  T const* in;
  T* out;
  int in_row, out_row, packs;
  SoftmaxOfRow<Row, Shape> of_row;
  T rest;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const at = team.league_rank();
    Row const row(Row::Atoms::thread(), packs);
    typename Row::RawParts raw;
    wait_for_kernels_before<Exec>();
    row.load(in + std::int64_t{at} * in_row, raw, rest);
    T* const to = out + std::int64_t{at} * out_row;
    of_row.template apply<Log>(raw, [&](auto const& part) { row.store(to, part); });
  }
};

/// Starts it where rows are few. Whether it has.
template <class Exec, class T>
bool start_few_rows_softmax(Exec const& exec, SoftmaxProblem const& problem, PackedGrid const& rows, T rest) {
  if (problem.out.type != scalar_of<T> || !has_short_steps(problem.in) || !has_short_steps(problem.out)) return false;
  auto const start = [&](auto log) {
    return launch_few_rows(problem.label, exec, rows, [&](auto shape) {
      return FewRowsSoftmax<KernelSpace<Exec>, T, decltype(shape), decltype(log)::value>{
          static_cast<T const*>(problem.in.data),
          static_cast<T*>(const_cast<void*>(problem.out.data)),
          static_cast<int>(problem.in.stride[2]),
          static_cast<int>(problem.out.stride[2]),
          rows.packs,
          {static_cast<float>(problem.scale)},
          rest};
    });
  };
  return problem.log ? start(std::true_type{}) : start(std::false_type{});
}

}  // namespace tessera::detail

#endif
