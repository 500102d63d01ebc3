// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels for packed rows on a CPU's imitation of warps. Where there is a GPU the other tests run them on it.
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <cstring>
#include <vector>

#include <tessera/quantize/mx.hpp>
#include <tessera/rowwise/cross_entropy.hpp>
#include <tessera/rowwise/normalization.hpp>
#include <tessera/rowwise/normalization_backward.hpp>
#include <tessera/rowwise/rotary.hpp>
#include <tessera/rowwise/softmax.hpp>
#include <tessera/rowwise/softmax_backward.hpp>

#include "rows.hpp"
#include "support/warps.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
template <class D>
using HostView = ViewOf<Host, D>;

/// Elements beyond what double-checks a bound elsewhere: a fraction of the largest magnitude.
template <class T>
int apart(std::vector<T> const& a, std::vector<T> const& b, double tolerance) {
  double largest = 0;
  for (T x : b) largest = std::isfinite(to_double(x)) ? std::max(largest, std::abs(to_double(x))) : largest;
  int far = 0;
  for (std::size_t i = 0; i < a.size(); ++i) far += !is_near(to_double(a[i]), to_double(b[i]), tolerance * largest);
  return far;
}

/// fp32 sums of some thousand terms in another order, and a rounding to T of each side.
template <class T>
constexpr double tolerance = 2e-5 + 2 * limits<T>::roundoff;

template <class T>
void check_softmax(std::size_t rows, std::size_t n) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_in("d_in", rows, n), expected("expected", rows, n);
  fill(in, uniform<T>(rows * n, 1, -4, 4));
  fill(d_out, uniform<T>(rows * n, 2, -2, 3));
  for (bool log : {false, true})
    for (bool from_output : {false, true}) {
      if (from_output && !log) softmax_backward(expected, d_out, in, {.scale = 0.5, .from_output = true});
      if (from_output && log) log_softmax_backward(expected, d_out, in, {.scale = 0.5, .from_output = true});
      if (!from_output && !log) softmax_backward(expected, d_out, in, {.scale = 0.5});
      if (!from_output && log) log_softmax_backward(expected, d_out, in, {.scale = 0.5});
      poison(d_in);
      detail::SoftmaxBackwardProblem problem{detail::row_array(detail::array(d_in)),
                                             detail::row_array(detail::array(d_out)),
                                             detail::row_array(detail::array(in)),
                                             0.5,
                                             log,
                                             from_output,
                                             ""};
      detail::collapse(problem.in, problem.d_in, problem.d_out);
      REQUIRE(detail::start_packed_softmax_backward(Warps{}, problem, detail::row_grid(problem.in)));
      CHECK(apart(values(d_in), values(expected), tolerance<T>) == 0);
    }
}

/// Results of long rows; their numbers lie far from 0.
template <class T, class W = float>
void check_results(std::size_t rows, std::size_t n, Warps const& machine = {}) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const in("in", rows, n), residual("residual", rows, n), out("out", rows, n), sum("sum", rows, n),
      expected("expected", rows, n), expected_sum("expected_sum", rows, n);
  HostView<W*> const weight("weight", n), bias("bias", n);
  HostView<float*> const mean("mean", rows), rstd("rstd", rows);
  fill(in, uniform<T>(rows * n, 1, 60, 70));
  fill(residual, uniform<T>(rows * n, 2, -3, 3));
  fill(weight, uniform<W>(n, 3));
  fill(bias, uniform<W>(n, 4));
  auto const array = [](auto const& x) { return detail::row_array(detail::array(x)); };
  for (double scale : {1.0, -0.5})
    for (bool log : {false, true}) {
      if (log)
        log_softmax(expected, in, {.scale = scale});
      else
        softmax(expected, in, {.scale = scale});
      poison(out);
      detail::SoftmaxProblem const problem{array(out), array(in), scale, log, ""};
      REQUIRE(detail::start_packed_softmax(machine, problem, detail::row_grid(problem.in)));
      CHECK(apart(values(out), values(expected), tolerance<T>) == 0);
    }
  for (bool adds : {false, true}) {
    using Options = NormOptions<None, None, HostView<T**>, HostView<T**>>;
    if (adds)
      layer_norm(Host{}, expected, in, weight, bias, Options{.residual = residual, .sum = expected_sum});
    else
      layer_norm(expected, in, weight, bias);
    poison(out);
    poison(sum);
    detail::NormProblem problem;
    problem.out = array(out);
    problem.in = array(in);
    problem.weight = detail::row_array(detail::array(weight));
    problem.bias = detail::row_array(detail::array(bias));
    problem.mean = detail::value_per_row(detail::array(mean));
    problem.rstd = detail::value_per_row(detail::array(rstd));
    for (detail::RowArray* a : {&problem.weight, &problem.bias}) a->stride[0] = a->stride[1] = a->stride[2] = 0;
    if (adds) problem.residual = array(residual), problem.sum = array(sum);
    problem.epsilon = 1e-5;
    problem.centered = true;
    REQUIRE(detail::start_packed_norm(machine, problem, detail::row_grid(problem.in)));
    CHECK(apart(values(out), values(expected), tolerance<T>) == 0);
    if (adds) CHECK(apart(values(sum), values(expected_sum), 0) == 0);
  }
}

