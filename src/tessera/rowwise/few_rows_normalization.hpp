// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_FEW_ROWS_NORMALIZATION_HPP
#define TESSERA_ROWWISE_FEW_ROWS_NORMALIZATION_HPP

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/normalization.hpp>
#include <tessera/rowwise/row_moments.hpp>

// Norms of few rows take two or three microseconds, of which a kernel's text and parameters, both of which every
// multiprocessor fetches anew, are a part, and what waits for memory one after the other is the rest.
namespace tessera::detail {

/// LayerNorm or RMSNorm of one matrix of whole packs, all of whose operands are of T but for the statistics. Weight and
/// bias are on their way together with the row.
template <class Exec, class T, class Shape, bool Centered>
struct FewRowsNorm {
  using Row = PackedRow<Exec, Shape, T>;
  using Atoms = typename Row::Atoms;
  using Raw = typename Row::RawParts;
  static constexpr int width = Row::width;

  T const *in, *weight, *bias;  // bias: or null
  T* out;
  float *mean, *rstd;  // or null
  int rows, packs, in_row, out_row;
  float epsilon, inverse_length;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const thread = Atoms::thread(), at = team.league_rank() * Shape::rows_a_team + thread / Shape::lanes;
    Row const row(thread % Shape::lanes, at < rows ? packs : 0);
    Raw raw, slopes, offsets;
    row.load(in + std::int64_t{at} * in_row, raw, T(0.0f));
    row.load(weight, slopes, T(0.0f));
    if (bias != nullptr) row.load(bias, offsets, T(0.0f));
    typename Row::ValueParts x;
    unroll<Shape::packs>([&](auto k) { x[k] = Atoms::widened(raw[k]); });
    Moments const all = RowMoments<Row, Shape, FewRowsNorm>{inverse_length, Centered}(row, x, 0);
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
};

/// f(Shape{}) for rows of 65 to 512 packs.
template <class F>
void with_few_rows_shape(int packs, F const& f) {
  if (packs <= 128)
    f(PackedShape<32, 128, 4>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4>{});
  else
    f(PackedShape<128, 128, 4>{});
}

/// Starts it for rows that are whole packs, if they are so few that each multiprocessor has 512 threads at most, and
/// nothing else is asked for. Whether it has.
template <class T, class Exec>
bool start_few_rows_norm(Exec const& exec, NormProblem const& problem, PackedGrid const& rows, Operand const& out,
                         Operand const& in, Operand const& weight, Operand const& bias, Operand const& mean,
                         Operand const& rstd) {
  auto const is_own = [](Operand const& a) { return a.type == scalar_of<T>; };
  auto const counts = [](std::int64_t stride) { return stride >= 0 && stride <= std::numeric_limits<int>::max(); };
  bool const usual = rows.flat && rows.last_packs == rows.packs && rows.packs > 64 && rows.packs <= 512 &&
                     !problem.residual.present() && is_own(out) && weight.present() && is_own(weight) &&
                     (!bias.present() || is_own(bias)) && counts(in.row) && counts(out.row) &&
                     (!mean.present() || mean.row == 1) && (!rstd.present() || rstd.row == 1) && weight.row == 0 &&
                     bias.row == 0;
  if (!usual) return false;
  bool started = false;
  with_few_rows_shape(rows.packs, [&](auto shape) {
    using Shape = decltype(shape);
    std::int64_t const teams = (rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team;
    std::int64_t const threads_at_once = std::int64_t{512} * Machine<KernelSpace<Exec>>::concurrency(exec);
    if (teams * Shape::threads > threads_at_once) return;
    auto const start = [&](auto centered) {
      using Kernel = FewRowsNorm<KernelSpace<Exec>, T, Shape, decltype(centered)::value>;
      auto const data = [](Operand const& a) { return static_cast<T const*>(a.data); };
      auto const value = [](Operand const& a) { return static_cast<float*>(const_cast<void*>(a.data)); };
      launch<Shape::threads, 512 / Shape::threads>(
          problem.label, exec, teams, 0,
          Kernel{data(in), data(weight), data(bias), const_cast<T*>(data(out)), value(mean), value(rstd),
                 static_cast<int>(rows.rows), rows.packs, static_cast<int>(in.row), static_cast<int>(out.row),
                 static_cast<float>(problem.epsilon), static_cast<float>(1.0 / static_cast<double>(rows.columns))});
      started = true;
    };
    problem.centered ? start(std::true_type{}) : start(std::false_type{});
  });
  return started;
}

}  // namespace tessera::detail

#endif
