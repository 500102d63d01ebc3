// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tessera_tour: every family of operations on every backend of this build, at shapes of a transformer layer, checked
// against fp64 loops, timed beside the plain loop and the performance model. About a minute on two cores.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/tour_rows.hpp"

namespace tessera::perf {
namespace {

struct TourArguments {
  std::vector<std::string> devices;
  std::int64_t tokens = 0;
  double seconds = 0.2;
  std::string output;
  bool figure = true;
};

/// A finished row of the closing table.
struct Line {
  std::string name, operation, shape, backend, type, note, status, label;
  double seconds = 0, plain_seconds = 0, predicted = 0, rate = 0, of_bound = 0;
  bool flops = false;
};

/// What is going on, on one line that the next replaces; nothing where the output is no terminal.
class Progress {
 public:
  void operator()(std::string const& text) {
    if (!terminal_) return;
    static char const spinner[] = "|/-\\";
    std::printf("\r\033[K%c %s", spinner[++step_ % 4], text.c_str());
    std::fflush(stdout);
  }
  void clear() const {
    if (terminal_) std::printf("\r\033[K");
  }

 private:
  bool terminal_ = isatty(STDOUT_FILENO) != 0;
  int step_ = 0;
};

class Tour {
 public:
  explicit Tour(TourArguments const& arguments) : arguments_(arguments) {}

  template <class Exec>
  void visit() {
    Instance<Exec> const instance;
    Exec const exec = instance.exec();
    model::DeviceModel const device = model::read_device(exec);
    Stopwatch<Exec> stopwatch(exec, device.l2_bytes);
    contexts_.push_back(context_of(exec, device, {}));
    std::printf("\n%s: %s, concurrency %d, memory %s, fp32 %s\n", backend_name<Exec>(), device.name.c_str(),
                exec.concurrency(), readable(device.hbm_bytes_per_second, "B/s").c_str(),
                readable(device.peak(model::Type::fp32), "FLOP/s").c_str());
    std::vector<Row> const rows = tour_rows(exec, layer_of<Exec>(arguments_.tokens));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::string const title = "[" + std::to_string(i + 1) + "/" + std::to_string(rows.size()) + "] " +
                                rows[i].definition.operation + " " + rows[i].definition.type + " " +
                                rows[i].definition.shape;
      Line const line = run(exec, stopwatch, device, rows[i], title);
      progress_.clear();
      std::printf("%-64s %-5s %10s %13s\n", title.c_str(), line.status.c_str(), readable(line.seconds, "s").c_str(),
                  rate_text(line).c_str());
      std::fflush(stdout);
      lines_.push_back(line);
    }
  }

  /// The closing table; the number of rows that are not right.
  int table() const {
    std::printf("\n%-14s %-28s %-7s %-5s %-6s %6s %10s %13s %8s %10s %8s  %s\n", "operation", "shape", "backend",
                "type", "check", "error", "time", "rate", "x plain", "model", "of model", "in the layer");
    int wrong = 0;
    for (Line const& l : lines_) {
      wrong += l.status != "ok";
      std::printf("%-14s %-28s %-7s %-5s %-6s %6.3f %10s %13s %8s %10s %6.1f %%  %s\n", l.operation.c_str(),
                  l.shape.c_str(), l.backend.c_str(), l.type.c_str(), l.status.c_str(), l.of_bound,
                  readable(l.seconds, "s").c_str(), rate_text(l).c_str(), ratio_text(l).c_str(),
                  readable(l.predicted, "s").c_str(), l.seconds > 0 ? 100 * l.predicted / l.seconds : 0,
                  l.note.c_str());
    }
    std::printf(
        "check, error: largest error of sampled results against fp64 loops, as a fraction of its bound\n"
        "x plain: how many times faster than the plain loop on the same backend; model: the roofline's time\n");
    return wrong;
  }

  /// tour.json and, with matplotlib, the figures beside it.
  void save() const {
    std::filesystem::path const directory = arguments_.output;
    std::filesystem::create_directories(directory);
    std::filesystem::path const json = directory / "tour.json";
    nlohmann::ordered_json document;
    document["context"] = contexts_.empty() ? nlohmann::ordered_json::object() : contexts_.front();
    document["context"]["backends"] = contexts_;
    document["benchmarks"] = benchmarks_;
    std::ofstream(json) << document.dump(1) << "\n";
    std::printf("\nresults: %s\n", json.string().c_str());
    std::filesystem::path const report = source_directory() / "report.py";
    std::string const command =
        "python3 '" + report.string() + "' '" + json.string() + "' --output '" + directory.string() + "' --quiet";
    if (!arguments_.figure) return;
    std::filesystem::path const figure = directory / "tour.png";
    std::filesystem::remove(figure);
    bool const drawn = !source_directory().empty() && std::system((command + " 2>/dev/null").c_str()) == 0;
    if (drawn && std::filesystem::exists(figure))
      std::printf("figure:  %s, page: %s\n", figure.string().c_str(), (directory / "index.html").string().c_str());
    else
      std::printf("figure:  none, it needs python3 with matplotlib (apt install python3-matplotlib); then\n  %s\n",
                  command.c_str());
  }

