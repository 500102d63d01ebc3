// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_WAITING_ROWS_HPP
#define TESSERA_ROWWISE_WAITING_ROWS_HPP

#include <algorithm>
#include <cstddef>

#include <tessera/rowwise/relayed_rows.hpp>

namespace tessera::detail {

/// RelayedRows by mail of two operands, or of three, of which more rows wait than scratch has room for: of the second
/// operand, the `held` that have waited longest are in registers (of fp32, whose rows are few), and of the third
/// (`Late`), which is needed only when a row is written, there is the row that is written next.
///
///     first operand   scratch: on their way, then waiting  | written
///     second                   on their way, then waiting  | registers, written
///     third                                       on its way | written
///
/// A place in scratch belongs to the thread only if it has() the pack: others read what is not theirs, of which nothing
/// may come.
template <class Exec, class T, int Packs, bool Late>
class WaitingRows : public RelayedRows<Exec, T, Packs, true> {
  using Base = RelayedRows<Exec, T, Packs, true>;
  using Base::layout, Base::relay, Base::mine, Base::rows, Base::left;

 public:
  using Base::takers, Base::step, Base::width, Base::packs;
  using typename Base::Atoms, typename Base::Raw, typename Base::Relay;
  static constexpr int operands = Late ? 3 : 2, on_their_way = 2, held = sizeof(T) == 2 ? 0 : Late ? 2 : 1;
  static constexpr bool borrows_registers = held * packs > 4;

  /// A row's packs that are this thread's while it is taken; those that it has not got are zero.
  struct Taken {
    Raw const *first, *second;
    int left;
    KOKKOS_FORCEINLINE_FUNCTION Raw pack(int operand, int k) const {
      Raw x;
      for (int j = 0; j < width; ++j) x[j] = T(0.0f);
      if (k * takers < left) x = (operand == 0 ? first : second)[k * takers];
      return x;
    }
  };
  /// And when it is written.
  struct Written {
    Raw const *first, *second, *late;
    Raw const (&kept)[packs];  // of the second operand, if any is
    KOKKOS_FORCEINLINE_FUNCTION Raw pack(int operand, int k) const {
      if (held > 0 && operand == 1) return kept[k];
      return (operand == 0 ? first : operand == 1 ? second : late)[k * takers];
    }
  };

  /// Of an operand.
  KOKKOS_FUNCTION static std::size_t stage_bytes(RelayLayout const& layout) {
    return sizeof(Raw) * static_cast<std::size_t>(layout.part);
  }
  /// Stages of all operands, where so many rows wait.
  KOKKOS_FUNCTION static int stages(int ahead) { return 2 * (ahead + on_their_way) - held + (Late ? 1 : 0); }
  KOKKOS_FUNCTION static std::size_t stages_bytes(RelayLayout const& layout) {
    return stage_bytes(layout) * static_cast<std::size_t>(stages(layout.ahead));
  }
  /// Behind the stages: the relay's, or as much as is read of what is not there.
  KOKKOS_FUNCTION static std::size_t bytes_behind(RelayLayout const& layout) {
    std::size_t const box = Relay::bytes_by_mail(layout.teams),
                      beyond = sizeof(Raw) * packs * takers - stage_bytes(layout);
    return box < beyond ? beyond : box;
  }
  KOKKOS_FUNCTION static std::size_t scratch_bytes(RelayLayout const& layout, int) {
    return stages_bytes(layout) + bytes_behind(layout);
  }

  KOKKOS_FORCEINLINE_FUNCTION WaitingRows(TeamMember<Exec> const& team, PackedGrid const& of_grid,
                                          RelayLayout const& of_launch, int)
      : Base(team, of_grid, of_launch, 2, scratch_bytes(of_launch, operands), stages_bytes(of_launch), 0) {}

