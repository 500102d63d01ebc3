// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/error.hpp>
#include <tessera/launch_plan.hpp>
#include <tessera/softmax.hpp>

#include <thread>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("plans are printed, a line for each kernel") {
  LaunchPlan const plan{{{.label = "tessera::softmax",
                          .scheme = "rows in scratch",
                          .teams = 264,
                          .team_threads = 512,
                          .together = 2,
                          .scratch_bytes = 1025},
                         {.label = "tessera::sums", .teams = 1},
                         {.label = "tessera::clear", .indices = 3}}};
  CHECK(to_string(plan) ==
        "tessera::softmax: rows in scratch, 264 teams of 512 threads, 2 at a time, 2 KB scratch\n"
        "tessera::sums: 1 team of 1 thread\n"
        "tessera::clear: 3 indices");
  CHECK(to_string(LaunchPlan{}).empty());
}

TEST_CASE_TEMPLATE_DEFINE("a plan tells by which scheme rows of a length go", Exec, schemes_id) {
  constexpr bool is_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
  Exec const e;
  auto const scheme = [&](int rows, int columns) {
    ViewOf<Exec, bf16_t**> const x("x", rows, columns);
    LaunchPlan const plan = launch_plan([&] { softmax(e, x, x); });
    REQUIRE(plan.kernels.size() == 1);
    CHECK(plan.kernels[0].label == "tessera::softmax");
    CAPTURE(to_string(plan));
    CHECK(plan.kernels[0].team_threads >= 1);
    CHECK((plan.kernels[0].team_threads == 1) == is_host);
    return plan.kernels[0].scheme;
  };
  if (is_host) {
    for (int columns : {1, 64, 1001, 65536}) CHECK(scheme(3, columns) == "rows in a core's cache");
  } else {
    CHECK(scheme(400, 64) == "rows in registers");
    CHECK(scheme(400, 4096) == "rows in registers");
    CHECK(scheme(400, 1001) == "unaligned rows in registers");
    CHECK(scheme(4, 1 << 22).starts_with("rows in scratch"));
  }
  // Neighbours of a row that are not neighbours in memory, and fp64.
  Kokkos::View<float**, Kokkos::LayoutLeft, typename Exec::memory_space> const left("left", 30, 40);
  CHECK(launch_plan([&] { softmax(e, left, left); }).kernels.at(0).scheme.starts_with("element by element"));
  ViewOf<Exec, double**> const wide("wide", 30, 40);
  CHECK(launch_plan([&] { softmax(e, wide, wide); }).kernels.at(0).scheme.starts_with("element by element"));
}
TEST_CASE_TEMPLATE_APPLY(schemes_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("a plan writes nothing and ends with an error", Exec, untouched_id) {
  Exec const e;
  ViewOf<Exec, float**> const in("in", 20, 30), out("out", 20, 30), other("other", 20, 31);
  fill(in, std::vector<float>(600, 1.0f));
  poison(out);
  LaunchPlan const plan = launch_plan([&] {
    softmax(e, out, in);
    LaunchPlan const within = launch_plan([&] { log_softmax(e, out, in); });
    CHECK(within.kernels.at(0).label == "tessera::log_softmax");
    softmax(e, out, in);
  });
  CHECK(plan.kernels.size() == 2);
  CHECK(plan.kernels.at(0) == plan.kernels.at(1));
  Kokkos::fence();
  CHECK(is_poisoned(out));
  CHECK_THROWS_AS(launch_plan([&] { softmax(e, out, other); }), Error);
  // Another thread's launches are its own; what this one starts after an error runs.
  softmax(e, out, in);
  Kokkos::fence();
  CHECK(!is_poisoned(out));
  CHECK(launch_plan([&] { std::thread([] { CHECK(detail::launches_planned == nullptr); }).join(); }).kernels.empty());
  ViewOf<Exec, float**> const none("none", 0, 30);
  CHECK(launch_plan([&] { softmax(e, none, none); }).kernels.empty());
}
TEST_CASE_TEMPLATE_APPLY(untouched_id, Spaces);
