// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_MAILED_ROWS_HPP
#define TESSERA_ROWWISE_MAILED_ROWS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/row_workspace.hpp>
#include <tessera/rowwise/relayed_rows.hpp>
#include <tessera/rowwise/row_exchange.hpp>

// The longest packed rows, each of which the teams on all multiprocessors share, or half of them, and so on. As in
// relayed_rows.hpp a thread has the same columns of all rows, and four warps of a team find what is to be known of a
// row while the others go on; here a thread may have any number of packs, which come through scratch, so that the
// scratch of the whole machine has room for several rows of millions of columns. Shorter ones are shared by teams that
// reach each other's scratch.
namespace tessera::detail {

/// One thread's place in such a team, for `Operands` operands that are read, and what it does with its packs; members
/// are those of StreamedRows.
template <class Exec, class T, int Operands, bool ByMail>
class MailedPart {
 public:
  using Space = Exec;
  static constexpr bool ragged = false;
  static constexpr int takers = 512, relayers = 4, threads = takers + 32 * relayers, operands = Operands,
                       width = packed_width<T>, step = takers * width;
  using Atoms = WarpAtoms<Exec>;
  using Element = T;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Relay = detail::Relay<Exec, takers / 32, ByMail>;
  static_assert(Relay::turns % relayers == 0);

  /// A thread's packs of a slot: pack k begins `first` + k * step elements behind the thread's first one of the row, if
  /// it has(k).
  template <int Batch>
  struct Slot {
    static constexpr int batch = Batch;
    Raw packs[Operands][batch];
    int first, left;  // packs of the team from the thread's first one on

    template <class K>
    KOKKOS_FORCEINLINE_FUNCTION bool has(K k) const {
      return k * takers < left;
    }
    KOKKOS_FORCEINLINE_FUNCTION int count() const {
      int all = 0;
      unroll<batch>([&](auto k) { all += has(k) ? 1 : 0; });
      return all;
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Raw raw(K k) const {
      return packs[Operand][k];
    }
    template <int Operand, class K>
    KOKKOS_FORCEINLINE_FUNCTION Values values(K k) const {
      return Atoms::widened(packs[Operand][k]);
    }
  };

  template <class Tag>
  KOKKOS_FORCEINLINE_FUNCTION static void begin(RowStream const&) {}

  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace place(int = 0) const { return place_of(written); }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return own == 0; }
  /// The column of this thread's first pack of a row.
  KOKKOS_FORCEINLINE_FUNCTION int first_column() const { return own * width; }
  /// Where that pack is, of the row that is written and of the one that is read.
  template <class To = T>
  KOKKOS_FORCEINLINE_FUNCTION To* data(Operand const& a) const {
    return data_of<To>(a, written);
  }
  KOKKOS_FORCEINLINE_FUNCTION T* data_of_read(Operand const& a) const { return data_of<T>(a, taken); }
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION bool has_element(Packs const& x, int k, int) const {
    return x.has(k);
  }
  /// Stores pack k, `to` being the place of this thread's first one.
  template <class To, class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* to, Packs const& at, int k, Pack<To, width> const& x) const {
    if (at.has(k)) store_pack<width>(to + at.first + k * step, x);
  }
  template <class To, class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void store_now(To* to, Packs const& at, int k, Pack<To, width> const& x) const {
    store(to, at, k, x);
  }
  template <class To, class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void store_ends(To*, Packs const&) const {}  // as of StreamedRows

