// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PART_COLUMNS_HPP
#define TESSERA_PART_COLUMNS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// How a team of lanes joins the columns of what other teams have left: `Width` columns a thread, which divide the
/// number of columns and lie at aligned addresses; `Groups` threads share them. Little text, since it runs once and by
/// few teams: most of its time a kernel with many cases would wait for its instructions.
template <class Exec, class Acc, int Width, int Groups>
struct PartColumns {
  static constexpr int threads = 256, groups = Groups, lanes = threads / groups, columns_a_team = lanes * Width;
  using Values = Pack<Acc, Width>;
  static constexpr std::size_t scratch_bytes = groups == 1 ? 0 : threads * sizeof(Values);

  static std::int64_t teams(std::int64_t columns) { return (columns + columns_a_team - 1) / columns_a_team; }

  /// store(column, value) for the team's columns from `first` on: over the (rows, columns) parts by f, of which `none`
  /// is the neutral element. Each thread takes every `groups`-th row, then one has the groups in order.
  template <class Join, class Store>
  KOKKOS_FORCEINLINE_FUNCTION static void join(TeamMember<Exec> const& team, Acc const* parts, std::int64_t rows,
                                               std::int64_t columns, std::int64_t first, Acc none, Join const& f,
                                               Store const& store) {
    int const thread = thread_of<Exec>(team), group = thread / lanes;
    std::int64_t const column = first + thread % lanes * Width;
    Values all;
    for (int j = 0; j < Width; ++j) all[j] = none;
    if (column < columns) {
      constexpr int at_once = 8;
      TESSERA_ROLLED
      for (std::int64_t i = group; i < rows; i += at_once * groups) {
        Values x[at_once];
        unroll<at_once>([&](auto u) {
          if (i + u * groups < rows) x[u] = load_pack<Width>(parts + (i + u * groups) * columns + column);
        });
        unroll<at_once>([&](auto u) {
          if (i + u * groups < rows)
            for (int j = 0; j < Width; ++j) all[j] = f(all[j], x[u][j]);
        });
      }
    }
    if constexpr (groups > 1) {
      auto* const room = static_cast<Values*>(team.team_scratch(0).get_shmem_aligned(std::size_t{scratch_bytes}, 16));
      room[thread] = all;
      team.team_barrier();
      if (thread >= columns_a_team || first + thread >= columns) return;
      auto const* const of_groups = reinterpret_cast<Acc const*>(room) + thread;
      Acc value = of_groups[0];
      unroll<groups - 1>([&](auto g) { value = f(value, of_groups[(g + 1) * columns_a_team]); });
      store(first + thread, value);
    } else if (column < columns) {
      for (int j = 0; j < Width; ++j) store(column + j, all[j]);
    }
  }
};

/// Whether parts of so many columns can be read in packs.
template <class Acc>
bool are_packed_parts(Acc const* parts, std::int64_t columns) {
  return columns % (pack_bytes / sizeof(Acc)) == 0 && reinterpret_cast<std::uintptr_t>(parts) % pack_bytes == 0;
}

/// f(PartColumns{}) for so many parts of so many columns: as many threads a column as have few parts each, which are on
/// their way together; of many columns, of which there are few parts, fewer. `packed` changes nothing of the order.
template <class Exec, class Acc, class F>
void with_part_columns(std::int64_t rows, std::int64_t columns, bool packed, F const& f) {
  constexpr std::int64_t many_columns = 32768, few_parts = 16;
  auto const with_groups = [&](auto width) {
    constexpr int w = decltype(width)::value;
    if (columns < many_columns) return f(PartColumns<Exec, Acc, w, 32>{});
    if (rows > few_parts) return f(PartColumns<Exec, Acc, w, 8>{});
    f(PartColumns<Exec, Acc, w, 1>{});
  };
  if (packed)
    with_groups(Constant<static_cast<int>(pack_bytes / sizeof(Acc))>{});
  else
    with_groups(Constant<1>{});
}

}  // namespace tessera::detail

#endif
