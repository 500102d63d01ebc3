// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <tessera/rowwise/normalization.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Results of long rows; their numbers lie far from 0.
template <class T, class W = float>
void check_norm(std::size_t rows, std::size_t n, Warps const& machine = {}) {
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

/// Rows with a residual that teams on all multiprocessors of a GPU share by mail: here by few, which reach each other's
/// scratch.
template <class T>
void check_kept_sums(std::size_t rows, std::size_t n, int teams, int groups) {
  CAPTURE(rows);
  CAPTURE(n);
  using Kernel = detail::RelayedNorm<Warps, T, 2, 4, true>;
  using Rows = typename Kernel::Rows;
  HostView<T**> const in("in", rows, n), residual("residual", rows, n), out("out", rows, n), sum("sum", rows, n),
      expected("expected", rows, n), expected_sum("expected_sum", rows, n);
  HostView<T*> const weight("weight", n);
  fill(in, uniform<T>(rows * n, 1, 60, 70));
  fill(residual, uniform<T>(rows * n, 2, -3, 3));
  fill(weight, uniform<T>(n, 3));
  auto const grid = detail::row_grid(detail::row_array(detail::array(in)));
  auto const operand = [&](auto const& x) {
    return detail::operand(detail::row_array(detail::array(x)), grid, Kernel::width, true);
  };
  detail::Operand slope = operand(weight);
  slope.row = 0;
  detail::PackedGrid const packed(grid, Kernel::width);
  detail::RelayLayout layout{.teams = teams, .groups = groups, .ahead = 3, .second = 2};
  layout.part = detail::part_of_team(packed.packs, teams);
  REQUIRE(layout.part <= Rows::most_packs);
  layout.stages = layout.ahead + layout.second;
  for (bool centered : {false, true}) {
    using Options = NormOptions<None, None, HostView<T**>, HostView<T**>>;
    Options const options{.residual = residual, .sum = expected_sum};
    centered ? layer_norm(Host{}, expected, in, weight, none, options)
             : rms_norm(Host{}, expected, in, weight, options);
    poison(out);
    poison(sum);
    Kernel const kernel{packed,
                        operand(out),
                        operand(in),
                        slope,
                        {},
                        {},
                        {},
                        operand(residual),
                        operand(sum),
                        1e-5f,
                        1.0f / static_cast<float>(n),
                        centered,
                        layout};
    detail::launch_relayed<Rows>("kept sums", Warps{}, layout, 2, kernel);
    CHECK(apart(values(out), values(expected), tolerance<T>) == 0);
    CHECK(apart(values(sum), values(expected_sum), 0) == 0);
  }
}

}  // namespace

TEST_CASE("packed rows on warps: norms whose sums with the residual take the place of the row") {
  check_kept_sums<float>(14, 4 * 2032, 2, 1);  // four packs a thread, or three,
  check_kept_sums<bf16_t>(9, 8 * 700, 2, 2);   // one or none
  check_kept_sums<bf16_t>(1, 8 * 3000, 3, 1);
}

TEST_CASE("packed rows on warps: norms of rows that begin anywhere") {
  for (std::size_t n : {63u, 777u, 4095u}) check_norm<bf16_t>(7, n);
  check_norm<float>(5, 1001);
}

TEST_CASE("packed rows on warps: norms of few rows") {
  for (std::size_t n : {260u, 512u, 1000u, 1024u, 2048u}) check_norm<float>(5, n);
  check_norm<float>(40, 512);
}

TEST_CASE("packed rows on warps: norms of rows between powers of two") {
  for (std::size_t n : {2560u, 5000u, 6144u, 10240u, 12000u, 14336u, 20480u}) check_norm<bf16_t>(3, n);
  for (std::size_t n : {10240u, 20000u}) check_norm<bf16_t, bf16_t>(3, n);
  for (std::size_t n : {8196u, 12288u, 16384u}) check_norm<float>(3, n);
  for (std::size_t n : {9001u, 12001u, 16383u}) check_norm<bf16_t, bf16_t>(3, n);  // not of whole packs
  for (std::size_t n : {5001u, 8193u, 10001u, 12001u, 16383u}) check_norm<float>(3, n);
}

TEST_CASE("packed rows on warps: norms of long rows") {
  check_norm<bf16_t>(7, 20488);
  check_norm<bf16_t>(2, 32768, {1, 1});   // as many slots as a team keeps
  check_norm<bf16_t>(11, 20496, {1, 1});  // many rows a team,
  check_norm<bf16_t>(9, 40000, {2, 2});   // many a pair of teams
  check_norm<float>(5, 16388);
  check_norm<bf16_t>(3, 131072);          // shared by teams
  check_norm<float>(2, 200000);           // more than they keep
  check_norm<bf16_t>(3, 32768);           // held by two teams,
  check_norm<float>(2, 32764);            // by four,
  check_norm<bf16_t>(2, 131072, {3, 8});  // by eight
  check_norm<bf16_t, bf16_t>(7, 40000);   // parameters asked for a slot ahead,
  check_norm<float, float>(3, 200000);    // also of a row that they do not keep
  // Not of whole packs.
  check_norm<bf16_t, bf16_t>(9, 16393);
  check_norm<float>(7, 16393);
  check_norm<bf16_t>(3, 31001);
  check_norm<float>(3, 31001);
  check_norm<fp16_t, fp16_t>(3, 131073);
  check_norm<float>(2, 200001);
}

#endif
