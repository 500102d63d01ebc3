// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_PROGRAM_HPP
#define TESSERA_PERF_PROGRAM_HPP

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/arguments.hpp"
#include "support/session.hpp"

// main() of every benchmark.
namespace tessera::perf {

/// Kokkos from here to the end of its scope; says what to do where it cannot start.
class Runtime {
 public:
  Runtime() {
    Kokkos::InitializationSettings settings;
    settings.set_disable_warnings(true);
    try {
      Kokkos::initialize(settings);
    } catch (std::exception const& e) {
      throw std::runtime_error(std::string("Kokkos does not start: ") + e.what() +
                               "\nA build with the CUDA backend needs a GPU; without one use the preset openmp.");
    }
  }
  ~Runtime() { Kokkos::finalize(); }
  Runtime(Runtime const&) = delete;
  Runtime& operator=(Runtime const&) = delete;
};

/// The names of all backends of this build, the best first.
inline std::vector<std::string> built_backends() {
  return {
#if defined(KOKKOS_ENABLE_CUDA)
    "cuda",
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
        "openmp",
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
        "serial",
#endif
  };
}

/// Calls f.template operator()<Exec>() for the backend of that name; the best one built when it is empty.
template <class F>
void with_backend([[maybe_unused]] std::string const& name, F const& f) {
#if defined(KOKKOS_ENABLE_CUDA)
  if (name.empty() || name == "cuda") return f.template operator()<Kokkos::Cuda>();
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
  if (name.empty() || name == "openmp") return f.template operator()<Kokkos::OpenMP>();
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
  if (name.empty() || name == "serial") return f.template operator()<Kokkos::Serial>();
#endif
  throw std::invalid_argument("--device=" + name + ": this build has no such backend");
}

/// Runs the benchmarks that `define(session)` adds.
template <class Define>
int run_program(int argc, char** argv, std::string const& description, Define const& define) {
  CLI::App app(description);
  Arguments arguments;
  std::vector<std::string> passed_on;
  try {
    parse(app, argc, argv, arguments, passed_on);
    Runtime const runtime;
    with_backend(arguments.device, [&]<class Exec>() {
      Instance<Exec> const instance;
      Session<Exec> session(instance.exec(), arguments);
      define(session);
      if (session.run(passed_on) == 0) throw std::invalid_argument("no benchmark has a name that fits");
    });
  } catch (CLI::ParseError const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
  return 0;
}

}  // namespace tessera::perf

#endif
