// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ARGUMENTS_HPP
#define TESSERA_PERF_ARGUMENTS_HPP

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "support/extents.hpp"

// The command line: our flags through CLI11, --benchmark_... to Google Benchmark.
namespace tessera::perf {

struct Arguments {
  std::string device;                                           // empty: the best that is built and present
  std::vector<std::string> operations, types, variants, sizes;  // empty: the defaults of the executable
  std::vector<std::string> context;                             // key=value, for the JSON
  double seconds = 0;                                           // of samples an implementation; 0: by device
  bool peers = true;
  int random = 0;          // shapes to be drawn, where an executable does that
  std::uint64_t seed = 1;  // of what they are drawn from
  std::int64_t batch = 1;  // matrices in each product whose shape does not say it
};

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
  app.add_option("--random", arguments.random, "gemm: as many shapes drawn at random, the same for the same seed")
      ->check(CLI::Range(0, 100000));
  app.add_option("--seed", arguments.seed, "of --random");
  app.add_option("--batch", arguments.batch, "gemm: as many products a call, as a size BxMxNxK says for itself")
      ->check(CLI::Range(1, 1 << 20));
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
