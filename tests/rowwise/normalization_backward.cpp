// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/normalization.hpp>
#include <tessera/normalization_backward.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// All operands of a call in Exec's memory; V is the parameters' type.
template <class Exec, class DIn, class In, class V, class Acc>
struct Call {
  std::size_t rows, n;
  ViewOf<Exec, In**> in, d_out, d_sum;
  ViewOf<Exec, DIn**> d_in;
  ViewOf<Exec, V*> weight, d_weight, d_bias;
  ViewOf<Exec, Acc*> mean, rstd;
  Kokkos::View<std::byte*, typename Exec::memory_space> workspace;
  std::vector<In> x, dy, ds;
  std::vector<V> w;
  std::vector<Acc> m, r;

  Call(std::size_t row_count, std::size_t length, double offset = 0)
      : rows(row_count),
        n(length),
        in("in", rows, n),
        d_out("d_out", rows, n),
        d_sum("d_sum", rows, n),
        d_in("d_in", rows, n),
        weight("weight", n),
        d_weight("d_weight", n),
        d_bias("d_bias", n),
        mean("mean", rows),
        rstd("rstd", rows),
        workspace("workspace", norm_backward_workspace_size(Exec{}, in)),
        x(uniform<In>(rows * n, static_cast<unsigned>(n), offset - 2, offset + 2)),
        dy(uniform<In>(rows * n, static_cast<unsigned>(n + 1), -1, 1.5)),
        ds(uniform<In>(rows * n, 9)),
        w(uniform<V>(n, 10, 0.5, 2)) {
    for (std::size_t i = 0; i < rows; ++i) {
      auto const norm = reference::norm(row_of(x, i, n), {}, {}, 1e-5, true);
      m.push_back(static_cast<Acc>(norm.mean));
      r.push_back(static_cast<Acc>(norm.rstd));
    }
    fill(in, x);
    fill(d_out, dy);
    fill(d_sum, ds);
    fill(weight, w);
    fill(mean, m);
    fill(rstd, r);
    poison(d_in);
    poison(d_weight);
    poison(d_bias);
  }

  void run(bool centered, bool with_sum) {
    using View = ViewOf<Exec, In**>;
    NormBackwardOptions<View> const added{.d_sum = d_sum, .workspace = workspace};
    NormBackwardOptions<> const plain{.workspace = workspace};
    if (centered && with_sum) layer_norm_backward(Exec{}, d_in, d_weight, d_bias, d_out, in, mean, rstd, weight, added);
    if (centered && !with_sum)
      layer_norm_backward(Exec{}, d_in, d_weight, d_bias, d_out, in, mean, rstd, weight, plain);
    if (!centered && with_sum) rms_norm_backward(Exec{}, d_in, d_weight, d_out, in, rstd, weight, added);
    if (!centered && !with_sum) rms_norm_backward(Exec{}, d_in, d_weight, d_out, in, rstd, weight, plain);
  }

