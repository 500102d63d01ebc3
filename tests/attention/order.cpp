// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which attention's tiles come, and what teams share: portable code, though only a GPU hands tiles out one
// by one.
#include <set>
#include <utility>
#include <vector>

#include <tessera/attention.hpp>
#include <tessera/attention_backward.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;
using detail::PlaneOrder;

namespace {

std::vector<PlaneOrder::Place> places(PlaneOrder const& order, int planes, int rows) {
  std::vector<PlaneOrder::Place> all;
  for (int t = 0; t < planes * rows; ++t) all.push_back(order(t));
  return all;
}

/// Every tile once. Those of a plane from the longest on, or plane by plane where they are alike.
void check_order(PlaneOrder const& order, int planes, int rows, bool differ) {
  CAPTURE(planes);
  CAPTURE(rows);
  std::set<std::pair<int, int>> seen;
  std::vector<int> next(planes);
  int last_plane = 0;
  for (auto const& place : places(order, planes, rows)) {
    REQUIRE(place.plane >= 0);
    REQUIRE(place.plane < planes);
    REQUIRE(place.row == next[place.plane]++);
    if (!differ) REQUIRE(place.plane >= last_plane);
    last_plane = place.plane;
    REQUIRE(seen.insert({place.plane, place.row}).second);
  }
  CHECK(seen.size() == static_cast<std::size_t>(planes) * rows);
}

}  // namespace

TEST_CASE("attention: every tile comes once, the longest of a plane first") {
  for (int planes : {1, 2, 3, 4, 5, 8, 31, 32, 33, 36, 37, 100})
    for (int rows : {1, 2, 7, 16})
      for (bool differ : {false, true}) {
        PlaneOrder order(planes, rows, differ);
        check_order(order, planes, rows, differ);
        for (std::int64_t bytes :
             {std::int64_t(0), std::int64_t(1) << 10, std::int64_t(1) << 21, std::int64_t(1) << 40}) {
          order.for_a_team_each(bytes);
          check_order(order, planes, rows, differ);
        }
      }
  CHECK(places(PlaneOrder(0, 16, true), 0, 16).empty());
}

TEST_CASE("attention: with a team a tile the last tiles of all are short ones") {
  int const planes = 64, rows = 16;
  PlaneOrder order(planes, rows, true);
  auto const rows_from = [&](int t) {
    std::set<int> found;
    for (; t < planes * rows; ++t) found.insert(order(t).row);
    return found;
  };
  CHECK(rows_from((planes - 4) * rows).count(0) == 1);  // four planes at a time
  order.for_a_team_each(1 << 20);                       // 24 of them stay in cache
  CHECK(rows_from((planes - 4) * rows).count(0) == 0);
  CHECK(rows_from((planes - 24) * rows).size() == rows);
  order.for_a_team_each(1 << 28);  // none does: four, as before
  CHECK(rows_from((planes - 4) * rows).count(0) == 1);
}

TEST_CASE("gradients: tiles that are left are shared where that takes fewer steps") {
  auto const tail = [](std::int64_t tiles, std::int64_t steps) { return detail::BackwardTail(tiles, steps, 132); };
  auto const alone = [](detail::BackwardTail const& t, std::int64_t tiles) {
    return t.whole == tiles && t.shared == 0 && t.parts.by == 1;
  };
  CHECK(alone(detail::BackwardTail(), 0));
  CHECK(alone(tail(0, 64), 0));
  CHECK(alone(tail(1, 0), 1));
  CHECK(alone(tail(132, 64), 132));  // a tile a team
  CHECK(alone(tail(1980, 64), 1980));
  CHECK(alone(tail(131, 64), 131));  // all but one have one
  CHECK(alone(tail(1, 15), 1));      // too few steps
  for (std::int64_t tiles : {1, 3, 16, 68, 100, 160, 500, 2048})
    for (std::int64_t steps : {16, 33, 64, 256, 4096}) {
      detail::BackwardTail const t = tail(tiles, steps);
      CAPTURE(tiles);
      CAPTURE(steps);
      CHECK(t.whole + t.shared == tiles);
      CHECK((t.whole % 132 == 0 || t.shared == 0));
      CHECK((t.shared > 0) == (t.parts.by > 1));
      CHECK(steps / t.parts.by >= (t.parts.by > 1 ? 8 : 0));
    }
  auto const differing = [](std::int64_t n, std::int64_t steps) { return detail::BackwardTail(n, steps, 132, true); };
  CHECK(alone(differing(132, 256), 132));  // as many as teams, the longest first
  CHECK(alone(differing(100, 12), 100));
  CHECK(differing(32, 256).whole == 0);
  CHECK(differing(32, 256).shared == 32);
  CHECK(differing(32, 256).parts.by >= 8);
  CHECK(tail(16, 256).parts.by == 8);  // 128 teams, one round
  CHECK(tail(2048, 256).shared == 68);
  CHECK(tail(2048, 256).parts.by == 7);  // 476 in four rounds
  auto const apart = [](std::int64_t n, std::int64_t steps) { return detail::BackwardTail(n, steps, 132, true, true); };
  for (std::int64_t tiles : {1, 3, 40, 100, 131})
    for (std::int64_t steps : {16, 256, 4096}) CHECK(apart(tiles, steps).shared * apart(tiles, steps).parts.by <= 528);
  CHECK(apart(1, 4096).parts.by == 32);
}