 protected:
  /// `beyond` is what lies beyond a row; a team has so many bytes of scratch, of which the relay has the first.
  KOKKOS_FORCEINLINE_FUNCTION MailedPart(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                         Operand const (&of)[Operands], T const (&beyond)[Operands],
                                         std::size_t scratch_bytes, std::size_t relay_bytes)
      : grid(all),
        stream(layout),
        scratch(static_cast<std::byte*>(team.team_scratch(0).get_shmem_aligned(scratch_bytes, 16))),
        relay(scratch, stream.teams,
              stream.mail == nullptr ? nullptr : mail_of_group<Relay>(stream.mail, team.league_rank(), stream.teams),
              team.league_rank() % stream.teams) {
    group = team.league_rank() / stream.teams;
    int const before = (team.league_rank() - group * stream.teams) * stream.part, thread = Atoms::thread();
    rows = (static_cast<int>(grid.rows) - group + stream.streams - 1) / stream.streams;
    own = before + thread;
    packs = before + stream.part < grid.packs ? stream.part : grid.packs - before;
    room = reinterpret_cast<Raw*>(scratch + relay_bytes) + thread;
    unroll<Operands>([&](auto which) {
      from[which] = of[which];
      rest[which] = beyond[which];
    });
    relay.begin();
  }

  KOKKOS_FORCEINLINE_FUNCTION bool relays() const { return Atoms::thread() >= takers; }
  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace place_of(int i) const { return {grid, group + i * stream.streams}; }
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION To* data_of(Operand const& a, int i) const {
    return static_cast<To*>(const_cast<void*>(a.data)) + place_of(i).offset(a) + first_column();
  }
  /// Where the thread's first pack of row i is, of each operand.
  KOKKOS_FORCEINLINE_FUNCTION void sources_of(int i, T const* (&source)[Operands]) const {
    std::int64_t offsets[Operands];
    place_of(i).offsets(from, offsets);
    unroll<Operands>(
        [&](auto which) { source[which] = static_cast<T const*>(from[which].data) + offsets[which] + first_column(); });
  }
  KOKKOS_FORCEINLINE_FUNCTION static Raw filled(T const& x) {
    Raw all;
    for (int j = 0; j < width; ++j) all[j] = x;
    return all;
  }

  template <class Part, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION void relay_rows(Merge const& merge) const {
    relay.wait();
    TESSERA_ROLLED
    for (int i = Atoms::thread() / 32 - takers / 32; i < rows; i += relayers)
      relay.tell(merged_by<Atoms, Part>(relay, i, merge, packs * width, grid.columns), i);
  }

  PackedGrid const& grid;
  RowStream const& stream;
  std::byte* scratch;
  Relay relay;
  Operand from[Operands];
  T rest[Operands];
  Raw* room;  // this thread's place in the stages
  int group, rows;
  int own, packs;              // this thread's first pack of a row; packs of the team's part
  int taken = 0, written = 0;  // the group's rows that are read and written
};

/// The same, with a ring of rows in scratch.
template <class Exec, class T, int Operands>
class MailedRows : public MailedPart<Exec, T, Operands, false> {
  using Base = MailedPart<Exec, T, Operands, false>;
  using Base::grid, Base::stream, Base::scratch, Base::relay, Base::rest, Base::room, Base::rows, Base::packs,
      Base::taken, Base::written, Base::relays;

 public:
  using Base::takers, Base::width, Base::step;
  using typename Base::Atoms, typename Base::Raw, typename Base::Relay;
  static constexpr int batch = 2, packs_with_parameters = batch;
  using Packs = typename Base::template Slot<batch>;
  static constexpr std::size_t operand_bytes = sizeof(Raw) * Operands, slot_bytes = operand_bytes * batch * takers;
  static constexpr int most_stages = Relay::turns - 2, most_ahead = (Relay::turns - 2) / 2, most_ahead_nearby = 3;

  KOKKOS_FUNCTION static std::size_t scratch_bytes(RowStream const& stream) {
    return Relay::bytes + (slot_bytes * static_cast<std::size_t>(stream.ring) +
                           stream.kept_bytes * static_cast<std::size_t>(width * batch * takers)) *
                              static_cast<std::size_t>(stream.slots);
  }

