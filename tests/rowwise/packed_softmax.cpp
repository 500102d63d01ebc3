// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <cstring>
#include <vector>

#include <tessera/rowwise/softmax.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Results of long rows; their numbers lie far from 0.
template <class T>
void check_softmax(std::size_t rows, std::size_t n, Warps const& machine = {}) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const in("in", rows, n), out("out", rows, n), expected("expected", rows, n);
  fill(in, uniform<T>(rows * n, 1, 60, 70));
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

TEST_CASE("packed rows on warps: rows that begin anywhere") {
  for (std::size_t n : {5u, 64u, 129u, 777u, 2047u})
    for (std::size_t first : {0u, 1u, 5u})
      for (std::size_t gap : {0u, 3u, 8u}) {
        check_rows_between<bf16_t>(9, n, first, gap);
        check_rows_between<float>(5, n, first, gap);
      }
  check_rows_between<bf16_t>(4, 20001, 3, 2);  // through scratch
  check_rows_between<bf16_t>(4, 31001, 3, 2);  // held by teams
  check_rows_between<float>(3, 31001, 1, 2);
  for (std::size_t n : {63u, 777u, 4095u}) check_softmax<bf16_t>(7, n);
  check_softmax<float>(5, 1001);
}

TEST_CASE("packed rows on warps: softmax of few rows") {
  for (std::size_t n : {260u, 512u, 1000u, 1024u, 2048u}) check_softmax<float>(5, n);
  check_softmax<float>(40, 512);
  for (std::size_t n : {520u, 1000u, 1024u, 2048u, 4000u}) check_softmax<bf16_t>(5, n);
}

TEST_CASE("packed rows on warps: softmax of rows between powers of two") {
  for (std::size_t n : {2560u, 5000u, 6144u, 10240u, 12000u, 14336u, 20480u}) check_softmax<bf16_t>(3, n);
  for (std::size_t n : {8196u, 12288u, 16384u}) check_softmax<float>(3, n);
  for (std::size_t n : {9001u, 12001u, 16001u}) check_softmax<bf16_t>(3, n);  // not of whole packs
  for (std::size_t n : {5001u, 8193u, 10001u, 12001u, 16001u}) check_softmax<float>(3, n);
}

TEST_CASE("packed rows on warps: softmax of long rows") {
  check_softmax<bf16_t>(7, 20488);
  check_softmax<bf16_t>(2, 32768, {1, 1});   // as many slots as a team keeps
  check_softmax<bf16_t>(11, 20496, {1, 1});  // many rows a team,
  check_softmax<bf16_t>(9, 40000, {2, 2});   // many a pair of teams
  check_softmax<float>(5, 16388);
  check_softmax<bf16_t>(3, 131072);          // shared by teams
  check_softmax<float>(2, 200000);           // more than they keep
  check_softmax<bf16_t>(3, 32768);           // held by two teams,
  check_softmax<float>(2, 32764);            // by four,
  check_softmax<bf16_t>(2, 131072, {3, 8});  // by eight
  // Not of whole packs.
  check_softmax<bf16_t>(9, 16393);
  check_softmax<float>(7, 16393);
  check_softmax<bf16_t>(3, 31001);
  check_softmax<float>(3, 31001);
  check_softmax<fp16_t>(3, 131073);
  check_softmax<float>(2, 200001);
}

#endif
