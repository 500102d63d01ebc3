// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each epilogue of a caller's is a kernel of its own on every pipeline: most of what the tests of gemm() compile.
#include <tessera/gemm.hpp>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class Exec, class T = float>
using Matrix = ViewOf<Exec, T**>;

template <class View>
void randomise(View const& v, unsigned seed) {
  fill(v, uniform<typename View::non_const_value_type>(v.size(), seed));
}

constexpr Algorithm ladder[] = {Algorithm::automatic, Algorithm::naive,     Algorithm::coalesced,
                                Algorithm::tiled,     Algorithm::coarsened, Algorithm::tensor_core};

/// Sees rows, columns and the batch; never called outside C.
template <class V>
struct Position {
  V seen;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col, std::int64_t batch) const {
    seen(batch, row, col) += 1;
    return x + T(1000 * batch + 10 * row + col);
  }
};
}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm calls a user's epilogue once an element with its position", Exec, epilogue_id) {
  for (Algorithm algorithm : ladder) {
    ViewOf<Exec, float***> a("A", 2, 35, 6), b("B", 2, 6, 33), c("C", 2, 35, 33);
    ViewOf<Exec, int***> seen("seen", 2, 35, 33);
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm}, Position<decltype(seen)>{seen});
    auto const out = values(c);
    for (int x : values(seen)) CHECK(x == 1);
    for (int p = 0; p < 2; ++p)
      for (int i = 0; i < 35; ++i)
        for (int j = 0; j < 33; ++j) CHECK(out[(p * 35 + i) * 33 + j] == float(1000 * p + 10 * i + j));
  }
}
TEST_CASE_TEMPLATE_APPLY(epilogue_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm's ready epilogues", Exec, ready_id) {
  int const m = 19, n = 37, k = 11;
  Matrix<Exec> a("A", m, k), b("B", k, n), c("C", m, n), residual("R", m, n);
  ViewOf<Exec, float*> bias("bias", n), row_bias("row bias", m);
  randomise(a, 1), randomise(b, 2), randomise(residual, 3), randomise(bias, 4), randomise(row_bias, 5);
  auto const r = gemm_reference(m, n, k, 1, values(a), values(b), 0, values(c));
  auto const biases = values(bias), row_biases = values(row_bias), residuals = values(residual);
  // Accumulation errs by (k + 3)·u·magnitude; every function here has a slope below 1.2 and errs by a few u itself.
  auto const check = [&](auto const& epilogue, auto const& expected) {
    gemm(Exec{}, 1, a, b, 0, c, {}, epilogue);
    auto const out = values(c);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double const x = r.c[i * n + j], want = expected(x, i, j);
        double const bound =
            (1.2 * (k + 3) * (r.magnitude[i * n + j] + 2) + 8 * (std::fabs(want) + 1)) * std::ldexp(1.0, -24);
        CHECK(std::fabs(out[i * n + j] - want) <= bound);
      }
  };
  auto const gelu = [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); };
  using namespace epilogue;
  check(Relu{}, [](double x, int, int) { return std::max(x, 0.0); });
  check(Gelu{}, [&](double x, int, int) { return gelu(x); });
  check(GeluTanh{}, [](double x, int, int) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  });
  check(Silu{}, [](double x, int, int) { return x / (1 + std::exp(-x)); });
  check(Elu{0.5}, [](double x, int, int) { return x > 0 ? x : 0.5 * std::expm1(x); });
  check(Scale{0.25}, [](double x, int, int) { return 0.25 * x; });
  check(epilogue::bias(bias), [&](double x, int, int j) { return x + biases[j]; });
  check(epilogue::row_bias(row_bias), [&](double x, int i, int) { return x + row_biases[i]; });
  check(epilogue::residual(residual), [&](double x, int i, int j) { return x + residuals[i * n + j]; });
  check(chain(epilogue::bias(bias), Gelu{}, epilogue::residual(residual)),
        [&](double x, int i, int j) { return gelu(x + biases[j]) + residuals[i * n + j]; });
}
TEST_CASE_TEMPLATE_APPLY(ready_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm's ready epilogues reach their limits at infinity", Exec, limits_id) {
  Matrix<Exec> a("A", 2, 3), b("B", 3, 4), c("C", 2, 4);
  float const infinity = INFINITY;
  auto const check = [&](auto const& epilogue, float below) {
    for (float const x : {-infinity, infinity}) {
      fill(c, std::vector<float>(c.size(), x));
      gemm(Exec{}, 0, a, b, 1, c, {}, epilogue);
      for (float const y : values(c)) CHECK(y == (x < 0 ? below : infinity));
    }
  };
  check(epilogue::Relu{}, 0);
  check(epilogue::Gelu{}, 0);
  check(epilogue::GeluTanh{}, 0);
  check(epilogue::Silu{}, 0);
  check(epilogue::Elu{0.5}, -0.5);
}
TEST_CASE_TEMPLATE_APPLY(limits_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm quantises into a narrow C and reports the largest size", Exec, quantise_id) {
  int const m = 40, n = 30, k = 16;
  Matrix<Exec> a("A", m, k), b("B", k, n), plain("C", m, n);
  Matrix<Exec, e4m3_t> c("C", m, n);
  ViewOf<Exec, float> amax("amax");
  randomise(a, 1), randomise(b, 2);
  gemm(Exec{}, 1, a, b, 0, plain);
  gemm(Exec{}, 1, a, b, 0, c, {}, epilogue::quantize(amax, 200.f, 448.f));
  float largest = 0;
  auto const x = values(plain);
  auto const q = values(c);
  for (float v : x) largest = std::max(largest, std::fabs(v));
  CHECK(values(amax)[0] == largest);
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK(float(q[i]) == float(e4m3_t(std::min(448.f, std::max(-448.f, x[i] * 200.f)))));
}
TEST_CASE_TEMPLATE_APPLY(quantise_id, Spaces);
