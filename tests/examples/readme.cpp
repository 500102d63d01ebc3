// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The example of README.md, compiled as it stands there and run. Between the two marks: the same text, which the last
// case checks.
// [example]
#include <tessera/attention.hpp>
#include <tessera/gemm.hpp>

using namespace tessera;
using Matrix = Kokkos::View<bf16_t**, Kokkos::LayoutRight>;
using Heads = Kokkos::View<bf16_t****, Kokkos::LayoutRight>;  // (batch, head, sequence, feature)

void example(Kokkos::DefaultExecutionSpace const& exec, Matrix x, Matrix w, Kokkos::View<float*> b, Matrix y, Heads q,
             Heads k, Heads v, Heads o) {
  // y = gelu(x·wᵀ + b) in one kernel: bias and GELU work on the fp32 accumulator, rounded once
  gemm(exec, 1, x, w, 0, y, {.op_b = Op::transpose}, epilogue::chain(epilogue::bias(b), epilogue::Gelu{}));
  // o = softmax(q·kᵀ / √d)·v, each query seeing the keys up to its own; scores are never stored
  attention(exec, o, q, k, v, {.causal = true});
}
// [end]
#include <cmath>
#include <string>
#include <vector>

#include "examples/shown.hpp"
#include "reference/attention.hpp"

using namespace tessera::test;

TEST_CASE("the example in the README computes what its comments say") {
  Kokkos::DefaultExecutionSpace const exec;
  int const m = 40, n = 24, depth = 56;
  auto const xh = uniform<bf16_t>(std::size_t(m) * depth, 1), wh = uniform<bf16_t>(std::size_t(n) * depth, 2);
  auto const bh = uniform<float>(n, 3);
  Matrix const x("x", m, depth), w("w", n, depth), y("y", m, n);
  Kokkos::View<float*> const b("b", n);
  fill(x, xh);
  fill(w, wh);
  fill(b, bh);

  AttentionShape const z{2, 3, 3, 40, 40, 16, 16};
  std::size_t const size = std::size_t(z.batch) * z.heads * z.queries * z.d;
  auto const qh = uniform<bf16_t>(size, 4), kh = uniform<bf16_t>(size, 5), vh = uniform<bf16_t>(size, 6);
  auto const heads = [&](std::string const& label) { return Heads(label, z.batch, z.heads, z.queries, z.d); };
  Heads const q = heads("q"), k = heads("k"), v = heads("v"), o = heads("o");
  fill(q, qh);
  fill(k, kh);
  fill(v, vh);

  example(exec, x, w, b, y, q, k, v, o);
  exec.fence();

  std::vector<bf16_t> transposed(wh.size());
  for (int j = 0; j < n; ++j)
    for (int p = 0; p < depth; ++p) transposed[std::size_t(p) * n + j] = wh[std::size_t(j) * depth + p];
  auto const product = gemm_reference(m, n, depth, 1, xh, transposed, 0, std::vector<float>{});
  auto const yh = values(y);
  double worst = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      std::size_t const at = std::size_t(i) * n + j;
      double const sum = product.c[at] + bh[j], want = 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
      // GELU's slope is below 1.2; the sum errs by (K + 3)·u of its terms, erf and the products around it by a few u of
      // the sum's size, and the result is rounded to bf16.
      double const u = unit_roundoff<float>();
      double const inside = 1.2 * (depth + 3) * u * (product.magnitude[at] + std::fabs(bh[j])) + 8 * u * std::fabs(sum);
      double const allowed = inside + unit_roundoff<bf16_t>() * (std::fabs(want) + inside);
      worst = std::max(worst, std::fabs(to_double(yh[at]) - want) / allowed);
    }
  CHECK(worst <= 1);

  // Some machines round the weights to bf16.
  auto const reference = attention_reference(
      z, qh, kh, vh, 1 / std::sqrt(double(z.d)), [](int, int i, int j) { return j <= i; },
      [](double s, int, int, int, int) { return s; }, unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
  check_attention(reference, values(o));
}

TEST_CASE("the README shows the example that is tested") { check_shown("README.md", __FILE__); }