  KOKKOS_FORCEINLINE_FUNCTION MailedRows(TeamMember<Exec> const& team, PackedGrid const& all, RowStream const& layout,
                                         Operand const (&operands)[Operands], T const (&beyond)[Operands])
      : Base(team, all, layout, operands, beyond, scratch_bytes(layout), Relay::bytes) {}

  /// As of StreamedRows.
  template <class Parameter>
  KOKKOS_FORCEINLINE_FUNCTION Parameter const* keep(Parameter const* parameters, std::size_t before) const {
    if (before + sizeof(Parameter) > stream.kept_bytes || relays()) return parameters;
    auto const columns = static_cast<std::size_t>(stream.slots * batch * step);
    auto* const to = reinterpret_cast<Parameter*>(reinterpret_cast<std::byte*>(stage(stream.ring) - Atoms::thread()) +
                                                  before * columns) +
                     Atoms::thread() * width;
    TESSERA_ROLLED
    for (int at = 0; at < packs - Atoms::thread(); at += takers)
      store_pack<width>(to + at * width, load_pack<width>(parameters + at * width));
    return to;
  }
  KOKKOS_FORCEINLINE_FUNCTION void wait_for_kept() const {}  // a thread reads its own

  /// As of StreamedRows.
  template <class Tag, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Begin const& begin, Take const& take, Merge const& merge,
                                            Write const& write) {
    using State = decltype(begin());
    if (relays())
      Base::template relay_rows<decltype(State::part)>(merge);
    else
      take_rows<State>(begin, take, merge, write);
  }

 private:
  /// Stages are (slots, Operands, batch, takers).
  KOKKOS_FORCEINLINE_FUNCTION Raw* stage(int i) const { return room + i * (stream.slots * Operands * batch * takers); }
  KOKKOS_FORCEINLINE_FUNCTION int after(int i) const { return i + 1 < stream.ring ? i + 1 : 0; }

  template <class State, class Begin, class Take, class Merge, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Begin const& begin, Take const& take, Merge const& merge,
                                             Write const& write) {
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring; ++i) clear_beyond(stage(i));
    TESSERA_ROLLED
    for (int i = 0; i < stream.ring - stream.ahead; ++i) copy(i, stage(i));
    relay.wait();
    int const of_warp = elements_of_warp<takers, width>(packs, Atoms::thread());
    int of_taken = 0, of_written = stream.ahead > 0 ? stream.ring - stream.ahead : 0;  // stages of both rows
    TESSERA_ROLLED
    for (taken = 0; taken < rows + stream.ahead; ++taken) {
      if (taken < rows) {
        Atoms::wait_for_copies(stream.ring - stream.ahead - 1);
        State now = begin();
        each_slot(stage(of_taken), [&](Packs const& x) TESSERA_INLINE_LAMBDA { take(now, x); });
        relay.give(merged_lanes<Atoms>(now.part, merge, of_warp), taken);
      }
      written = taken - stream.ahead;
      if (written >= 0)
        write(relay.template told<decltype(State::part)>(written),
              [&](auto const& put, auto) TESSERA_INLINE_LAMBDA { each_slot(stage(of_written), put); });
      copy(written + stream.ring, stage(of_written));
      of_taken = after(of_taken);
      of_written = after(of_written);
    }
  }

  /// f(packs) for the slots of a row that have any of this thread.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_slot(Raw* place, F const& f) const {
    int left = packs - Atoms::thread(), first = 0;
    TESSERA_ROLLED
    for (; left > 0; left -= batch * takers, first += batch * step, place += Operands * batch * takers) {
      Packs x;
      unroll<batch>(
          [&](auto k) { unroll<Operands>([&](auto i) { x.packs[i][k] = place[(i * batch + k) * takers]; }); });
      x.first = first;
      x.left = left;
      f(x);
    }
  }
  /// What no row fills.
  KOKKOS_FORCEINLINE_FUNCTION void clear_beyond(Raw* to) const {
    int left = packs - Atoms::thread();
    TESSERA_ROLLED
    for (int slot = 0; slot < stream.slots; ++slot, left -= batch * takers)
      unroll<batch>([&](auto k) {
        if (k * takers < left) return;
        unroll<Operands>([&](auto i) { to[((slot * Operands + i) * batch + k) * takers] = Base::filled(rest[i]); });
      });
  }
  /// Begins to copy row i, or nothing if there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(int i, Raw* to) const {
    if (i < rows) {
      T const* source[Operands];
      Base::sources_of(i, source);
      int left = packs - Atoms::thread();
      TESSERA_ROLLED
      for (; left > 0; left -= batch * takers, to += Operands * batch * takers)
        unroll<Operands>([&](auto which) {
          unroll<batch>([&](auto k) {
            if (k * takers < left)
              Atoms::copy_ahead(&to[(which * batch + k) * takers], source[which] + k * step, this->grid.once);
          });
          source[which] += batch * step;
        });
    }
    Atoms::end_copies();
  }
};

