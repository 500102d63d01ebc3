// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_TAIL_HPP
#define TESSERA_ATTENTION_BACKWARD_TAIL_HPP

#include <algorithm>
#include <cstdint>

#include <tessera/divisor.hpp>

namespace tessera::detail {

/// Tiles of keys that are shared, by `parts` teams each, which have so many of its queries and add their parts of dK
/// and dV to sums or leave them to be added up: where tiles are alike, those that are left when each team has had as
/// many as the others; where they differ, all or none.
struct BackwardTail {
  std::int64_t whole = 0;  // tiles before those
  int shared = 0;
  Divisor parts{1};

  BackwardTail() = default;
  /// Of so many tiles with so many steps each, or up to so many, on a machine of `teams`; `apart`: parts lie in memory
  /// side by side, so that there are not more than a few times as many as teams.
  BackwardTail(std::int64_t tiles, std::int64_t steps, std::int64_t teams, bool differ = false, bool apart = false)
      : whole(tiles) {
    constexpr std::int64_t fewest_steps = 8, apart_a_team = 4;
    std::int64_t const rest = tiles < teams ? tiles : (differ ? 0 : tiles % teams);
    if (rest == 0) return;
    std::int64_t const most_parts = std::min<std::int64_t>(32, apart ? apart_a_team * teams / rest : 32);
    auto least = static_cast<double>(steps) - for_sums;
    for (std::int64_t count = 2; count <= most_parts && steps / count >= fewest_steps; ++count) {
      double const time = steps_in_parts(rest, steps, teams, count, differ);
      if (time >= least) continue;
      least = time;
      parts = Divisor(count);
    }
    if (parts.by == 1) return;
    whole = tiles - rest;
    shared = static_cast<int>(rest);
  }
  /// Sums of dK and of dV, of tiles with so many elements.
  std::int64_t sums_of(int elements) const { return std::int64_t(2) * shared * elements; }
  /// The same of each part, of the one, the other or both in turns.
  std::int64_t sums_apart(int elements, int at_once) const {
    return std::int64_t(at_once) * shared * parts.by * elements;
  }

 private:
  // In steps: what a part begins and ends with, and what sums take to be cleared and to become results (some 2.6 us a
  // step of d 128 and 10 us, on an H200).
  static constexpr double a_part = 3, for_sums = 4;

  static double steps_in_parts(std::int64_t tiles, std::int64_t steps, std::int64_t teams, std::int64_t count,
                               bool differ) {
    double const longest = static_cast<double>((steps + count - 1) / count) + a_part;
    auto const parts = static_cast<double>(tiles * count), of_team = parts / static_cast<double>(teams);
    if (!differ || of_team <= 1) return longest * static_cast<double>((tiles * count + teams - 1) / teams);
    // As under a causal mask half as long on average, the longest first.
    return of_team * (0.5 * longest + 0.5 * a_part) + 0.5 * longest;
  }
};

}  // namespace tessera::detail

#endif
