// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_MAILED_PAIRS_HPP
#define TESSERA_ROWWISE_MAILED_PAIRS_HPP

#include <algorithm>
#include <cstddef>

#include <tessera/rowwise/mailed_rows.hpp>

// Rows of two operands by mail, as in mailed_rows.hpp, that take a good part of the scratch of the whole machine. The
// second operand is there only until its row is taken; while the row waits for its mail, threads have that in
// registers:
//
//     scratch     rows that wait (first operand) | rows on their way (both)
//     registers   rows that wait (second one)
//
// so that three rows wait where there would be room for one. The loop over rows is unrolled by as many, since registers
// have no addresses. Nothing may be spilled: what comes from there waits behind all rows that are on their way.
namespace tessera::detail {

/// One thread's part in such a team. Its members are those of StreamedRows.
template <class Exec, class T>
class MailedPairs : public MailedPart<Exec, T, 2, true> {
  using Base = MailedPart<Exec, T, 2, true>;
  using Base::stream, Base::relay, Base::room, Base::rows, Base::packs, Base::taken, Base::written;

 public:
  using Base::takers, Base::width, Base::step;
  using typename Base::Atoms, typename Base::Raw, typename Base::Relay;
  using Packs = typename Base::template Slot<1>;
  static constexpr int of_thread = 4, most_packs = of_thread * takers;  // of a row
  static constexpr int waiting = 3, fewest_on_their_way = 2, most_on_their_way = 4;
  static constexpr int most_groups = 3;  // in four, a quarter of the teams each, rows take longer
  static_assert(waiting <= (Relay::turns - 2) / 2);

  KOKKOS_FUNCTION static std::size_t scratch_bytes(RowStream const& stream) {
    return Relay::bytes_by_mail(stream.teams) +
           operand_bytes(stream) * static_cast<std::size_t>(stream.ring + stream.ring - waiting);
  }
  /// Of a team's part of a row.
  KOKKOS_FUNCTION static std::size_t operand_bytes(RowStream const& stream) {
    return sizeof(Raw) * static_cast<std::size_t>(stream.part);
  }

  KOKKOS_FORCEINLINE_FUNCTION MailedPairs(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                          Operand const (&operands)[2], T const (&beyond)[2])
      : Base(team, all, layout, operands, beyond, scratch_bytes(layout), Relay::bytes_by_mail(layout.teams)) {}

  /// As of StreamedRows.
  template <class Tag, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Begin const& begin, Take const& take, Merge const& merge,
                                            Write const& write) {
    using State = decltype(begin());
    if (Base::relays())
      Base::template relay_rows<decltype(State::part)>(merge);
    else
      take_rows<State>(begin, take, merge, write);
  }

 private:
  using Held = Raw[of_thread];

  /// Of the first operand there are stream.ring stages, and behind them those of the second one.
  KOKKOS_FORCEINLINE_FUNCTION Raw* stage(int i) const { return room + i * stream.part; }
  KOKKOS_FORCEINLINE_FUNCTION static int after(int i, int stages) { return i + 1 < stages ? i + 1 : 0; }
  KOKKOS_FORCEINLINE_FUNCTION int left() const { return packs - Atoms::thread(); }

  template <class State, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Begin const& begin, Take const& take, Merge const& merge,
                                             Write const& write) {
    int const on_their_way = stream.ring - waiting;
    TESSERA_ROLLED
    for (int i = 0; i < on_their_way; ++i) copy(i, stage(i), stage(stream.ring + i));
    relay.wait();
    int const of_warp = elements_of_warp<takers, width>(packs, Atoms::thread());
    int of_taken = 0, of_written = on_their_way, of_second = 0;  // stages
    Held held[waiting];
    TESSERA_ROLLED
    for (int i = 0; i < rows + waiting; i += waiting)
      unroll<waiting>([&](auto w) TESSERA_INLINE_LAMBDA {
        taken = i + w;
        Raw* const second = stage(stream.ring + of_second);
        if (taken < rows) {
          Atoms::wait_for_copies(on_their_way - 1);
          State now = begin();
          each_taken(stage(of_taken), second, [&](Packs const& x) TESSERA_INLINE_LAMBDA { take(now, x); });
          relay.give(merged_lanes<Atoms>(now.part, merge, of_warp), taken);
        }
        written = taken - waiting;
        if (written >= 0 && written < rows)
          write(relay.template told<decltype(State::part)>(written),
                [&](auto const& put, auto) TESSERA_INLINE_LAMBDA { each_written(stage(of_written), held[w], put); });
        unroll<of_thread>([&](auto k) {
          if (k * takers < left()) held[w][k] = second[k * takers];
        });
        copy(taken + on_their_way, stage(of_written), second);
        of_taken = after(of_taken, stream.ring);
        of_written = after(of_written, stream.ring);
        of_second = after(of_second, on_their_way);
      });
  }

  /// f(packs) for each pack of this thread.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_taken(Raw const* first, Raw const* second, F const& f) const {
    Packs x;
    x.first = 0;
    x.left = left();
    TESSERA_ROLLED
    for (; x.left > 0; x.left -= takers, x.first += step, first += takers, second += takers) {
      x.packs[0][0] = *first;
      x.packs[1][0] = *second;
      f(x);
    }
  }
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_written(Raw const* first, Held const& second, F const& f) const {
    unroll<of_thread>([&](auto k) {
      Packs x;
      x.first = k * step;
      x.left = left() - k * takers;
      if (x.left <= 0) return;
      x.packs[0][0] = first[k * takers];
      x.packs[1][0] = second[k];
      f(x);
    });
  }
  /// Begins to copy row i, or nothing if there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(int i, Raw* first, Raw* second) const {
    if (i < rows) {
      T const* source[2];
      Base::sources_of(i, source);
      TESSERA_ROLLED
      for (int behind = left(); behind > 0; behind -= takers, first += takers, second += takers) {
        Atoms::copy_ahead(first, source[0], this->grid.once);
        Atoms::copy_ahead(second, source[1], this->grid.once);
        unroll<2>([&](auto which) { source[which] += step; });
      }
    }
    Atoms::end_copies();
  }
};

/// As mailed_rows().
template <class Rows, class Kernel, class Exec>
RowStream mailed_pairs(Exec const& exec, PackedGrid const& grid, LentMemory const& mail) {
  RowStream stream = mailed_groups<Rows, Kernel>(exec, grid, Rows::most_packs, Rows::most_groups, mail);
  if (stream.streams == 0) return stream;
  auto const stages = static_cast<int>((scratch_of_each(exec, 1) - Rows::Relay::bytes_by_mail(stream.teams)) /
                                       Rows::operand_bytes(stream));
  int const on_their_way = std::min((stages - Rows::waiting) / 2, Rows::most_on_their_way);
  stream.ring = on_their_way + Rows::waiting;
  if (on_their_way < Rows::fewest_on_their_way) stream.streams = 0;
  return stream;
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has.
template <class Rows, class Exec, class Kernel>
bool launch_mailed_pairs(char const* label, Exec const& exec, Kernel kernel, LentMemory const& mail) {
  kernel.stream = mailed_pairs<Rows, Kernel>(exec, kernel.grid, mail);
  if (kernel.stream.streams == 0) return false;
  launch_by_mail<Rows>(
      KernelLabel{label, "rows in scratch and registers, several on their way through all multiprocessors"}, exec,
      kernel.stream.streams, kernel.stream.teams, kernel.stream.mail, Rows::scratch_bytes(kernel.stream), kernel);
  return true;
}

}  // namespace tessera::detail

#endif
