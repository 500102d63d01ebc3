// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm.hpp>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// One product of (m, n, k) through gemm() and through the reference.
template <class Exec, class TA, class TB, class TC, class LA = Kokkos::LayoutRight, class LB = Kokkos::LayoutRight,
          class LC = Kokkos::LayoutRight>
void run_case(int m, int n, int k, double alpha, double beta, GemmOptions const& options) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(name(options.algorithm));
  auto const a = uniform<TA>(std::size_t(m) * k, 1), b = uniform<TA>(std::size_t(k) * n, 2);
  std::vector<TB> const b_typed(uniform<TB>(std::size_t(k) * n, 2));
  auto const c = uniform<TC>(std::size_t(m) * n, 3);
  bool const ta = options.op_a == Op::transpose, tb = options.op_b == Op::transpose;
  ViewOf<Exec, TA**, LA> av("A", ta ? k : m, ta ? m : k);
  ViewOf<Exec, TB**, LB> bv("B", tb ? n : k, tb ? k : n);
  ViewOf<Exec, TC**, LC> cv("C", m, n);
  auto const transposed = [](auto const& x, int rows, int cols) {
    auto y = x;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) y[std::size_t(j) * rows + i] = x[std::size_t(i) * cols + j];
    return y;
  };
  fill(av, ta ? transposed(a, m, k) : a);
  fill(bv, tb ? transposed(b_typed, k, n) : b_typed);
  fill(cv, c);
  gemm(Exec{}, alpha, av, bv, beta, cv, options);
  using Compute = std::conditional_t<std::is_same_v<TC, double>, double, float>;
  check_gemm<Compute>(gemm_reference(m, n, k, alpha, a, b_typed, beta, c), values(cv), k);
}

constexpr Algorithm ladder[] = {Algorithm::automatic, Algorithm::naive,     Algorithm::coalesced,
                                Algorithm::tiled,     Algorithm::coarsened, Algorithm::tensor_core};

struct Size {
  int m, n, k;
};
/// One element, vectors, one off a tile on every side, several tiles with residues.
constexpr Size sizes[] = {{1, 1, 1},   {1, 70, 33},  {70, 1, 33},   {33, 65, 1},    {16, 16, 16},
                          {47, 63, 5}, {49, 65, 17}, {64, 128, 32}, {130, 131, 67}, {193, 257, 259}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm matches the reference on odd sizes with every algorithm", Exec, sizes_id) {
  for (Algorithm algorithm : ladder)
    for (Size s : sizes) {
      run_case<Exec, float, float, float>(s.m, s.n, s.k, 1, 0, {.algorithm = algorithm});
      run_case<Exec, double, double, double>(s.m, s.n, s.k, -0.7, 0.3, {.algorithm = algorithm});
    }
}
TEST_CASE_TEMPLATE_APPLY(sizes_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm takes every mix of layouts and transposes", Exec, layouts_id) {
  using Kokkos::LayoutLeft;
  using Kokkos::LayoutRight;
  for (Algorithm algorithm : ladder)
    for (Op op_a : {Op::none, Op::transpose})
      for (Op op_b : {Op::none, Op::transpose}) {
        GemmOptions const options{.op_a = op_a, .op_b = op_b, .algorithm = algorithm};
        run_case<Exec, float, float, float, LayoutRight, LayoutLeft, LayoutRight>(67, 41, 53, 1.5, 0.5, options);
        run_case<Exec, float, float, float, LayoutLeft, LayoutRight, LayoutLeft>(67, 41, 53, 1.5, 0.5, options);
      }
}
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm takes mixed precisions and rounds once", Exec, types_id) {
  for (Algorithm algorithm : ladder) {
    GemmOptions const o{.algorithm = algorithm};
    run_case<Exec, fp16_t, fp16_t, fp16_t>(65, 33, 70, 1, 0.5, o);
    run_case<Exec, bf16_t, bf16_t, bf16_t>(65, 33, 70, 1, 0.5, o);
    run_case<Exec, bf16_t, bf16_t, float>(65, 33, 70, 1, 0, o);
    run_case<Exec, fp16_t, float, float>(65, 33, 70, 2, 0, o);
    run_case<Exec, e4m3_t, e4m3_t, float>(65, 33, 70, 1, 0, o);
    run_case<Exec, e4m3_t, e5m2_t, bf16_t>(65, 33, 70, 0.25, 0, o);
    run_case<Exec, e5m2_t, e5m2_t, fp16_t>(65, 33, 70, 1, 1, o);
    run_case<Exec, bf16_t, bf16_t, e4m3_t>(65, 33, 70, 0.1, 0, o);
  }
}
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);
