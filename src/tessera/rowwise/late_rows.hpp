// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LATE_ROWS_HPP
#define TESSERA_ROWWISE_LATE_ROWS_HPP

#include <algorithm>
#include <cstddef>

#include <tessera/rowwise/relayed_rows.hpp>

namespace tessera::detail {

/// RelayedRows of three operands, by mail, the third of which is needed only when a row is written, and in scratch only
/// of the row that is written next. So there is room for more rows that wait. A place in scratch belongs to the thread
/// only if it has() the pack: others read what is not theirs, of which nothing may come.
template <class Exec, class T, int Packs>
class LateRows : public RelayedRows<Exec, T, Packs, true> {
  using Base = RelayedRows<Exec, T, Packs, true>;
  using Base::layout, Base::relay, Base::mine, Base::rows, Base::left;

 public:
  using Base::takers, Base::step, Base::width, Base::packs;
  using typename Base::Atoms, typename Base::Raw, typename Base::Relay;
  static constexpr int on_their_way = 2;

  /// A row's packs that are this thread's. Guarded, those that it has not got are zero.
  template <bool Guarded>
  struct Stage {
    Raw const *both, *late;  // the first two operands, and the third one
    int part, left;
    KOKKOS_FORCEINLINE_FUNCTION Raw pack(int operand, int k) const {
      Raw const* const from = operand == 2 ? late : both + operand * part;
      if constexpr (!Guarded) return from[k * takers];
      Raw x;
      for (int j = 0; j < width; ++j) x[j] = T(0.0f);
      if (k * takers < left) x = from[k * takers];
      return x;
    }
  };

  /// Of an operand.
  KOKKOS_FUNCTION static std::size_t stage_bytes(RelayLayout const& layout) {
    return sizeof(Raw) * static_cast<std::size_t>(layout.part);
  }
  /// Of all that stages take.
  KOKKOS_FUNCTION static std::size_t stages_bytes(RelayLayout const& layout) {
    return stage_bytes(layout) * static_cast<std::size_t>(2 * layout.stages + 1);
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

  KOKKOS_FORCEINLINE_FUNCTION LateRows(TeamMember<Exec> const& team, PackedGrid const& of_grid,
                                       RelayLayout const& of_launch, int)
      : Base(team, of_grid, of_launch, 2, scratch_bytes(of_launch, 3), stages_bytes(of_launch), 0) {}

  /// As of RelayedRows, with a Stage, which has the third operand when a row is written.
  template <class Known, class Expect, class Take, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Operand const (&operands)[3], Expect const& expect, Take const& take,
                                             Write const& write) const {
    int const part = layout.part, of_stage = 2 * part, end = layout.stages * of_stage;
    Raw* const late = mine + end;
    TESSERA_ROLLED
    for (int i = 0; i < on_their_way; ++i) {
      Atoms::end_copies();  // of what is late, none
      copy(operands, i, mine + i * of_stage);
    }
    expect(0);
    relay.wait();
    int taken = 0, written = on_their_way * of_stage;  // stages
    auto const move = [&](int& stage) TESSERA_INLINE_LAMBDA {
      stage += of_stage;
      if (stage == end) stage = 0;
    };
    TESSERA_ROLLED
    for (int i = 0; i < rows + layout.ahead; ++i) {
      if (i < rows) {
        expect(i + 1);
        Atoms::wait_for_copies(2 * on_their_way - 2);
        relay.give(take(i, Stage<true>{mine + taken, late, part, left}), i);
      }
      int const known = i - layout.ahead;
      if (known >= 0) {
        Atoms::wait_for_copies(1);
        write(known, Stage<false>{mine + written, late, part, left}, relay.template told<Known>(known));
      }
      copy_late(operands[2], known + 1, late);
      copy(operands, i + on_their_way, mine + written);
      move(taken);
      move(written);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void copy_packs(Operand const& operand, std::int64_t offset, Raw* to) const {
    T const* const from = static_cast<T const*>(operand.data) + offset + this->column();
    unroll<packs>([&](auto k) {
      if (this->has(k)) Atoms::template copy_ahead_at<k * takers, k * step>(to, from);
    });
  }
  /// Begins to copy row i, or nothing if there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(Operand const (&operands)[3], int i, Raw* to) const {
    if (i < rows) {
      std::int64_t at[2];
      this->place(i).offsets({operands[0], operands[1]}, at);
      unroll<2>([&](auto which) { copy_packs(operands[which], at[which], to + which * layout.part); });
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
RelayLayout mail_layout_of_late(Exec const& exec, PackedGrid const& grid, Mail const& mail) {
  RelayLayout layout{.groups = 0};
  std::size_t const room = scratch_of_each(exec, 1);
  int const at_once = std::min(teams_together<Rows::threads, 1, Kernel>(exec, room), Rows::Relay::most_by_mail);
  if (!lay_out_by_mail<Rows>(layout, grid, at_once, grid.rows, mail)) return layout;
  auto const stages = static_cast<int>((room - Rows::bytes_behind(layout)) / Rows::stage_bytes(layout));
  layout.ahead = std::min((stages - 1) / 2 - Rows::on_their_way, Rows::most_ahead);
  layout.stages = layout.ahead + Rows::on_their_way;
  if (layout.ahead < 1) layout.groups = 0;
  return layout;
}

}  // namespace tessera::detail

#endif
