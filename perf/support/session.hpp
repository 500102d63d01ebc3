// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_SESSION_HPP
#define TESSERA_PERF_SESSION_HPP

#include <benchmark/benchmark.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/model.hpp>
#include "support/arguments.hpp"
#include "support/contest.hpp"
#include "support/context.hpp"
#include "support/stopwatch.hpp"

// Contests as Google Benchmarks: every implementation is a benchmark, the first of a contest to be run measures all.
namespace tessera::perf {

/// The roofline's view of a case; zeros when the machine's figures are not known.
inline model::Roofline prediction(model::DeviceModel const& device, Case const& c) {
  try {
    return model::roofline(device, c.arithmetic, c.work);
  } catch (Error const&) {
    return {};
  }
}

/// The counters of a measured result.
inline Counters counters_of(model::DeviceModel const& device, Case const& c, Result const& result) {
  Counters counters = result.counters;
  counters["samples"] = result.samples;
  counters["calls"] = result.calls;
  counters["replayed"] = result.replayed ? 1 : 0;
  counters["spread"] = result.spread;
  if (c.host_time) return counters;
  counters[c.counts_flops ? "flops" : "bytes"] = (c.counts_flops ? c.work.flops : c.work.bytes) / result.seconds;
  model::Roofline const roofline = prediction(device, c);
  if (roofline.seconds > 0) {
    counters["predicted"] = roofline.seconds;
    counters["of_roofline"] = roofline.seconds / result.seconds;
    counters["intensity"] = c.work.bytes > 0 ? c.work.flops / c.work.bytes : 0;
  }
  return counters;
}

/// Google Benchmark adds how it timed to the name ("/iterations:1/manual_time"); ours say what was measured, no more.
template <class Run>
std::vector<Run> with_plain_names(std::vector<Run> runs) {
  for (Run& run : runs) {
    run.run_name.iterations.clear();
    run.run_name.time_type.clear();
  }
  return runs;
}

class JsonReporter : public benchmark::JSONReporter {
 public:
  explicit JsonReporter(nlohmann::ordered_json context) : context_(std::move(context)) {}
  bool ReportContext(Context const&) override {
    GetOutputStream() << "{\n\"context\": " << context_.dump(2) << ",\n\"benchmarks\": [\n";
    return true;
  }
  void ReportRuns(std::vector<Run> const& runs) override {
    benchmark::JSONReporter::ReportRuns(with_plain_names(runs));
    GetOutputStream().flush();
  }

 private:
  nlohmann::ordered_json context_;
};

/// "1.23 ms"
inline std::string readable(double value, char const* unit, double step = 1000) {
  static char const* const large[] = {"", "k", "M", "G", "T", "P"};
  static char const* const small[] = {"", "m", "u", "n", "p"};
  int power = 0;
  for (; value >= step && power < 5; ++power) value /= step;
  for (; value > 0 && value < 1 && power > -4; --power) value *= step;
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f %s%s",
                value < 10    ? 2
                : value < 100 ? 1
                              : 0,
                value, power < 0 ? small[-power] : large[power], unit);
  return text;
}

