// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <Kokkos_Core.hpp>
#include <cstring>

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  // Listing the cases needs no device: a build machine can discover the tests of a backend it cannot run.
  for (int i = 1; i < argc; ++i)
    if (std::strstr(argv[i], "list-test-cases") != nullptr || std::strstr(argv[i], "-ltc") != nullptr)
      return context.run();
  Kokkos::ScopeGuard guard;
  return context.run();
}
