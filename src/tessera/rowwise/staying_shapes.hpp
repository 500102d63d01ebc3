// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STAYING_SHAPES_HPP
#define TESSERA_ROWWISE_STAYING_SHAPES_HPP

#include <algorithm>
#include <bit>
#include <cstdint>

#include <tessera/launch.hpp>
#include <tessera/rowwise/packed_rows.hpp>

// Which shape the rows have whose teams stay for the whole launch, to keep the sums of columns over the rows they meet.
namespace tessera::detail {

inline constexpr int staying_columns = 16;  // of a thread
constexpr int staying_threads(int lanes) { return lanes > 32 ? lanes : 256; }
/// On a multiprocessor: a thread has 128 registers then, one of ten warps or twenty 96.
constexpr int staying_teams_at_once(int threads) { return threads == 320 ? 2 : std::max(512 / threads, 1); }

/// `Lanes` threads a row.
template <int Lanes, int Packs, int Singles = 0>
struct StayingShape : PackedShape<Lanes, staying_threads(Lanes), Packs, Singles> {
  static constexpr int teams_at_once = staying_teams_at_once(staying_threads(Lanes));
};

/// Threads of a team that share a row of so many columns; 0 where that takes several teams. `Narrow` rows are of 16
/// bits: of fp32 96 registers spill, and idle threads cost nothing.
template <bool Narrow>
int staying_lanes(std::int64_t columns) {
  for (int lanes : {4, 8, 16, 32, 64, 128, 256, 320, 512, 640}) {
    bool const is_shape = Narrow || is_power_of_two(lanes);
    if (is_shape && columns <= staying_columns * lanes) return lanes;
  }
  return 0;
}
/// Teams that share it; 0 where it is longer than they keep.
template <bool Narrow>
int staying_teams(std::int64_t columns) {
  if (staying_lanes<Narrow>(columns) > 0) return 1;
  std::int64_t const of_team = std::int64_t{staying_columns} * 512;
  auto teams = static_cast<std::uint64_t>((columns + of_team - 1) / of_team);
  if (!Narrow) teams = std::bit_ceil(teams);
  return teams > most_teams_together ? 0 : static_cast<int>(teams);
}

/// f(Shape{}) for rows of T that so many threads of a team share.
template <class T, class F>
void with_staying_shape(int lanes, F const& f) {
  constexpr int packs = staying_columns / packed_width<T>;
  constexpr bool narrow = sizeof(T) == 2;
  switch (lanes) {
    case 4:
      return f(StayingShape<4, packs>{});
    case 8:
      return f(StayingShape<8, packs>{});
    case 16:
      return f(StayingShape<16, packs>{});
    case 32:
      return f(StayingShape<32, packs>{});
    case 64:
      return f(StayingShape<64, packs>{});
    case 128:
      return f(StayingShape<128, packs>{});
    case 256:
      return f(StayingShape<256, packs>{});
    case 512:
      return f(StayingShape<512, packs>{});
  }
  if constexpr (narrow) {
    if (lanes == 320) return f(StayingShape<320, packs>{});
    if (lanes == 640) return f(StayingShape<640, packs>{});
  }
}

/// The same for ragged rows of so many columns, which one team has, if it keeps as many: two packs a thread, as single
/// elements take registers too, or 8 columns where a team has several rows; of the longest as many as of whole packs.
template <class T, class F>
void with_ragged_staying_shape(std::int64_t columns, F const& f) {
  constexpr int width = packed_width<T>, few = 8 / width;
  std::int64_t const packs = columns / width;
  if (columns <= 16 * 8) return f(StayingShape<16, few, 1>{});
  if (columns <= 32 * 8) return f(StayingShape<32, few, 1>{});
  if (columns <= 32 * 16) return f(StayingShape<32, 2 * few, 1>{});
  if (packs <= 64 * 2) return f(StayingShape<64, 2, 1>{});
  if (packs <= 128 * 2) return f(StayingShape<128, 2, 1>{});
  if (packs <= 256 * 2) return f(StayingShape<256, 2, 1>{});
  if (packs <= 512 * 2) return f(StayingShape<512, 2, 1>{});
  if constexpr (sizeof(T) == 4) {
    if (packs <= 512 * 4) return f(StayingShape<512, 4, 1>{});
  } else if (packs <= 640 * 2) {
    return f(StayingShape<640, 2, 1>{});
  }
}

/// Rows, or as many together as a team has room for, that are worth the sums that it leaves, once every multiprocessor
/// has a team; and teams among whose numbers there is a multiple of every pack's elements, as ragged rows ask for.
inline constexpr std::int64_t fewest_steps_a_team = 4, fewest_teams = 16;

/// How many teams, or groups of teams that share a row, have sums to leave, at most.
template <bool Narrow, class Exec>
std::int64_t packed_norm_backward_teams(Exec const& exec, std::int64_t rows, std::int64_t columns) {
  std::int64_t const teams = staying_teams<Narrow>(columns), lanes = teams == 1 ? staying_lanes<Narrow>(columns) : 512,
                     threads = staying_threads(static_cast<int>(lanes)), rows_a_team = threads / lanes;
  if (teams == 0) return 0;
  std::int64_t const concurrency = Machine<Exec>::concurrency(exec),
                     at_once = staying_teams_at_once(static_cast<int>(threads)) * concurrency / teams;
  std::int64_t const steps = (rows + rows_a_team - 1) / rows_a_team;
  std::int64_t const worthwhile =
      std::max({(steps + fewest_steps_a_team - 1) / fewest_steps_a_team, concurrency, fewest_teams});
  return std::min({steps, worthwhile, std::max<std::int64_t>(at_once, 1)});
}

}  // namespace tessera::detail

#endif