/// One line a benchmark, as it finishes.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  TableReporter(nlohmann::ordered_json const& context, std::size_t name_width)
      : context_(context), width_(static_cast<int>(std::max<std::size_t>(name_width, 9))) {}

  bool ReportContext(Context const&) override {
    std::printf("%s, %s, %s of main memory\n", context_["device"].get<std::string>().c_str(),
                context_["backend"].get<std::string>().c_str(),
                readable(context_["bandwidth_bytes_per_second"].get<double>(), "B/s").c_str());
    if (context_.contains("random_shapes"))
      std::printf("random shapes: %s\n", context_["random_shapes"].get<std::string>().c_str());
    std::printf("%-*s %10s %14s %9s %10s %7s\n", width_, "benchmark", "time", "rate", "roofline", "predicted",
                "spread");
    std::fflush(stdout);
    return true;
  }
  void ReportRuns(std::vector<Run> const& runs) override {
    for (Run const& run : with_plain_names(runs)) print(run);
    std::fflush(stdout);
  }
  /// Of many cases, how ours compares with the best of the other libraries: the median, and the worst of them.
  void Finalize() override {
    static std::set<std::string> const ours = {"tessera", "plain", "unfused", "copy", "no_epilogue"};
    std::vector<std::pair<double, std::string>> ratios;
    for (auto const& [name, seconds] : seconds_) {
      double best = INFINITY;
      for (auto const& [implementation, time] : seconds)
        if (ours.count(implementation) == 0) best = std::min(best, time);
      if (seconds.count("tessera") != 0 && !std::isinf(best)) ratios.emplace_back(best / seconds.at("tessera"), name);
    }
    constexpr std::size_t many = 10;
    if (ratios.size() < many) return;
    std::sort(ratios.begin(), ratios.end());
    std::printf("\nratio to the best other library, %zu cases: median %.2f, lowest %.2f; the lowest ten:\n",
                ratios.size(), ratios[ratios.size() / 2].first, ratios[0].first);
    for (std::size_t i = 0; i < many; ++i) std::printf("  %.2f %s\n", ratios[i].first, ratios[i].second.c_str());
  }

 private:
  /// Google Benchmark 1.8 renamed the members that tell of an error.
  template <class R>
  static std::string error_of(R const& run) {
    if constexpr (requires { run.error_occurred; })
      return run.error_occurred ? run.error_message : "";
    else
      return static_cast<int>(run.skipped) != 0 ? run.skip_message : "";
  }
  void print(Run const& run) {
    std::string const name = run.benchmark_name(), error = error_of(run);
    if (!error.empty()) {
      std::printf("%-*s not measured: %s\n", width_, name.c_str(), error.c_str());
      return;
    }
    auto const counter = [&](char const* key) {
      auto const found = run.counters.find(key);
      return found == run.counters.end() ? 0.0 : static_cast<double>(found->second);
    };
    double const flops = counter("flops");
    double const bytes = counter("bytes");
    std::string const rate = flops > 0 ? readable(flops, "FLOP/s") : bytes > 0 ? readable(bytes, "B/s") : "";
    std::string label = run.report_label;
    if (counter("cost") > 0) label += (label.empty() ? "cost " : ", cost ") + readable(counter("cost"), "");
    double const seconds = run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
    std::size_t const slash = name.rfind('/');
    if (slash != std::string::npos) seconds_[name.substr(0, slash)][name.substr(slash + 1)] = seconds;
    std::printf("%-*s %10s %14s %7.1f %% %10s %5.1f %%  %s\n", width_, name.c_str(), readable(seconds, "s").c_str(),
                rate.c_str(), 100 * counter("of_roofline"), readable(counter("predicted"), "s").c_str(),
                100 * counter("spread"), label.c_str());
  }

  nlohmann::ordered_json context_;
  int width_;
  std::map<std::string, std::map<std::string, double>> seconds_;  // of every case and implementation
};

/// Which names --benchmark_filter keeps; a leading '-' keeps the others.
class NameFilter {
 public:
  explicit NameFilter(std::string pattern) {
    if (!pattern.empty() && pattern[0] == '-') {
      inverted_ = true;
      pattern.erase(0, 1);
    }
    if (pattern.empty() || pattern == "all") pattern = ".";
    expression_ = std::regex(pattern, std::regex::extended);
  }
  bool operator()(std::string const& name) const { return std::regex_search(name, expression_) != inverted_; }

 private:
  std::regex expression_;
  bool inverted_ = false;
};

template <class Exec>
class Session {
 public:
  Session(Exec const& exec, Arguments const& arguments)
      : exec_(exec), arguments_(arguments), device_(model::read_device(exec)), stopwatch_(exec, device_.l2_bytes) {}

  static constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

  Exec const& exec() const { return exec_; }
  Arguments const& arguments() const { return arguments_; }
  model::DeviceModel const& device() const { return device_; }
  Stopwatch<Exec>& stopwatch() { return stopwatch_; }

  /// The flag's list, or the defaults of this kind of machine.
  std::vector<std::string> sizes(std::vector<std::string> const& host, std::vector<std::string> const& gpu) const {
    return !arguments_.sizes.empty() ? arguments_.sizes : on_host ? host : gpu;
  }
  std::vector<std::string> types(std::vector<std::string> const& host, std::vector<std::string> const& gpu) const {
    return !arguments_.types.empty() ? arguments_.types : on_host ? host : gpu;
  }
  std::vector<std::string> variants(std::vector<std::string> const& defaults) const {
    return arguments_.variants.empty() ? defaults : arguments_.variants;
  }
  bool wants(std::string const& operation) const {
    auto const& all = arguments_.operations;
    return all.empty() || std::find(all.begin(), all.end(), operation) != all.end();
  }
  double seconds() const { return arguments_.seconds > 0 ? arguments_.seconds : Stopwatch<Exec>::default_seconds; }

  void add(Case const& c) { cases_.push_back(c); }

