// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ARGUMENTS_HPP
#define TESSERA_PERF_ARGUMENTS_HPP

#include <CLI/CLI.hpp>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// The command line: our flags through CLI11, --benchmark_... to Google Benchmark.
namespace tessera::perf {

struct Arguments {
  std::string device;                                           // empty: the best that is built and present
  std::vector<std::string> operations, types, variants, sizes;  // empty: the defaults of the executable
  std::vector<std::string> context;                             // key=value, for the JSON
  double seconds = 0;                                           // of samples an implementation; 0: by device
  bool peers = true;
  int random = 0;  // shapes to be drawn, where an executable does that
};

using Extents = std::vector<std::int64_t>;

/// Splits at every `separator`.
inline std::vector<std::string> split(std::string const& text, char separator) {
  std::vector<std::string> parts(1);
  for (char const c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

inline std::int64_t parse_integer(std::string const& text, std::string const& whole) {
  std::size_t used = 0;
  std::int64_t value = -1;
  try {
    value = std::stoll(text, &used);
  } catch (std::exception const&) {
  }
  if (text.empty() || used != text.size() || value < 0)
    throw std::invalid_argument("--size=" + whole + ": '" + text + "' is not a number");
  return value;
}

/// "4096" is a square or cube, "64x8192x8192" lists the extents; "1024:4096:128" as an extent is a sweep in steps of
/// 128. Gives every combination.
inline std::vector<Extents> parse_extents(std::string const& text, std::size_t rank) {
  std::vector<std::string> parts = split(text, 'x');
  if (parts.size() == 1) parts.resize(rank, parts[0]);
  if (parts.size() != rank)
    throw std::invalid_argument("--size=" + text + ": expected " + std::to_string(rank) + " extents, as 64x4096");
  std::vector<Extents> all(1);
  for (std::string const& part : parts) {
    std::vector<std::string> const range = split(part, ':');
    if (range.size() != 1 && range.size() != 3)
      throw std::invalid_argument("--size=" + text + ": a sweep is first:last:step");
    std::int64_t const first = parse_integer(range[0], text);
    std::int64_t const last = range.size() == 3 ? parse_integer(range[1], text) : first;
    std::int64_t const step = range.size() == 3 ? parse_integer(range[2], text) : 1;
    if (step == 0) throw std::invalid_argument("--size=" + text + ": the step of a sweep is 1 at least");
    std::vector<Extents> longer;
    for (Extents const& extents : all)
      for (std::int64_t value = first; value <= last; value += step) {
        longer.push_back(extents);
        longer.back().push_back(value);
      }
    all = longer;
  }
  return all;
}

/// `count` shapes with extents from 1 to `largest`, the same in every run.
inline std::vector<Extents> random_extents(int count, std::size_t rank, std::int64_t largest) {
  std::mt19937_64 engine(1);
  std::vector<Extents> all(static_cast<std::size_t>(count), Extents(rank));
  for (Extents& extents : all)
    for (std::int64_t& extent : extents)
      extent = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(largest)) + 1;
  return all;
}

inline std::vector<Extents> parse_extents(std::vector<std::string> const& texts, std::size_t rank) {
  std::vector<Extents> all;
  for (std::string const& text : texts)
    for (Extents const& extents : parse_extents(text, rank)) all.push_back(extents);
  return all;
}

/// "64x4096"
inline std::string to_string(Extents const& extents) {
  std::string text;
  for (std::int64_t const extent : extents) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

/// Reads our flags from argv; what belongs to Google Benchmark goes to `passed_on`, the program's name first.
/// \throws CLI::ParseError, to be handed to app.exit()
inline void parse(CLI::App& app, int argc, char** argv, Arguments& arguments, std::vector<std::string>& passed_on) {
  app.add_option("--device", arguments.device, "cuda, openmp or serial (default: the best built and present)")
      ->check(CLI::IsMember({"cuda", "openmp", "serial"}));
  app.add_option("--operation", arguments.operations, "operations, separated by commas")->delimiter(',');
  app.add_option("--type", arguments.types, "element types: fp64, fp32, fp16, bf16, e4m3 ...")->delimiter(',');
  app.add_option("--variant", arguments.variants, "variants, as NN, NT or causal")->delimiter(',');
  app.add_option("--size", arguments.sizes, "shapes, as 4096, 64x8192x8192 or, as a sweep, 2048x1024:4096:128x4096")
      ->delimiter(',');
  app.add_option("--seconds", arguments.seconds, "time spent on the samples of one implementation");
  app.add_option("--context", arguments.context, "key=value for the context of the JSON, as clocks=1980MHz");
  app.add_option("--random", arguments.random, "gemm: as many shapes drawn at random, the same in every run")
      ->check(CLI::Range(0, 100000));
  app.add_flag("!--no-peers", arguments.peers, "leave out other libraries and baselines");
  app.footer(
      "Everything that begins with --benchmark_ goes to Google Benchmark: --benchmark_filter=REGEX,\n"
      "--benchmark_out=FILE.json, --benchmark_list_tests, --benchmark_repetitions=N ...");
  std::vector<std::string> ours;
  passed_on.assign(1, argv[0]);
  for (int i = 1; i < argc; ++i) {
    std::string const argument = argv[i];
    (argument.rfind("--benchmark_", 0) == 0 ? passed_on : ours).push_back(argument);
  }
  std::vector<std::string> reversed(ours.rbegin(), ours.rend());
  app.parse(reversed);
}

}  // namespace tessera::perf

#endif