  /// xhat errs by e = 2 u (|x| + |mean|) rstd; the mean of g by chain(n) u of the magnitudes' mean, that of g xhat by
  /// as much of theirs and the mean of |g| e; d_in by these and by six roundings; each column's sum by `rows`
  /// roundings, at most, and by the sum of |d_out| e.
  int far(bool centered, bool with_sum) const {
    double const u = roundoff_of<Acc>, steps = chain(static_cast<double>(n)) + 4;
    auto const dx = values(d_in);
    std::vector<double> sums(n), sum_bounds(n), biases(n), bias_bounds(n), weights;
    for (V v : w) weights.push_back(to_double(v));
    int wrong = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      auto const row = row_of(x, i, n), g = row_of(dy, i, n), other = row_of(ds, i, n);
      double const center = centered ? static_cast<double>(m[i]) : 0, factor = static_cast<double>(r[i]);
      auto const e = reference::norm_backward(row, g, weights, center, factor, centered);
      auto const x_error = [&](std::size_t j) { return 2 * u * (std::abs(row[j]) + std::abs(center)) * factor; };
      double product_error = steps * u * e.product_magnitude;
      for (std::size_t j = 0; j < n; ++j)
        product_error += std::abs(weights[j] * g[j]) * x_error(j) / static_cast<double>(n);
      for (std::size_t j = 0; j < n; ++j) {
        double const expected = e.d_in[j] + (with_sum ? other[j] : 0);
        double const terms =
            std::abs(weights[j] * g[j]) + std::abs(e.mean_gradient) + std::abs(e.x_hat[j] * e.mean_product);
        double const bound = factor * (steps * u * e.magnitude + std::abs(e.x_hat[j]) * product_error +
                                       x_error(j) * std::abs(e.mean_product) + 6 * u * terms) +
                             2 * u * std::abs(other[j]) + limits<DIn>::roundoff * std::abs(expected) +
                             2 * limits<DIn>::min_subnormal;
        wrong += !is_near(to_double(dx[i * n + j]), expected, bound);
        double const term = g[j] * e.x_hat[j];
        sums[j] += term;
        sum_bounds[j] += static_cast<double>(rows + 4) * u * std::abs(term) + std::abs(g[j]) * x_error(j);
        biases[j] += g[j];
        bias_bounds[j] += static_cast<double>(rows + 4) * u * std::abs(g[j]);
      }
    }
    auto const dw = values(d_weight), db = values(d_bias);
    auto const rounded = [](double value) { return limits<V>::roundoff * std::abs(value) + limits<V>::min_subnormal; };
    for (std::size_t j = 0; j < n; ++j) {
      wrong += !is_near(to_double(dw[j]), sums[j], sum_bounds[j] + rounded(sums[j]));
      if (centered) wrong += !is_near(to_double(db[j]), biases[j], bias_bounds[j] + rounded(biases[j]));
    }
    return wrong;
  }
};

template <class Exec, class DIn, class In, class V, class Acc = float>
void check_rows(std::size_t rows, std::size_t n, double offset = 0) {
  CAPTURE(rows);
  CAPTURE(n);
  Call<Exec, DIn, In, V, Acc> call(rows, n, offset);
  for (bool centered : {true, false})
    for (bool with_sum : {false, true}) {
      CAPTURE(centered);
      CAPTURE(with_sum);
      call.run(centered, with_sum);
      CHECK(call.far(centered, with_sum) == 0);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients of norms agree with fp64 at every row length", Exec, lengths_id) {
  for (int n : lengths) check_rows<Exec, float, float, float>(3, static_cast<std::size_t>(n));
}

TEST_CASE_TEMPLATE_DEFINE("gradients of norms of rows for all multiprocessors together", Exec, mailed_id) {
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(7, 131072 + 8);
  check_rows<Exec, float, float, float>(2, 262144 + 4);
  if (runs_on_host<Exec>) return;
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(20, 1048576 + 8);  // more than are under way at a time
  check_rows<Exec, float, float, float>(12, 1048576 - 4);
  check_rows<Exec, float, float, float>(1, 1048576);
  check_rows<Exec, float, float, float>(70, 262144);  // groups of teams have rows each
}

TEST_CASE_TEMPLATE_DEFINE("gradients of norms take every type and many rows", Exec, types_id) {
  for (std::size_t n : {7u, 64u, 72u, 777u, 1000u, 1032u, 2560u, 4095u, 5000u, 8192u, 10000u, 12000u}) {
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(5, n);
    check_rows<Exec, fp16_t, fp16_t, float>(5, n);
    check_rows<Exec, float, bf16_t, fp16_t>(5, n);
    check_rows<Exec, double, double, double, double>(5, n);
    check_rows<Exec, bf16_t, float, double, double>(5, n);
  }
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(3001, 8);
  check_rows<Exec, bf16_t, bf16_t, float>(1201, 264);  // several rows for each team
  check_rows<Exec, float, float, float>(997, 48);
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(3001, 63);  // rows that begin anywhere
  check_rows<Exec, fp16_t, fp16_t, float>(1203, 1001);
  check_rows<Exec, float, float, float>(1202, 777);
  check_rows<Exec, bf16_t, bf16_t, float>(1201, 333);  // the same, of whole warps
  check_rows<Exec, fp16_t, fp16_t, fp16_t>(1205, 501);
  check_rows<Exec, float, float, float>(603, 258);
  check_rows<Exec, bf16_t, bf16_t, float>(300, 4096);
  for (std::size_t n : {20480u, 40960u})
    check_rows<Exec, bf16_t, bf16_t, bf16_t>(300, n);   // that three teams share, and more
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(9, 131080);  // in strips of columns
  for (std::size_t n : {5001u, 8193u, 9001u}) check_rows<Exec, float, float, float>(150, n);
  for (std::size_t n : {8193u, 9001u}) check_rows<Exec, bf16_t, bf16_t, bf16_t>(150, n);
  check_rows<Exec, fp16_t, fp16_t, float>(5, 20001);
  check_rows<Exec, bf16_t, bf16_t, bf16_t>(130, 66000);  // many rows for each group of teams that share them
  check_rows<Exec, float, float, float>(500, 33);
  check_rows<Exec, float, float, float>(7, 640, 1e6);  // an offset that cancels
}

/// With g the gradient of the result, L = sum of g y of the forward operation in fp64; central differences, whose error
/// is h^2 times the third derivative and roundings over h: below 1e-7 for numbers of size 1.
TEST_CASE_TEMPLATE_DEFINE("gradients of norms agree with finite differences", Exec, differences_id) {
  constexpr std::size_t rows = 3, n = 7;
  constexpr double h = 1e-5;
  Call<Exec, double, double, double, double> call(rows, n);
  for (bool centered : {true, false}) {
    for (std::size_t i = 0; i < rows; ++i) {
      auto const norm = reference::norm(row_of(call.x, i, n), {}, {}, 1e-5, centered);
      call.m[i] = norm.mean;
      call.r[i] = norm.rstd;
    }
    fill(call.mean, call.m);
    fill(call.rstd, call.r);
    call.run(centered, false);
    auto const loss = [&](std::vector<double> const& x, std::vector<double> const& w) {
      double sum = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        auto const y = reference::norm(row_of(x, i, n), w, {}, 1e-5, centered).y;
        for (std::size_t j = 0; j < n; ++j) sum += call.dy[i * n + j] * y[j];
      }
      return sum;
    };
    auto const dx = values(call.d_in), dw = values(call.d_weight);
    auto const slope = [&](auto const& moved) {
      return (loss(moved(h).first, moved(h).second) - loss(moved(-h).first, moved(-h).second)) / (2 * h);
    };
    for (std::size_t j = 0; j < rows * n; ++j)
      CHECK(std::abs(slope([&](double step) {
                       auto x = call.x;
                       x[j] += step;
                       return std::pair{x, call.w};
                     }) -
                     dx[j]) < 1e-7);
    for (std::size_t j = 0; j < n; ++j)
      CHECK(std::abs(slope([&](double step) {
                       auto w = call.w;
                       w[j] += step;
                       return std::pair{call.x, w};
                     }) -
                     dw[j]) < 1e-7);
  }
}

