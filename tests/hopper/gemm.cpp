// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The warp-specialised pipeline against the fp64 reference; built only where it is part of the library.
#include <tessera/gemm.hpp>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;
using Matrix = ViewOf<Exec, bf16_t**>;

/// Refuses any other algorithm.
constexpr GemmOptions hopper{.op_b = Op::transpose, .algorithm = Algorithm::hopper, .allow_fallback = false};

std::vector<bf16_t> transposed(std::vector<bf16_t> const& x, int rows, int cols) {
  auto y = x;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) y[std::size_t(j) * rows + i] = x[std::size_t(i) * cols + j];
  return y;
}

}  // namespace

TEST_CASE("the hopper pipeline multiplies sizes that are no multiple of its tiles") {
  struct Size {
    int m, n, k;
  };
  for (Size s : {Size{128, 256, 64}, Size{1, 8, 8}, Size{136, 264, 72}, Size{64, 1000, 8}, Size{257, 520, 328},
                 Size{3000, 2056, 136}}) {
    CAPTURE(s.m);
    CAPTURE(s.n);
    CAPTURE(s.k);
    Matrix a("A", s.m, s.k), b("B", s.n, s.k), c("C", s.m, s.n);
    auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2), ch = uniform<bf16_t>(c.size(), 3);
    for (double beta : {0.0, 0.5}) {
      fill(a, ah), fill(b, bh), fill(c, ch);
      if (beta == 0) poison(c, 0xFF);  // NaN
      gemm(Exec{}, 1.5, a, b, beta, c, hopper);
      check_gemm<float>(gemm_reference(s.m, s.n, s.k, 1.5, ah, transposed(bh, s.n, s.k), beta, ch), values(c), s.k);
    }
  }
}

TEST_CASE("the hopper pipeline leaves what lies around a strided C alone") {
  Matrix a("A", 100, 64), b("B", 200, 64), wide("C", 103, 232);
  fill(a, uniform<bf16_t>(a.size(), 1)), fill(b, uniform<bf16_t>(b.size(), 2));
  poison(wide);
  auto const c = Kokkos::subview(wide, std::pair(2, 102), std::pair(16, 216));
  gemm(Exec{}, 1, a, b, 0, c, hopper);
  check_gemm<float>(gemm_reference(100, 200, 64, 1, values(a), transposed(values(b), 200, 64), 0, values(c)), values(c),
                    64);
  auto const all = values(wide);
  for (int i = 0; i < 103; ++i)
    for (int j = 0; j < 232; ++j)
      if (i < 2 || i >= 102 || j < 16 || j >= 216) CHECK(all[i * 232 + j].bits() == 0xA5A5);
}

TEST_CASE("the hopper pipeline multiplies batches") {
  int const batch = 3, m = 72, n = 80, k = 96;
  ViewOf<Exec, bf16_t***> a("A", batch, m, k), c("C", batch, m, n);
  Matrix b("B", n, k);
  auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2);
  fill(a, ah), fill(b, bh);
  gemm(Exec{}, 1, a, b, 0, c, hopper);
  auto const ch = values(c);
  for (int i = 0; i < batch; ++i) {
    std::vector<bf16_t> const ai(ah.begin() + i * m * k, ah.begin() + (i + 1) * m * k),
        ci(ch.begin() + i * m * n, ch.begin() + (i + 1) * m * n);
    check_gemm<float>(gemm_reference(m, n, k, 1, ai, transposed(bh, n, k), 0, ci), ci, k);
  }
}

TEST_CASE("the hopper pipeline takes a user's epilogue") {
  int const m = 150, n = 296, k = 40;
  Matrix a("A", m, k), b("B", n, k), c("C", m, n);
  ViewOf<Exec, float*> bias("bias", n);
  auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2);
  auto const biases = uniform<float>(n, 3);
  fill(a, ah), fill(b, bh), fill(bias, biases);
  gemm(Exec{}, 1, a, b, 0, c, hopper, epilogue::chain(epilogue::bias(bias), epilogue::Relu{}));
  auto r = gemm_reference(m, n, k, 1, ah, transposed(bh, n, k), 0, values(c));
  for (std::size_t i = 0; i < r.c.size(); ++i) {
    r.c[i] = std::max(0.0, r.c[i] + biases[i % n]);
    r.magnitude[i] += 1;
  }
  check_gemm<float>(r, values(c), k);
}

TEST_CASE("the plan names what keeps a product from the hopper pipeline") {
  Matrix a("A", 64, 64), b("B", 64, 64), c("C", 64, 64), odd("A", 64, 63), odd_b("B", 64, 63);
  ViewOf<Exec, float**> wide("C", 64, 64);
  auto const plan = [](auto const& x, auto const& y, auto const& z, Op op) {
    return gemm_plan(Exec{}, 1, x, y, 0, z, {.op_b = op});
  };
  CHECK(plan(a, b, c, Op::transpose).algorithm == Algorithm::hopper);
  CHECK(contains(plan(a, b, c, Op::none).reason, "contiguous along K"));
  CHECK(contains(plan(odd, odd_b, c, Op::transpose).reason, "16 bytes"));
  CHECK(contains(plan(a, b, wide, Op::transpose).reason, "bf16 into bf16"));
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, odd, odd_b, 0, c, hopper); }, ErrorCode::unsupported), "16 bytes"));
}
