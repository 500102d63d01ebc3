// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/normalization.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr double epsilon = 1e-5;

/// Every element against fp64. With u the roundoff of the accumulator and c = chain(n): the mean is off by
/// e = (c + 2) u mean|x| at most, the mean square about it by a factor (c + 6) u and e^2, so rstd by half of that
/// factor and a few u; x - mean by e + u |x - mean|; then one rounding each for factor, weight, bias and output.
/// `extra` is a further error of x, from a residual that is added in the accumulator.
template <class Acc, class Out>
int far_norm(Out const* y, reference::Row const& x, reference::Row const& weight, reference::Row const& bias,
             bool centered, double extra = 0) {
  double const u = roundoff_of<Acc>, u_out = limits<Out>::roundoff;
  double const c = chain(static_cast<double>(x.size()));
  auto const expected = reference::norm(x, weight, bias, epsilon, centered);
  double const e = (centered ? (c + 2) * u * expected.mean_magnitude : 0) + extra + limits<Acc>::min_subnormal;
  double const shift = e * expected.rstd;
  double const relative = (c + 12) * u + shift * shift + (centered ? 0 : 2 * shift);
  int far = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    double const w = weight.empty() ? 1 : weight[j], b = bias.empty() ? 0 : bias[j];
    double const bound = (relative * std::abs(x[j] - expected.mean) + e) * expected.rstd * std::abs(w) +
                         2 * u * std::abs(b) + u_out * std::abs(expected.y[j]) + limits<Out>::min_subnormal +
                         limits<Acc>::min_subnormal;
    if (!is_near(to_double(y[j]), expected.y[j], 1.01 * bound)) ++far;
  }
  return far;
}

template <class Acc, class Out, class In>
int far_rows(std::vector<Out> const& y, std::vector<In> const& x, std::size_t n, reference::Row const& weight,
             reference::Row const& bias, bool centered, double extra = 0) {
  int far = 0;
  for (std::size_t row = 0; n > 0 && row * n < x.size(); ++row)
    far += far_norm<Acc>(y.data() + row * n, row_of(x, row, n), weight, bias, centered, extra);
  return far;
}

template <class T>
reference::Row wide(std::vector<T> const& v) {
  return row_of(v, 0, v.size());
}

template <class Exec, class Out, class In, class Parameter, class Acc = float>
void check_rows(std::size_t rows, std::size_t n, double low = -3, double high = 5) {
  CAPTURE(rows);
  CAPTURE(n);
  ViewOf<Exec, In**> const in("in", rows, n);
  ViewOf<Exec, Out**> const out("out", rows, n);
  ViewOf<Exec, Parameter*> const weight("weight", n), bias("bias", n);
  auto const x = uniform<In>(rows * n, static_cast<unsigned>(n), low, high);
  auto const w = uniform<Parameter>(n, 5, 0.5, 2);
  auto const b = uniform<Parameter>(n, 6);
  fill(in, x);
  fill(weight, w);
  fill(bias, b);
  auto const lent = lent_memory<Exec>(in);
  NormOptions<> const options{.workspace = lent};
  poison(out);
  layer_norm(Exec{}, out, in, weight, bias, options);
  CHECK(far_rows<Acc>(values(out), x, n, wide(w), wide(b), true) == 0);
  poison(out);
  rms_norm(Exec{}, out, in, weight, options);
  CHECK(far_rows<Acc>(values(out), x, n, wide(w), {}, false) == 0);
}

