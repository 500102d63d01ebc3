// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <vector>

#include <tessera/rowwise/cross_entropy.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

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

}  // namespace

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

#endif
