// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_FEW_ROWS_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_FEW_ROWS_NORMALIZATION_BACKWARD_HPP

#include <cstdint>
#include <limits>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/norm_backward_sums.hpp>
#include <tessera/rowwise/packed_rows.hpp>

namespace tessera::detail {

/// Gradients of norms of some thousand rows, which take a few microseconds: every row is on its way at once, a warp has
/// one, and the sums of columns are left for eight of them together. One matrix of whole packs, all of T but for the
/// statistics.
template <class Exec, class T>
struct FewRowsNormBackward {
  static constexpr int columns_of_lane = 32;
  using Shape = PackedShape<32, 256, columns_of_lane / packed_width<T>>;
  using Row = PackedRow<Exec, Shape, T>;
  using Atoms = typename Row::Atoms;
  using Raw = typename Row::RawParts;
  using Values = typename Row::Values;
  static constexpr int packs = Shape::packs, width = Row::width, longest = 32 * columns_of_lane,
                       rows_a_team = Shape::rows_a_team;
  static constexpr bool starts_early = true;

  T const *in, *d_out, *d_sum, *weight;  // d_sum and weight: or null
  T* d_in;
  float const *mean, *rstd;     // mean: or null
  float *d_weights, *d_biases;  // (teams, columns), either may be null
  std::int64_t in_row, d_out_row, d_sum_row, d_in_row;
  int rows, packs_of_row;
  float inverse_length;

  static constexpr std::size_t scratch_bytes = sizeof(float) * 2 * rows_a_team * longest;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    int const thread = Atoms::thread(), warp = thread / 32, at = team.league_rank() * rows_a_team + warp;
    bool const inside = at < rows;
    Row const row(thread % 32, inside ? packs_of_row : 0);
    Raw raw, gradient, slopes;
    row.load(in + at * in_row, raw, T(0.0f));
    row.load(d_out + at * d_out_row, gradient, T(0.0f));
    float const center = mean != nullptr && inside ? mean[at] : 0.0f, factor = inside ? rstd[at] : 0.0f;
    if (weight != nullptr) row.load(weight, slopes, T(0.0f));
    auto const normal = [&](auto k) TESSERA_INLINE_LAMBDA {
      Values x = Atoms::widened(raw[k]);
      for (int j = 0; j < width; ++j) x[j] = (x[j] - center) * factor;
      return x;
    };
    auto const sloped = [&](auto k) TESSERA_INLINE_LAMBDA {
      Values g = Atoms::widened(gradient[k]);
      if (weight == nullptr) return g;
      Values const slope = Atoms::widened(slopes[k]);
      for (int j = 0; j < width; ++j) g[j] *= slope[j];
      return g;
    };
    float sum = 0, product = 0;
    unroll<packs>([&](auto k) {
      Values const x = normal(k);
      Values g = sloped(k);
      sum += sum_of(g);
      for (int j = 0; j < width; ++j) g[j] *= x[j];
      product += sum_of(g);
    });
    sum = Row::join(sum, Add{});
    product = Row::join(product, Add{});
    float const offset = mean != nullptr ? -factor * (sum * inverse_length) : 0.0f,
                slope = -factor * (product * inverse_length);
    auto* const room = static_cast<float*>(team.team_scratch(0).get_shmem_aligned(std::size_t{scratch_bytes}, 16));
    unroll<packs>([&](auto k) {
      Values const x = normal(k), g = sloped(k);
      if (row.has(k)) write(row, at, k, x, g, factor, slope, offset);
      keep(room, warp, row, k, x, Atoms::widened(gradient[k]));
    });
    team.team_barrier();
    leave(team, d_weights, room);
    leave(team, d_biases, room + rows_a_team * longest);
  }

