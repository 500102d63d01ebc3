// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_NORMALIZATION_HPP
#define TESSERA_ROWWISE_RELAYED_NORMALIZATION_HPP

#include <cstddef>
#include <type_traits>

#include <tessera/rowwise/mailed_rows.hpp>
#include <tessera/rowwise/plain_normalization.hpp>
#include <tessera/rowwise/relayed_pairs.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/row_exchange.hpp>
#include <tessera/rowwise/sample_moments.hpp>

namespace tessera::detail {

/// Norms of long rows, whose weight and bias a thread has in registers for all rows: teams that hold a row each
/// (held_rows.hpp) would load them with every one. With two operands the second is the residual; the sums take the
/// place of the row, if `KeepsSums`, or are nowhere.
template <class Exec, class T, int Operands, int Packs, bool KeepsSums = false>
struct RelayedNorm {
  using Rows = std::conditional_t<KeepsSums, RelayedPairs<Exec, T, Packs>, RelayedRows<Exec, T, Packs>>;
  using Atoms = typename Rows::Atoms;
  using Raw = typename Rows::Raw;
  using Values = Pack<float, Rows::width>;
  static constexpr int width = Rows::width, packs = Packs, operands = Operands;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon, inverse_length;
  bool centered;
  RelayLayout layout = {};

  /// Of a row.
  struct Known {
    float center, factor;
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows const rows(team, grid, layout, operands);
    wait_for_kernels_before<Exec>();
    if (rows.relays())
      rows.template relay_rows<SampleMoments>(
          [](int) { return 0; }, [&](auto const& each, int elements) { return joined_by(each, elements); },
          [&](int i, SampleMoments const& all, int) { return known(rows, i, all); });
    else
      take_rows(rows);
  }

 private:
  /// As of RowExchange.
  template <class Each>
  KOKKOS_FORCEINLINE_FUNCTION SampleMoments joined_by(Each const& each, int elements) const {
    if (!centered) return {0, 0, each(Add{}, [](auto const& x) { return x.squares; })};
    return joined_moments(each, static_cast<float>(elements));
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
    Raw slopes[packs], offsets[packs];
    int const of_warp = elements_of_warp<Rows::takers, width>(rows.packs_of_team(), Atoms::thread());
    int of_thread = 0;
    unroll<packs>([&](auto k) { of_thread += rows.has(k) ? width : 0; });
    auto const has = [&](auto k) TESSERA_INLINE_LAMBDA { return rows.has(k); };
    rows.template take_rows<Known>(
        inputs().of,
        [&](int i) TESSERA_INLINE_LAMBDA {
          if (i > 0) return;
          load(rows, weight, T(1.0f), slopes);
          load(rows, bias, T(0.0f), offsets);
        },
        [&](int i, Raw* stage, auto... second) TESSERA_INLINE_LAMBDA {
          if constexpr (KeepsSums) keep_sums(rows, i, stage, second...);
          SampleMoments part;
          if (centered)
            include_packs<packs, width>(
                part, of_thread, [&](auto k) TESSERA_INLINE_LAMBDA { return values(rows, stage, k); }, has);
          else
            unroll<packs>([&](auto k) {
              Values const x = values(rows, stage, k);
              for (int j = 0; j < width; ++j) part.squares += x[j] * x[j];
            });
          return merged_lanes<Atoms>(
              part, [&](auto const& each, int elements) { return joined_by(each, elements); }, of_warp);
        },
        [&](int i, Raw* stage, Known const& all) TESSERA_INLINE_LAMBDA {
          T* const to = rows.template data<T>(out, i);
          unroll<packs>([&](auto k) {
            Values x = values(rows, stage, k);
            Values const slope = Atoms::widened(slopes[k]), offset = Atoms::widened(offsets[k]);
            for (int j = 0; j < width; ++j) x[j] = (x[j] - all.center) * all.factor * slope[j] + offset[j];
            if (rows.has(k)) store_pack<width>(to + k * Rows::step, Atoms::template narrowed<T>(x));
          });
        });
  }
  KOKKOS_FORCEINLINE_FUNCTION auto inputs() const {
    struct Inputs {
      Operand of[operands];
    };
    if constexpr (operands == 1)
      return Inputs{{in}};
    else
      return Inputs{{in, residual}};
  }
  KOKKOS_FORCEINLINE_FUNCTION static void load(Rows const& rows, Operand const& from, T const& missing,
                                               Raw (&to)[packs]) {
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) to[k][j] = missing;
      if (from.present() && rows.has(k))
        to[k] = load_pack<width>(static_cast<T const*>(from.data) + rows.column() + k * Rows::step);
    });
  }
  /// Sums with the residual, as they are rounded, in place of the row and to where they go.
  KOKKOS_FORCEINLINE_FUNCTION void keep_sums(Rows const& rows, int i, Raw* stage, Raw const* residuals) const {
    T* const to = sum.present() ? rows.template data<T>(sum, i) : nullptr;
    unroll<packs>([&](auto k) {
      if (!rows.has(k)) return;
      Raw const all = Atoms::template narrowed<T>(added(stage, residuals, k));
      stage[k * Rows::takers] = all;
      if (sum.present()) store_pack<width>(to + k * Rows::step, all);
    });
  }
  template <class K>
  KOKKOS_FORCEINLINE_FUNCTION static Values added(Raw const* stage, Raw const* residuals, K k) {
    Raw const one = stage[k * Rows::takers], other = residuals[k * Rows::takers];
    Values x = Atoms::widened(one);
    Values const y = Atoms::widened(other);
    for (int j = 0; j < width; ++j) x[j] += y[j];
    return x;
  }
  /// What is normalised.
  template <class K>
  KOKKOS_FORCEINLINE_FUNCTION Values values(Rows const& rows, Raw const* stage, K k) const {
    if constexpr (KeepsSums)
      if (!rows.has(k)) return {};
    if constexpr (operands == 2 && !KeepsSums) {
      return added(stage, stage + packs * Rows::takers, k);
    } else {
      Raw const raw = stage[k * Rows::takers];
      return Atoms::widened(raw);
    }
  }
};

