// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/contest.hpp"

#include <doctest/doctest.h>

using namespace tessera::perf;

namespace {

/// A clock that every launch puts forward by its own time.
struct Bench {
  static constexpr int max_samples = 5;
  double now = 0;
  bool replays = false;
  bool memory = false;
  std::vector<int> sampled;  // calls of each sample, in order

  int calls(double seconds, bool bound_by_memory) {
    memory = bound_by_memory;
    return seconds < 1 ? 10 : 1;
  }
  double warm_up(Launch const& launch) { return sample(launch, 1); }
  Sampler sampler(Launch const& launch, int calls, Conditions const&) {
    return {[this, launch, calls] {
              sampled.push_back(calls);
              return sample(launch, calls);
            },
            replays && calls > 1};
  }
  double sample(Launch const& launch, int calls) {
    double const begin = now;
    for (int i = 0; i < calls; ++i) launch();
    return (now - begin) / calls;
  }
};

Implementation taking(char const* name, Bench& bench, double seconds) {
  return {name, [&bench, seconds] { bench.now += seconds; }};
}

}  // namespace

TEST_CASE("perf: a contest gives medians, in the time of one of them too") {
  Bench bench;
  std::vector<Implementation> all = {taking("tessera", bench, 2), taking("peer", bench, 4)};
  auto results = measure(bench, all, true, 100);
  CHECK(bench.memory);
  CHECK(results[0].seconds == 2);
  CHECK(results[1].seconds == 4);
  CHECK(results[0].spread == 0);
  CHECK(results[0].samples == 5);
  CHECK(results[0].calls == 1);
  add_costs(all, "tessera", results);
  CHECK(results[0].counters.count("cost") == 0);
  CHECK(results[1].counters.at("cost") == 2);
  add_costs(all, "nobody", results);
}

TEST_CASE("perf: short launches are sampled many at a time, all of them as the fastest wants it") {
  Bench bench;
  bench.replays = true;
  std::vector<Implementation> all = {taking("tessera", bench, 0.5), taking("peer", bench, 4)};
  auto const results = measure(bench, all, false, 1000);
  CHECK_FALSE(bench.memory);
  for (auto const& result : results) {
    CHECK(result.calls == 10);
    CHECK(result.replayed);
  }
  CHECK(results[1].seconds == 4);
}

TEST_CASE("perf: slow implementations are sampled less, and those that do a part are scaled") {
  Bench bench;
  std::vector<Implementation> all = {taking("tessera", bench, 1), taking("plain", bench, 30),
                                     taking("slow", bench, 1000)};
  all[1].share = 0.5;
  auto const results = measure(bench, all, false, 100);
  CHECK(results[0].samples == 5);
  CHECK(results[1].samples == 3);
  CHECK(results[1].seconds == 60);
  CHECK(results[2].samples == 1);  // the run that warmed it up took longer than all samples may
  CHECK(results[2].seconds == 1000);
}

TEST_CASE("perf: an implementation that fails says why and stops no other") {
  Bench bench;
  int runs = 0;
  std::vector<Implementation> all = {taking("tessera", bench, 1),
                                     {"throws", [] { throw std::runtime_error("at once"); }},
                                     {"breaks",
                                      [&] {
                                        bench.now += 1;
                                        if (++runs == 4) throw std::runtime_error("later");
                                      }},
                                     {"cannot", {}}};
  all[3].error = "not here";
  auto const results = measure(bench, all, false, 100);
  CHECK(results[0].samples == 5);
  CHECK(results[0].error.empty());
  CHECK(results[1].error == "at once");
  CHECK(results[2].error == "later");
  CHECK(results[2].samples == 0);
  CHECK(results[3].error == "not here");
}

TEST_CASE("perf: the host's part of a call is not what the device does then") {
  Kokkos::DefaultHostExecutionSpace const exec;
  HostStopwatch<Kokkos::DefaultHostExecutionSpace> stopwatch(exec);
  int launched = 0;
  Sampler const sampler = stopwatch.sampler([&] { ++launched; }, stopwatch.calls(1, false), {});
  CHECK(sampler.seconds() >= 0);
  CHECK(launched == stopwatch.calls(1, false));
  CHECK_FALSE(sampler.replayed);
}