 private:
  template <class K>
  KOKKOS_FORCEINLINE_FUNCTION void write(Row const& row, int at, K k, Values const& x, Values const& g, float factor,
                                         float slope, float offset) const {
    Values out;
    for (int j = 0; j < width; ++j) out[j] = x[j] * slope + (g[j] * factor + offset);
    if (d_sum != nullptr) {
      Values const other = Atoms::widened(load_pack<width>(d_sum + at * d_sum_row + row.column(k)));
      for (int j = 0; j < width; ++j) out[j] += other[j];
    }
    store_pack<width>(d_in + at * d_in_row + row.column(k), Atoms::template narrowed<T>(out));
  }
  /// What a row adds to the sums of columns.
  template <class K>
  KOKKOS_FORCEINLINE_FUNCTION void keep(float* room, int warp, Row const& row, K k, Values const& x,
                                        Values const& dy) const {
    float* const to = room + warp * longest + row.column(k);
    if (d_weights != nullptr) {
      Values of_weight;
      for (int j = 0; j < width; ++j) of_weight[j] = dy[j] * x[j];
      store_pack<width>(to, of_weight);
    }
    if (d_biases != nullptr) store_pack<width>(to + rows_a_team * longest, dy);
  }
  KOKKOS_FORCEINLINE_FUNCTION void leave(TeamMember<Exec> const& team, float* all, float const* room) const {
    constexpr int wide = packed_width<float>;
    int const first = Atoms::thread() * wide, columns = packs_of_row * width;
    static_assert(longest == Shape::threads * wide);
    if (all == nullptr || first >= columns) return;
    Pack<float, wide> sum = load_pack<wide>(room + first);
    unroll<rows_a_team - 1>([&](auto w) {
      Pack<float, wide> const other = load_pack<wide>(room + (decltype(w)::value + 1) * longest + first);
      for (int j = 0; j < wide; ++j) sum[j] += other[j];
    });
    store_pack<wide>(all + std::int64_t{team.league_rank()} * columns + first, sum);
  }
};

/// The number of teams started, each of which leaves a row of sums; 0 where the problem is not one of few such rows:
/// `most_teams` at most, two a multiprocessor, and long enough that a warp has one.
template <class T, class Exec>
std::int64_t start_few_rows_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid,
                                          std::int64_t most_teams) {
  using Kernel = FewRowsNormBackward<KernelSpace<Exec>, T>;
  constexpr Scalar type = scalar_of<T>;
  PackedGrid const rows(grid, Kernel::width);
  std::int64_t const teams = (rows.rows + Kernel::rows_a_team - 1) / Kernel::rows_a_team;
  if (!rows.flat || grid.columns > Kernel::longest || grid.columns <= Kernel::longest / 2) return 0;
  if (teams > most_teams || teams > std::int64_t{2} * Machine<KernelSpace<Exec>>::concurrency(exec)) return 0;
  bool usual = problem.mean.type == Scalar::fp32 && problem.rstd.type == Scalar::fp32;
  for (RowArray const* a : {&problem.mean, &problem.rstd})
    usual = usual && (!a->present() || rows.rows == 1 || a->stride[2] == 1);
  if (!usual || (problem.weight.present() && (problem.weight.type != type || problem.weight.stride[2] != 0))) return 0;
  auto const data = [](RowArray const& a) { return static_cast<T*>(const_cast<void*>(a.data)); };
  auto const value = [](RowArray const& a) { return static_cast<float const*>(a.data); };
  NormBackwardSums<float> const sums(problem, teams);
  launch<Kernel::Shape::threads, 2>(
      KernelLabel{problem.label, "few rows in registers"}, exec, teams, Kernel::scratch_bytes,
      Kernel{data(problem.in), data(problem.d_out), data(problem.d_sum), data(problem.weight), data(problem.d_in),
             problem.centered ? value(problem.mean) : nullptr, value(problem.rstd), sums.weights, sums.biases,
             problem.in.stride[2], problem.d_out.stride[2], problem.d_sum.stride[2], problem.d_in.stride[2],
             static_cast<int>(rows.rows), rows.packs, static_cast<float>(1.0 / static_cast<double>(grid.columns))});
  return teams;
}

}  // namespace tessera::detail

#endif