 private:
  static std::string rate_text(Line const& l) { return readable(l.rate, l.flops ? "FLOP/s" : "B/s"); }
  static std::string ratio_text(Line const& l) {
    char text[24] = "";
    if (l.plain_seconds > 0 && l.seconds > 0) std::snprintf(text, sizeof(text), "%.1f", l.plain_seconds / l.seconds);
    return text;
  }

  template <class Exec>
  Line run(Exec const& exec, Stopwatch<Exec>& stopwatch, model::DeviceModel const& device, Row const& row,
           std::string const& title) {
    Case const& c = row.definition;
    Line line;
    line.operation = c.operation;
    line.backend = backend_name<Exec>();
    line.type = c.type;
    line.shape = c.shape;
    line.note = c.note;
    line.flops = c.counts_flops;
    line.predicted = prediction(device, c).seconds;
    std::string const name = c.operation + "/" + line.backend + "/" + c.type + "/" + c.variant + "/" + c.shape + "/";
    try {
      progress_(title + ": operands");
      Prepared prepared = row.prepare();
      progress_(title + ": checking");
      prepared.implementations[0].launch();
      exec.fence("tessera::perf::check");
      Check const check = prepared.check();
      line.of_bound = check.worst();
      line.status = check.ok() ? "ok" : "WRONG";
      constexpr int samples = 7;
      auto const results = measure(stopwatch, prepared.implementations, !c.counts_flops, arguments_.seconds, samples,
                                   [&] { progress_(title + ": timing"); });
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (!results[i].error.empty()) throw std::runtime_error(results[i].error);
        benchmarks_.push_back(entry(name + prepared.implementations[i].name, counters_of(device, c, results[i]),
                                    results[i], i == 0 ? &check : nullptr));
      }
      line.seconds = results[0].seconds;
      line.plain_seconds = results.size() > 1 ? results[1].seconds : 0;
      line.rate = (c.counts_flops ? c.work.flops : c.work.bytes) / line.seconds;
    } catch (std::exception const& e) {
      progress_.clear();
      std::printf("%s: %s\n", name.c_str(), e.what());
      line.status = "FAILED";
    }
    return line;
  }

  /// As Google Benchmark writes one.
  static nlohmann::ordered_json entry(std::string const& name, Counters const& counters, Result const& result,
                                      Check const* check) {
    nlohmann::ordered_json e;
    e["name"] = name;
    e["run_name"] = name;
    e["run_type"] = "iteration";
    e["repetitions"] = 1;
    e["repetition_index"] = 0;
    e["threads"] = 1;
    e["iterations"] = 1;
    e["real_time"] = result.seconds * 1e6;
    e["cpu_time"] = result.seconds * 1e6;
    e["time_unit"] = "us";
    for (auto const& [key, value] : counters) e[key] = value;
    if (check != nullptr) {
      e["check"] = check->ok() ? "ok" : "WRONG";
      e["error_of_bound"] = std::isfinite(check->worst()) ? check->worst() : -1;
      e["largest_error"] = std::isfinite(check->largest_error()) ? check->largest_error() : -1;
      e["compared"] = check->compared();
    }
    if (!result.label.empty()) e["label"] = result.label;
    return e;
  }

  TourArguments arguments_;
  Progress progress_;
  std::vector<Line> lines_;
  std::vector<nlohmann::ordered_json> contexts_;
  nlohmann::ordered_json benchmarks_ = nlohmann::ordered_json::array();
};

int main_of_tour(int argc, char** argv) {
  TourArguments arguments;
  std::error_code ignored;
  std::filesystem::path const program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  arguments.output = (program.empty() ? std::filesystem::current_path() : program.parent_path()) / "tour";
  CLI::App app("Every family of operations on every backend of this build, checked and timed");
  app.add_option("--device", arguments.devices, "cuda, openmp or serial, separated by commas (default: all built)")
      ->delimiter(',')
      ->check(CLI::IsMember({"cuda", "openmp", "serial"}));
  app.add_option("--tokens", arguments.tokens, "tokens in the layer (default: as many as suit the backend)");
  app.add_option("--seconds", arguments.seconds, "time spent on the samples of one implementation")
      ->capture_default_str();
  app.add_option("--output", arguments.output, "folder for tour.json and the figures")->capture_default_str();
  app.add_flag("!--no-figure", arguments.figure, "write the JSON only");
  try {
    app.parse(argc, argv);
    Runtime const runtime;
    Tour tour(arguments);
    std::printf(
        "Tessera %s, one layer of an 8B-class transformer: hidden 4096, 32 heads of 128, 8 of them for keys and "
        "values, feed-forward 14336\n",
        version_text().c_str());
    std::fflush(stdout);
    std::vector<std::string> devices = arguments.devices;
    if (devices.empty()) devices = built_backends();
    for (std::string const& device : devices) with_backend(device, [&]<class Exec>() { tour.visit<Exec>(); });
    int const wrong = tour.table();
    tour.save();
    if (wrong > 0) std::printf("%d rows are not right\n", wrong);
    return wrong > 0 ? 1 : 0;
  } catch (CLI::ParseError const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) { return tessera::perf::main_of_tour(argc, argv); }
