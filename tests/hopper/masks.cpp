// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/masks.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Asked about every pair, and differs from head to head.
struct Scattered {
  KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const { return (7 * i + 3 * j + 2 * h + b) % 5 < 2; }
};

}  // namespace

TEST_CASE("the hopper pipeline asks masks and their tables") { check_mask_on_hopper(Scattered{}, Scattered{}); }
