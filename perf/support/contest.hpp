// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_CONTEST_HPP
#define TESSERA_PERF_CONTEST_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tessera/model.hpp>
#include "support/stopwatch.hpp"

// A contest: several implementations of one operation on the same data, measured in turns, so that a change of clock
// or load meets them all.
namespace tessera::perf {

using Counters = std::map<std::string, double>;

struct Implementation {
  std::string name;
  Launch launch;
  std::string label = {};  ///< what it says about itself, as its plan
  Counters counters = {};
  std::string error = {};    ///< why it cannot run: it is then not measured
  double share = 1;          ///< of the work that one launch does: a slow baseline may do a part, its time is divided
  bool own_threads = false;  ///< a library with threads of its own, which compete with ours for the cores
  bool reads_only = false;   ///< or nearly so: see Conditions
};

struct Case {
  std::string operation, type, variant, shape;
  model::Work work = {};  ///< the fewest operations and bytes
  model::Type arithmetic = model::Type::fp32;
  bool counts_flops = false;  ///< report FLOP/s, otherwise B/s
  bool host_time = false;     ///< what is timed is the host's part of a call
  /// The implementation whose time the others' are given in, as the counter `cost`.
  std::string cost_in = {};
  std::vector<std::string> implementations = {};
  std::string note = {};  ///< where in a model it is met
  /// Makes the operands and what runs on them, in the order of `implementations`.
  std::function<std::vector<Implementation>()> prepare = {};
};

struct Result {
  double seconds = 0;  ///< median
  double spread = 0;   ///< third quartile less first, as a fraction of the median
  int samples = 0;
  int calls = 1;          ///< launches in a sample
  bool replayed = false;  ///< these were a graph
  std::string label, error;
  Counters counters;
};

inline double quantile(std::vector<double> const& sorted, double q) {
  double const at = q * static_cast<double>(sorted.size() - 1);
  auto const low = static_cast<std::size_t>(at);
  std::size_t const high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// One implementation's part in the contest.
struct Contestant {
  Implementation* implementation = nullptr;
  Result* result = nullptr;
  Sampler sampler = {};
  int wanted = 0;  ///< samples
  std::vector<double> samples = {};
};

/// Runs a step of one implementation; what it throws ends its part.
template <class F>
void guarded(Contestant& c, F const& f) {
  try {
    f();
  } catch (std::exception const& e) {
    c.result->error = e.what();
    c.samples.clear();
  }
}

/// Every implementation once to warm up, then in turns until each has used its `seconds` of samples.
/// `tick` is called now and then, to show that something happens.
template <class AnyStopwatch>
std::vector<Result> measure(
    AnyStopwatch& stopwatch, std::vector<Implementation>& implementations, bool bound_by_memory, double seconds,
    int max_samples = AnyStopwatch::max_samples, std::function<void()> const& tick = [] {}) {
  std::vector<Result> results(implementations.size());
  std::vector<Contestant> contestants;
  bool const alone = std::none_of(implementations.begin(), implementations.end(),
                                  [](Implementation const& x) { return x.own_threads; });
  auto const conditions = [&](Implementation const& x) { return Conditions{alone, x.reads_only}; };
  double fastest = INFINITY;
  std::vector<double> estimates;
  for (std::size_t i = 0; i < implementations.size(); ++i) {
    results[i].label = implementations[i].label;
    results[i].counters = implementations[i].counters;
    results[i].error = implementations[i].error;
    if (!results[i].error.empty()) continue;
    Contestant c{&implementations[i], &results[i]};
    tick();
    double estimate = 0;
    guarded(c, [&] {
      estimate = stopwatch.warm_up(c.implementation->launch);
      if (estimate > 2 * seconds) {  // once is enough
        c.samples.push_back(estimate);
        return;
      }
      estimate = stopwatch.sampler(c.implementation->launch, 1, conditions(*c.implementation)).seconds();
      fastest = std::min(fastest, estimate);
    });
    if (!results[i].error.empty()) continue;
    contestants.push_back(c);
    estimates.push_back(estimate);
  }
  int const calls = stopwatch.calls(fastest, bound_by_memory);
  int rounds = 0;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    Contestant& c = contestants[i];
    if (!c.samples.empty()) continue;
    double const affordable = seconds / std::max(estimates[i], 1e-9);
    c.result->calls = static_cast<int>(std::clamp<double>(affordable, 1, calls));
    c.wanted = static_cast<int>(std::clamp<double>(affordable / c.result->calls, 3, max_samples));
    rounds = std::max(rounds, c.wanted);
    guarded(c, [&] {
      c.sampler = stopwatch.sampler(c.implementation->launch, c.result->calls, conditions(*c.implementation));
    });
    c.result->replayed = c.sampler.replayed;
  }
  // What is alone here is compared with other programs' results, which must not depend on what ran before either.
  if constexpr (requires { stopwatch.rest(); })
    if (contestants.size() == 1 && !bound_by_memory) stopwatch.rest();
  for (int round = 0; round < rounds; ++round)
    for (Contestant& c : contestants) {
      if (round >= c.wanted || !c.result->error.empty()) continue;
      tick();
      guarded(c, [&] { c.samples.push_back(c.sampler.seconds()); });
    }
  for (Contestant& c : contestants) {
    if (c.samples.empty()) continue;
    std::sort(c.samples.begin(), c.samples.end());
    double const median = quantile(c.samples, 0.5);
    c.result->seconds = median / c.implementation->share;
    c.result->spread = (quantile(c.samples, 0.75) - quantile(c.samples, 0.25)) / median;
    c.result->samples = static_cast<int>(c.samples.size());
  }
  return results;
}

/// Gives the others' time in that of the implementation called `unit`, as the counter `cost`.
inline void add_costs(std::vector<Implementation> const& implementations, std::string const& unit,
                      std::vector<Result>& results) {
  auto const found = std::find_if(implementations.begin(), implementations.end(),
                                  [&](Implementation const& x) { return x.name == unit; });
  if (found == implementations.end()) return;
  Result const& base = results[static_cast<std::size_t>(found - implementations.begin())];
  for (Result& result : results)
    if (&result != &base && result.seconds > 0 && base.seconds > 0)
      result.counters["cost"] = result.seconds / base.seconds;
}

}  // namespace tessera::perf

#endif
