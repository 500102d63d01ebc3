// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

template <class A, class B, class C>
void check_product(A const& a, B const& b, C const& c, int k) {
  int const m = static_cast<int>(c.extent(0)), n = static_cast<int>(c.extent(1));
  check_gemm<float>(gemm_reference(m, n, k, 1, values(a), values(b), 0, values(c)), values(c), k);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm with beta = 0 does not read C", Exec, beta_id) {
  for (Algorithm algorithm : ladder) {
    Matrix<Exec> a("A", 35, 20), b("B", 20, 50), c("C", 35, 50);
    randomise(a, 1), randomise(b, 2);
    fill(c, std::vector<float>(c.size(), NAN));
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm});
    check_product(a, b, c, 20);
  }
}
TEST_CASE_TEMPLATE_APPLY(beta_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm with K = 0 or alpha = 0 gives beta C and reads neither A nor B", Exec, k0_id) {
  for (Algorithm algorithm : ladder) {
    Matrix<Exec> c("C", 33, 5);
    randomise(c, 3);
    auto const before = values(c);
    gemm(Exec{}, 2, Matrix<Exec>("A", 33, 0), Matrix<Exec>("B", 0, 5), 0.5, c, {.algorithm = algorithm});
    auto after = values(c);
    for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i] == 0.5f * before[i]);
    Matrix<Exec> a("A", 33, 7), b("B", 7, 5);
    fill(a, std::vector<float>(a.size(), NAN)), fill(b, std::vector<float>(b.size(), INFINITY));
    gemm(Exec{}, 0, a, b, 1, c, {.algorithm = algorithm});
    CHECK(values(c) == after);
    fill(c, std::vector<float>(c.size(), NAN));
    gemm(Exec{}, 0, a, b, 0, c, {.algorithm = algorithm});
    for (float x : values(c)) CHECK(x == 0);
  }
}
TEST_CASE_TEMPLATE_APPLY(k0_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm on an empty C does nothing", Exec, empty_id) {
  for (Algorithm algorithm : ladder) {
    gemm(Exec{}, 1, Matrix<Exec>("A", 0, 4), Matrix<Exec>("B", 4, 5), 0, Matrix<Exec>("C", 0, 5),
         {.algorithm = algorithm});
    gemm(Exec{}, 1, Matrix<Exec>("A", 3, 4), Matrix<Exec>("B", 4, 0), 0, Matrix<Exec>("C", 3, 0),
         {.algorithm = algorithm});
    gemm(Exec{}, 1, Matrix<Exec>("A", 3, 4), Matrix<Exec>("B", 4, 5), 0, ViewOf<Exec, float***>("C", 0, 3, 5),
         {.algorithm = algorithm});
  }
  CHECK(gemm_plan(Exec{}, 1, Matrix<Exec>("A", 0, 4), Matrix<Exec>("B", 4, 5), 0, Matrix<Exec>("C", 0, 5)).tiles == 0);
}
TEST_CASE_TEMPLATE_APPLY(empty_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm takes unaligned pointers, odd leading dimensions and strided Views", Exec, strides_id) {
  for (Algorithm algorithm : ladder) {
    GemmOptions const options{.algorithm = algorithm};
    Matrix<Exec, bf16_t> wide_a("A", 40, 71), wide_b("B", 67, 53), wide_c("C", 41, 50);
    randomise(wide_a, 1), randomise(wide_b, 2), poison(wide_c);
    auto const a = Kokkos::subview(wide_a, std::pair(1, 38), std::pair(3, 68));
    auto const b = Kokkos::subview(wide_b, std::pair(1, 66), std::pair(5, 48));
    auto const c = Kokkos::subview(wide_c, std::pair(2, 39), std::pair(1, 44));
    gemm(Exec{}, 1, a, b, 0, c, options);
    check_product(a, b, c, 65);
    auto const all = values(wide_c);
    for (int i = 0; i < 41; ++i)
      for (int j = 0; j < 50; ++j)
        if (i < 2 || i >= 39 || j < 1 || j >= 44) CHECK(all[i * 50 + j].bits() == 0xA5A5);
    ViewOf<Exec, float***> deep("deep", 30, 20, 3);
    randomise(deep, 4);
    auto const s = Kokkos::subview(deep, Kokkos::ALL, Kokkos::ALL, 1);
    Matrix<Exec> d("D", 30, 30);
    gemm(Exec{}, 1, s, s, 0, d, {.op_b = Op::transpose, .algorithm = algorithm});
    auto const sv = values(s);
    auto st = sv;
    for (int i = 0; i < 30; ++i)
      for (int j = 0; j < 20; ++j) st[j * 30 + i] = sv[i * 20 + j];
    check_gemm<float>(gemm_reference(30, 30, 20, 1, sv, st, 0, values(d)), values(d), 20);
  }
}
TEST_CASE_TEMPLATE_APPLY(strides_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm multiplies batches, and one matrix with all of a batch", Exec, batch_id) {
  int const batch = 3, m = 21, n = 34, k = 18;
  for (Algorithm algorithm : ladder) {
    ViewOf<Exec, float***> a("A", batch, m, k), b("B", batch, k, n), c("C", batch, m, n), one("A", 1, m, k);
    Matrix<Exec> shared("B", k, n);
    randomise(a, 1), randomise(b, 2), randomise(shared, 3), randomise(one, 4);
    auto const check = [&](auto const& av, bool a_shared, auto const& bv, bool b_shared) {
      auto const ah = values(av), bh = values(bv), ch = values(c);
      for (int i = 0; i < batch; ++i) {
        auto const part = [&](auto const& x, int size, bool is_shared) {
          auto const first = x.begin() + (is_shared ? 0 : i * size);
          return std::vector<float>(first, first + size);
        };
        auto const ci = part(ch, m * n, false);
        check_gemm<float>(gemm_reference(m, n, k, 1, part(ah, m * k, a_shared), part(bh, k * n, b_shared), 0, ci), ci,
                          k);
      }
    };
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm});
    check(a, false, b, false);
    gemm(Exec{}, 1, a, shared, 0, c, {.algorithm = algorithm});
    check(a, false, shared, true);
    gemm(Exec{}, 1, one, b, 0, c, {.algorithm = algorithm});
    check(one, true, b, false);
  }
}
TEST_CASE_TEMPLATE_APPLY(batch_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm updates a block of the matrix that holds its operands", Exec, blocks_id) {
  // The trailing update of a factorisation: the three blocks interleave in memory and share no element.
  int const n = 50, done = 13;
  Matrix<Exec> whole("A", n, n);
  randomise(whole, 1);
  auto const before = values(whole);
  auto const left = std::pair(0, done), rest = std::pair(done, n);
  gemm(Exec{}, -1, Kokkos::subview(whole, rest, left), Kokkos::subview(whole, left, rest), 1,
       Kokkos::subview(whole, rest, rest));
  auto const after = values(whole);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double want = before[i * n + j], magnitude = std::fabs(want);
      for (int p = 0; p < done && i >= done && j >= done; ++p) {
        want -= double(before[i * n + p]) * before[p * n + j];
        magnitude += std::fabs(double(before[i * n + p]) * before[p * n + j]);
      }
      CHECK(std::fabs(after[i * n + j] - want) <= (done + 3) * magnitude * std::ldexp(1.0, -24));
    }
}
TEST_CASE_TEMPLATE_APPLY(blocks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm propagates NaN and Inf and keeps subnormals", Exec, special_id) {
  for (Algorithm algorithm : ladder) {
    int const n = 40;
    Matrix<Exec> a("A", n, n), b("B", n, n), c("C", n, n);
    std::vector<float> ah(n * n, 1.f), bh(n * n, 1.f);
    ah[2 * n + 7] = NAN;
    ah[5 * n + 3] = INFINITY;
    ah[6 * n + 3] = INFINITY;
    ah[6 * n + 4] = -INFINITY;
    fill(a, ah), fill(b, bh);
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm});
    auto const out = values(c);
    for (int j = 0; j < n; ++j) {
      CHECK(std::isnan(out[2 * n + j]));
      CHECK(out[5 * n + j] == INFINITY);
      CHECK(std::isnan(out[6 * n + j]));
      CHECK(out[7 * n + j] == n);
    }
    // 2^-149 is the smallest fp32 and 2^-24 the smallest fp16; products and sums with them are exact.
    Matrix<Exec> tiny("A", 1, 2), ones("B", 2, 1), sum("C", 1, 1);
    fill(tiny, std::vector<float>{std::ldexp(1.f, -149), std::ldexp(1.f, -148)}),
        fill(ones, std::vector<float>{1.f, 1.f});
    gemm(Exec{}, 1, tiny, ones, 0, sum, {.algorithm = algorithm});
    CHECK(values(sum)[0] == 3 * std::ldexp(1.f, -149));
    Matrix<Exec, fp16_t> half_a("A", 1, 1), half_c("C", 1, 1);
    fill(half_a, std::vector<fp16_t>{fp16_t(std::ldexp(1.f, -24))});
    gemm(Exec{}, 1, half_a, Kokkos::subview(ones, std::pair(0, 1), Kokkos::ALL), 0, half_c, {.algorithm = algorithm});
    CHECK(values(half_c)[0].bits() == 1);
  }
}
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm names what does not fit and writes nothing", Exec, errors_id) {
  Exec const e;
  Matrix<Exec> a("A", 3, 4), b("B", 4, 5), c("C", 3, 5);
  poison(c);
  auto const extent = [&](auto f, char const* part) {
    std::string const what = error_of(f, ErrorCode::extent);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK_MESSAGE(contains(what, "tessera::gemm"), what);
  };
  extent([&] { gemm(e, 1, a, Matrix<Exec>("B", 5, 5), 0, c); }, "inner extents");
  extent([&] { gemm(e, 1, Matrix<Exec>("A", 2, 4), b, 0, c); }, "A (2, 4)");
  extent([&] { gemm(e, 1, a, Matrix<Exec>("B", 4, 6), 0, c); }, "columns of op(B)");
  extent([&] { gemm(e, 1, a, b, 0, c, {.op_a = Op::transpose}); }, "A (3, 4) transposed");
  ViewOf<Exec, float***> batch("C", 2, 3, 5);
  extent([&] { gemm(e, 1, ViewOf<Exec, float***>("A", 3, 3, 4), b, 0, batch); }, "batch of A");
  extent([&] { gemm(e, 1, a, ViewOf<Exec, float***>("B", 3, 4, 5), 0, batch); }, "batch of B");
  Matrix<Exec> square("A", 4, 4), other("B", 4, 4);
  error_of([&] { gemm(e, 1, square, other, 0, square); }, ErrorCode::overlap);
  error_of([&] { gemm(e, 1, square, other, 0, other); }, ErrorCode::overlap);
  using Raw =
      Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  error_of([&] { gemm(e, 1, Raw(nullptr, 3, 4), b, 0, c); }, ErrorCode::null_data);
  error_of([&] { gemm(e, 1, a, Raw(nullptr, 4, 5), 0, c); }, ErrorCode::null_data);
  error_of([&] { gemm(e, 1, a, b, 0, Raw(nullptr, 3, 5)); }, ErrorCode::null_data);
  using Strided = Kokkos::View<float**, Kokkos::LayoutStride, typename Exec::memory_space>;
  error_of([&] { gemm(e, 1, a, b, 0, Strided(c.data(), Kokkos::LayoutStride(3, 0, 5, 1))); }, ErrorCode::overlap);
  std::string const refused =
      error_of([&] { gemm(e, 1, a, b, 0, c, {.algorithm = Algorithm::hopper, .allow_fallback = false}); },
               ErrorCode::unsupported);
  CHECK_MESSAGE(contains(refused, "hopper"), refused);
  CHECK(is_poisoned(c));
}
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm's plan says what runs and why", Exec, plan_id) {
  Matrix<Exec> a("A", 100, 40), b("B", 40, 70), c("C", 100, 70);
  for (Algorithm algorithm : {Algorithm::naive, Algorithm::coalesced, Algorithm::tiled, Algorithm::coarsened})
    CHECK(gemm_plan(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm}).algorithm == algorithm);
  GemmPlan const plan = gemm_plan(Exec{}, 1, a, b, 0, c);
  CHECK(plan.algorithm == Algorithm::coarsened);
  CHECK(plan.tiles == ((100 + plan.tile_m - 1) / plan.tile_m) * ((70 + plan.tile_n - 1) / plan.tile_n));
  CHECK(plan.scratch_bytes > 0);
  CHECK(contains(to_string(plan), "coarsened"));
  CHECK(plan.flops == 2.0 * 100 * 70 * 40);
  CHECK(plan.bytes == 4.0 * (100 * 40 + 40 * 70 + 100 * 70));
  CHECK(gemm_plan(Exec{}, 1, a, b, 1, c).bytes == plan.bytes + 4.0 * 100 * 70);
  GemmPlan const asked = gemm_plan(Exec{}, 1, a, b, 0, c, {.algorithm = Algorithm::hopper});
  CHECK(asked.algorithm == Algorithm::coarsened);
  CHECK(contains(asked.reason, "hopper pipeline"));
}
TEST_CASE_TEMPLATE_APPLY(plan_id, Spaces);

