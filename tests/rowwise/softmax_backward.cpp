// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/softmax.hpp>
#include <tessera/softmax_backward.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Every element against fp64. A weight p_k errs by r_k = 2 (|s x_k| + |s x_k - max| + chain(n) + 10) u of itself, as
/// in softmax; from an output that was rounded nothing but e^y errs (2 |y| + 10 units). The mean of the gradients then
/// errs by sum p_k |g_k| (r_k + chain(n) u), and what follows is four roundings and that to the output.
template <class Acc, class DIn, class In, class DOut>
int far_gradients(std::vector<DIn> const& dx, std::vector<In> const& in, std::vector<DOut> const& dy, std::size_t n,
                  double scale, bool log, bool from_output) {
  double const u = roundoff_of<Acc>, u_out = limits<DIn>::roundoff, steps = chain(static_cast<double>(n));
  double const tiny = 8 * (limits<Acc>::min_subnormal + limits<DIn>::min_subnormal);
  int far = 0;
  for (std::size_t row = 0; n > 0 && row * n < in.size(); ++row) {
    auto const x = row_of(in, row, n), g = row_of(dy, row, n);
    auto const forward = reference::softmax(x, scale);
    std::vector<double> p = forward.softmax, relative(n);
    for (std::size_t j = 0; j < n; ++j) {
      if (from_output) p[j] = log ? std::exp(x[j]) : x[j];
      double const scaled = scale * x[j];
      double const exponent = from_output             ? (log ? std::abs(x[j]) : 0)
                              : std::isfinite(scaled) ? std::abs(scaled) + std::abs(scaled - forward.top)
                                                      : 0;
      relative[j] = 2 * (exponent + steps + 10) * u;
    }
    auto const expected = reference::softmax_backward(p, g, scale);
    double mean_error = 0;
    for (std::size_t j = 0; j < n; ++j) mean_error += p[j] * std::abs(g[j]) * (relative[j] + steps * u);
    for (std::size_t j = 0; j < n; ++j) {
      double const e = log ? expected.log_softmax[j] : expected.softmax[j];
      double const error = log ? p[j] * (relative[j] * std::abs(expected.total) + steps * u * expected.total_magnitude)
                               : p[j] * (relative[j] * std::abs(g[j] - expected.mean) + mean_error);
      double const roundings =
          4 * u *
          (log ? std::abs(g[j]) + p[j] * std::abs(expected.total) : p[j] * (std::abs(g[j]) + expected.mean_magnitude));
      double const bound = std::abs(scale) * (2 * error + roundings) + u_out * std::abs(e) + tiny;
      if (!is_near(to_double(dx[row * n + j]), e, bound)) ++far;
    }
  }
  return far;
}