template <class T, class W = float>
void check_norm(std::size_t rows, std::size_t n, bool adds = true) {
  CAPTURE(rows);
  CAPTURE(n);
  CAPTURE(adds);
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_sum("d_sum", rows, n), d_in("d_in", rows, n),
      expected("expected", rows, n);
  HostView<float*> const mean("mean", rows), rstd("rstd", rows), dw("dw", n), db("db", n),
      expected_dw("expected_dw", n), expected_db("expected_db", n);
  HostView<W*> const weight("weight", n);
  fill(in, uniform<T>(rows * n, 1, -3, 3));
  fill(d_out, uniform<T>(rows * n, 2));
  fill(d_sum, uniform<T>(rows * n, 3));
  fill(mean, uniform<float>(rows, 4));
  fill(rstd, uniform<float>(rows, 5, 0.5, 2));
  fill(weight, uniform<W>(n, 6));
  for (bool centered : {false, true}) {
    Kokkos::View<std::byte*, Kokkos::HostSpace> const workspace("workspace", 64 << 20);
    auto const problem_of = [&](auto const& options) {
      if (centered)
        layer_norm_backward(Host{}, expected, expected_dw, expected_db, d_out, in, mean, rstd, weight, options);
      else
        rms_norm_backward(Host{}, expected, expected_dw, d_out, in, rstd, weight, options);
      return centered
                 ? detail::norm_backward_problem<Host>("", true, d_in, dw, db, d_out, in, mean, rstd, weight, options)
                 : detail::norm_backward_problem<Host>("", false, d_in, dw, none, d_out, in, none, rstd, weight,
                                                       options);
    };
    auto problem = adds ? problem_of(NormBackwardOptions<HostView<T**>>{.d_sum = d_sum, .workspace = workspace})
                        : problem_of(NormBackwardOptions<>{.workspace = workspace});
    problem.workspace = workspace.data();
    problem.workspace_bytes = workspace.size();
    poison(d_in);
    poison(dw);
    poison(db);
    detail::collapse(problem.in, problem.d_in, problem.d_out, problem.mean, problem.rstd, problem.weight,
                     problem.d_sum);
    std::int64_t const parts = detail::start_packed_norm_backward(Warps{}, problem, detail::row_grid(problem.in));
    REQUIRE(parts > 0);
    if (n <= 131072 && n % detail::packed_width<T> == 0)
      CHECK(parts <=
            detail::packed_norm_backward_teams(Warps{}, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)));
    detail::finish_norm_backward<float>(Warps{}, problem, detail::NormBackwardSums<float>(problem, parts), parts);
    CHECK(apart(values(d_in), values(expected), tolerance<T>) == 0);
    CHECK(apart(values(dw), values(expected_dw), 1e-4) == 0);
    if (centered) CHECK(apart(values(db), values(expected_db), 1e-4) == 0);
  }
}

