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

// Questions about types and places, and their text, cost as much as a tenth of the time where all is as usual.
namespace tessera::detail {

/// LayerNorm with weight and bias, or else RMSNorm with a weight, of one matrix of whole packs, all of whose operands
/// are of T but for the statistics. With `Adds` there are a residual and its sum with the row, or null. Norms of few
/// rows take two or three microseconds, in which every multiprocessor fetches text and parameters anew and what waits
/// for memory one after the other is the rest: with `Ahead` weight and bias are on their way together with the row,
/// which takes registers. The weight of short rows is, too, where there is no bias, and that of others that have room
/// for it.
template <class Exec, class T, class Shape, bool Ahead, bool IsLayerNorm, bool Adds>
struct PlainNorm {
  using Row = PackedRow<Exec, Shape, T>;
  using Atoms = typename Row::Atoms;
  using Raw = typename Row::RawParts;
  static constexpr int width = Row::width;
  static constexpr bool starts_early = true;

  T const *in, *weight, *bias;  // bias: of LayerNorm
  T* out;
  float *mean, *rstd;  // or null
  int rows, packs, in_row, out_row;
  float epsilon, inverse_length;
  T const* residual = nullptr;
  T* sum = nullptr;
  int residual_row = 0, sum_row = 0;
  ReadOnce once = {};

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const thread = Atoms::thread(), at = team.league_rank() * Shape::rows_a_team + thread / Shape::lanes;
    Row const row(thread % Shape::lanes, at < rows ? packs : 0, once);
    Raw raw;
    [[maybe_unused]] Raw added, slopes, offsets;
    wait_for_kernels_before<Exec>();
    row.load_once(in + std::int64_t{at} * in_row, raw, T(0.0f));
    if constexpr (Adds) row.load_once(residual + std::int64_t{at} * residual_row, added, T(0.0f));
    if constexpr (Ahead) {
      row.load(weight, slopes, T(0.0f));
      if constexpr (IsLayerNorm) row.load(bias, offsets, T(0.0f));
    }
    typename Row::ValueParts x;
    unroll<Shape::packs>([&](auto k) { x[k] = Atoms::widened(raw[k]); });
    if constexpr (Adds) add(row, at, x, added);
    Moments const all = RowMoments<Row, Shape, PlainNorm>{inverse_length, IsLayerNorm}(row, x, 0);
    float const center = inverse_length * all.sum, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (row.lane == 0 && row.inside()) {
      if (IsLayerNorm && mean != nullptr) mean[at] = center;
      if (rstd != nullptr) rstd[at] = factor;
    }
    T* const to = out + std::int64_t{at} * out_row;
    unroll<Shape::packs>([&](auto k) {
      if (!row.has(k)) return;
      if constexpr (!Ahead) {  // both before one is waited for
        slopes[k] = load_pack<width>(weight + row.column(k));
        if constexpr (IsLayerNorm) offsets[k] = load_pack<width>(bias + row.column(k));
      }
      Pack<float, width> const slope = Atoms::widened(slopes[k]);
      for (int j = 0; j < width; ++j) x[k][j] = (x[k][j] - center) * factor * slope[j];
      if constexpr (IsLayerNorm) {
        Pack<float, width> const offset = Atoms::widened(offsets[k]);
        for (int j = 0; j < width; ++j) x[k][j] += offset[j];
      }
      store_pack<width>(to + row.column(k), Atoms::template narrowed<T>(x[k]));
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

/// f(Shape{}) for rows that a team holds.
template <class T, class F>
void with_plain_shape(int packs, bool is_layer_norm, F const& f) {
  if (packs <= 8)
    f(PackedShape<8, 128, 1>{});
  else if (packs <= 16)
    f(PackedShape<16, 128, 1>{});
  else if (packs <= 32)
    f(PairShape<16, 128, 0, 2, 48>{});
  else if (packs <= 64)
    f(PairShape<32, 128, 0, 2, 48>{});
  else if (!is_layer_norm && packs > 1536 && packs <= longest_packed_row)
    with_longer_packed_shape(packs, f);  // whose weight is ahead
  else
    with_fitting_shape<T>(packs, f);
}
/// The same for few rows, of 65 to 512 packs. (With a residual those of with_few_rows_shape() are faster.)
template <class F>
void with_few_plain_rows_shape(int packs, F const& f) {
  if (packs <= 128)
    f(PackedShape<32, 128, 4>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4>{});
  else
    f(PackedShape<128, 128, 4>{});
}

template <class Shape, int Lanes, int Packs>
inline constexpr bool is_team = (Shape::lanes == Lanes) && (Shape::packs == Packs);

/// What a norm works on.
struct NormOperands {
  Operand out, in, weight, bias, mean, rstd, residual, sum;
};

/// Whether all of them are as PlainNorm wants them.
template <class T>
bool is_plain_norm(PackedGrid const& rows, bool is_layer_norm, NormOperands const& a) {
  auto const is_own = [](Operand const& x) { return x.type == scalar_of<T>; };
  auto const counts = [](Operand const& x) {
    return !x.present() || (x.row >= 0 && x.row <= std::numeric_limits<int>::max());
  };
  auto const is_parameter = [&](Operand const& x) { return is_own(x) && x.row == 0; };
  auto const is_statistic = [](Operand const& x) { return !x.present() || x.row == 1; };
  return rows.flat && rows.last_packs == rows.packs && rows.packs <= longest_team_row<T> &&
         rows.rows <= std::numeric_limits<int>::max() - 128 && is_own(a.out) && a.weight.present() &&
         is_parameter(a.weight) && a.bias.present() == is_layer_norm && (!a.bias.present() || is_parameter(a.bias)) &&
         counts(a.in) && counts(a.out) && counts(a.residual) && counts(a.sum) && is_statistic(a.mean) &&
         is_statistic(a.rstd);
}

/// Starts it where it can. Whether it has.
template <class T, class Exec>
bool start_plain_norm(Exec const& exec, NormProblem const& problem, PackedGrid const& rows, NormOperands const& a) {
  if (!is_plain_norm<T>(rows, problem.centered, a)) return false;
  bool started = false;
  auto const start = [&](auto few, auto shape, auto is_layer_norm, auto adds) {
    using Shape = decltype(shape);
    constexpr bool is_few = decltype(few)::value, is_layer = decltype(is_layer_norm)::value,
                   is_short = Shape::packs <= 2, has_room = is_team<Shape, 512, 4> || is_team<Shape, 256, 5>,
                   is_ahead = is_few || (!is_layer && (is_short || has_room));
    using Kernel = PlainNorm<KernelSpace<Exec>, T, Shape, is_ahead, is_layer, decltype(adds)::value>;
    auto const data = [](Operand const& x) { return static_cast<T*>(const_cast<void*>(x.data)); };
    auto const value = [](Operand const& x) { return static_cast<float*>(const_cast<void*>(x.data)); };
    auto const step = [](Operand const& x) { return static_cast<int>(x.row); };
    launch<Shape::threads, is_few ? 512 / Shape::threads : teams_of_registers<Shape>>(
        KernelLabel{problem.label, is_few ? "few rows in registers" : "rows in registers"}, exec,
        (rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team, 0,
        Kernel{data(a.in), data(a.weight), data(a.bias), data(a.out), value(a.mean), value(a.rstd),
               static_cast<int>(rows.rows), rows.packs, step(a.in), step(a.out), static_cast<float>(problem.epsilon),
               static_cast<float>(1.0 / static_cast<double>(rows.columns)), data(a.residual), data(a.sum),
               step(a.residual), step(a.sum), rows.once});
    started = true;
  };
  auto const start_kind = [&](auto few, auto shape, auto adds) {
    problem.centered ? start(few, shape, std::true_type{}, adds) : start(few, shape, std::false_type{}, adds);
  };
  auto const if_few = [&](auto adds) {
    return [&, adds](auto shape) {  // so few that each multiprocessor has so many threads at most
      using Shape = decltype(shape);
      std::int64_t const teams = (rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team,
                         most = decltype(adds)::value ? 1024 : 512;
      if (teams * Shape::threads <= most * Machine<KernelSpace<Exec>>::concurrency(exec))
        start_kind(std::true_type{}, shape, adds);
    };
  };
  bool const adds = a.residual.present();
  if (rows.packs > 64 && rows.packs <= 512)
    adds ? with_few_rows_shape(rows.packs, if_few(std::true_type{}))
         : with_few_plain_rows_shape(rows.packs, if_few(std::false_type{}));
  if (!started)
    with_plain_shape<T>(rows.packs, problem.centered, [&](auto shape) {
      adds ? start_kind(std::false_type{}, shape, std::true_type{})
           : start_kind(std::false_type{}, shape, std::false_type{});
    });
  return started;
}

}  // namespace tessera::detail

#endif
