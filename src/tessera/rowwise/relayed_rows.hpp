// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELAYED_ROWS_HPP
#define TESSERA_ROWWISE_RELAYED_ROWS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/relay.hpp>
#include <tessera/rowwise/row_exchange.hpp>
#include <tessera/rowwise/row_stream.hpp>
#include <tessera/unroll.hpp>

// Long packed rows that several teams share which run at the same time and stay for the whole launch, so that a thread
// has the same columns of all rows. It finds its part of what is to be known of a row as soon as the row is there,
// gives it away, and goes on with the next rows until what has come of it is told; meanwhile four warps of the team,
// which have no columns, send the parts to the other teams and join what these send:
//
//     512 threads   takes row i   |  writes row i - ahead  |  row i - ahead + stages is on its way  |  i + 1 ...
//     128 threads                 `- parts of row i -> all teams -> what is known of it, told -'
//
// No thread that has columns ever waits for another one, so that a row costs what its elements cost. Teams that can
// reach each other's scratch send parts there; if it takes more, up to one on every multiprocessor, by mail through
// memory that the caller lends.
namespace tessera::detail {

/// How the rows of a launch are laid out.
struct RelayLayout {
  int teams = 1, groups = 1;  // that share a row; groups of them, each of which has every `groups`-th row
  int part = 0;               // packs of a row that a team has
  int stages = 1, ahead = 0;  // rows that a team has in scratch; of them those of which all is not known yet
  int second = 0;             // rows of the second operand that it has there, if these are fewer
  bool simple = false;        // rows of one matrix that are less than 2^31 elements apart in every operand
  void* mail = nullptr;       // by which parts go
};

/// What a warp that relays row i makes of the parts of its team, which have so many elements, and of all teams' parts.
template <class Atoms, class Part, class Relay, class Merge>
KOKKOS_FORCEINLINE_FUNCTION Part merged_by(Relay const& relay, int i, Merge const& merge, int of_team, int of_row) {
  Part const own = merged_lanes<Atoms>(relay.template given<Part>(i), merge, of_team);
  return relay.exchange(own, i, [&](Part const(&all)[Relay::of_lane]) TESSERA_INLINE_LAMBDA {
    return merged_lanes<Atoms>(all, merge, of_row);
  });
}

/// Where the mail of the group of this team is, of groups of so many teams.
template <class Relay>
KOKKOS_FORCEINLINE_FUNCTION void* mail_of_group(void* mail, int team, int teams) {
  return static_cast<std::byte*>(mail) + team / teams * Relay::post_bytes(teams);
}

/// A row of a launch: PackedRowPlace, for which one multiplication an operand is enough if rows are simple.
struct RelayedPlace {
  PackedGrid const& grid;
  int row;
  bool simple;

  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return simple ? simple_offset(a) : PackedRowPlace(grid, row).offset(a);
  }
  /// Of several operands, with one question.
  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void offsets(Operand const (&of)[N], std::int64_t (&to)[N]) const {
    if (simple) {
      unroll<N>([&](auto i) { to[i] = simple_offset(of[i]); });
    } else {
      PackedRowPlace const at(grid, row);
      unroll<N>([&](auto i) { to[i] = at.offset(of[i]); });
    }
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value& value(Operand const& a) const {
    return static_cast<Value*>(const_cast<void*>(a.data))[offset(a)];
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t simple_offset(Operand const& a) const {
    return static_cast<std::int64_t>(row) * static_cast<std::int32_t>(a.row);
  }
};

/// Whether all that an operation has are such rows.
template <class... Operands>
bool are_simple_rows(PackedGrid const& grid, Operands const&... all) {
  return grid.flat && ((all.row >= 0 && all.row <= std::numeric_limits<std::int32_t>::max()) && ...);
}

/// One thread's part of rows of T, `Packs` packs of each of up to three operands.
template <class Exec, class T, int Packs, bool ByMail = false>
class RelayedRows {
 public:
  static constexpr int takers = 512, relayers = 4, threads = takers + 32 * relayers, packs = Packs,
                       width = packed_width<T>, step = takers * width, most_stages = 6;
  static constexpr bool borrows_registers = false;  // from the threads that relay
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Relay = detail::Relay<Exec, takers / 32, ByMail>;
  static constexpr int most_ahead = (Relay::turns - 2) / 2, most_ahead_nearby = 3, most_packs = takers * packs;
  static_assert(Relay::turns % relayers == 0);

  KOKKOS_FUNCTION static std::size_t stage_bytes(int operands) { return sizeof(Raw) * packs * takers * operands; }
  KOKKOS_FUNCTION static std::size_t scratch_bytes(RelayLayout const& layout, int operands) {
    return Relay::bytes + stage_bytes(operands) * static_cast<std::size_t>(layout.stages);
  }

  /// Before the kernels before have ended.
  KOKKOS_FORCEINLINE_FUNCTION RelayedRows(TeamMember<Exec> const& team, PackedGrid const& of_grid,
                                          RelayLayout const& of_launch, int operands)
      : RelayedRows(team, of_grid, of_launch, operands, scratch_bytes(of_launch, operands), 0, Relay::bytes) {}

  KOKKOS_FORCEINLINE_FUNCTION bool relays() const { return Atoms::thread() >= takers; }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_team() const { return begin == Atoms::thread() * width; }
  /// Whether the group has a row i, and its place.
  KOKKOS_FORCEINLINE_FUNCTION bool is_row(int i) const { return i < rows; }
  KOKKOS_FORCEINLINE_FUNCTION int which_group() const { return group; }
  KOKKOS_FORCEINLINE_FUNCTION RelayedPlace place(int i) const {
    return {grid, group + i * layout.groups, layout.simple};
  }
  /// Pack k begins k * step elements behind the thread's first one, if it has(k); that is at this column.
  KOKKOS_FORCEINLINE_FUNCTION bool has(int k) const { return k * takers < left; }
  KOKKOS_FORCEINLINE_FUNCTION int column() const { return begin; }
  template <class X>
  KOKKOS_FORCEINLINE_FUNCTION X* data(Operand const& a, int i) const {
    return static_cast<X*>(const_cast<void*>(a.data)) + place(i).offset(a) + column();
  }

  KOKKOS_FORCEINLINE_FUNCTION int packs_of_team() const { return left + Atoms::thread(); }

  /// For threads that relay: of every row i they tell known(i, all, load(i)), where load() comes before parts are
  /// waited for and merge(each, elements) is as of RowExchange.
  template <class Part, class Load, class Merge, class Known>
  KOKKOS_FORCEINLINE_FUNCTION void relay_rows(Load const& load, Merge const& merge, Known const& known) const {
    relay.wait();
    TESSERA_ROLLED
    for (int i = Atoms::thread() / 32 - takers / 32; i < rows; i += relayers) {
      auto const loaded = load(i);
      relay.tell(known(i, merged_by<Atoms, Part>(relay, i, merge, packs_of_team() * width, grid.columns), loaded), i);
    }
  }

  /// For the others. take(i, stage) gives a warp's part of row i, and write(i, stage, known) follows. expect(i) comes
  /// before row i - 1 is waited for, and if that is the last one, too: what is loaded when a row has come waits behind
  /// those that are on their way.
  template <class Known, int Operands, class Expect, class Take, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void take_rows(Operand const (&operands)[Operands], Expect const& expect,
                                             Take const& take, Write const& write) const {
    TESSERA_ROLLED
    for (int i = 0; i < layout.stages; ++i) clear_beyond<Operands>(mine + i * stage_packs);
    TESSERA_ROLLED
    for (int i = 0; i < layout.stages - layout.ahead; ++i) copy(operands, i, mine + i * stage_packs);
    expect(0);
    relay.wait();
    int const on_their_way = layout.stages - layout.ahead, end = layout.stages * stage_packs;
    int taken = 0, written = layout.ahead > 0 ? on_their_way * stage_packs : 0;  // stages of rows i and i - ahead
    auto const move = [&](int& stage) TESSERA_INLINE_LAMBDA {
      stage += stage_packs;
      if (stage == end) stage = 0;
    };
    TESSERA_ROLLED
    for (int i = 0; i < rows + layout.ahead; ++i) {
      if (i < rows) {
        expect(i + 1);
        if (on_their_way == 2)  // as it is; with nothing else to choose from rows take up to a tenth longer
          Atoms::wait_for_copies(1);
        else
          Atoms::wait_for_copies(on_their_way - 1);
        relay.give(take(i, mine + taken), i);
      }
      int const known = i - layout.ahead;
      if (known >= 0) write(known, mine + written, relay.template told<Known>(known));
      copy(operands, known + layout.stages, mine + written);
      move(taken);
      move(written);
    }
  }

 protected:
  KOKKOS_FORCEINLINE_FUNCTION RelayedRows(TeamMember<Exec> const& team, PackedGrid const& of_grid,
                                          RelayLayout const& of_launch, int operands, std::size_t bytes,
                                          std::size_t relay_at, std::size_t stages_at)
      : grid(of_grid),
        layout(of_launch),
        scratch(Atoms::settled(static_cast<std::byte*>(team.team_scratch(0).get_shmem_aligned(bytes, 16)))),
        relay(scratch + relay_at, layout.teams,
              layout.mail == nullptr ? nullptr : mail_of_group<Relay>(layout.mail, team.league_rank(), layout.teams),
              team.league_rank() % layout.teams),
        stage_packs(operands * packs * takers) {
    group = team.league_rank() / layout.teams;
    int const before = (team.league_rank() - group * layout.teams) * layout.part, thread = Atoms::thread();
    rows = (static_cast<int>(grid.rows) - group + layout.groups - 1) / layout.groups;
    begin = (before + thread) * width;
    left = (before + layout.part < grid.packs ? layout.part : grid.packs - before) - thread;
    mine = reinterpret_cast<Raw*>(scratch + stages_at) + thread;
    relay.begin();
  }

  PackedGrid const& grid;
  RelayLayout const& layout;
  std::byte* scratch;
  Relay relay;
  int stage_packs;  // of all threads, of all operands
  int group, rows;
  int begin, left;  // the thread's first column; packs of the team from there on
  Raw* mine;        // this thread's place in scratch

 private:
  /// What no row fills is zero throughout.
  template <int Operands>
  KOKKOS_FORCEINLINE_FUNCTION void clear_beyond(Raw* to) const {
    unroll<packs>([&](auto k) {
      if (has(k)) return;
      for (int which = 0; which < Operands && which * packs * takers < stage_packs; ++which)
        for (int j = 0; j < width; ++j) to[(which * packs + k) * takers][j] = T(0.0f);
    });
  }
  /// Begins to copy row i, or nothing if there is none.
  template <int Operands>
  KOKKOS_FORCEINLINE_FUNCTION void copy(Operand const (&operands)[Operands], int i, Raw* to) const {
    if (i < rows) {
      std::int64_t offsets[Operands];
      place(i).offsets(operands, offsets);
      unroll<Operands>([&](auto which) {
        if (which * packs * takers >= stage_packs) return;
        T const* const from = static_cast<T const*>(operands[which].data) + offsets[which] + column();
        unroll<packs>([&](auto k) {
          if (has(k)) Atoms::template copy_ahead_at<(which * packs + k) * takers, k * step>(to, from);
        });
      });
    }
    Atoms::end_copies();
  }
};

/// A word a thread.
template <class Exec>
struct ClearMail {
  static constexpr int threads = 256;
  static constexpr bool starts_early = true;
  std::uint64_t* words;
  std::int64_t count;

  std::int64_t teams() const { return (count + a_team - 1) / a_team; }
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    std::int64_t const i = team.league_rank() * std::int64_t{a_team} + thread_of<Exec>(team);
    if (i < count) words[i] = 0;
  }

 private:
  static constexpr int a_team = Machine<Exec>::threads(threads);
};

template <class Rows, class Exec>
int relay_stages(Exec const& exec, int operands) {
  return static_cast<int>(std::min<std::size_t>(
      (scratch_of_each(exec, 1) - Rows::Relay::bytes) / Rows::stage_bytes(operands), Rows::most_stages));
}

/// Lays rows out over so many teams, `operands` of which are read, in at most `most_groups` groups. No groups: teams
/// cannot run together, or do not hold a row.
template <class Rows, class Kernel, class Exec>
RelayLayout relay_layout(Exec const& exec, PackedGrid const& grid, int teams, int operands, std::int64_t most_groups) {
  RelayLayout layout{.teams = teams, .groups = 0};
  layout.part = part_of_team(grid.packs, teams);
  if (teams > most_teams_together || layout.part > Rows::most_packs) return layout;
  if (grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return layout;
  if (!can_launch_together<Rows::threads, 1, Kernel>(exec)) return layout;
  layout.stages = relay_stages<Rows>(exec, operands);
  if (layout.stages < 2) return layout;
  layout.ahead = std::min(layout.stages - 2, Rows::most_ahead_nearby);
  layout.stages = layout.ahead + 2;  // three rows on their way, not two: 512x131072 115 -> 118 us
  std::int64_t const at_once =
      groups_at_once<Rows::threads, 1, Kernel>(exec, teams, Rows::scratch_bytes(layout, operands));
  layout.groups = static_cast<int>(std::min({at_once, most_groups, grid.rows}));
  return layout;
}

/// How many groups of so many teams can have a row each, of so many packs.
template <class Rows>
std::int64_t mail_groups(int teams, std::int64_t packs) {
  return teams / ((packs + Rows::most_packs - 1) / Rows::most_packs);
}

/// Lays rows out over so many teams that send parts by mail, in as many groups as can have a row each, up to
/// `most_groups`. mail(groups, bytes) is where so many bytes of memory are, or nullptr. Whether there is a way.
template <class Rows, class Mail>
bool lay_out_by_mail(RelayLayout& layout, PackedGrid const& grid, int at_once, std::int64_t most_groups,
                     Mail const& mail) {
  layout.groups = 0;
  auto const groups = static_cast<int>(std::min({mail_groups<Rows>(at_once, grid.packs), grid.rows, most_groups}));
  if (groups == 0 || grid.rows > std::numeric_limits<std::int32_t>::max() / 4) return false;
  layout.part = part_of_team(grid.packs, at_once / groups);
  layout.teams = (grid.packs + layout.part - 1) / layout.part;
  if (layout.teams < Rows::Relay::fewest_by_mail) return false;
  layout.mail = mail(groups, groups * Rows::Relay::post_bytes(layout.teams));
  if (layout.mail != nullptr) layout.groups = groups;
  return layout.mail != nullptr;
}

/// The same over teams on all multiprocessors. No groups: there is no way.
template <class Rows, class Kernel, class Exec, class Mail>
RelayLayout mail_layout(Exec const& exec, PackedGrid const& grid, int operands, Mail const& mail) {
  RelayLayout layout{.groups = 0};
  layout.stages = relay_stages<Rows>(exec, operands);
  if (layout.stages < 3) return layout;  // as parts are on their way for longer, one more
  layout.ahead = std::min(layout.stages - 2, Rows::most_ahead);
  int const at_once = std::min(teams_together<Rows::threads, 1, Kernel>(exec, Rows::scratch_bytes(layout, operands)),
                               Rows::Relay::most_by_mail);
  lay_out_by_mail<Rows>(layout, grid, at_once, grid.rows, mail);
  return layout;
}

inline constexpr char rows_by_mail[] = "rows in scratch, several on their way through all multiprocessors";

/// Starts a kernel of teams that send parts by mail.
template <class Rows, class Exec, class Kernel>
void launch_by_mail(KernelLabel const& label, Exec const& exec, int groups, int teams, void* mail, std::size_t scratch,
                    Kernel const& kernel) {
  auto const words = groups * static_cast<std::int64_t>(Rows::Relay::post_bytes(teams) / sizeof(std::uint64_t));
  ClearMail<KernelSpace<Exec>> const clear{static_cast<std::uint64_t*>(mail), words};
  launch<clear.threads>(KernelLabel{label.operation, "no mail"}, exec, clear.teams(), 0, clear);
  launch_all_together<Rows::threads, 1>(label, exec, groups * teams, scratch, kernel);
}

template <class Rows, class Exec, class Kernel>
void launch_relayed(char const* label, Exec const& exec, RelayLayout const& layout, int operands,
                    Kernel const& kernel) {
  if (layout.mail != nullptr)
    return launch_by_mail<Rows>(KernelLabel{label, rows_by_mail}, exec, layout.groups, layout.teams, layout.mail,
                                Rows::scratch_bytes(layout, operands), kernel);
  launch_together<Rows::threads, 1>(KernelLabel{label, "rows in scratch, several on their way through teams"}, exec,
                                    std::int64_t{layout.groups} * layout.teams, layout.teams,
                                    Rows::scratch_bytes(layout, operands), kernel);
}

}  // namespace tessera::detail

#endif