/// Whether rows of T that do not fit a team are normalised faster on their way through scratch than held. Where much of
/// the teams that would hold them is nobody's they are; the mean and a second parameter cost held rows a tenth, but for
/// fp32 that two teams hold.
template <class T>
bool is_relayed_norm(PackedGrid const& rows, bool is_layer_norm) {
  constexpr bool is_wide = sizeof(T) == 4;
  constexpr int of_team = held_threads * held_packs;
  if (is_layer_norm) return !(is_wide && rows.columns > 12288 && rows.columns <= 16384);
  int const teams = (rows.packs + of_team - 1) / of_team;
  return rows.packs < (is_wide ? 0.65 : 0.86) * of_team * teams;
}

/// Starts it for packed rows of T, where operands are as it wants them and rows so long that it is faster than others.
/// Whether it has.
template <class T, class Exec>
bool start_relayed_norm(Exec const& exec, NormProblem const& problem, PackedGrid const& rows, NormOperands const& a) {
  auto const is_parameter = [](Operand const& x) { return !x.present() || (x.type == scalar_of<T> && x.row == 0); };
  if (rows.ragged || a.out.type != scalar_of<T> || !is_parameter(a.weight) || !is_parameter(a.bias)) return false;
  auto const start = [&]<int Operands, int Packs, bool KeepsSums = false>(auto const& lay_out) {
    using Kernel = RelayedNorm<KernelSpace<Exec>, T, Operands, Packs, KeepsSums>;
    Kernel kernel{rows,
                  a.out,
                  a.in,
                  a.weight,
                  a.bias,
                  a.mean,
                  a.rstd,
                  a.residual,
                  a.sum,
                  static_cast<float>(problem.epsilon),
                  static_cast<float>(1.0 / static_cast<double>(rows.columns)),
                  problem.centered};
    kernel.layout = lay_out(std::type_identity<Kernel>{});
    if (kernel.layout.groups == 0) return false;
    kernel.layout.simple = are_simple_rows(rows, a.out, a.in, a.mean, a.rstd, a.residual, a.sum);
    launch_relayed<typename Kernel::Rows>(problem.label, exec, kernel.layout, Operands, kernel);
    return true;
  };
  if (are_mailed<T>(rows, problem.lent)) {
    auto const mail = [&](int, std::size_t bytes) { return bytes <= problem.lent.bytes ? problem.lent.data : nullptr; };
    auto const by_mail = [&]<class Kernel>(std::type_identity<Kernel>) {
      return mail_layout<typename Kernel::Rows, Kernel>(exec, rows, Kernel::operands, mail);
    };
    auto const pairs_by_mail = [&]<class Kernel>(std::type_identity<Kernel>) {
      return mail_layout_of_pairs<typename Kernel::Rows, Kernel>(exec, rows, mail);
    };
    if (!a.residual.present()) return start.template operator()<1, 4>(by_mail);
    // Sums that go nowhere are not rounded.
    if (a.sum.present() || std::is_same_v<T, float>) return start.template operator()<2, 4, true>(pairs_by_mail);
    if constexpr (!std::is_same_v<T, float>)
      return start.template operator()<2, 2>(by_mail) || start.template operator()<2, 4>(by_mail);
  }
  if (a.residual.present() || !a.weight.present() || a.bias.present() != problem.centered ||
      !is_relayed_norm<T>(rows, problem.centered))
    return false;
  return start.template operator()<1, 4>([&]<class Kernel>(std::type_identity<Kernel>) {
    using Rows = typename Kernel::Rows;
    int teams = 1;
    while (teams < most_teams_together && teams * Rows::most_packs < rows.packs) teams *= 2;
    // Of 40960 columns in bf16 179 us in place of 192; three that are full take longer (49152 222, not 216), six, too.
    if (teams == 4 && rows.packs < 2.7 * Rows::most_packs) teams = 3;
    return relay_layout<Rows, Kernel>(exec, rows, teams, 1, rows.rows);
  });
}

}  // namespace tessera::detail

#endif
