// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_PAIRS_HPP
#define TESSERA_ROWWISE_RELAYED_PAIRS_HPP

#include <algorithm>
#include <cstddef>

#include <tessera/rowwise/relayed_rows.hpp>

namespace tessera::detail {

/// RelayedRows of two operands, by mail, of which the second is in scratch only until its row is taken: take() leaves
/// what is needed of it in the place of the first one. So there is room for more rows that wait. A place in scratch
/// belongs to the thread only if it has() the pack.
template <class Exec, class T, int Packs>
class RelayedPairs : public RelayedRows<Exec, T, Packs, true> {
  using Base = RelayedRows<Exec, T, Packs, true>;
  using Base::layout, Base::relay, Base::mine, Base::rows, Base::left;

 public:
  using Base::takers, Base::step;
  using typename Base::Atoms, typename Base::Raw, typename Base::Relay;
  static constexpr int most_groups = 3;  // in four, a quarter of the teams each, rows take longer
  static constexpr int fewest_on_their_way = 2, most_on_their_way = 4, fewest_ahead = 2;

  KOKKOS_FUNCTION static std::size_t stage_bytes(RelayLayout const& layout) {
    return sizeof(Raw) * static_cast<std::size_t>(layout.part);
  }
  KOKKOS_FUNCTION static std::size_t scratch_bytes(RelayLayout const& layout, int) {
    return Relay::bytes_by_mail(layout.teams) +
           stage_bytes(layout) * static_cast<std::size_t>(layout.stages + layout.second);
  }

  KOKKOS_FORCEINLINE_FUNCTION RelayedPairs(TeamMember<Exec> const& team, PackedGrid const& of_grid,
                                           RelayLayout const& of_launch, int)
      : Base(team, of_grid, of_launch, 2, scratch_bytes(of_launch, 2), 0, Relay::bytes_by_mail(of_launch.teams)) {}

  /// As of RelayedRows, with take(i, stage, second).
  template <class Known, class Expect, class Take, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Operand const (&operands)[2], Expect const& expect, Take const& take,
                                             Write const& write) const {
    TESSERA_ROLLED
    for (int i = 0; i < layout.second; ++i) copy(operands, i, stage(i), stage(layout.stages + i));
    expect(0);
    relay.wait();
    int taken = 0, written = layout.second, of_second = 0;  // stages
    TESSERA_ROLLED
    for (int i = 0; i < rows + layout.ahead; ++i) {
      Raw* const second = stage(layout.stages + of_second);
      if (i < rows) {
        expect(i + 1);
        Atoms::wait_for_copies(layout.second - 1);
        relay.give(take(i, stage(taken), second), i);
      }
      int const known = i - layout.ahead;
      if (known >= 0) write(known, stage(written), relay.template told<Known>(known));
      copy(operands, i + layout.second, stage(written), second);
      taken = after(taken, layout.stages);
      written = after(written, layout.stages);
      of_second = after(of_second, layout.second);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Raw* stage(int i) const { return mine + i * layout.part; }
  KOKKOS_FORCEINLINE_FUNCTION static int after(int i, int stages) { return i + 1 < stages ? i + 1 : 0; }

  /// Begins to copy row i, or nothing if there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(Operand const (&operands)[2], int i, Raw* first, Raw* second) const {
    if (i < rows) {
      std::int64_t offsets[2];
      this->place(i).offsets(operands, offsets);
      T const* source[2];
      unroll<2>([&](auto which) {
        source[which] = static_cast<T const*>(operands[which].data) + offsets[which] + this->column();
      });
      TESSERA_ROLLED
      for (int behind = left; behind > 0; behind -= takers, first += takers, second += takers) {
        Atoms::copy_ahead(first, source[0], this->grid.once);
        Atoms::copy_ahead(second, source[1], this->grid.once);
        unroll<2>([&](auto which) { source[which] += step; });
      }
    }
    Atoms::end_copies();
  }
};

/// As mail_layout().
template <class Rows, class Kernel, class Exec, class Mail>
RelayLayout mail_layout_of_pairs(Exec const& exec, PackedGrid const& grid, Mail const& mail) {
  RelayLayout layout{.groups = 0};
  std::size_t const room = scratch_of_each(exec, 1);
  int const at_once = std::min(teams_together<Rows::threads, 1, Kernel>(exec, room), Rows::Relay::most_by_mail);
  if (!lay_out_by_mail<Rows>(layout, grid, at_once, Rows::most_groups, mail)) return layout;
  auto const stages = static_cast<int>((room - Rows::Relay::bytes_by_mail(layout.teams)) / Rows::stage_bytes(layout));
  layout.ahead = std::min(stages - 2 * Rows::fewest_on_their_way, Rows::most_ahead);
  layout.second = std::min((stages - layout.ahead) / 2, Rows::most_on_their_way);
  layout.stages = layout.ahead + layout.second;
  if (layout.ahead < Rows::fewest_ahead) layout.groups = 0;
  return layout;
}

}  // namespace tessera::detail

#endif
