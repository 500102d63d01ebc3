// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that uses the library from outside: rounds a few fp32 values to bf16 and checks them.
#include <Kokkos_Core.hpp>
#include <cstdio>

#include <tessera/cast.hpp>
#include <tessera/types.hpp>
#include <tessera/version.hpp>

namespace {

// Serial where there is one: the smallest library compiles its operations for that space only.
#if defined(KOKKOS_ENABLE_SERIAL)
using Exec = Kokkos::Serial;
#else
using Exec = Kokkos::DefaultHostExecutionSpace;
#endif

bool rounds_to_nearest_even() {
  // 1 + 2^-8 is half way between two bf16 values and goes to the even one; 1 + 3 * 2^-8 goes up.
  constexpr int n = 4;
  const float values[n] = {1.0F, 1.00390625F, 1.01171875F, -3.140625F};
  const float expected[n] = {1.0F, 1.0F, 1.015625F, -3.140625F};

  Kokkos::View<float*, Exec> in("in", n);
  Kokkos::View<tessera::bf16_t*, Exec> out("out", n);
  for (int i = 0; i < n; ++i) in(i) = values[i];
  const Exec exec;
  tessera::cast(exec, out, in);
  exec.fence();

  bool right = true;
  for (int i = 0; i < n; ++i) right = right && static_cast<float>(out(i)) == expected[i];
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard guard(argc, argv);
  const bool right = tessera::version() == TESSERA_VERSION && rounds_to_nearest_even();
  std::printf("tessera %d: %s\n", tessera::version(), right ? "right" : "wrong");
  return right ? 0 : 1;
}