template <class T>
void check_cross_entropy(std::size_t rows, std::size_t n, double smoothing, Warps const& machine = {}) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const logits("logits", rows, n), d_logits("d_logits", rows, n), expected("expected", rows, n);
  HostView<std::int64_t*> const labels("labels", rows), counts("counts", 2);
  HostView<float*> const loss("loss", rows), expected_loss("expected_loss", rows), sums("sums", rows),
      expected_sums("es", rows);
  fill(logits, uniform<T>(rows * n, 1, -5, 5));
  std::vector<std::int64_t> t(rows);
  for (std::size_t i = 0; i < rows; ++i) t[i] = static_cast<std::int64_t>(i * 7919 % n);
  if (rows > 4) t[1] = -100, t[3] = static_cast<std::int64_t>(n);
  fill(labels, t);
  CrossEntropyOptions const options{
      .d_logits = expected, .log_sum = expected_sums, .counts = counts, .label_smoothing = smoothing, .mean = true};
  cross_entropy(Host{}, expected_loss, logits, labels, options);
  for (bool gradient : {true, false}) {
    poison(d_logits);
    poison(loss);
    detail::CrossEntropyProblem problem;
    problem.logits = detail::row_array(detail::array(logits));
    if (gradient) problem.d_logits = detail::row_array(detail::array(d_logits));
    problem.loss = detail::value_per_row(detail::array(loss));
    problem.log_sum = detail::value_per_row(detail::array(sums));
    problem.labels = detail::RowArray{labels.data()};
    problem.labels.stride[2] = 1;
    problem.smoothing = smoothing;
    detail::collapse(problem.logits, problem.loss, problem.d_logits, problem.log_sum, problem.labels);
    auto const grid = detail::row_grid(problem.logits);
    detail::LossTargets<float> const targets{{labels.data(), true, -100, static_cast<std::int64_t>(n)},
                                             detail::operand(problem.labels, grid, 1, true),
                                             {},
                                             counts.data()};
    REQUIRE(detail::start_packed_cross_entropy(machine, problem, grid, targets));
    CHECK(apart(values(loss), values(expected_loss), 1e-5) == 0);
    CHECK(apart(values(sums), values(expected_sums), 1e-5) == 0);
    if (gradient) CHECK(apart(values(d_logits), values(expected), tolerance<T>) == 0);
    if (!gradient) CHECK(is_poisoned(d_logits));
  }
}

/// Rows with something between them, the first not at the beginning of a pack: that stays as it is.
template <class T>
void check_rows_between(std::size_t rows, std::size_t n, std::size_t first, std::size_t gap) {
  CAPTURE(n);
  CAPTURE(first);
  CAPTURE(gap);
  std::size_t const pitch = n + gap;
  HostView<T**> const in("in", rows, n), expected("expected", rows, n);
  HostView<T*> const from("from", first + rows * pitch), to("to", first + rows * pitch);
  fill(in, uniform<T>(rows * n, 1, -4, 4));
  softmax(expected, in);
  poison(to);
  auto const untouched = values(to);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < n; ++j) from(first + i * pitch + j) = in(i, j);
  auto const array = [&](HostView<T*> const& x) {
    detail::RowArray a = detail::row_array(detail::array(in));
    a.data = x.data() + first;
    a.stride[2] = static_cast<std::int64_t>(pitch);
    return a;
  };
  detail::SoftmaxProblem const problem{array(to), array(from), 1.0, false, ""};
  REQUIRE(detail::start_packed_softmax(Warps{}, problem, detail::row_grid(problem.in)));
  std::vector<T> inside;
  int changed = 0;
  for (std::size_t i = 0; i < untouched.size(); ++i) {
    bool const is_in_row = i >= first && (i - first) % pitch < n;
    if (is_in_row) inside.push_back(to(i));
    if (!is_in_row) changed += std::memcmp(&untouched[i], &to(i), sizeof(T)) != 0;
  }
  CHECK(apart(inside, values(expected), tolerance<T>) == 0);
  CHECK(changed == 0);
}

}  // namespace