  /// As of RelayedRows, with a Taken and a Written.
  template <class Known, class Expect, class Take, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Operand const (&all)[3], Expect const& expect, Take const& take,
                                             Write const& write) const {
    int const part = layout.part, of_first = layout.ahead + on_their_way, of_second = of_first - held;
    Raw* const seconds = mine + of_first * part;
    Raw* const late = seconds + of_second * part;
    TESSERA_ROLLED
    for (int i = 0; i < on_their_way; ++i) {
      if constexpr (Late) Atoms::end_copies();  // none yet
      copy(all, i, mine + i * part, seconds + i * part);
    }
    expect(0);
    relay.wait();
    // Stages: of the rows that are taken and written, and of the row whose second operand leaves scratch.
    int taken = 0, second_taken = 0, written = on_their_way, leaving = on_their_way % of_second;
    auto const move = [](int& stage, int stages) TESSERA_INLINE_LAMBDA { stage = stage + 1 < stages ? stage + 1 : 0; };
    Raw kept[most_held][packs] = {};
    TESSERA_ROLLED
    for (int i = 0; i < rows + layout.ahead; ++i) {
      if (i < rows) {
        expect(i + 1);
        Atoms::wait_for_copies((on_their_way - 1) * (operands - 1));
        relay.give(take(i, Taken{mine + taken * part, seconds + second_taken * part, left}), i);
      }
      Raw* const second = seconds + leaving * part;
      int const known = i - layout.ahead;
      if (known >= 0) {
        if constexpr (Late) Atoms::wait_for_copies(1);
        write(known, Written{mine + written * part, second, late, kept[0]}, relay.template told<Known>(known));
      }
      keep(second, kept);
      if constexpr (Late) copy_late(all[2], known + 1, late);
      copy(all, i + on_their_way, mine + written * part, second);
      move(taken, of_first);
      move(written, of_first);
      move(second_taken, of_second);
      move(leaving, of_second);
    }
  }

 private:
  static constexpr int most_held = held > 0 ? held : 1;

  /// The row that has waited longest makes room for one that leaves scratch.
  KOKKOS_FORCEINLINE_FUNCTION void keep(Raw const* from, Raw (&kept)[most_held][packs]) const {
    if constexpr (held > 0)
      unroll<packs>([&](auto k) {
        unroll<held - 1>([&](auto row) { kept[row][k] = kept[row + 1][k]; });
        if (this->has(k)) kept[held - 1][k] = from[k * takers];
      });
  }
  KOKKOS_FORCEINLINE_FUNCTION void copy_packs(Operand const& operand, std::int64_t offset, Raw* to) const {
    T const* const from = static_cast<T const*>(operand.data) + offset + this->column();
    unroll<packs>([&](auto k) {
      if (this->has(k)) Atoms::template copy_ahead_at<k * takers, k * step>(to, from);
    });
  }
  /// Begins to copy row i, or nothing if there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(Operand const (&all)[3], int i, Raw* first, Raw* second) const {
    if (i < rows) {
      std::int64_t at[2];
      this->place(i).offsets({all[0], all[1]}, at);
      copy_packs(all[0], at[0], first);
      copy_packs(all[1], at[1], second);
    }
    Atoms::end_copies();
  }
  KOKKOS_FORCEINLINE_FUNCTION void copy_late(Operand const& operand, int i, Raw* to) const {
    if (i >= 0 && i < rows) copy_packs(operand, this->place(i).offset(operand), to);
    Atoms::end_copies();
  }
};

/// As mail_layout().
template <class Rows, class Kernel, class Exec, class Mail>
RelayLayout mail_layout_of_waiting(Exec const& exec, PackedGrid const& grid, Mail const& mail) {
  RelayLayout layout{.groups = 0};
  std::size_t const room = scratch_of_each(exec, 1);
  int const at_once = std::min(teams_together<Rows::threads, 1, Kernel>(exec, room), Rows::Relay::most_by_mail);
  if (!lay_out_by_mail<Rows>(layout, grid, at_once, grid.rows, mail)) return layout;
  auto const stages = static_cast<int>((room - Rows::bytes_behind(layout)) / Rows::stage_bytes(layout));
  layout.ahead = std::max(Rows::held, 1);
  while (layout.ahead < Rows::most_ahead && Rows::stages(layout.ahead + 1) <= stages) ++layout.ahead;
  layout.stages = layout.ahead + Rows::on_their_way;
  if (Rows::stages(layout.ahead) > stages) layout.groups = 0;
  return layout;
}

}  // namespace tessera::detail

#endif
