// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {
template <class Exec, class T = float>
using V4 = ViewOf<Exec, T****>;

template <class View>
void randomise(View const& v, unsigned seed) {
  fill(v, uniform<typename View::non_const_value_type>(v.size(), seed));
}
}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention without a visible key gives 0 and minus infinity", Exec, masked_id) {
  V4<Exec> q("Q", 1, 2, 9, 8), k("K", 1, 2, 4, 8), v("V", 1, 2, 4, 8), o("O", 1, 2, 9, 8);
  ViewOf<Exec, float***> lse("LSE", 1, 2, 9);
  randomise(q, 1), randomise(k, 2), randomise(v, 3);
  AttentionOptions options{.causal = true, .lse = lse};
  poison(o), poison(lse);
  attention(Exec{}, o, q, k, v, options);  // queries 0..4 lie before the first key
  auto const out = values(o);
  auto const l = values(lse);
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 9; ++i) {
      CHECK((l[h * 9 + i] == -INFINITY) == (i < 5));
      for (int c = 0; c < 8; ++c)
        if (i < 5) CHECK(out[(h * 9 + i) * 8 + c] == 0);
    }
  V4<Exec> no_k("K", 1, 2, 0, 8), no_v("V", 1, 2, 0, 8);
  poison(o), poison(lse);
  attention(Exec{}, o, q, no_k, no_v, {.lse = lse});
  for (float x : values(o)) CHECK(x == 0);
  for (float x : values(lse)) CHECK(x == -INFINITY);
}
TEST_CASE_TEMPLATE_APPLY(masked_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention with empty extents writes what there is", Exec, empty_id) {
  V4<Exec> k("K", 2, 2, 5, 8), v("V", 2, 2, 5, 4);
  attention(Exec{}, V4<Exec>("O", 2, 2, 0, 4), V4<Exec>("Q", 2, 2, 0, 8), k, v);
  attention(Exec{}, V4<Exec>("O", 0, 2, 3, 4), V4<Exec>("Q", 0, 2, 3, 8), V4<Exec>("K", 0, 2, 5, 8),
            V4<Exec>("V", 0, 2, 5, 4));
  // No features: every score is 0, and O is the mean of V.
  V4<Exec> o("O", 2, 2, 3, 4);
  randomise(v, 3);
  attention(Exec{}, o, V4<Exec>("Q", 2, 2, 3, 0), V4<Exec>("K", 2, 2, 5, 0), v);
  auto const out = values(o), in = values(v);
  for (int p = 0; p < 4; ++p)
    for (int c = 0; c < 4; ++c) {
      double mean = 0;
      for (int j = 0; j < 5; ++j) mean += in[(p * 5 + j) * 4 + c] / 5.0;
      CHECK(out[p * 12 + c] == doctest::Approx(mean).epsilon(1e-6));
    }
}
TEST_CASE_TEMPLATE_APPLY(empty_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention keeps NaN and Inf in their rows", Exec, special_id) {
  int const s = 70, d = 16;
  V4<Exec> q("Q", 1, 1, s, d), k("K", 1, 1, s, d), v("V", 1, 1, s, d), o("O", 1, 1, s, d);
  auto qh = uniform<float>(std::size_t(s) * d, 1, 0.1, 1);
  fill(q, qh);
  fill(k, uniform<float>(std::size_t(s) * d, 2, 0.1, 1));
  randomise(v, 3);
  qh[3 * d] = NAN;
  qh[5 * d] = INFINITY;
  fill(q, qh);
  attention(Exec{}, o, q, k, v);
  auto const out = values(o);
  for (int i = 0; i < s; ++i)
    for (int c = 0; c < d; ++c) CHECK(std::isnan(out[i * d + c]) == (i == 3 || i == 5));
  // Scores far beyond exp's range are no trouble: the maximum is taken off first.
  for (float& x : qh) x = 1e4f;
  fill(q, qh);
  attention(Exec{}, o, q, k, v);
  for (float x : values(o)) CHECK(std::isfinite(x));
}
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);

