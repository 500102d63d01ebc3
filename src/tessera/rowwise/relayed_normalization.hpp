// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_NORMALIZATION_HPP
#define TESSERA_ROWWISE_RELAYED_NORMALIZATION_HPP

#include <limits>

#include <tessera/rowwise/plain_normalization.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/row_exchange.hpp>
#include <tessera/rowwise/sample_moments.hpp>

namespace tessera::detail {

/// LayerNorm of long rows, with weight and bias, which a thread has in registers for all rows: teams that hold a row
/// each (held_rows.hpp) would load them with every one.
template <class Exec, class T>
struct RelayedLayerNorm {
  using Rows = RelayedRows<Exec, T, 4>;
  using Atoms = typename Rows::Atoms;
  using Raw = typename Rows::Raw;
  using Values = Pack<float, Rows::width>;
  static constexpr int width = Rows::width, packs = Rows::packs;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd;
  float epsilon, inverse_length;
  RelayLayout layout = {};

  /// Of a row.
  struct Known {
    float center, factor;
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows const rows(team, grid, layout, 1);
    wait_for_kernels_before<Exec>();
    if (rows.relays())
      rows.template relay_rows<SampleMoments>(
          [](int) { return 0; },
          [](auto const& each, int elements) { return joined_moments(each, static_cast<float>(elements)); },
          [&](int i, SampleMoments const& all, int) { return known(rows, i, all); });
    else
      take_rows(rows);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION static SampleMoments joined(SampleMoments const& x, int elements) {
    return joined_moments([&](auto const& f, auto const& value) { return Atoms::template join<32>(value(x), f); },
                          static_cast<float>(elements));
  }
  KOKKOS_FORCEINLINE_FUNCTION Known known(Rows const& rows, int i, SampleMoments const& all) const {
    Known const of_row{all.mean, Kokkos::rsqrt(all.squares * inverse_length + epsilon)};
    if (rows.is_first_team() && Atoms::thread() % 32 == 0) {
      if (mean.present()) rows.place(i).template value<float>(mean) = of_row.center;
      if (rstd.present()) rows.place(i).template value<float>(rstd) = of_row.factor;
    }
    return of_row;
  }

  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Rows const& rows) const {
    Raw slopes[packs] = {}, offsets[packs] = {};
    int const of_warp = elements_of_warp<Rows::takers, width>(rows.packs_of_team(), Atoms::thread());
    int of_thread = 0;
    unroll<packs>([&](auto k) { of_thread += rows.has(k) ? width : 0; });
    rows.template take_rows<Known>(
        {in},
        [&](int i) TESSERA_INLINE_LAMBDA {
          if (i > 0) return;
          unroll<packs>([&](auto k) {
            if (!rows.has(k)) return;
            slopes[k] = load_pack<width>(static_cast<T const*>(weight.data) + rows.column() + k * Rows::step);
            offsets[k] = load_pack<width>(static_cast<T const*>(bias.data) + rows.column() + k * Rows::step);
          });
        },
        [&](int, Raw* stage) TESSERA_INLINE_LAMBDA {
          SampleMoments part;
          include_packs<packs, width>(
              part, of_thread, [&](auto k) TESSERA_INLINE_LAMBDA { return values(stage, k); },
              [&](auto k) TESSERA_INLINE_LAMBDA { return rows.has(k); });
          return joined(part, of_warp);
        },
        [&](int i, Raw* stage, Known const& all) TESSERA_INLINE_LAMBDA {
          T* const to = rows.template data<T>(out, i);
          unroll<packs>([&](auto k) {
            Values x = values(stage, k);
            Values const slope = Atoms::widened(slopes[k]), offset = Atoms::widened(offsets[k]);
            for (int j = 0; j < width; ++j) x[j] = (x[j] - all.center) * all.factor * slope[j] + offset[j];
            if (rows.has(k)) store_pack<width>(to + k * Rows::step, Atoms::template narrowed<T>(x));
          });
        });
  }
  template <class K>
  KOKKOS_FORCEINLINE_FUNCTION static Values values(Raw* stage, K k) {
    Raw const raw = stage[k * Rows::takers];
    return Atoms::widened(raw);
  }
};

/// Of shorter ones held rows are as fast.
inline constexpr int shortest_relayed_norm = 65536;

/// Starts it for packed rows of T, where operands are as it wants them and rows so long that it is faster than others.
/// Whether it has.
template <class T, class Exec>
bool start_relayed_norm(Exec const& exec, NormProblem const& problem, PackedGrid const& rows, NormOperands const& a) {
  using Kernel = RelayedLayerNorm<KernelSpace<Exec>, T>;
  using Rows = typename Kernel::Rows;
  auto const is_parameter = [](Operand const& x) { return x.present() && x.type == scalar_of<T> && x.row == 0; };
  if (!problem.centered || rows.ragged || rows.columns < shortest_relayed_norm) return false;
  if (a.residual.present() || a.out.type != scalar_of<T> || !is_parameter(a.weight) || !is_parameter(a.bias))
    return false;
  int teams = 1;
  while (teams < most_teams_together && teams * Rows::most_packs < rows.packs) teams *= 2;
  Kernel kernel{rows,
                a.out,
                a.in,
                a.weight,
                a.bias,
                a.mean,
                a.rstd,
                static_cast<float>(problem.epsilon),
                static_cast<float>(1.0 / static_cast<double>(rows.columns))};
  kernel.layout = relay_layout<Rows, Kernel>(exec, rows, teams, 1, rows.rows);
  if (kernel.layout.groups == 0) return false;
  launch_relayed<Rows>(problem.label, exec, kernel.layout, 1, kernel);
  return true;
}

}  // namespace tessera::detail

#endif
