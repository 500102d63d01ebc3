// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP

#include <cstdint>

#include <tessera/rowwise/few_rows_normalization_backward.hpp>
#include <tessera/rowwise/packed_normalization.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/staged_norm_gradient.hpp>
#include <tessera/rowwise/staying_shapes.hpp>

namespace tessera::detail {

/// Gradients of norms whose rows are too long for a team. The sums of a thread's columns stay in its registers.
template <class Exec, class T>
struct RelayedNormBackward {
  using Rows = RelayedRows<Exec, T, staying_columns / packed_width<T>>;
  using Staged = StagedNormGradient<Exec, T, Rows::takers, Rows::packs>;
  using Atoms = typename Rows::Atoms;
  using Raw = typename Rows::Raw;
  using Values = typename Staged::Values;
  using Sums = typename Staged::Sums;
  using Statistics = typename Staged::Statistics;
  static constexpr int width = Rows::width, packs = Rows::packs;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand d_in, d_out, in, d_sum, mean, rstd, weight;
  float inverse_length;
  bool centered;
  RelayLayout layout = {};
  float *d_weights = nullptr, *d_biases = nullptr;  // (groups, columns), either may be absent

  /// What is to be known of a row.
  struct Known {
    Sums sums;
    Statistics statistics;
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows const rows(team, grid, layout, d_sum.present() ? 3 : 2);
    wait_for_kernels_before<Exec>();
    if (rows.relays())
      rows.template relay_rows<Sums>([&](int i) { return statistics(rows.place(i)); },
                                     [](Sums const& x, int) { return joined(x); },
                                     [](int, Sums const& all, Statistics const& own) {
                                       return Known{all, own};
                                     });
    else
      take_rows(rows, team.league_rank() / layout.teams);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(LongRowPlace const& row) const {
    std::int64_t at[2];
    row.offsets({mean, rstd}, at);
    return {centered ? static_cast<float const*>(mean.data)[at[0]] : 0.0f, static_cast<float const*>(rstd.data)[at[1]]};
  }
  KOKKOS_FORCEINLINE_FUNCTION static Sums joined(Sums const& x) {
    return {Atoms::template join<32>(x.gradient, Add{}), Atoms::template join<32>(x.product, Add{})};
  }

  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Rows const& rows, int group) const {
    typename Staged::Slopes slopes;
    typename Staged::Gradients gradients;
    Statistics now, next;
    Values kept[packs];
    rows.template take_rows<Known>(
        {in, d_out, d_sum},
        [&](int i) TESSERA_INLINE_LAMBDA {
          if (i == 0) parameters(rows, slopes);
          now = next;
          if (rows.is_row(i)) next = statistics(rows.place(i));
        },
        [&](int, Raw* stage)
            TESSERA_INLINE_LAMBDA { return joined(Staged::template sums_of<false>(stage, now, slopes, kept)); },
        [&](int i, Raw* stage, Known const& all) TESSERA_INLINE_LAMBDA {
          typename Staged::Line const line(centered, inverse_length, all.statistics.factor, all.sums);
          T* const to = rows.template data<T>(d_in, i);
          Staged::template write_row<false>(stage, all.statistics, slopes, gradients, line, kept, d_sum.present(),
                                            [&](auto k, Values const& out) TESSERA_INLINE_LAMBDA {
                                              if (rows.has(k))
                                                store_pack<width>(to + k * Rows::step,
                                                                  Atoms::template narrowed<T>(out));
                                            });
        });
    leave(rows, group, d_weights, gradients.weights);
    leave(rows, group, d_biases, gradients.biases);
  }
  KOKKOS_FORCEINLINE_FUNCTION void parameters(Rows const& rows, typename Staged::Slopes& slopes) const {
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) slopes.pack[k][j] = 1;
      if (weight.present() && rows.has(k))
        slopes.pack[k] = load_parameter<Atoms, T, width>(weight, rows.column() + k * Rows::step);
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION void leave(Rows const& rows, int group, float* all, Values const (&sums)[packs]) const {
    if (all == nullptr) return;
    float* const to = all + std::int64_t{group} * grid.columns + rows.column();
    unroll<packs>([&](auto k) {
      if (rows.has(k)) store_pack<width>(to + k * Rows::step, sums[k]);
    });
  }
};

/// Starts the kernel for packed rows of T that so many teams share; returns how many groups of teams have sums to
/// leave, or 0 if they cannot run together.
template <class T, class Exec>
std::int64_t start_relayed_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid,
                                         PackedGrid const& rows, int teams) {
  using Kernel = RelayedNormBackward<KernelSpace<Exec>, T>;
  using Rows = typename Kernel::Rows;
  auto const packed = [&](RowArray const& a) { return operand(a, grid, Kernel::width, true); };
  Kernel kernel{rows,
                packed(problem.d_in),
                packed(problem.d_out),
                packed(problem.in),
                packed(problem.d_sum),
                packed(problem.mean),
                packed(problem.rstd),
                packed(problem.weight),
                static_cast<float>(1.0 / static_cast<double>(grid.columns)),
                problem.centered};
  int const operands = problem.d_sum.present() ? 3 : 2;
  kernel.layout = relay_layout<Rows, Kernel>(exec, rows, teams, operands,
                                             packed_norm_backward_teams(exec, rows.rows, grid.columns));
  if (kernel.layout.groups == 0) return 0;
  NormBackwardSums<float> const sums(problem, kernel.layout.groups);
  kernel.d_weights = sums.weights;
  kernel.d_biases = sums.biases;
  launch_relayed<Rows>(problem.label, exec, kernel.layout, operands, kernel);
  return kernel.layout.groups;
}

}  // namespace tessera::detail

#endif
