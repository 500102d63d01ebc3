// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SHARED_ROWS_HPP
#define TESSERA_ROWWISE_SHARED_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/rowwise/packed_rows.hpp>

// Long packed rows: one team, or several that run at the same time and exchange what they have found, share a row. A
// thread keeps 8 packs of it as they are; what is longer still is read twice.
namespace tessera::detail {

inline constexpr int shared_threads = 256, shared_packs = 8, shared_teams_at_once = 3, most_teams_a_row = 8;
inline constexpr int shared_capacity = shared_threads * shared_packs;  // packs that a team keeps

/// One thread's part of such a row, in batches of 16 elements: beside what it keeps, a thread has registers for those.
template <class Exec, class T>
struct SharedRow {
  static constexpr int width = packed_width<T>, batch = 16 / width, warps = shared_threads / 32;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Batch = Raw[batch];

  PackedRowPlace place;
  int first;  // pack of the team's part of the row
  int count;  // packs of that part, without those before this thread's first one
  int teams, lane;

  KOKKOS_FORCEINLINE_FUNCTION SharedRow(PackedGrid const& grid, int team, int teams_a_row)
      : place(grid, team / teams_a_row), teams(teams_a_row), lane(Atoms::thread()) {
    int const part = (grid.packs + teams - 1) / teams;
    first = team % teams * part;
    count = (grid.packs - first < part ? grid.packs - first : part) - lane;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool is_first_lane() const { return lane == 0 && first == 0; }
  /// Pack k of the batch that begins at pack `at` of the team's part.
  KOKKOS_FORCEINLINE_FUNCTION bool has(int at, int k) const { return at + k * shared_threads < count; }
  /// The first element of this thread's first pack; others follow in steps that the compiler knows.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t begin() const { return std::int64_t{first + lane} * width; }
  KOKKOS_FORCEINLINE_FUNCTION static int step(int at, int k) { return (at + k * shared_threads) * width; }

  KOKKOS_FORCEINLINE_FUNCTION void load(Operand const& from, int at, Batch& to, T rest) const {
    T const* const data = static_cast<T const*>(from.data) + place.offset(from) + begin();
    unroll<batch>([&](auto k) {
      for (int j = 0; j < width; ++j) to[k][j] = rest;
      if (has(at, k)) to[k] = load_pack<width>(data + step(at, k));
    });
  }
  template <class To, class Value>
  KOKKOS_FORCEINLINE_FUNCTION void store(Operand const& to, int at, Value const& value) const {
    To* const data = static_cast<To*>(const_cast<void*>(to.data)) + place.offset(to) + begin();
    unroll<batch>([&](auto k) {
      Pack<To, width> const x = Atoms::template narrowed<To>(value(k));
      if (has(at, k)) store_pack<width>(data + step(at, k), x);
    });
  }

  /// f(batch, at) for the batches that are kept, then for the others, after fetch(batch, at).
  template <class Fetch, class F>
  KOKKOS_FORCEINLINE_FUNCTION void for_each_batch(Batch (&kept)[shared_packs / batch], Fetch const& fetch,
                                                  F const& f) const {
    unroll<shared_packs / batch>([&](auto i) { f(kept[i], i * batch * shared_threads); });
    for (int at = shared_capacity; at < count; at += batch * shared_threads) {
      Batch other;
      fetch(other, at);
      f(other, at);
    }
  }

  /// Between two walks: see WarpAtoms.
  KOKKOS_FORCEINLINE_FUNCTION static void renew(Batch (&kept)[shared_packs / batch]) {
    unroll<shared_packs / batch>([&](auto i) { unroll<batch>([&](auto k) { Atoms::renew(kept[i][k]); }); });
  }

  /// merge(x, join), where join(y, f) is f over the y of all that merge, for the lanes of a warp, then the warps of the
  /// team, then the teams of the row.
  template <class Tag, class X, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION X merged(X x, Merge const& merge) const {
    x = merge(x, [](auto y, auto const& f) { return Atoms::template join<32>(y, f); });
    x = merge(Atoms::template share<Tag, warps>(x),
              [](auto y, auto const& f) { return Atoms::template join<warps>(y, f); });
    if (teams == 1) return x;
    // Where teams are fewer than 8, some are there several times: of those only the first has weight.
    x = Atoms::template share_among_teams<Tag>(x, teams);
    if (lane % most_teams_a_row >= teams) x = X{};
    return merge(x, [](auto y, auto const& f) { return Atoms::template join<most_teams_a_row>(y, f); });
  }
};

/// As many teams a row as keep it whole, and more where rows are few; 1 where the machine has no such launch.
template <class Kernel, class Exec>
int teams_a_row(Exec const& exec, PackedGrid const& grid) {
  if (!can_launch_together<shared_threads, shared_teams_at_once, Kernel>(exec)) return 1;
  std::int64_t const at_once = shared_teams_at_once * Machine<Exec>::concurrency(exec);
  int teams = 1;
  while (teams < most_teams_a_row && (grid.packs > teams * shared_capacity || grid.rows * teams * 2 <= at_once))
    teams *= 2;
  return teams;
}

template <class Exec, class Kernel>
void launch_shared(char const* label, Exec const& exec, Kernel kernel) {
  kernel.teams = teams_a_row<Kernel>(exec, kernel.grid);
  launch_together<shared_threads, shared_teams_at_once>(label, exec, kernel.grid.rows * kernel.teams, kernel.teams,
                                                        kernel);
}

}  // namespace tessera::detail

#endif
