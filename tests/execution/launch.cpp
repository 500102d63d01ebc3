// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/launch.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Every team writes its scratch from end to end and sums it up again.
template <class Exec>
struct FillScratch {
  ViewOf<Exec, std::int64_t*> sums;
  std::size_t bytes;
  KOKKOS_FUNCTION void operator()(detail::TeamMember<Exec> const& team) const {
    int const n = static_cast<int>(bytes / sizeof(int));
    int* const scratch = static_cast<int*>(team.team_shmem().get_shmem(bytes));
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, n), [&](int i) { scratch[i] = i % 7; });
    team.team_barrier();
    std::int64_t sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, n), [&](int i, std::int64_t& x) { x += scratch[n - 1 - i]; }, sum);
    Kokkos::single(Kokkos::PerTeam(team), [&] { sums(team.league_rank()) = sum; });
  }
};

struct Mark {
  int* at;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { at[i] += 1; }
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a team has all the scratch the machine offers", Exec, scratch_id) {
  Exec const e;
  std::size_t const bytes = detail::Machine<Exec>::scratch_limit(e) / 8 * 8;
  CHECK(bytes >= 96 * 1024);
  ViewOf<Exec, std::int64_t*> sums("sums", 5);
  detail::launch<128>("test::scratch", e, 5, bytes, FillScratch<Exec>{sums, bytes});
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < bytes / sizeof(int); ++i) expected += i % 7;
  for (std::int64_t s : values(sums)) CHECK(s == expected);
}
TEST_CASE_TEMPLATE_APPLY(scratch_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("asking for more scratch than there is names both figures", Exec, too_much_id) {
  Exec const e;
  std::size_t const limit = detail::Machine<Exec>::scratch_limit(e);
  ViewOf<Exec, std::int64_t*> sums("sums", 1);
  std::string const what = error_of(
      [&] {
        detail::launch<128>("test::scratch", e, 1, limit + 8, FillScratch<Exec>{sums, 0});
      },
      ErrorCode::scratch);
  CHECK(contains(what, std::to_string(limit)));
  CHECK(contains(what, std::to_string(limit + 8)));
  error_of(
      [&] {
        detail::launch<32>("test::league", e, std::int64_t(1) << 31, 0, FillScratch<Exec>{sums, 0});
      },
      ErrorCode::extent);
}
TEST_CASE_TEMPLATE_APPLY(too_much_id, Spaces);

TEST_CASE("the teams of a launch on a CPU are handed out once, whoever comes") {
  for (int const teams : {1, 2, 5, 16, 17, 1000, 20000})
    for (int const cores : {1, 2, 3, 16, 70, 200}) {
      CAPTURE(teams);
      CAPTURE(cores);
      detail::HostSchedule all(teams, cores), one(teams, cores);
      CHECK(all.cores() <= std::min(teams, cores));
      std::vector<int> by_all(teams), by_one(teams);
      for (int core = 0; core < all.cores(); ++core) all.work(core, [&](int team) { ++by_all.at(team); });
      one.work(one.cores() - 1, [&](int team) { ++by_one.at(team); });
      one.work(0, [](int) { CHECK(false); });
      CHECK(by_all == std::vector<int>(teams, 1));
      CHECK(by_one == by_all);
    }
}

TEST_CASE_TEMPLATE_DEFINE("every index is visited once", Exec, index_id) {
  for (int n : {0, 1, 31, 1000, 65537}) {
    ViewOf<Exec, int*> seen("seen", n);
    detail::for_each_index("test::index", Exec{}, n, Mark{seen.data()});
    for (int x : values(seen)) CHECK(x == 1);
  }
}
TEST_CASE_TEMPLATE_APPLY(index_id, Spaces);