namespace {

/// Scores that grow by so much every 128 keys, towards the first key or the last.
template <class Exec, class T>
void check_growing(AttentionShape z, double step, bool to_first) {
  CAPTURE(step);
  CAPTURE(to_first);
  Operands<Exec, T> x(z);
  for (std::size_t row = 0; row < x.q.size() / z.d; ++row) x.q[row * z.d] = T(4.f);
  for (std::size_t row = 0; row < x.k.size() / z.d; ++row) {
    int const j = static_cast<int>(row % z.keys), so_many = to_first ? z.keys - 1 - j : j;
    x.k[row * z.d] = T(static_cast<float>(step * so_many / 128 * std::sqrt(double(z.d)) / 4));
  }
  fill(x.qv, x.q), fill(x.kv, x.k);
  x.attend({});
  x.check(everything, unchanged, x.scale());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention bears maxima that stay, move a little and move far", Exec, growing_id) {
  for (double step : {0.7, 5.0, 60.0})
    for (bool to_first : {true, false}) {
      check_growing<Exec, bf16_t>({1, 2, 1, 150, 700, 128, 128}, step, to_first);
      check_growing<Exec, fp16_t>({1, 2, 2, 130, 600, 64, 64}, step, to_first);
      check_growing<Exec, float>({1, 1, 1, 70, 700, 32, 16}, step, to_first);
    }
}
TEST_CASE_TEMPLATE_APPLY(growing_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention names what does not fit and writes nothing", Exec, errors_id) {
  Exec const e;
  V4<Exec> q("Q", 2, 4, 5, 8), k("K", 2, 2, 6, 8), v("V", 2, 2, 6, 3), o("O", 2, 4, 5, 3);
  ViewOf<Exec, float***> lse("LSE", 2, 4, 5);
  poison(o), poison(lse);
  auto const extent = [&](auto f, char const* part) {
    std::string const what = error_of(f, ErrorCode::extent);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK_MESSAGE(contains(what, "tessera::attention"), what);
  };
  extent([&] { attention(e, o, V4<Exec>("Q", 3, 4, 5, 8), k, v); }, "batches differ");
  extent([&] { attention(e, o, V4<Exec>("Q", 2, 3, 5, 8), k, v); }, "heads of Q and O");
  extent([&] { attention(e, V4<Exec>("O", 2, 3, 5, 3), V4<Exec>("Q", 2, 3, 5, 8), k, v); }, "no multiple");
  extent([&] { attention(e, o, q, k, V4<Exec>("V", 2, 1, 6, 3)); }, "heads of K and V");
  extent([&] { attention(e, o, V4<Exec>("Q", 2, 4, 6, 8), k, v); }, "queries in Q and O");
  extent([&] { attention(e, o, q, k, V4<Exec>("V", 2, 2, 7, 3)); }, "keys in K and V");
  extent([&] { attention(e, o, q, V4<Exec>("K", 2, 2, 6, 7), v); }, "(2, 2, 6, 7)");
  extent([&] { attention(e, o, q, k, V4<Exec>("V", 2, 2, 6, 4)); }, "features of V and O");
  extent([&] { attention(e, o, V4<Exec>("Q", 2, 4, 5, 257), V4<Exec>("K", 2, 2, 6, 257), v); }, "at most 256");
  extent([&] { attention(e, o, q, k, v, {.lse = ViewOf<Exec, float***>("LSE", 2, 4, 6)}); }, "lse (2, 4, 6)");
  extent([&] { attention(e, o, q, k, v, {.key_lengths = ViewOf<Exec, int*>("lengths", 3)}); }, "key_lengths");
  error_of([&] { attention(e, o, q, k, v, {.scale = -1.0}); }, ErrorCode::value);
  error_of([&] { attention(e, o, q, k, v, {.scale = NAN}); }, ErrorCode::value);
  error_of([&] { attention(e, o, q, k, v, {.lse_fp64 = ViewOf<Exec, double***>("LSE", 2, 4, 5)}); }, ErrorCode::value);
  V4<Exec> square("Q", 2, 4, 5, 3), square_k("K", 2, 4, 5, 3);
  error_of([&] { attention(e, square, square, square_k, square_k); }, ErrorCode::overlap);
  error_of([&] { attention(e, square_k, square, square_k, square); }, ErrorCode::overlap);
  error_of([&] { attention(e, o, q, k, v, {.lse = ViewOf<Exec, float***>(q.data(), 2, 4, 5)}); }, ErrorCode::overlap);
  error_of([&] { attention(e, o, q, k, v, {.lse = ViewOf<Exec, float***>(o.data(), 2, 4, 5)}); }, ErrorCode::overlap);
  using Raw = Kokkos::View<float****, Kokkos::LayoutRight, typename Exec::memory_space,
                           Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  error_of([&] { attention(e, o, Raw(nullptr, 2, 4, 5, 8), k, v); }, ErrorCode::null_data);
  error_of([&] { attention(e, o, q, k, v, {.algorithm = AttentionAlgorithm::hopper, .allow_fallback = false}); },
           ErrorCode::unsupported);  // fp32 operands: on no machine
  CHECK(is_poisoned(o));
  CHECK(is_poisoned(lse));
}
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention's plan says what runs and why", Exec, plan_id) {
  V4<Exec> q("Q", 1, 2, 100, 40), k("K", 1, 2, 100, 40), v("V", 1, 2, 100, 72), o("O", 1, 2, 100, 72);
  AttentionPlan const plan = attention_plan(Exec{}, o, q, k, v);
  CHECK(plan.algorithm == AttentionAlgorithm::tiled);
  CHECK(plan.tile_features == 128);
  CHECK(plan.tiles == 2 * ((100 + plan.tile_queries - 1) / plan.tile_queries));
  CHECK(contains(to_string(plan), "tiled"));
  AttentionPlan const asked = attention_plan(Exec{}, o, q, k, v, {.algorithm = AttentionAlgorithm::hopper});
  CHECK(asked.algorithm == AttentionAlgorithm::tiled);
  CHECK(contains(to_string(asked), "hopper pipeline"));
}
TEST_CASE_TEMPLATE_APPLY(plan_id, Spaces);

TEST_CASE("attention agrees between backends within the bounds of both") {
  AttentionShape const z{1, 4, 2, 90, 130, 64, 64};
  std::vector<std::vector<float>> results;
  for_each_space([&](auto exec) {
    using Exec = decltype(exec);
    V4<Exec> q("Q", z.batch, z.heads, z.queries, z.d), k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v), o("O", z.batch, z.heads, z.queries, z.d_v);
    randomise(q, 1), randomise(k, 2), randomise(v, 3);
    attention(exec, o, q, k, v, {.causal = true});
    results.push_back(values(o));
  });
  // |o| <= 1 and each backend errs by (2·(d + 3)·scale·Σ|q||k| + S_k + 8)·u at most, with Σ|q||k| <= d.
  double const u = unit_roundoff<float>();
  double const bound = 2 * (2 * (z.d + 3) * std::sqrt(double(z.d)) + z.keys + 24) * u;
  for (auto const& r : results)
    for (std::size_t i = 0; i < r.size(); ++i)
      if (!(std::fabs(double(r[i]) - results[0][i]) <= bound)) FAIL_CHECK("element " << i << " differs");
  CHECK(results.size() >= 1);
}
