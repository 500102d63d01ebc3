// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_RELAYED_NORMALIZATION_BACKWARD_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/rowwise/long_norm_gradient.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/staying_shapes.hpp>
#include <tessera/rowwise/waiting_rows.hpp>

namespace tessera::detail {

template <class Exec, class T>
using RelayedGradientRows = RelayedRows<Exec, T, staying_columns / packed_width<T>>;
template <class Exec, class T>
using RelayedNormGradient =
    StagedNormGradient<Exec, T, RelayedGradientRows<Exec, T>::takers, RelayedGradientRows<Exec, T>::packs>;

template <class Exec, class T, bool Adds>
using MailedGradientRows = WaitingRows<Exec, T, staying_columns / packed_width<T>, Adds>;

/// Gradients of norms whose rows are too long for a team. The sums of a thread's columns stay in its registers.
template <class Exec, class T, class OfRows>
struct RelayedNormBackward : LongNormGradient<RelayedNormGradient<Exec, T>> {
  using Rows = OfRows;
  using Staged = RelayedNormGradient<Exec, T>;
  using Base = LongNormGradient<Staged>;
  using typename Base::Atoms, typename Base::Sums, typename Base::Statistics;
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
    if (rows.relays()) {
      if constexpr (Rows::borrows_registers) Rows::Relay::lend();
      rows.template relay_rows<Sums>([&](int i) { return this->statistics(rows.place(i)); },
                                     [](auto const& each, int) { return Base::joined_by(each); },
                                     [](int, Sums const& all, Statistics const& own) {
                                       return Known{all, own};
                                     });
    } else {
      if constexpr (Rows::borrows_registers) Rows::Relay::borrow();
      take_rows(rows);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Rows const& rows) const {
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
        [&](int, auto const& stage)
            TESSERA_INLINE_LAMBDA { return Base::joined(Staged::template sums_of<false>(stage, now, slopes, unused)); },
        [&](int i, auto const& stage, Known const& all) TESSERA_INLINE_LAMBDA {
          typename Staged::Line const line(this->centered, this->inverse_length, all.statistics.factor, all.sums);
          T* const to = rows.template data<T>(this->d_in, i);
          Staged::template write_row<false>(
              stage, all.statistics, slopes, gradients, line, unused, this->d_sum.present(),
              [&](auto k, Values const& out) TESSERA_INLINE_LAMBDA {
                if (rows.has(k)) store_pack<Rows::width>(to + k * Rows::step, Atoms::template narrowed<T>(out));
              });
        });
    this->leave(rows, rows.which_group(), gradients);
  }
};

/// Bytes of the workspace for rows of so many columns that teams on all multiprocessors share.
template <class Exec>
std::size_t mailed_norm_backward_workspace(Exec const& exec, std::int64_t rows, std::int64_t columns, int gradients) {
  using Rows = MailedGradientRows<KernelSpace<Exec>, float, false>;
  int const teams = Machine<Exec>::concurrency(exec);
  std::int64_t const groups = std::min(rows, mail_groups<Rows>(teams, (columns + Rows::width - 1) / Rows::width));
  return static_cast<std::size_t>(gradients * groups * columns) * sizeof(float) + pack_bytes +
         Rows::Relay::most_post_bytes(teams);
}

/// Starts a kernel for packed rows, laid out by lay_out(kernel, operands), if teams can run together.
template <class Kernel, class Exec, class LayOut>
NormBackwardParts start_relayed_norm_backward(Exec const& exec, NormBackwardProblem const& problem,
                                              TileGrid const& grid, LayOut const& lay_out) {
  Kernel kernel{{problem, grid}};
  int const operands = problem.d_sum.present() ? 3 : 2;
  kernel.layout = lay_out(kernel, operands);
  int const groups = kernel.layout.groups;
  if (groups == 0) return {};
  kernel.layout.simple =
      are_simple_rows(kernel.grid, kernel.d_in, kernel.d_out, kernel.in, kernel.d_sum, kernel.mean, kernel.rstd);
  auto const may_leave = [&](RowArray const& a) {
    return is_packed_operand(a, grid, Kernel::width, scalar_of<typename Kernel::Staged::Element>);
  };
  kernel.leaves_gradients = groups == 1 && may_leave(problem.d_weight) && may_leave(problem.d_bias);
  NormBackwardSums<float> const sums(problem, groups);
  auto const place = [&](RowArray const& gradient, float* sum) {
    return kernel.leaves_gradients ? static_cast<float*>(const_cast<void*>(gradient.data)) : sum;
  };
  kernel.d_weights = place(problem.d_weight, sums.weights);
  kernel.d_biases = place(problem.d_bias, sums.biases);
  launch_relayed<typename Kernel::Rows>(problem.label, exec, kernel.layout, operands, kernel);
  return {groups, kernel.leaves_gradients};
}

/// Of rows of T that so many teams share.
template <class T, class Exec>
NormBackwardParts start_relayed_norm_backward(Exec const& exec, NormBackwardProblem const& problem,
                                              TileGrid const& grid, int teams) {
  using Space = KernelSpace<Exec>;
  using Kernel = RelayedNormBackward<Space, T, RelayedGradientRows<Space, T>>;
  return start_relayed_norm_backward<Kernel>(exec, problem, grid, [&](Kernel const& kernel, int operands) {
    return relay_layout<typename Kernel::Rows, Kernel>(
        exec, kernel.grid, teams, operands,
        packed_norm_backward_teams<sizeof(T) == 2>(exec, kernel.grid.rows, grid.columns));
  });
}

/// Of rows of T that as many teams share as there are, if the workspace is large enough. What is added to a gradient is
/// there when a row is written.
template <class T, class Exec>
NormBackwardParts start_mailed_norm_backward(Exec const& exec, NormBackwardProblem const& problem,
                                             TileGrid const& grid) {
  auto const mail = [&](int groups, std::size_t bytes) {
    auto* const behind = static_cast<std::byte*>(NormBackwardSums<float>(problem, groups).behind);
    std::ptrdiff_t const before = behind - static_cast<std::byte*>(problem.workspace);
    return before + static_cast<std::ptrdiff_t>(bytes) <= static_cast<std::ptrdiff_t>(problem.workspace_bytes)
               ? behind
               : nullptr;
  };
  auto const start = [&]<bool Adds>(std::bool_constant<Adds>) {
    using Space = KernelSpace<Exec>;
    using Kernel = RelayedNormBackward<Space, T, MailedGradientRows<Space, T, Adds>>;
    return start_relayed_norm_backward<Kernel>(exec, problem, grid, [&](Kernel const& kernel, int) {
      return mail_layout_of_waiting<typename Kernel::Rows, Kernel>(exec, kernel.grid, mail);
    });
  };
  return problem.d_sum.present() ? start(std::true_type{}) : start(std::false_type{});
}

}  // namespace tessera::detail

#endif