TEST_CASE("packed rows on warps: gradients of softmax") {
  for (std::size_t n : {8u, 64u, 72u, 520u, 1032u, 2056u, 4096u, 8200u, 16384u}) check_softmax<bf16_t>(5, n);
  for (std::size_t n : {4u, 260u, 4100u}) check_softmax<float>(70, n);
  check_softmax<fp16_t>(7, 16392);  // rows that come through scratch
  check_softmax<bf16_t>(5, 40000);
  check_softmax<bf16_t>(4, 65536);
  check_softmax<float>(4, 8196);
  check_softmax<bf16_t>(3, 131072);                                                     // shared by teams
  check_softmax<float>(2, 200000);                                                      // more than they keep
  for (std::size_t n : {1u, 7u, 63u, 257u, 1001u, 4095u}) check_softmax<bf16_t>(9, n);  // not of whole packs
  check_softmax<float>(9, 777);
  check_softmax<fp16_t>(5, 16393);
  check_softmax<bf16_t>(3, 131073);
  check_softmax<bf16_t>(3, 32768);  // held by teams
  check_softmax<fp16_t>(2, 32761);
  check_softmax<float>(2, 31000);
}

TEST_CASE("packed rows on warps: rows that begin anywhere") {
  for (std::size_t n : {5u, 64u, 129u, 777u, 2047u})
    for (std::size_t first : {0u, 1u, 5u})
      for (std::size_t gap : {0u, 3u, 8u}) {
        check_rows_between<bf16_t>(9, n, first, gap);
        check_rows_between<float>(5, n, first, gap);
      }
  check_rows_between<bf16_t>(4, 20001, 3, 2);  // through scratch
  check_rows_between<bf16_t>(4, 31001, 3, 2);  // held by teams
  check_rows_between<float>(3, 16001, 1, 2);
  for (std::size_t n : {63u, 777u, 4095u}) check_results<bf16_t>(7, n);
  check_results<float>(5, 1001);
}

TEST_CASE("packed rows on warps: results of few rows") {
  for (std::size_t n : {260u, 512u, 1000u, 1024u, 2048u}) check_results<float>(5, n);
  check_results<float>(40, 512);
}

TEST_CASE("packed rows on warps: results of long rows") {
  check_results<bf16_t>(7, 16392);
  check_results<bf16_t>(2, 32768, {1, 1});   // as many slots as a team keeps
  check_results<bf16_t>(11, 16400, {1, 1});  // many rows a team,
  check_results<bf16_t>(9, 40000, {2, 2});   // many a pair of teams
  check_results<float>(5, 8196);
  check_results<bf16_t>(3, 131072);          // shared by teams
  check_results<float>(2, 200000);           // more than they keep
  check_results<bf16_t>(3, 32768);           // held by two teams,
  check_results<float>(2, 32764);            // by four,
  check_results<bf16_t>(2, 131072, {3, 8});  // by eight
  check_results<bf16_t, bf16_t>(7, 40000);   // parameters asked for a slot ahead,
  check_results<float, float>(3, 200000);    // also of a row that they do not keep
  // Not of whole packs.
  check_results<bf16_t, bf16_t>(9, 16393);
  check_results<float>(7, 8197);
  check_results<bf16_t>(3, 31001);
  check_results<float>(3, 16001);
  check_results<fp16_t, fp16_t>(3, 131073);
  check_results<float>(2, 200001);
}

TEST_CASE("packed rows on warps: gradients of norms") {
  check_norm<bf16_t>(7, 8200);  // shared by two teams, by four
  check_norm<float>(5, 32764);
  check_norm<bf16_t>(45, 8200, false);  // more rows than are relayed at a time
  check_norm<float>(23, 16384, false);
  check_norm<fp16_t>(1, 24000, false);
  check_norm<bf16_t>(5, 131080);        // more than they share, in strips
  check_norm<float>(150, 8191, false);  // and of single elements
  check_norm<fp16_t>(3, 9001);
  for (std::size_t n : {8u, 64u, 72u, 512u, 520u, 1032u, 2056u, 4096u, 8192u}) {
    check_norm<bf16_t>(13, n);
    check_norm<bf16_t>(2, n);
  }
  check_norm<bf16_t>(1000, 64);
  check_norm<float>(301, 44);
  for (std::size_t n : {520u, 1000u, 1024u}) {  // a warp each, all at once
    check_norm<bf16_t, bf16_t>(13, n);
    check_norm<float>(48, n);
    check_norm<float>(1, n);
  }
  for (std::size_t n : {260u, 1028u, 8192u}) check_norm<float>(11, n);
  for (std::size_t n : {7u, 63u, 200u, 1001u}) check_norm<bf16_t>(100, n);  // not of whole packs
  check_norm<bf16_t>(5, 4095);
  check_norm<float>(37, 777);
}

