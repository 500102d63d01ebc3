// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operands whose elements lie further apart than 31 bits count. On a CPU what nobody touches takes no memory.
#include <tessera/gemm.hpp>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int m = 5, n = 24, k = 40;
constexpr std::size_t apart = (std::size_t(1) << 29) + 64;  // lines: the last begins 2^31 elements behind the first

template <class Exec>
using Flat = ViewOf<Exec, bf16_t*>;
template <class Exec>
Flat<Exec> room(char const* label) {
  return Flat<Exec>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), (m - 1) * apart + 64);
}

/// A (m, k), B (k, n) and C (m, n), of which those that are told lie far apart along an index.
template <class Exec, class A, class B, class C>
void check_far(A const& a, B const& b, C const& c) {
  auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2), ch = uniform<bf16_t>(c.size(), 3);
  for (Algorithm algorithm : {Algorithm::automatic, Algorithm::naive, Algorithm::coalesced, Algorithm::tiled,
                              Algorithm::coarsened, Algorithm::tensor_core}) {
    CAPTURE(name(algorithm));
    fill(a, ah), fill(b, bh), fill(c, ch);
    gemm(Exec{}, 1.5, a, b, 0.5, c, {.algorithm = algorithm});
    check_gemm<float>(gemm_reference(int(a.extent(0)), int(b.extent(1)), int(a.extent(1)), 1.5, ah, bh, 0.5, ch),
                      values(c), int(a.extent(1)));
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm reaches elements more than 2^31 apart", Exec, far_id) {
  using Kokkos::LayoutStride;
  using Far = Kokkos::View<bf16_t**, LayoutStride, typename Exec::memory_space>;
  Flat<Exec> const first = room<Exec>("first"), second = room<Exec>("second");
  ViewOf<Exec, bf16_t**> const a("A", m, k), b("B", k, n);
  SUBCASE("rows of A and C") {
    Far const far_a(first.data(), LayoutStride(m, apart, k, 1)), far_c(second.data(), LayoutStride(m, apart, n, 1));
    check_far<Exec>(far_a, b, far_c);
  }
  SUBCASE("columns of B and C") {
    ViewOf<Exec, bf16_t**> const left("A", n, k);
    Far const far_b(first.data(), LayoutStride(k, 1, m, apart)), far_c(second.data(), LayoutStride(n, 1, m, apart));
    check_far<Exec>(left, far_b, far_c);
  }
  SUBCASE("the contracted index") {
    ViewOf<Exec, bf16_t**> const c("C", n, n);
    Far const far_a(first.data(), LayoutStride(n, 1, m, apart)), far_b(second.data(), LayoutStride(m, apart, n, 1));
    check_far<Exec>(far_a, far_b, c);
  }
}
TEST_CASE_TEMPLATE_APPLY(far_id, Spaces);
