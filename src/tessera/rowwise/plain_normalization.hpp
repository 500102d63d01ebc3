// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PLAIN_NORMALIZATION_HPP
#define TESSERA_ROWWISE_PLAIN_NORMALIZATION_HPP

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/normalization.hpp>
#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/row_moments.hpp>

// Norms of few rows take two or three microseconds, of which a kernel's text and parameters, both of which every
// multiprocessor fetches anew, are a part, and what waits for memory one after the other is the rest. Of short rows a
// thread has so few elements that questions about types and places count.
namespace tessera::detail {

/// LayerNorm or RMSNorm of one matrix of whole packs, all of whose operands are of T but for the statistics. Weight and
/// bias are on their way together with the row. With `Adds` there are a residual and its sum with the row, or null.
template <class Exec, class T, class Shape, bool Centered, bool Adds>
struct PlainNorm {
  using Row = PackedRow<Exec, Shape, T>;
  using Atoms = typename Row::Atoms;
  using Raw = typename Row::RawParts;
  static constexpr int width = Row::width;

  T const *in, *weight, *bias;  // bias: or null
  T* out;
  float *mean, *rstd;  // or null
  int rows, packs, in_row, out_row;
  float epsilon, inverse_length;
  T const* residual = nullptr;
  T* sum = nullptr;
  int residual_row = 0, sum_row = 0;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const thread = Atoms::thread(), at = team.league_rank() * Shape::rows_a_team + thread / Shape::lanes;
    Row const row(thread % Shape::lanes, at < rows ? packs : 0);
    Raw raw, slopes, offsets;
    [[maybe_unused]] Raw added;
    row.load(in + std::int64_t{at} * in_row, raw, T(0.0f));
    if constexpr (Adds) row.load(residual + std::int64_t{at} * residual_row, added, T(0.0f));
    row.load(weight, slopes, T(0.0f));
    if (bias != nullptr) row.load(bias, offsets, T(0.0f));
    typename Row::ValueParts x;
    unroll<Shape::packs>([&](auto k) { x[k] = Atoms::widened(raw[k]); });
    if constexpr (Adds) add(row, at, x, added);
    Moments const all = RowMoments<Row, Shape, PlainNorm>{inverse_length, Centered}(row, x, 0);
    float const center = inverse_length * all.sum, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (row.lane == 0 && row.inside()) {
      if (Centered && mean != nullptr) mean[at] = center;
      if (rstd != nullptr) rstd[at] = factor;
    }
    T* const to = out + std::int64_t{at} * out_row;
    unroll<Shape::packs>([&](auto k) {
      Pack<float, width> const slope = Atoms::widened(slopes[k]);
      for (int j = 0; j < width; ++j) x[k][j] = (x[k][j] - center) * factor * slope[j];
      if (bias != nullptr) {
        Pack<float, width> const offset = Atoms::widened(offsets[k]);
        for (int j = 0; j < width; ++j) x[k][j] += offset[j];
      }
      if (row.has(k)) store_pack<width>(to + row.column(k), Atoms::template narrowed<T>(x[k]));
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void add(Row const& row, int at, typename Row::ValueParts& x, Raw const& added) const {
    unroll<Shape::packs>([&](auto k) {
      Pack<float, width> const y = Atoms::widened(added[k]);
      for (int j = 0; j < width; ++j) x[k][j] += y[j];
      if (sum == nullptr) return;
      auto const rounded = Atoms::template narrowed<T>(x[k]);
      x[k] = Atoms::widened(rounded);
      if (row.has(k)) store_pack<width>(sum + std::int64_t{at} * sum_row + row.column(k), rounded);
    });
  }
};

/// f(Shape{}) for rows of up to 512 packs.
template <class F>
void with_plain_shape(int packs, F const& f) {
  if (packs <= 8)
    f(PackedShape<8, 128, 1>{});
  else if (packs <= 16)
    f(PackedShape<16, 128, 1>{});
  else if (packs <= 32)
    f(PairShape<16, 128, 0, 2, 48>{});
  else if (packs <= 64)
    f(PairShape<32, 128, 0, 2, 48>{});
  else if (packs <= 128)
    f(PackedShape<32, 128, 4>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4>{});
  else
    f(PackedShape<128, 128, 4>{});
}

/// What a norm works on.
struct NormOperands {
  Operand out, in, weight, bias, mean, rstd, residual, sum;
};

/// Whether all of them are as PlainNorm wants them.
template <class T>
bool is_plain_norm(PackedGrid const& rows, NormOperands const& a) {
  auto const is_own = [](Operand const& x) { return x.type == scalar_of<T>; };
  auto const counts = [](Operand const& x) {
    return !x.present() || (x.row >= 0 && x.row <= std::numeric_limits<int>::max());
  };
  auto const is_parameter = [&](Operand const& x) { return is_own(x) && x.row == 0; };
  auto const is_statistic = [](Operand const& x) { return !x.present() || x.row == 1; };
  return rows.flat && rows.last_packs == rows.packs && rows.packs <= 512 &&
         rows.rows <= std::numeric_limits<int>::max() - 128 && is_own(a.out) && a.weight.present() &&
         is_parameter(a.weight) && (!a.bias.present() || is_parameter(a.bias)) && counts(a.in) && counts(a.out) &&
         counts(a.residual) && counts(a.sum) && is_statistic(a.mean) && is_statistic(a.rstd);
}

/// Starts it for rows that are whole packs, if they are short, or so few that each multiprocessor has 512 threads at
/// most. Whether it has.
template <class T, class Exec>
bool start_plain_norm(Exec const& exec, NormProblem const& problem, PackedGrid const& rows, NormOperands const& a) {
  if (!is_plain_norm<T>(rows, a)) return false;
  bool started = false;
  with_plain_shape(rows.packs, [&](auto shape) {
    using Shape = decltype(shape);
    constexpr bool is_short = Shape::packs <= 2;
    std::int64_t const teams = (rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team;
    std::int64_t const threads_at_once = std::int64_t{512} * Machine<KernelSpace<Exec>>::concurrency(exec);
    if (!is_short && teams * Shape::threads > threads_at_once) return;
    auto const start = [&](auto centered, auto adds) {
      using Kernel = PlainNorm<KernelSpace<Exec>, T, Shape, decltype(centered)::value, decltype(adds)::value>;
      auto const data = [](Operand const& x) { return static_cast<T*>(const_cast<void*>(x.data)); };
      auto const value = [](Operand const& x) { return static_cast<float*>(const_cast<void*>(x.data)); };
      auto const step = [](Operand const& x) { return static_cast<int>(x.row); };
      launch<Shape::threads, is_short ? teams_of_registers<Shape> : 512 / Shape::threads>(
          problem.label, exec, teams, 0,
          Kernel{data(a.in), data(a.weight), data(a.bias), data(a.out), value(a.mean), value(a.rstd),
                 static_cast<int>(rows.rows), rows.packs, step(a.in), step(a.out), static_cast<float>(problem.epsilon),
                 static_cast<float>(1.0 / static_cast<double>(rows.columns)), data(a.residual), data(a.sum),
                 step(a.residual), step(a.sum)});
      started = true;
    };
    auto const with_centered = [&](auto adds) {
      problem.centered ? start(std::true_type{}, adds) : start(std::false_type{}, adds);
    };
    a.residual.present() ? with_centered(std::true_type{}) : with_centered(std::false_type{});
  });
  return started;
}

}  // namespace tessera::detail

#endif