TEST_CASE("packed rows on warps: cross-entropy") {
  for (double smoothing : {0.0, 0.2}) {
    for (std::size_t n : {8u, 64u, 136u, 1032u, 2056u, 8200u, 16384u}) check_cross_entropy<bf16_t>(5, n, smoothing);
    check_cross_entropy<float>(70, 260, smoothing);
    check_cross_entropy<bf16_t>(13, 16400, smoothing);  // rows that come through scratch
    check_cross_entropy<fp16_t>(7, 49152, smoothing);   // shared by teams
    check_cross_entropy<bf16_t>(4, 128256, smoothing);
    check_cross_entropy<float>(3, 240000, smoothing);  // more than they keep
    check_cross_entropy<float>(5, 8196, smoothing);
    check_cross_entropy<bf16_t>(70, 8201, smoothing, {1, 1});  // more rows a team than it asks for at a time
    for (std::size_t n : {9u, 1001u, 4095u}) check_cross_entropy<bf16_t>(5, n, smoothing);  // not of whole packs
    check_cross_entropy<bf16_t>(3, 50257, smoothing);
    check_cross_entropy<bf16_t>(5, 32003, smoothing);  // held by teams
    check_cross_entropy<bf16_t>(5, 32000, smoothing);
    check_cross_entropy<float>(2, 130001, smoothing, {3, 16});
    check_cross_entropy<float>(3, 32001, smoothing);
  }
}

TEST_CASE("packed rows on warps: rotary embedding and MX blocks give the bits of the portable kernels") {
  HostView<bf16_t****> const in("in", 2, 5, 3, 64), out("out", 2, 5, 3, 64), expected("expected", 2, 5, 3, 64);
  HostView<float**> const cosine("cosine", 5, 32), sine("sine", 5, 32);
  fill(in, uniform<bf16_t>(2 * 5 * 3 * 64, 1));
  fill(cosine, uniform<float>(5 * 32, 2));
  fill(sine, uniform<float>(5 * 32, 3));
  for (bool interleaved : {false, true}) {
    rotary_embedding(expected, in, cosine, sine, {.interleaved = interleaved, .backward = true});
    poison(out);
    detail::RotaryProblem const problem{detail::row_array(detail::array(out)),
                                        detail::row_array(detail::array(in)),
                                        detail::row_array(detail::array(cosine)),
                                        detail::row_array(detail::array(sine)),
                                        interleaved,
                                        true,
                                        0};
    REQUIRE(detail::start_packed_rotary(Warps{}, problem, detail::row_grid(problem.in)));
    CHECK(apart(values(out), values(expected), limits<bf16_t>::roundoff) == 0);
  }
  for (bool stochastic : {false, true}) {
    constexpr std::size_t rows = 37, n = 160;
    HostView<bf16_t**> const x("x", rows, n), y("y", rows, n), expected_y("ey", rows, n);
    HostView<e4m3_t**> const q("q", rows, n), expected_q("eq", rows, n);
    HostView<e8m0_t**> const s("s", rows, n / 32), expected_s("es", rows, n / 32);
    fill(x, uniform<bf16_t>(rows * n, 4, -50, 50));
    MxOptions const options{.stochastic = stochastic, .seed = 3};
    mx_quantize(expected_q, expected_s, x, options);
    mx_dequantize(expected_y, expected_q, expected_s);
    auto problem = detail::mx_problem<Host>("", q, x, s);
    problem.quantized = Scalar::e4m3;
    problem.options = options;
    REQUIRE(detail::start_packed_mx("", Warps{}, problem, detail::mx_rows(problem), true));
    auto back = detail::mx_problem<Host>("", y, q, s);
    back.quantized = Scalar::e4m3;
    REQUIRE(detail::start_packed_mx("", Warps{}, back, detail::mx_rows(back), false));
    int wrong = 0;
    auto const a = values(q), b = values(expected_q);
    for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i].bits() != b[i].bits();
    auto const c = values(s), d = values(expected_s);
    for (std::size_t i = 0; i < c.size(); ++i) wrong += c[i].bits() != d[i].bits();
    CHECK(wrong == 0);
    CHECK(apart(values(y), values(expected_y), 0) == 0);
  }
}

#endif