template <class Exec, class DIn, class In, class DOut, class Acc = float>
void check_rows(std::size_t rows, std::size_t n, double scale = 1, double range = 6) {
  CAPTURE(rows);
  CAPTURE(n);
  ViewOf<Exec, In**> const in("in", rows, n);
  ViewOf<Exec, DOut**> const d_out("d_out", rows, n);
  ViewOf<Exec, DIn**> const d_in("d_in", rows, n);
  auto const x = uniform<In>(rows * n, static_cast<unsigned>(n), -range, range);
  auto const dy = uniform<DOut>(rows * n, static_cast<unsigned>(n + 1), -2, 3);
  fill(in, x);
  fill(d_out, dy);
  auto const lent = lent_memory<Exec>(in);
  for (bool log : {false, true}) {
    CAPTURE(log);
    poison(d_in);
    if (log)
      log_softmax_backward(Exec{}, d_in, d_out, in, {.scale = scale, .workspace = lent});
    else
      softmax_backward(Exec{}, d_in, d_out, in, {.scale = scale, .workspace = lent});
    CHECK(far_gradients<Acc>(values(d_in), x, dy, n, scale, log, false) == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax agree with fp64 at every row length", Exec, lengths_id) {
  for (int n : lengths) check_rows<Exec, float, float, float>(3, static_cast<std::size_t>(n));
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax take every type, scale and extreme", Exec, types_id) {
  for (std::size_t n : {7u, 64u, 72u, 777u, 1000u, 1032u, 4095u, 5000u, 9001u, 12000u, 20000u}) {
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(3, n);
    check_rows<Exec, fp16_t, fp16_t, fp16_t>(3, n);
    check_rows<Exec, float, bf16_t, fp16_t>(3, n);
    check_rows<Exec, double, double, double, double>(3, n);
    check_rows<Exec, bf16_t, float, double, double>(3, n);
  }
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(2, 131072 + 8192);
  for (std::size_t n : {2552u, 10000u, 12288u, 14000u, 16384u, 12001u, 16385u})
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(5, n);
  for (std::size_t n : {10000u, 5001u, 6001u, 8193u, 10001u}) check_rows<Exec, float, float, float>(5, n);
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(3001, 8);
  check_rows<Exec, float, float, float>(9, 300, 0.125, 50);
  check_rows<Exec, float, float, float>(9, 300, -2.5);
  check_rows<Exec, float, float, float>(9, 300, 0);
  check_rows<Exec, float, float, float>(9, 300, 1, 1000);
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax of rows for all multiprocessors together", Exec, mailed_id) {
  check_mailed<Exec>([](int rows, int n) { check_rows<Exec, float, float, float>(rows, n); },
                     [](int rows, int n) { check_rows<Exec, bf16_t, bf16_t, bf16_t>(rows, n, -1); });
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax of rows that several teams share", Exec, shared_id) {
  check_shared<Exec>([](int rows, int n) { check_rows<Exec, bf16_t, bf16_t, bf16_t>(rows, n, -0.5); });
  // In place, of a masked row, one with a NaN and a usual one.
  std::size_t const n = 98304;
  auto x = uniform<fp16_t>(3 * n, 1, -5, 5);
  auto const dy = uniform<fp16_t>(3 * n, 2, -2, 3);
  std::fill_n(x.begin(), n, fp16_t(-INFINITY));
  x[n + 777] = fp16_t(NAN);
  ViewOf<Exec, fp16_t**> const in("in", 3, n), d("d_out and d_in", 3, n);
  fill(in, x);
  fill(d, dy);
  softmax_backward(Exec{}, d, d, in);
  auto const dx = values(d);
  int wrong = 0;
  for (std::size_t j = 0; j < n; ++j) wrong += to_double(dx[j]) != 0 || !std::isnan(to_double(dx[n + j]));
  CHECK(wrong == 0);
  auto const last = [&](auto const& all) { return std::vector(all.end() - n, all.end()); };
  CHECK(far_gradients<float>(last(dx), last(x), last(dy), n, 1, false, false) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax from what the forward operation gave", Exec, output_id) {
  for (std::size_t n : {5u, 256u, 4096u, 8200u, 17000u}) {
    CAPTURE(n);
    ViewOf<Exec, float**> const in("in", 3, n), out("out", 3, n), d_out("d_out", 3, n), d_in("d_in", 3, n);
    auto const dy = uniform<float>(3 * n, 5, -2, 3);
    fill(in, uniform<float>(3 * n, 4, -5, 5));
    fill(d_out, dy);
    for (bool log : {false, true}) {
      CAPTURE(log);
      if (log)
        log_softmax(Exec{}, out, in, {.scale = 0.5});
      else
        softmax(Exec{}, out, in, {.scale = 0.5});
      SoftmaxBackwardOptions const options{.scale = 0.5, .from_output = true};
      if (log)
        log_softmax_backward(d_in, d_out, out, options);
      else
        softmax_backward(d_in, d_out, out, options);
      CHECK(far_gradients<float>(values(d_in), values(out), dy, n, 0.5, log, true) == 0);
    }
  }
}

/// Central differences with a step h of L = sum of g y: the third derivative times h^2 and roundings of y over h, both
/// below 1e-8 for rows of some 10 numbers of size 1.
TEST_CASE_TEMPLATE_DEFINE("gradients of softmax agree with finite differences", Exec, differences_id) {
  constexpr std::size_t n = 11;
  constexpr double h = 1e-5, scale = 1.5;
  auto const x = uniform<double>(n, 1, -2, 2), g = uniform<double>(n, 2);
  ViewOf<Exec, double*> const in("in", n), d_out("d_out", n), d_in("d_in", n);
  fill(in, x);
  fill(d_out, g);
  for (bool log : {false, true}) {
    if (log)
      log_softmax_backward(d_in, d_out, in, {.scale = scale});
    else
      softmax_backward(d_in, d_out, in, {.scale = scale});
    auto const dx = values(d_in);
    for (std::size_t j = 0; j < n; ++j) {
      auto const loss = [&](double step) {
        std::vector<double> moved = x;
        moved[j] += step;
        auto const y = reference::softmax(moved, scale);
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += g[k] * (log ? y.log_softmax[k] : y.softmax[k]);
        return sum;
      };
      CHECK(std::abs((loss(h) - loss(-h)) / (2 * h) - dx[j]) < 1e-8);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax of masked rows, NaN and Inf", Exec, special_id) {
  for (std::size_t n : {4u, 700u, 4096u, 17000u}) {
    CAPTURE(n);
    std::vector<float> x(4 * n, -1.0f);
    auto const row = [&](std::size_t i) { return x.begin() + static_cast<std::ptrdiff_t>(i * n); };
    std::fill_n(row(0), n, -static_cast<float>(inf));                         // masked
    std::fill_n(row(1), n, -static_cast<float>(inf)), *(row(1) + 2) = 3e38f;  // all but one masked
    *(row(2) + 1) = std::nanf("");
    *(row(3) + 2) = static_cast<float>(inf);
    ViewOf<Exec, float**> const in("in", 4, n), d_out("d_out", 4, n), d_in("d_in", 4, n);
    fill(in, x);
    fill(d_out, std::vector<float>(4 * n, 2.0f));
    for (bool log : {false, true}) {
      CAPTURE(log);
      poison(d_in);
      if (log)
        log_softmax_backward(Exec{}, d_in, d_out, in);
      else
        softmax_backward(Exec{}, d_in, d_out, in);
      auto const dx = values(d_in);
      int wrong = 0;
      for (std::size_t j = 0; j < n; ++j) {
        wrong += dx[j] != 0;
        float const total = 2.0f * static_cast<float>(n);
        wrong += dx[n + j] != (log ? (j == 2 ? 2.0f - total : 2.0f) : 0.0f);
        wrong += !std::isnan(dx[2 * n + j]) || !std::isnan(dx[3 * n + j]);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("gradients of softmax take any layout and run in place", Exec, layouts_id) {
  for (std::size_t n : {9u, 1024u, 2064u, 17000u}) {
    CAPTURE(n);
    auto const x = uniform<bf16_t>(12 * n, 3, -5, 5), dy = uniform<bf16_t>(12 * n, 4, -2, 3);
    auto const check = [&](auto const& d_in, auto const& d_out, auto const& in) {
      if (d_in.data() != d_out.data() && d_in.data() != in.data()) poison(strided(d_in));
      fill(strided(in), x);
      fill(strided(d_out), dy);
      softmax_backward(Exec{}, d_in, d_out, in);
      CHECK(far_gradients<float>(values(strided(d_in)), x, dy, n, 1, false, false) == 0);
    };
    using Right = ViewOf<Exec, bf16_t****>;
    using Left = ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft>;
    Right const right("right", 2, 3, 2, n), other("other", 2, 3, 2, n);
    check(right, right, other);
    check(right, other, right);
    check(right, Left("left", 2, 3, 2, n), other);
    check(Left("left", 2, 3, 2, n), right, other);
    Right const padded("padded", 3, 5, 3, n + 3);
    auto const part = Kokkos::subview(padded, std::pair{1, 3}, std::pair{1, 4}, std::pair{0, 2},
                                      std::pair<std::size_t, std::size_t>{1, n + 1});
    check(part, right, other);
    check(part, part, other);
  }
  ViewOf<Exec, float**> const no_rows("no_rows", 0, 7), no_columns("no_columns", 7, 0);
  softmax_backward(Exec{}, no_rows, no_rows, no_rows);
  log_softmax_backward(no_columns, no_columns, no_columns);
}

TEST_CASE_TEMPLATE_DEFINE("softmax_backward names what is wrong, writes nothing and repeats its bits", Exec,
                          errors_id) {
  ViewOf<Exec, float**> const in("in", 3, 8), d_out("d_out", 3, 8), d_in("d_in", 3, 8), narrow("narrow", 3, 7);
  poison(d_in);
  poison(narrow);
  auto text = error_of([&] { softmax_backward(Exec{}, narrow, d_out, in); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::softmax_backward"));
  CHECK(contains(text, "d_in (3, 7)"));
  text = error_of([&] { log_softmax_backward(Exec{}, d_in, narrow, in); }, ErrorCode::extent);
  CHECK(contains(text, "d_out (3, 7)"));
  error_of([&] { softmax_backward(Exec{}, d_in, d_out, in, {.scale = inf}); }, ErrorCode::value);
  using Unmanaged = Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space>;
  Unmanaged const null(static_cast<float*>(nullptr), 3, 8);
  for (int which = 0; which < 3; ++which)
    error_of(
        [&] {
          softmax_backward(Exec{}, which == 0 ? null : Unmanaged(d_in), which == 1 ? null : Unmanaged(d_out),
                           which == 2 ? null : Unmanaged(in));
        },
        ErrorCode::null_data);
  ViewOf<Exec, float*> const all("all", 64);
  poison(all);
  Unmanaged const here(all.data(), 3, 8), there(all.data() + 4, 3, 8);
  error_of([&] { softmax_backward(Exec{}, here, d_out, there); }, ErrorCode::overlap);
  error_of([&] { softmax_backward(Exec{}, here, there, in); }, ErrorCode::overlap);
  CHECK(is_poisoned(all));
  CHECK(is_poisoned(d_in));
  CHECK(is_poisoned(narrow));
  for (std::size_t n : {1000u, 5000u, 40000u}) {
    ViewOf<Exec, float**> const x("x", 4, n), dy("dy", 4, n), dx("dx", 4, n);
    fill(x, uniform<float>(4 * n, 11, -9, 9));
    fill(dy, uniform<float>(4 * n, 12));
    softmax_backward(Exec{}, dx, dy, x);
    auto const first = values(dx);
    softmax_backward(Exec{}, dx, dy, x);
    CHECK(values(dx) == first);
  }
}

TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(mailed_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(shared_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(output_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(differences_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