  /// Registers what the filter keeps, runs it, reports it. Returns the number of benchmarks.
  std::size_t run(std::vector<std::string> passed_on) {
    bool list = false;
    std::string format = "console", out;
    for (std::string const& flag : passed_on) {
      if (flag == "--benchmark_list_tests" || flag == "--benchmark_list_tests=true") list = true;
      if (flag.rfind("--benchmark_format=", 0) == 0) format = flag.substr(19);
      if (flag.rfind("--benchmark_out=", 0) == 0) out = flag.substr(16);
    }
    std::vector<char*> argv;
    for (std::string& flag : passed_on) argv.push_back(flag.data());
    int argc = static_cast<int>(argv.size());
    benchmark::Initialize(&argc, argv.data());
    if (argc > 1) throw std::invalid_argument(std::string("unknown flag ") + argv[1]);
    smallest_first();
    std::size_t const width = register_all(NameFilter(benchmark::GetBenchmarkFilter()), list);
    if (list) return cases_.size();

    nlohmann::ordered_json const context = context_of(exec_, device_, arguments_);
    TableReporter table(context, width);
    JsonReporter json(context), file(context);
    benchmark::BenchmarkReporter* const display = format == "console"
                                                      ? static_cast<benchmark::BenchmarkReporter*>(&table)
                                                  : format == "json" ? &json
                                                                     : nullptr;
    std::size_t const n = out.empty() ? benchmark::RunSpecifiedBenchmarks(display, nullptr, "all")
                                      : benchmark::RunSpecifiedBenchmarks(display, &file, "all");
    benchmark::Shutdown();
    return n;
  }

 private:
  /// A case and its results while its benchmarks are being run.
  struct Contest {
    Case definition;
    std::vector<std::string> selected;
    std::vector<Result> results;
    std::vector<bool> unread;
  };

  /// Of what memory binds: in memory that large cases have given back all that follows is up to a tenth slower, copies
  /// too (an H200: 201 MB in 51.4 µs, behind cases of 6 GB in 56.8).
  void smallest_first() {
    auto const bytes = [](Case const& c) { return c.counts_flops ? 0.0 : c.work.bytes; };
    std::stable_sort(cases_.begin(), cases_.end(), [&](Case const& a, Case const& b) { return bytes(a) < bytes(b); });
  }

  std::size_t register_all(NameFilter const& keep, bool list) {
    std::size_t width = 0;
    for (Case const& c : cases_) {
      auto const contest = std::make_shared<Contest>();
      contest->definition = c;
      std::string const prefix =
          c.operation + "/" + backend_name<Exec>() + "/" + c.type + "/" + c.variant + "/" + c.shape + "/";
      for (std::string const& implementation : c.implementations)
        if (keep(prefix + implementation)) contest->selected.push_back(implementation);
      contest->unread.assign(contest->selected.size(), false);
      for (std::size_t i = 0; i < contest->selected.size(); ++i) {
        std::string const name = prefix + contest->selected[i];
        width = std::max(width, name.size());
        if (list) {
          std::printf("%s\n", name.c_str());
          continue;
        }
        benchmark::RegisterBenchmark(name.c_str(),
                                     [this, contest, i](benchmark::State& state) { report(state, *contest, i); })
            ->Iterations(1)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
    return width;
  }

  void measure_all(Contest& contest) {
    std::vector<Implementation> implementations = contest.definition.prepare();
    std::erase_if(implementations, [&](Implementation const& x) {
      return std::find(contest.selected.begin(), contest.selected.end(), x.name) == contest.selected.end();
    });
    bool const bound_by_memory = !contest.definition.counts_flops;
    if (contest.definition.host_time) {
      HostStopwatch<Exec> stopwatch(exec_);
      contest.results = measure(stopwatch, implementations, bound_by_memory, seconds());
    } else {
      contest.results = measure(stopwatch_, implementations, bound_by_memory, seconds());
    }
    add_costs(implementations, contest.definition.cost_in, contest.results);
    contest.unread.assign(contest.selected.size(), true);
  }

  /// One benchmark. Asked a second time for the same one (--benchmark_repetitions), the contest is measured again.
  void report(benchmark::State& state, Contest& contest, std::size_t i) {
    try {
      if (!contest.unread[i]) measure_all(contest);
    } catch (std::exception const& e) {
      state.SkipWithError(e.what());
      return;
    }
    contest.unread[i] = false;
    Result const& result = contest.results[i];
    if (!result.error.empty()) {
      state.SkipWithError(result.error.c_str());
      return;
    }
    for ([[maybe_unused]] auto _ : state) state.SetIterationTime(result.seconds);
    for (auto const& [key, value] : counters_of(device_, contest.definition, result)) state.counters[key] = value;
    if (!result.label.empty()) state.SetLabel(result.label);
  }

  Exec exec_;
  Arguments arguments_;
  model::DeviceModel device_;
  Stopwatch<Exec> stopwatch_;
  std::vector<Case> cases_;
};

}  // namespace tessera::perf

#endif