TEST_CASE_TEMPLATE_DEFINE("gradients of norms: without parameters, in place, any layout, the same bits", Exec,
                          layouts_id) {
  for (std::size_t n : {9u, 512u, 2064u, 9000u}) {
    CAPTURE(n);
    Call<Exec, bf16_t, bf16_t, bf16_t, float> call(12, n);
    call.run(true, true);
    auto const bits = [](auto const& v) {
      std::vector<std::uint16_t> all;
      for (auto x : values(v)) all.push_back(x.bits());
      return all;
    };
    auto const dx = bits(call.d_in), dw = bits(call.d_weight), db = bits(call.d_bias);
    call.run(true, true);
    CHECK(bits(call.d_in) == dx);
    CHECK(bits(call.d_weight) == dw);
    CHECK(bits(call.d_bias) == db);
    // Nothing but d_in: no workspace. In place of d_out.
    using View = ViewOf<Exec, bf16_t**>;
    NormBackwardOptions<View> const options{.d_sum = call.d_sum};
    layer_norm_backward(Exec{}, call.d_out, none, none, call.d_out, call.in, call.mean, call.rstd, call.weight,
                        options);
    CHECK(bits(call.d_out) == dx);
    // In place of d_sum, with one gradient.
    fill(call.d_out, call.dy);
    NormBackwardOptions<View> const one{.d_sum = call.d_sum, .workspace = call.workspace};
    layer_norm_backward(Exec{}, call.d_sum, none, call.d_bias, call.d_out, call.in, call.mean, call.rstd, call.weight,
                        one);
    CHECK(bits(call.d_sum) == dx);
    CHECK(bits(call.d_bias) == db);
    // Columns first, rank 4, no weight.
    using Left = ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft>;
    Left const in("in", 2, 3, 2, n), d_out("d_out", 2, 3, 2, n), d_in("d_in", 2, 3, 2, n);
    ViewOf<Exec, float***, Kokkos::LayoutLeft> const mean("mean", 2, 3, 2), rstd("rstd", 2, 3, 2);
    fill(strided(in), call.x);
    fill(strided(d_out), call.dy);
    fill(mean, call.m);
    fill(rstd, call.r);
    layer_norm_backward(Exec{}, d_in, call.d_weight, call.d_bias, d_out, in, mean, rstd, none,
                        NormBackwardOptions<>{.workspace = call.workspace});
    fill(call.d_in, values(strided(d_in)));
    std::fill(call.w.begin(), call.w.end(), bf16_t(1.0f));
    CHECK(call.far(true, false) == 0);
  }
}

