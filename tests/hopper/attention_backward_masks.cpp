// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

/// Every query sees itself and every third key.
struct Thirds {
  KOKKOS_FUNCTION bool operator()(int b, int, int i, int j) const { return j == i || (b + i + j) % 3 == 0; }
};

template <class Mask>
void check_mask(Mask const& mask, std::function<bool(int, int, int)> const& shows) {
  for (int d : {64, 128, 256})
    for (bool causal : {false, true})
      for (bool deterministic : {false, true}) {
        CAPTURE(d);
        CAPTURE(causal);
        CAPTURE(deterministic);
        AttentionShape const z{2, 2, 1, 410, 410, d, d};
        BackwardOperands<Exec, bf16_t> const x(
            z, [&](int b, int i, int j) { return (!causal || j <= i) && shows(b, i, j); });
        x.run(hopper_backward(causal, deterministic), score::Identity{}, mask);
        x.check();
      }
}

}  // namespace

TEST_CASE("the hopper pipeline forms gradients behind masks that say nothing of tiles") {
  check_mask(Thirds{}, [](int b, int i, int j) { return Thirds{}(b, 0, i, j); });
}

TEST_CASE("the hopper pipeline forms gradients of documents") {
  std::vector<int> ids;
  for (int b = 0; b < 2; ++b)
    for (int i = 0; i < 410; ++i) ids.push_back(b == 0 ? (i < 1 ? 3 : i < 130 ? 4 : i < 389 ? 7 : 8) : i / 64);
  ViewOf<Exec, int**> const view("ids", 2, 410);
  fill(view, ids);
  auto const same = [&](int b, int i, int j) { return ids[std::size_t(b) * 410 + i] == ids[std::size_t(b) * 410 + j]; };
  SUBCASE("side by side") { check_mask(mask::consecutive_documents(view), same); }
  SUBCASE("in any order") { check_mask(mask::documents(view), same); }
}