template <class Exec, class T>
void check_residual(std::size_t rows, std::size_t n) {
  CAPTURE(rows);
  CAPTURE(n);
  std::size_t const all = rows * n;
  ViewOf<Exec, T**> const in("in", rows, n), residual("residual", rows, n), out("out", rows, n), sum("sum", rows, n);
  auto const x = uniform<T>(all, 1), r = uniform<T>(all, 2);
  std::vector<T> s(all);
  std::vector<double> exact(all);
  for (std::size_t i = 0; i < all; ++i) {
    s[i] = T(static_cast<float>(x[i]) + static_cast<float>(r[i]));
    exact[i] = to_double(x[i]) + to_double(r[i]);
  }
  auto const same_bits = [](std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  };
  fill(in, x);
  fill(residual, r);
  poison(sum);
  auto const lent = lent_memory<Exec>(in);
  // The sum is exactly rounded, and what is normalised is the rounded sum.
  layer_norm(Exec{}, out, in, none, none, NormOptions{.residual = residual, .sum = sum, .workspace = lent});
  CHECK(same_bits(values(sum), s));
  CHECK(far_rows<float>(values(out), s, n, {}, {}, true) == 0);
  // Without a sum nothing is rounded between; |x + r| <= 2, so the addition is off by 2 u at most.
  rms_norm(Exec{}, out, in, none, NormOptions{.residual = residual, .workspace = lent});
  CHECK(far_rows<float>(values(out), exact, n, {}, {}, false, 2 * roundoff_of<float>) == 0);
  CHECK(same_bits(values(residual), r));
  // The sum takes the residual's place, as it does from layer to layer of a transformer.
  rms_norm(Exec{}, out, in, none, NormOptions{.residual = residual, .sum = residual, .workspace = lent});
  CHECK(same_bits(values(residual), s));
  CHECK(far_rows<float>(values(out), s, n, {}, {}, false) == 0);
  fill(residual, r);  // and out that of in
  rms_norm(Exec{}, in, in, none, NormOptions{.residual = residual, .sum = residual, .workspace = lent});
  CHECK(same_bits(values(residual), s));
  CHECK(far_rows<float>(values(in), s, n, {}, {}, false) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("layer_norm and rms_norm agree with fp64 at every row length", Exec, norm_lengths) {
  for (int n : lengths) check_rows<Exec, float, float, float>(5, static_cast<std::size_t>(n));
  check_rows<Exec, float, float, float>(1, 131072);
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(2, 131072 + 8192);
  check_rows<Exec, float, float, float>(100, 10000);
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(260, 66000);  // many rows for each group of teams that share them
  for (std::size_t n : {2552u, 6000u, 10000u, 12288u, 14000u, 16384u, 18432u, 22528u, 40960u})
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(5, n);  // one team's, two's, three's
  for (std::size_t n : {2560u, 6000u, 9216u, 12288u, 16384u, 24576u}) check_rows<Exec, float, float, float>(5, n);
  for (std::size_t n :
       {5001u, 8193u, 9001u, 10001u, 12001u, 14001u, 16383u, 16393u, 31001u}) {  // long and not of whole packs
    check_rows<Exec, float, float, float>(7, n);
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(7, n);
  }
  check_rows<Exec, fp16_t, fp16_t, float>(150, 66001);
  check_rows<Exec, float, float, float>(20000, 3);
}

TEST_CASE_TEMPLATE_DEFINE("norms of rows for all multiprocessors together", Exec, norm_mailed) {
  check_mailed<Exec>([](int rows, int n) { check_rows<Exec, float, float, float>(rows, n); },
                     [](int rows, int n) { check_rows<Exec, bf16_t, bf16_t, bf16_t>(rows, n); });
}

TEST_CASE_TEMPLATE_DEFINE("layer_norm and rms_norm take every type", Exec, norm_types) {
  for (std::size_t n : {7u, 777u, 1000u, 1032u, 4095u, 20000u}) {
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(3, n);
    check_rows<Exec, fp16_t, fp16_t, float>(3, n);
    check_rows<Exec, float, bf16_t, fp16_t>(3, n);
    check_rows<Exec, double, double, double, double>(3, n);
    check_rows<Exec, float, float, double, double>(3, n);
    check_rows<Exec, e4m3_t, bf16_t, bf16_t>(3, n);
    check_rows<Exec, e5m2_t, float, float>(3, n);
  }
}

TEST_CASE_TEMPLATE_DEFINE("layer_norm keeps the variance of rows far from zero", Exec, norm_offset) {
  // Mean 4096, deviation 0.6: E[x^2] - E[x]^2 in fp32 would lose the variance altogether.
  for (std::size_t n : {100u, 3000u, 20000u, 20003u}) check_rows<Exec, float, float, float>(4, n, 4095, 4097);
}

TEST_CASE_TEMPLATE_DEFINE("weight and bias may be absent, statistics are written", Exec, norm_statistics) {
  for (std::size_t n : {0u, 1u, 130u, 5000u, 20000u}) {
    CAPTURE(n);
    ViewOf<Exec, float***> const in("in", 2, 3, n), out("out", 2, 3, n);
    ViewOf<Exec, float**> const mean("mean", 2, 3);
    ViewOf<Exec, double**, Kokkos::LayoutLeft> const rstd("rstd", 2, 3);
    ViewOf<Exec, float**, Kokkos::LayoutLeft> const rstd32("rstd32", 2, 3);
    auto const x = uniform<float>(6 * n, 8, 0, 2);
    fill(in, x);
    auto const check = [&](std::size_t row, double actual_mean, double actual_rstd, bool centered) {
      auto const expected = reference::norm(row_of(x, row, n), {}, {}, epsilon, centered);
      double const u = roundoff_of<float>, c = chain(static_cast<double>(n));
      CHECK(is_near(actual_mean, expected.mean, (c + 2) * u * expected.mean_magnitude));
      CHECK(is_near(actual_rstd, expected.rstd, (c + 12) * u * expected.rstd));
    };
    layer_norm(Exec{}, out, in, none, none, NormOptions{.mean = mean, .rstd = rstd32});
    CHECK(far_rows<float>(values(out), x, n, {}, {}, true) == 0);
    for (std::size_t row = 0; row < 6; ++row) check(row, values(mean)[row], values(rstd32)[row], true);
    poison(rstd);
    rms_norm(Exec{}, out, in, none, NormOptions{.rstd = rstd});
    CHECK(far_rows<float>(values(out), x, n, {}, {}, false) == 0);
    for (std::size_t row = 0; row < 6; ++row) check(row, 0, values(rstd)[row], false);
    layer_norm(out, in);  // default instance, nothing optional
    CHECK(far_rows<float>(values(out), x, n, {}, {}, true) == 0);
  }
}

TEST_CASE_TEMPLATE_DEFINE("a residual is added first, its sum written out", Exec, norm_residual) {
  for (std::size_t n : {6u, 513u, 4096u, 10000u, 12001u, 17000u, 33001u, 524296u}) check_residual<Exec, bf16_t>(4, n);
  if (runs_on_host<Exec>) return;
  check_residual<Exec, bf16_t>(20, 1048576);  // more rows than are under way at a time
  check_residual<Exec, float>(12, 1048576);
  check_residual<Exec, float>(40, 262144 + 4);
  check_residual<Exec, bf16_t>(5, 1200008);
}

TEST_CASE_TEMPLATE_DEFINE("norms take any layout, rank and alignment", Exec, norm_layouts) {
  for (std::size_t n : {9u, 1024u, 2064u, 17000u}) {
    CAPTURE(n);
    auto const x = uniform<bf16_t>(12 * n, 3, -5, 5);
    auto const w = uniform<float>(n, 4, 0.5, 2);
    ViewOf<Exec, float* [2]> const pairs("pairs", n);
    auto const weight = Kokkos::subview(pairs, Kokkos::ALL, 1);
    fill(weight, w);
    auto const check = [&](auto const& out, auto const& in) {
      fill(strided(in), x);
      layer_norm(Exec{}, out, in, weight);
      CHECK(far_rows<float>(values(strided(out)), x, n, wide(w), {}, true) == 0);
    };
    using Right = ViewOf<Exec, bf16_t****>;
    using Left = ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft>;
    Right const right("right", 2, 3, 2, n);
    check(right, right);
    check(Left("left", 2, 3, 2, n), right);
    Right const padded("padded", 3, 5, 3, n + 3);
    auto const part = Kokkos::subview(padded, std::pair{1, 3}, std::pair{1, 4}, std::pair{0, 2},
                                      std::pair<std::size_t, std::size_t>{1, n + 1});
    check(part, part);
    check(part, Left("left", 2, 3, 2, n));
  }
}

TEST_CASE_TEMPLATE_DEFINE("NaN, Inf and subnormal rows have defined norms", Exec, norm_special) {
  float const infinity = std::numeric_limits<float>::infinity();
  for (std::size_t n : {8u, 2000u, 17000u}) {
    CAPTURE(n);
    std::vector<float> x(4 * n, 1.0f);
    x[1] = std::nanf("");
    x[n + 2] = infinity;
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(2 * n), n, 1e-42f);
    x[2 * n] = -1e-42f;
    ViewOf<Exec, float**> const in("in", 4, n), out("out", 4, n);
    fill(in, x);
    layer_norm(Exec{}, out, in);
    auto const y = values(out);
    rms_norm(Exec{}, out, in);
    auto const z = values(out);
    int wrong = 0;
    for (std::size_t j = 0; j < n; ++j) {
      wrong += !std::isnan(y[j]) || !std::isnan(z[j]);
      wrong += !std::isnan(y[n + j]);
      wrong += j == 2 ? !std::isnan(z[n + j]) : z[n + j] != 0;
    }
    CHECK(wrong == 0);
    for (std::size_t row : {2u, 3u}) {
      CHECK(far_norm<float>(y.data() + row * n, row_of(x, row, n), {}, {}, true) == 0);
      CHECK(far_norm<float>(z.data() + row * n, row_of(x, row, n), {}, {}, false) == 0);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("norms name what is wrong and write nothing", Exec, norm_errors) {
  ViewOf<Exec, float**> const in("in", 3, 8), out("out", 3, 8), narrow("narrow", 3, 7), sum("sum", 3, 8);
  ViewOf<Exec, float*> const weight("weight", 8), short_weight("short", 7), mean("mean", 3), all("all", 64);
  for (auto const& v : {out, narrow, sum}) poison(v);
  poison(mean);
  poison(all);
  using Unmanaged = Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space>;
  using UnmanagedRow = Kokkos::View<float*, Kokkos::LayoutRight, typename Exec::memory_space>;
  Exec const exec;
  auto const raises = [&](ErrorCode code, char const* part, auto const& call) {
    auto const text = error_of(call, code);
    CHECK(contains(text, "tessera::"));
    CHECK(contains(text, part));
  };
  raises(ErrorCode::extent, "(3, 7)", [&] { layer_norm(exec, narrow, in); });
  raises(ErrorCode::extent, "weight (7) must be 8", [&] { layer_norm(exec, out, in, short_weight); });
  raises(ErrorCode::extent, "bias (7) must be 8", [&] { layer_norm(exec, out, in, weight, short_weight); });
  raises(ErrorCode::extent, "tessera::rms_norm", [&] { rms_norm(exec, out, in, short_weight); });
  raises(ErrorCode::extent, "mean (8) must be 3",
         [&] { layer_norm(exec, out, in, none, none, NormOptions{.mean = weight}); });
  raises(ErrorCode::extent, "rstd (8) must be 3", [&] { rms_norm(exec, out, in, none, NormOptions{.rstd = weight}); });
  raises(ErrorCode::extent, "residual", [&] { rms_norm(exec, out, in, none, NormOptions{.residual = narrow}); });
  raises(ErrorCode::extent, "sum", [&] { rms_norm(exec, out, in, none, NormOptions{.residual = in, .sum = narrow}); });
  raises(ErrorCode::value, "epsilon", [&] { rms_norm(exec, out, in, none, NormOptions{.epsilon = -1}); });
  raises(ErrorCode::value, "epsilon", [&] { layer_norm(exec, out, in, none, none, {.epsilon = std::nan("")}); });

  Unmanaged const null(static_cast<float*>(nullptr), 3, 8);
  UnmanagedRow const null_row(static_cast<float*>(nullptr), 8), null_mean(static_cast<float*>(nullptr), 3);
  raises(ErrorCode::null_data, "in (3, 8)", [&] { layer_norm(exec, out, null); });
  raises(ErrorCode::null_data, "out (3, 8)", [&] { layer_norm(exec, null, in); });
  raises(ErrorCode::null_data, "weight (8)", [&] { layer_norm(exec, out, in, null_row); });
  raises(ErrorCode::null_data, "bias (8)", [&] { layer_norm(exec, out, in, none, null_row); });
  raises(ErrorCode::null_data, "mean (3)",
         [&] { layer_norm(exec, out, in, none, none, NormOptions{.mean = null_mean}); });
  raises(ErrorCode::null_data, "residual", [&] { rms_norm(exec, out, in, none, NormOptions{.residual = null}); });
  raises(ErrorCode::null_data, "sum", [&] { rms_norm(exec, out, in, none, NormOptions{.residual = in, .sum = null}); });

  Unmanaged const here(all.data(), 3, 8), there(all.data() + 4, 3, 8);
  UnmanagedRow const row(all.data() + 2, 8), rows(all.data() + 2, 3);
  raises(ErrorCode::overlap, "out", [&] { layer_norm(exec, here, there); });
  raises(ErrorCode::overlap, "weight", [&] { layer_norm(exec, here, in, row); });
  raises(ErrorCode::overlap, "bias", [&] { layer_norm(exec, here, in, none, row); });
  raises(ErrorCode::overlap, "mean", [&] { layer_norm(exec, here, in, none, none, NormOptions{.mean = rows}); });
  raises(ErrorCode::overlap, "rstd", [&] { layer_norm(exec, out, here, none, none, NormOptions{.rstd = rows}); });
  raises(ErrorCode::overlap, "rstd",
         [&] { layer_norm(exec, out, in, none, none, NormOptions{.mean = rows, .rstd = rows}); });
  raises(ErrorCode::overlap, "weight", [&] { rms_norm(exec, out, in, row, NormOptions{.rstd = rows}); });
  raises(ErrorCode::overlap, "residual", [&] { rms_norm(exec, here, in, none, NormOptions{.residual = there}); });
  raises(ErrorCode::overlap, "sum", [&] { rms_norm(exec, here, in, none, NormOptions{.residual = in, .sum = here}); });
  raises(ErrorCode::overlap, "sum",
         [&] { rms_norm(exec, out, in, none, NormOptions{.residual = here, .sum = there}); });
  raises(ErrorCode::overlap, "sum",
         [&] { rms_norm(exec, out, in, none, NormOptions{.rstd = rows, .residual = in, .sum = here}); });
  raises(ErrorCode::overlap, "residual",
         [&] { rms_norm(exec, out, in, none, NormOptions{.rstd = rows, .residual = here}); });
  CHECK(is_poisoned(all));
  CHECK(is_poisoned(mean));
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(narrow));
  CHECK(is_poisoned(sum));
}

TEST_CASE_TEMPLATE_APPLY(norm_lengths, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_mailed, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_types, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_offset, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_statistics, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_residual, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_layouts, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_special, Spaces);
TEST_CASE_TEMPLATE_APPLY(norm_errors, Spaces);