TEST_CASE_TEMPLATE_DEFINE("gradients of norms of nothing, and errors", Exec, errors_id) {
  ViewOf<Exec, float**> const no_rows("no_rows", 0, 5), no_columns("no_columns", 3, 0);
  ViewOf<Exec, float*> const nothing("nothing", 0), three("three", 3), d_weight("d_weight", 5), d_bias("d_bias", 5);
  poison(d_weight);
  poison(d_bias);
  CHECK(norm_backward_workspace_size(Exec{}, no_rows) == 0);
  layer_norm_backward(Exec{}, no_rows, d_weight, d_bias, no_rows, no_rows, nothing, nothing);
  CHECK(values(d_weight) == std::vector<float>(5, 0.0f));
  CHECK(values(d_bias) == std::vector<float>(5, 0.0f));
  rms_norm_backward(Exec{}, no_columns, nothing, no_columns, no_columns, three);

  Call<Exec, float, float, float, float> call(3, 8);
  ViewOf<Exec, float**> const narrow("narrow", 3, 7);
  auto const run = [&](auto const& d_in, auto const& dw, auto const& dy, auto const& mean, auto const& weight,
                       auto const& workspace) {
    layer_norm_backward(Exec{}, d_in, dw, call.d_bias, dy, call.in, mean, call.rstd, weight,
                        NormBackwardOptions<>{.workspace = workspace});
  };
  auto const& c = call;
  ViewOf<Exec, float*> const two("two", 2);
  poison(two);
  auto text = error_of([&] { run(narrow, c.d_weight, c.d_out, c.mean, c.weight, c.workspace); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::layer_norm_backward"));
  CHECK(contains(text, "d_in (3, 7)"));
  error_of([&] { run(c.d_in, two, c.d_out, c.mean, c.weight, c.workspace); }, ErrorCode::extent);
  error_of([&] { run(c.d_in, c.d_weight, narrow, c.mean, c.weight, c.workspace); }, ErrorCode::extent);
  error_of([&] { run(c.d_in, c.d_weight, c.d_out, two, c.weight, c.workspace); }, ErrorCode::extent);
  error_of([&] { run(c.d_in, c.d_weight, c.d_out, c.mean, two, c.workspace); }, ErrorCode::extent);
  error_of([&] { run(c.d_in, c.d_bias, c.d_out, c.mean, c.weight, c.workspace); }, ErrorCode::overlap);
  error_of([&] { run(c.d_in, c.weight, c.d_out, c.mean, c.weight, c.workspace); }, ErrorCode::overlap);
  Kokkos::View<std::byte*, typename Exec::memory_space> const small("small", 8);
  text = error_of([&] { run(c.d_in, c.d_weight, c.d_out, c.mean, c.weight, small); }, ErrorCode::workspace);
  CHECK(contains(text, "8 were passed"));
  Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> const null(static_cast<float*>(nullptr), 3,
                                                                                     8);
  error_of([&] { run(c.d_in, c.d_weight, null, c.mean, c.weight, c.workspace); }, ErrorCode::null_data);
  CHECK(is_poisoned(call.d_in));
  CHECK(is_poisoned(call.d_weight));
  CHECK(is_poisoned(call.d_bias));
  CHECK(is_poisoned(two));
}

TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(mailed_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(differences_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
