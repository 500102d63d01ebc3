// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of integers: exact, so that every algorithm and backend gives the same numbers.
#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Kokkos::LayoutLeft;
using Kokkos::LayoutRight;

/// A (M,K) and B (K,N) of every number from -128 to 127, C from -1000 to 1000.
template <class Exec, class LA, class LB, class LC>
void check_integers(int m, int n, int k, int alpha, int beta, Algorithm algorithm) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(name(algorithm));
  ViewOf<Exec, std::int8_t**, LA> a("A", m, k);
  ViewOf<Exec, std::int8_t**, LB> b("B", k, n);
  ViewOf<Exec, std::int32_t**, LC> c("C", m, n);
  auto const ah = uniform<std::int8_t>(a.size(), 1, -129, 128), bh = uniform<std::int8_t>(b.size(), 2, -129, 128);
  auto const ch = uniform<std::int32_t>(c.size(), 3, -1000, 1000);
  fill(a, ah), fill(b, bh), fill(c, ch);
  GemmOptions options{.algorithm = algorithm};
  options.workspace_bytes = gemm_workspace_size(Exec{}, alpha, a, b, beta, c, options);
  ViewOf<Exec, unsigned char*> const workspace("workspace", options.workspace_bytes);
  if (workspace.size() > 0) options.workspace = workspace.data();
  if (algorithm == Algorithm::tensor_core && has_tensor_cores<Exec>())
    CHECK(gemm_plan(Exec{}, alpha, a, b, beta, c, options).algorithm == algorithm);
  gemm(Exec{}, alpha, a, b, beta, c, options);
  auto const got = values(c);
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      std::int32_t sum = 0;
      for (int p = 0; p < k; ++p) sum += std::int32_t(ah[std::size_t(i) * k + p]) * bh[std::size_t(p) * n + j];
      std::size_t const at = std::size_t(i) * n + j;
      wrong += got[at] != alpha * sum + beta * ch[at];
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm multiplies integers exactly", Exec, integers_id) {
  for (Algorithm algorithm : {Algorithm::automatic, Algorithm::naive, Algorithm::coalesced, Algorithm::tiled,
                              Algorithm::coarsened, Algorithm::tensor_core, Algorithm::hopper})
    for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(33, 65, 17), std::tuple(130, 272, 48)}) {
      check_integers<Exec, LayoutRight, LayoutLeft, LayoutRight>(m, n, k, 1, 0, algorithm);
      check_integers<Exec, LayoutLeft, LayoutRight, LayoutRight>(m, n, k, -3, 2, algorithm);
      check_integers<Exec, LayoutRight, LayoutRight, LayoutLeft>(m, n, k, 2, -1, algorithm);
    }
}
TEST_CASE_TEMPLATE_APPLY(integers_id, Spaces);

// One element, one off a tile of 64 or 128 on every side, K no multiple of a pack, of a step; tiles enough to be large.
TEST_CASE_TEMPLATE_DEFINE("tensor_core multiplies integers at the edges of its tiles", Exec, integer_tiles_id) {
  for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(63, 65, 127), std::tuple(65, 63, 129), std::tuple(64, 64, 128),
                         std::tuple(129, 127, 272), std::tuple(3, 200, 15)}) {
    check_integers<Exec, LayoutRight, LayoutLeft, LayoutRight>(m, n, k, 1, 0, Algorithm::tensor_core);
    check_integers<Exec, LayoutLeft, LayoutLeft, LayoutRight>(m, n, k, 5, 1, Algorithm::tensor_core);
  }
  if (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) return;
  check_integers<Exec, LayoutRight, LayoutLeft, LayoutRight>(1500, 1551, 80, 1, 0, Algorithm::tensor_core);
}
TEST_CASE_TEMPLATE_APPLY(integer_tiles_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm takes whole factors for integers", Exec, factors_id) {
  ViewOf<Exec, std::int8_t**> a("A", 3, 4), b("B", 4, 5);
  ViewOf<Exec, std::int32_t**> c("C", 3, 5);
  poison(c);
  CHECK(contains(error_of([&] { gemm(Exec{}, 0.5, a, b, 0, c); }, ErrorCode::value), "whole numbers"));
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, NAN, c); }, ErrorCode::value), "whole numbers"));
  CHECK(contains(error_of([&] { gemm(Exec{}, 4e9, a, b, 0, c); }, ErrorCode::value), "whole numbers"));
  CHECK(is_poisoned(c));
}
TEST_CASE_TEMPLATE_APPLY(factors_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm hands an epilogue the sum of integers", Exec, epilogue_id) {
  ViewOf<Exec, std::int8_t**> a("A", 3, 4), b("B", 4, 5);
  ViewOf<Exec, std::int32_t**> c("C", 3, 5);
  fill(a, std::vector<std::int8_t>(12, -1)), fill(b, std::vector<std::int8_t>(20, 2));
  gemm(Exec{}, 1, a, b, 0, c, {}, epilogue::Relu{});
  for (std::int32_t x : values(c)) CHECK(x == 0);
}
TEST_CASE_TEMPLATE_APPLY(epilogue_id, Spaces);