TEST_CASE("gemm's plan predicts a time") {
  model::DeviceModel const device = model::h200_sxm();
  GemmPlan plan;
  plan.algorithm = Algorithm::coarsened;
  plan.tiles = plan.concurrency = 100;
  plan.flops = device.peak(model::Type::fp32);
  CHECK(predicted_seconds(plan, device) == doctest::Approx(1));
  plan.tiles = 101;  // of two rounds the second has one tile
  CHECK(predicted_seconds(plan, device) == doctest::Approx(2 / 1.01));
  plan.bytes = 3 * device.hbm_bytes_per_second;
  CHECK(predicted_seconds(plan, device) == doctest::Approx(3));
  plan.clocks = 5 * device.clock_hz;
  CHECK(predicted_seconds(plan, device) == doctest::Approx(5));
  CHECK(contains(to_string(plan, device), "5e+06 us on " + device.name));
  error_of([&] { predicted_seconds(plan, model::DeviceModel{}); }, ErrorCode::value);
}

TEST_CASE("gemm agrees between backends within the bounds of both") {
  int const m = 70, n = 90, k = 200;
  std::vector<std::vector<float>> results;
  for_each_space([&](auto exec) {
    using Exec = decltype(exec);
    Matrix<Exec, bf16_t> a("A", m, k), b("B", k, n);
    Matrix<Exec> c("C", m, n);
    randomise(a, 1), randomise(b, 2);
    gemm(exec, 1, a, b, 0, c);
    results.push_back(values(c));
  });
  // Both err by (k + 3)·u·Σ|terms| at most, and Σ|terms| <= k.
  double const bound = 2.0 * (k + 3) * k * std::ldexp(1.0, -24);
  for (auto const& r : results)
    for (std::size_t i = 0; i < r.size(); ++i)
      if (!(std::fabs(double(r[i]) - results[0][i]) <= bound)) FAIL_CHECK("element " << i << " differs");
  CHECK(results.size() >= 1);
}
