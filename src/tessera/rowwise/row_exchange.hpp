// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_ROW_EXCHANGE_HPP
#define TESSERA_ROWWISE_ROW_EXCHANGE_HPP

#include <cstddef>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// What merge(), as of RowExchange, makes of the parts of all lanes of a warp, N a lane, which have so many elements.
template <class Atoms, class Part, int N, class Merge>
KOKKOS_FORCEINLINE_FUNCTION Part merged_lanes(Part const (&x)[N], Merge const& merge, int elements) {
  return merge(
      [&](auto const& f, auto const& value) {
        auto all = value(x[0]);
        unroll<N - 1>([&](auto i) { all = f(all, value(x[i + 1])); });
        return Atoms::template join<32>(all, f);
      },
      elements);
}
template <class Atoms, class Part, class Merge>
KOKKOS_FORCEINLINE_FUNCTION Part merged_lanes(Part const& x, Merge const& merge, int elements) {
  return merge([&](auto const& f, auto const& value) { return Atoms::template join<32>(value(x), f); }, elements);
}

/// How the teams of `Threads` threads that share a row find what is to be known of all of it. Up to `MostParts` warps
/// post their parts to all teams; of more the parts of a team are joined first.
///
/// merge(each, elements), where each(f, value) is f over value(x) of all parts x that are joined and `elements` how
/// many those have, is called for the lanes of a warp and then for all warps of the row, or for those of a team and
/// then for all teams; a part{} has no weight.
template <class Exec, int Threads, int MostParts = 32>
struct RowExchange {
  using Atoms = WarpAtoms<Exec>;
  static constexpr int warps = Threads / 32;
  static constexpr std::size_t box_bytes = Atoms::posted_part_bytes * 2 * MostParts;

  void* box;  // box_bytes of scratch
  int teams;

  /// What this thread has found, `turn` counting the rows; `of_warp` and `of_team` are elements.
  template <class Tag, class Part, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION void post(Part const& own, Merge const& merge, int turn, int of_warp, int of_team) const {
    Part part = merged_lanes<Atoms>(own, merge, of_warp);
    if (joins_first && parts_of_team() == 1) {
      Part const x = Atoms::template share_in_turn<Tag, warps>(part, turn & 1);
      part = merge([&](auto const& f, auto const& value) { return Atoms::template join<warps>(value(x), f); }, of_team);
    }
    Atoms::template post_part<Tag>(box, part, teams, parts_of_team(), turn);
  }
  /// Of a row that has so many elements.
  template <class Tag, class Part, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION Part collected(Merge const& merge, int turn, int of_row) const {
    int const parts = teams * parts_of_team();
    auto const over = [&](auto count) {
      constexpr int of_lane = decltype(count)::value;
      Part x[of_lane];
      unroll<of_lane>([&](auto i) { x[i] = Atoms::template posted_part<Tag, Part>(box, parts, turn, 32 * i); });
      return merged_lanes<Atoms>(x, merge, of_row);
    };
    if constexpr (MostParts > 32)
      if (parts > 32) return over(Constant<MostParts / 32>{});
    return over(Constant<1>{});
  }

 private:
  static constexpr bool joins_first = most_teams_together * warps > MostParts;

  KOKKOS_FORCEINLINE_FUNCTION int parts_of_team() const {
    return !joins_first || teams * warps <= MostParts ? warps : 1;
  }
};

/// How many elements the lanes of a warp have together, of so many packs of a team of `Threads` threads.
template <int Threads, int Width>
KOKKOS_FORCEINLINE_FUNCTION int elements_of_warp(int packs, int thread) {
  int const left = packs % Threads - thread / 32 * 32;
  return Width * (packs / Threads * 32 + (left < 0 ? 0 : left < 32 ? left : 32));
}

}  // namespace tessera::detail

#endif