/// Bytes and columns of the shortest rows that are shared by mail where memory is lent: shorter ones are faster in the
/// registers or the scratch of a few teams.
inline constexpr std::int64_t shortest_mailed_bytes = 1 << 20, shortest_mailed_row = shortest_mailed_bytes / 4;

/// Whether packed rows of T are shared by mail through what is lent, if there is a way.
template <class T>
bool are_mailed(PackedGrid const& rows, LentMemory const& lent) {
  return !rows.ragged && lent.bytes > 0 && rows.columns * static_cast<std::int64_t>(sizeof(T)) >= shortest_mailed_bytes;
}

/// Lays rows out over the teams of all multiprocessors, each of which has room for so many packs of a row, in as many
/// groups as that leaves, up to `most_groups`. No streams: there is no way, or not with so much memory for mail.
template <class Rows, class Kernel, class Exec>
RowStream mailed_groups(Exec const& exec, PackedGrid const& grid, int most_packs, std::int64_t most_groups,
                        LentMemory const& mail) {
  RowStream stream{.streams = 0};
  if (most_packs == 0 || grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return stream;
  int const at_once = std::min(teams_together<Rows::threads, 1, Kernel>(exec, scratch_of_each(exec, 1)),
                               Rows::Relay::most_by_mail),
            fewest_teams = (grid.packs + most_packs - 1) / most_packs;
  int const groups = static_cast<int>(std::min<std::int64_t>({at_once / fewest_teams, grid.rows, most_groups}));
  if (groups == 0 || mail.bytes < Rows::Relay::most_post_bytes(at_once)) return stream;
  stream.part = part_of_team(grid.packs, at_once / groups);
  stream.teams = (grid.packs + stream.part - 1) / stream.part;
  if (stream.teams < Rows::Relay::fewest_by_mail) return stream;
  stream.mail = mail.data;
  stream.streams = groups;
  return stream;
}

/// The same, in as many groups as leave a ring of so many rows room in scratch.
template <class Rows, class Kernel, class Exec>
RowStream mailed_rows(Exec const& exec, PackedGrid const& grid, StreamUse const& use, LentMemory const& mail,
                      int fewest_stages) {
  constexpr int slot_packs = Rows::takers * Rows::batch;
  std::size_t const room = scratch_of_each(exec, 1) - Rows::Relay::bytes,
                    of_slot = use.all_column_bytes() * Rows::width * slot_packs;
  auto const most_slots =
      static_cast<int>(room / (of_slot + static_cast<std::size_t>(fewest_stages) * Rows::slot_bytes));
  RowStream stream = mailed_groups<Rows, Kernel>(exec, grid, most_slots * slot_packs, grid.rows, mail);
  if (stream.streams == 0) return stream;
  stream.slots = (stream.part + slot_packs - 1) / slot_packs;
  stream.kept_bytes = use.all_column_bytes();
  auto const slots = static_cast<std::size_t>(stream.slots);
  stream.ring = static_cast<int>(std::min<std::size_t>((room / slots - of_slot) / Rows::slot_bytes, Rows::most_stages));
  stream.ahead = std::min(stream.ring - 2, Rows::most_ahead);
  return stream;
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has. Parts are on their way for about as long as
/// two rows take: where there is no room for four, some of that is waited for.
template <class Rows, class Exec, class Kernel>
bool launch_mailed(char const* label, Exec const& exec, Kernel kernel, StreamUse const& use, LentMemory const& mail) {
  for (int fewest_stages : {4, 3}) {
    kernel.stream = mailed_rows<Rows, Kernel>(exec, kernel.grid, use, mail, fewest_stages);
    if (kernel.stream.streams == 0) continue;
    launch_by_mail<Rows>(KernelLabel{label, rows_by_mail}, exec, kernel.stream.streams, kernel.stream.teams,
                         kernel.stream.mail, Rows::scratch_bytes(kernel.stream), kernel);
    return true;
  }
  return false;
}

/// The same over teams that reach each other's scratch, whose parts take no mail: so many that most of the machine has
/// packs to work on, counting that a slot takes as long if it is not full and a row as half a slot does. No streams:
/// that is less than `least` of it.
template <class Rows, class Kernel, class Exec>
RowStream nearby_rows(Exec const& exec, PackedGrid const& grid, double least) {
  constexpr int slot_packs = Rows::takers * Rows::batch;
  RowStream best{.streams = 0};
  if (grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return best;
  if (!can_launch_together<Rows::threads, 1, Kernel>(exec)) return best;
  std::size_t const room = scratch_of_each(exec, 1) - Rows::Relay::bytes;
  double const of_machine = static_cast<double>(slot_packs) * Machine<Exec>::concurrency(exec);
  for (int teams = 2; teams <= most_teams_together; ++teams) {
    RowStream stream{.teams = teams};
    stream.part = part_of_team(grid.packs, teams);
    stream.slots = (stream.part + slot_packs - 1) / slot_packs;
    std::size_t const of_row = Rows::slot_bytes * static_cast<std::size_t>(stream.slots);
    stream.ring = static_cast<int>(std::min<std::size_t>(room / of_row, Rows::most_stages));
    if (stream.ring < 3) continue;
    stream.ahead = std::min(stream.ring - 2, Rows::most_ahead_nearby);
    stream.streams = groups_at_once<Rows::threads, 1, Kernel>(exec, teams, Rows::scratch_bytes(stream));
    double const busy = static_cast<double>(grid.packs) * stream.streams / ((stream.slots + 0.5) * of_machine);
    if (busy < least) continue;
    least = busy;
    best = stream;
  }
  best.streams = static_cast<int>(std::min<std::int64_t>(best.streams, grid.rows));
  return best;
}

/// Starts a kernel with the members `grid` and `stream`. Whether it has.
template <class Rows, class Exec, class Kernel>
bool launch_nearby(char const* label, Exec const& exec, Kernel kernel, double least) {
  kernel.stream = nearby_rows<Rows, Kernel>(exec, kernel.grid, least);
  if (kernel.stream.streams == 0) return false;
  launch_together<Rows::threads, 1>(KernelLabel{label, "rows in scratch, several on their way through teams"}, exec,
                                    std::int64_t{kernel.stream.streams} * kernel.stream.teams, kernel.stream.teams,
                                    Rows::scratch_bytes(kernel.stream), kernel);
  return true;
}

template <class Exec>
std::size_t row_workspace(Exec const& exec, std::int64_t columns) {
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    using Rows = MailedRows<KernelSpace<Exec>, float, 1>;
    if (columns >= shortest_mailed_row)
      return Rows::Relay::most_post_bytes(std::min(Machine<Exec>::concurrency(exec), Rows::Relay::most_by_mail));
  }
  return 0;
}

}  // namespace tessera::detail

#endif
