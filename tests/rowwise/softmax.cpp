// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/softmax.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Every element against fp64. With u the roundoff of the accumulator: scaling and subtraction put (|s x| + |s x -
/// max|) u at most into the exponent, the exponential 2 units in the last place (4 u), the sum chain(n) u, division and
/// product 3 u; then one rounding to the output. Below the smallest normal numbers errors are absolute.
template <class Acc, class Out, class In>
int far_softmax(std::vector<Out> const& y, std::vector<In> const& x, std::size_t n, double scale, bool log) {
  double const u = roundoff_of<Acc>, u_out = limits<Out>::roundoff;
  double const tiny = 4 * (limits<Acc>::min_subnormal + limits<Out>::min_subnormal);
  int far = 0;
  for (std::size_t row = 0; n > 0 && row * n < x.size(); ++row) {
    auto const values = row_of(x, row, n);
    auto const expected = reference::softmax(values, scale);
    for (std::size_t j = 0; j < n; ++j) {
      double const scaled = scale * values[j];
      double const exponent = std::isfinite(scaled) ? std::abs(scaled) + std::abs(scaled - expected.top) : 0;
      double const relative = (exponent + chain(static_cast<double>(n)) + 10) * u;
      double const e = log ? expected.log_softmax[j] : expected.softmax[j];
      double const bound = log ? relative + 4 * u * expected.log_total + 2 * (u + u_out) * std::abs(e) + tiny
                               : (2 * relative + u_out) * e + tiny;
      if (!is_near(to_double(y[row * n + j]), e, bound)) ++far;
    }
  }
  return far;
}

