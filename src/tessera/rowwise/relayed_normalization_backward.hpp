// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP

#include <cstdint>

#include <tessera/rowwise/long_norm_gradient.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/staying_shapes.hpp>

namespace tessera::detail {

template <class Exec, class T>
using RelayedGradientRows = RelayedRows<Exec, T, staying_columns / packed_width<T>>;
template <class Exec, class T>
using RelayedNormGradient =
    StagedNormGradient<Exec, T, RelayedGradientRows<Exec, T>::takers, RelayedGradientRows<Exec, T>::packs>;

/// Gradients of norms whose rows are too long for a team. The sums of a thread's columns stay in its registers.
template <class Exec, class T>
struct RelayedNormBackward : LongNormGradient<RelayedNormGradient<Exec, T>> {
  using Rows = RelayedGradientRows<Exec, T>;
  using Staged = RelayedNormGradient<Exec, T>;
  using Base = LongNormGradient<Staged>;
  using typename Base::Atoms, typename Base::Sums, typename Base::Statistics;
  using Raw = typename Rows::Raw;
  using Values = typename Staged::Values;
  static constexpr bool starts_early = true;

  RelayLayout layout = {};

  /// What is to be known of a row.
  struct Known {
    Sums sums;
    Statistics statistics;
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows const rows(team, this->grid, layout, this->d_sum.present() ? 3 : 2);
    wait_for_kernels_before<Exec>();
    if (rows.relays())
      rows.template relay_rows<Sums>([&](int i) { return this->statistics(rows.place(i)); },
                                     [](auto const& each, int) { return Base::joined_by(each); },
                                     [](int, Sums const& all, Statistics const& own) {
                                       return Known{all, own};
                                     });
    else
      take_rows(rows, team.league_rank() / layout.teams);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Rows const& rows, int group) const {
    typename Staged::Slopes slopes;
    typename Staged::Gradients gradients;
    Statistics now, next;
    Values unused[Rows::packs];
    rows.template take_rows<Known>(
        {this->in, this->d_out, this->d_sum},
        [&](int i) TESSERA_INLINE_LAMBDA {
          if (i == 0) this->load_slopes(rows, slopes);
          now = next;
          if (rows.is_row(i)) next = this->statistics(rows.place(i));
        },
        [&](int, Raw* stage)
            TESSERA_INLINE_LAMBDA { return Base::joined(Staged::template sums_of<false>(stage, now, slopes, unused)); },
        [&](int i, Raw* stage, Known const& all) TESSERA_INLINE_LAMBDA {
          typename Staged::Line const line(this->centered, this->inverse_length, all.statistics.factor, all.sums);
          T* const to = rows.template data<T>(this->d_in, i);
          Staged::template write_row<false>(
              stage, all.statistics, slopes, gradients, line, unused, this->d_sum.present(),
              [&](auto k, Values const& out) TESSERA_INLINE_LAMBDA {
                if (rows.has(k)) store_pack<Rows::width>(to + k * Rows::step, Atoms::template narrowed<T>(out));
              });
        });
    this->leave(rows, group, gradients);
  }
};

/// Bytes of the workspace for rows of so many columns that teams on all multiprocessors share.
template <class Exec>
std::size_t mailed_norm_backward_workspace(Exec const& exec, std::int64_t rows, std::int64_t columns, int gradients) {
  using Rows = RelayedGradientRows<KernelSpace<Exec>, float>;
  int const teams = Machine<Exec>::concurrency(exec);
  std::int64_t const groups = std::min(rows, mail_groups<Rows>(teams, (columns + Rows::width - 1) / Rows::width));
  return static_cast<std::size_t>(gradients * groups * columns) * sizeof(float) + pack_bytes +
         Rows::Relay::most_post_bytes(teams);
}

/// Starts the kernel for packed rows of T that so many teams share, or as many as there are if 0; returns how many
/// groups of teams have sums to leave, or 0 if they cannot run together, or not with this workspace.
template <class T, class Exec>
std::int64_t start_relayed_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid,
                                         int teams) {
  using Kernel = RelayedNormBackward<KernelSpace<Exec>, T>;
  using Rows = typename Kernel::Rows;
  Kernel kernel{{problem, grid}};
  int const operands = problem.d_sum.present() ? 3 : 2;
  if (teams > 0) {
    kernel.layout = relay_layout<Rows, Kernel>(exec, kernel.grid, teams, operands,
                                               packed_norm_backward_teams(exec, kernel.grid.rows, grid.columns));
  } else {
    kernel.layout = mail_layout<Rows, Kernel>(exec, kernel.grid, operands, [&](int groups, std::size_t bytes) {
      auto* const mail = static_cast<std::byte*>(NormBackwardSums<float>(problem, groups).behind);
      std::ptrdiff_t const before = mail - static_cast<std::byte*>(problem.workspace);
      return before + static_cast<std::ptrdiff_t>(bytes) <= static_cast<std::ptrdiff_t>(problem.workspace_bytes)
                 ? mail
                 : nullptr;
    });
  }
  if (kernel.layout.groups == 0) return 0;
  NormBackwardSums<float> const sums(problem, kernel.layout.groups);
  kernel.d_weights = sums.weights;
  kernel.d_biases = sums.biases;
  launch_relayed<Rows>(problem.label, exec, kernel.layout, operands, kernel);
  return kernel.layout.groups;
}

}  // namespace tessera::detail

#endif