template <class Exec, class Out, class In, class Acc = float>
void check_rows(std::size_t rows, std::size_t n, double scale = 1, double range = 6) {
  CAPTURE(rows);
  CAPTURE(n);
  ViewOf<Exec, In**> const in("in", rows, n);
  ViewOf<Exec, Out**> const out("out", rows, n);
  auto const x = uniform<In>(rows * n, static_cast<unsigned>(n), -range, range);
  fill(in, x);
  auto const lent = lent_memory<Exec>(in);
  poison(out);
  softmax(Exec{}, out, in, {.scale = scale, .workspace = lent});
  CHECK(far_softmax<Acc>(values(out), x, n, scale, false) == 0);
  poison(out);
  log_softmax(Exec{}, out, in, {.scale = scale, .workspace = lent});
  CHECK(far_softmax<Acc>(values(out), x, n, scale, true) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("softmax and log_softmax agree with fp64 at every row length", Exec, softmax_lengths) {
  for (int n : lengths) check_rows<Exec, float, float>(5, static_cast<std::size_t>(n));
}

TEST_CASE_TEMPLATE_DEFINE("softmax takes every pair of types", Exec, softmax_types) {
  for (std::size_t n : {7u, 64u, 777u, 1000u, 1032u, 4095u, 5000u, 9001u, 20000u}) {
    check_rows<Exec, bf16_t, bf16_t>(3, n);
    check_rows<Exec, fp16_t, fp16_t>(3, n);
    check_rows<Exec, float, bf16_t>(3, n);
    check_rows<Exec, fp16_t, float>(3, n);
    check_rows<Exec, double, double, double>(3, n);
    check_rows<Exec, float, double, double>(3, n);
    check_rows<Exec, double, fp16_t, double>(3, n);
    check_rows<Exec, e4m3_t, bf16_t>(3, n, 1, 3);
    check_rows<Exec, e5m2_t, float>(3, n, 1, 3);
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax of a very long row, of many short ones, and scaled", Exec, softmax_extremes) {
  check_rows<Exec, float, bf16_t>(2, 131072);
  check_rows<Exec, bf16_t, bf16_t>(2, 131072 + 8192);  // longer than eight teams keep
  check_rows<Exec, float, float>(100, 10000);          // one team's
  for (std::size_t n : {2552u, 5120u, 6000u, 10000u, 12288u, 14000u, 16384u, 20480u, 9001u, 12001u, 16385u})
    check_rows<Exec, bf16_t, bf16_t>(5, n);
  for (std::size_t n : {2560u, 6000u, 12288u, 16384u, 5001u, 6001u, 8193u, 10001u, 12001u, 16001u})
    check_rows<Exec, float, float>(5, n);
  check_rows<Exec, bf16_t, bf16_t>(3001, 5);
  check_rows<Exec, float, float>(40000, 3);
  check_rows<Exec, float, float>(9, 300, 0.125, 50);
  check_rows<Exec, float, float>(9, 300, -2.5);
  check_rows<Exec, float, float>(9, 300, 0);
  check_rows<Exec, float, float>(9, 300, 1, 1000);  // most exponentials are subnormal or 0
}

TEST_CASE_TEMPLATE_DEFINE("softmax of rows that several teams share", Exec, softmax_shared) {
  check_shared<Exec>([](int rows, int n) { check_rows<Exec, bf16_t, bf16_t>(rows, n); });
}

TEST_CASE_TEMPLATE_DEFINE("softmax of rows for all multiprocessors together", Exec, softmax_mailed) {
  check_mailed<Exec>([](int rows, int n) { check_rows<Exec, float, float>(rows, n, -0.5); },
                     [](int rows, int n) { check_rows<Exec, bf16_t, bf16_t>(rows, n); });
  ViewOf<Exec, float**> const in("in", 3, 262144);
  auto x = uniform<float>(3 * 262144, 3);
  std::fill_n(x.begin(), 262144, -INFINITY);
  x[262144 + 777] = NAN;
  fill(in, x);
  auto const lent = lent_memory<Exec>(in);
  softmax(Exec{}, in, in, {.workspace = lent});  // in place
  auto const y = values(in);
  for (std::size_t j : {0u, 777u, 262143u}) {
    CHECK(y[j] == 0);
    CHECK(std::isnan(y[262144 + j]));
    CHECK(y[2 * 262144 + j] > 0);
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax does not overflow and defines masked rows, NaN and Inf", Exec, softmax_special) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  float const huge = 3e38f;
  for (std::size_t n : {4u, 700u, 3000u, 17000u}) {
    CAPTURE(n);
    std::vector<float> x(8 * n, -1.0f);
    auto const row = [&](std::size_t i) { return x.begin() + static_cast<std::ptrdiff_t>(i * n); };
    std::fill_n(row(0), n, -static_cast<float>(inf));                                 // masked
    std::fill_n(row(1), n, -static_cast<float>(inf)), *(row(1) + 2) = huge;           // all but one masked
    std::fill_n(row(2), n, huge);                                                     // sums would overflow
    *(row(3) + 1) = static_cast<float>(nan);                                          // a NaN
    std::fill_n(row(4), n, -static_cast<float>(inf)), *(row(4) + 3) = std::nanf("");  // a NaN in a masked row
    *(row(5) + 2) = static_cast<float>(inf);                                          // +Inf
    std::fill_n(row(6), n, -huge);
    *(row(7) + 0) = 1e-42f;  // subnormal
    ViewOf<Exec, float**> const in("in", 8, n), out("out", 8, n);
    fill(in, x);
    softmax(Exec{}, out, in);
    auto const y = values(out);
    log_softmax(Exec{}, out, in);
    auto const z = values(out);
    int wrong = 0;
    auto const at = [&](std::vector<float> const& v, std::size_t i, std::size_t j) { return v[i * n + j]; };
    for (std::size_t j = 0; j < n; ++j) {
      wrong += at(y, 0, j) != 0 || at(z, 0, j) != -static_cast<float>(inf);
      wrong += at(y, 1, j) != (j == 2 ? 1.0f : 0.0f) || at(z, 1, j) != (j == 2 ? 0.0f : -static_cast<float>(inf));
      for (std::size_t i : {3u, 4u, 5u}) wrong += !std::isnan(at(y, i, j)) || !std::isnan(at(z, i, j));
    }
    CHECK(wrong == 0);
    for (std::size_t i : {2u, 6u, 7u}) {
      std::vector<float> const one(row(i), row(i) + static_cast<std::ptrdiff_t>(n));
      std::vector<float> const got(y.begin() + static_cast<std::ptrdiff_t>(i * n),
                                   y.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
      // The maximum is huge in rows 2 and 6, but the difference to it is exactly 0.
      auto shifted = one;
      for (float& v : shifted) v = i == 7 ? v : 0.0f;
      CHECK(far_softmax<float>(got, shifted, n, 1, false) == 0);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax of rows far from 0 is that of the differences", Exec, softmax_far) {
  std::vector<double> const bases{1e4, 1e6, -1e6, 3e7, 4e8, 1.4e9, 1.6e9, -5e10, 1e20, -3e37};
  for (std::size_t n : {300u, 5000u, 17000u, 70000u}) {
    CAPTURE(n);
    std::vector<float> x, differences;
    for (double base : bases) {
      auto const first = static_cast<float>(base);
      float const unit = std::nextafter(std::abs(first), HUGE_VALF) - std::abs(first);
      for (std::size_t j = 0; j < n; ++j) {
        auto const difference = static_cast<float>(j * 7 % 13) * unit;
        x.push_back(first - difference);
        differences.push_back((first - difference) - first);  // exact
      }
    }
    ViewOf<Exec, float**> const in("in", bases.size(), n), out("out", bases.size(), n);
    fill(in, x);
    for (bool log : {false, true}) {
      poison(out);
      log ? log_softmax(Exec{}, out, in) : softmax(Exec{}, out, in);
      CHECK(far_softmax<float>(values(out), differences, n, 1, log) == 0);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax takes any layout, rank and alignment and runs in place", Exec, softmax_layouts) {
  for (std::size_t n : {9u, 1024u, 2064u, 17000u}) {
    CAPTURE(n);
    auto const x = uniform<bf16_t>(12 * n, 3, -5, 5);
    auto const check = [&](auto const& out, auto const& in) {
      fill(strided(in), x);
      if (static_cast<void const*>(out.data()) != static_cast<void const*>(in.data())) poison(strided(out));
      softmax(Exec{}, out, in);
      CHECK(far_softmax<float>(values(strided(out)), x, n, 1, false) == 0);
    };
    using Kokkos::ALL;
    using Right = ViewOf<Exec, bf16_t****>;
    using Left = ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft>;
    auto const columns = std::pair<std::size_t, std::size_t>{1, n + 1};
    Right const right("right", 2, 3, 2, n);
    check(right, right);
    check(right, Left("left", 2, 3, 2, n));
    check(Left("left", 2, 3, 2, n), right);
    // Three leading extents that do not merge into one, rows that begin at odd addresses.
    Right const padded("padded", 3, 5, 3, n + 3);
    auto const part = Kokkos::subview(padded, std::pair{1, 3}, std::pair{1, 4}, std::pair{0, 2}, columns);
    check(part, right);
    check(part, part);
    // Every other element of a row.
    auto const every_other = [&] {
      return Kokkos::subview(ViewOf<Exec, bf16_t*****>("pairs", 2, 3, 2, n, 2), ALL, ALL, ALL, ALL, 1);
    };
    check(every_other(), every_other());
    // 2, 4 and 8 bytes past a 16-byte boundary.
    for (std::size_t shift : {1u, 2u, 4u}) {
      ViewOf<Exec, bf16_t*> const all("all", 12 * n + 8);
      check(Kokkos::View<bf16_t****, Kokkos::LayoutRight, typename Exec::memory_space>(all.data() + shift, 2, 3, 2, n),
            right);
    }
    ViewOf<Exec, bf16_t*> const line("line", 12 * n);
    fill(line, x);
    softmax(line, line);  // rank 1, default instance
    CHECK(far_softmax<float>(values(line), x, 12 * n, 1, false) == 0);
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax of nothing does nothing", Exec, softmax_empty) {
  ViewOf<Exec, float**> const no_rows("no_rows", 0, 7), no_columns("no_columns", 7, 0);
  softmax(Exec{}, no_rows, no_rows);
  log_softmax(no_columns, no_columns);
  ViewOf<Exec, float****> const nothing("nothing", 2, 0, 3, 4);
  softmax(Exec{}, nothing, nothing);
  CHECK(values(nothing).empty());
}

TEST_CASE_TEMPLATE_DEFINE("softmax gives the same bits every time", Exec, softmax_repeats) {
  for (std::size_t n : {1000u, 5000u, 40000u}) {
    ViewOf<Exec, float**> const in("in", 4, n), out("out", 4, n);
    fill(in, uniform<float>(4 * n, 11, -9, 9));
    softmax(Exec{}, out, in);
    auto const first = values(out);
    for (int i = 0; i < 3; ++i) {
      softmax(Exec{}, out, in);
      CHECK(values(out) == first);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("softmax names what is wrong and writes nothing", Exec, softmax_errors) {
  ViewOf<Exec, float**> const in("in", 3, 8), out("out", 3, 8), narrow("narrow", 3, 7);
  poison(out);
  poison(narrow);
  auto text = error_of([&] { softmax(Exec{}, narrow, in); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::softmax"));
  CHECK(contains(text, "(3, 7)"));
  CHECK(contains(text, "(3, 8)"));
  text = error_of([&] { log_softmax(Exec{}, narrow, in); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::log_softmax"));
  text = error_of([&] { softmax(Exec{}, out, in, {.scale = inf}); }, ErrorCode::value);
  CHECK(contains(text, "scale"));
  error_of([&] { softmax(Exec{}, out, in, {.scale = std::nan("")}); }, ErrorCode::value);
  using Unmanaged = Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space>;
  Unmanaged const null(static_cast<float*>(nullptr), 3, 8);
  text = error_of([&] { softmax(Exec{}, out, null); }, ErrorCode::null_data);
  CHECK(contains(text, "in (3, 8)"));
  text = error_of([&] { softmax(Exec{}, null, in); }, ErrorCode::null_data);
  CHECK(contains(text, "out (3, 8)"));
  ViewOf<Exec, float*> const all("all", 64);
  poison(all);
  Unmanaged const here(all.data(), 3, 8), there(all.data() + 4, 3, 8);
  text = error_of([&] { softmax(Exec{}, here, there); }, ErrorCode::overlap);
  CHECK(contains(text, "out"));
  Kokkos::View<float**, Kokkos::LayoutStride, typename Exec::memory_space> const same(all.data(),
                                                                                      Kokkos::LayoutStride(3, 0, 8, 1));
  error_of([&] { softmax(Exec{}, same, in); }, ErrorCode::overlap);
  CHECK(is_poisoned(all));
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(narrow));
}

TEST_CASE_TEMPLATE_APPLY(softmax_lengths, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_types, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_extremes, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_shared, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_mailed, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_special, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_far, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_layouts, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_empty, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_repeats, Spaces);
TEST_CASE_TEMPLATE_APPLY(softmax_errors, Spaces);
