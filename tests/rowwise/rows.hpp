// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ROWWISE_ROWS_HPP
#define TESSERA_TESTS_ROWWISE_ROWS_HPP

#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/limits.hpp>
#include <tessera/row_workspace.hpp>

#include "reference/rowwise.hpp"
#include "support/support.hpp"

namespace tessera::test {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Row lengths on both sides of every change of path: walked by one warp to 1024, by one team in registers to 16384,
/// then streamed; as packs of 4 by 4 lanes to 32, 8 to 64, a warp to 512, teams to 8192, then shared by teams.
inline std::vector<int> const lengths = {1,    2,    7,    8,    32,   36,   63,   64,   65,    68,   255,
                                         256,  257,  512,  516,  1000, 1023, 1024, 1025, 1028,  2047, 2048,
                                         2050, 2052, 4096, 4097, 4100, 8192, 8196, 8200, 16384, 16385};

template <class Acc>
constexpr double roundoff_of = limits<Acc>::roundoff;

/// Roundings on the longest way of one term through a sum of n terms: a lane adds at most n / 64 terms into one total,
/// then 64 totals at most and the lanes of 16 warps are joined.
inline double chain(double n) { return std::min(n, n / 64 + 100); }

/// What operations on such rows ask for, with something in it. Rows of a megabyte are shared by mail through it.
template <class Exec, class V>
auto lent_memory(V const& v) {
  ViewOf<Exec, std::byte*> const memory("lent", row_workspace_size(Exec{}, v));
  poison(memory);
  return memory;
}

/// check(rows, columns of fp32) and check(rows, columns of 16 bits) of so long rows; on a GPU of so many rows, too,
/// that each group of teams has more of them than are under way at a time.
template <class Exec, class OfFloats, class OfHalves>
void check_mailed(OfFloats const& floats, OfHalves const& halves) {
  floats(2, 262144 + 4);
  halves(3, 524288 + 8);
  if (runs_on_host<Exec>) return;
  floats(1, 1048576);
  floats(12, 1048576 - 4);
  floats(150, 262144);
  halves(20, 1048576 + 8);
  halves(6, 2000008);
  halves(2, 4000008);
}

/// check(rows, columns of 16 bits) of rows that teams of a GPU hold in nine packs a thread or share in scratch: of few
/// teams and of all that can be, whose parts fill slots or not; there of so many rows, too, that each group of teams
/// has more of them than are under way at a time.
template <class Exec, class Check>
void check_shared(Check const& check) {
  check(3, 50304);
  check(2, 65536 + 8);
  if (runs_on_host<Exec>) return;
  check(3, 40000);
  check(250, 49152);
  check(3, 100352);
  check(70, 131072);
  check(2, 151936);
  check(3, 196608 - 8);
  check(30, 262144);
  check(2, 393216);
}

/// The same View with its strides as numbers, so that tests over layouts instantiate their copies once.
template <class V>
auto strided(V const& v) {
  return Kokkos::View<typename V::data_type, Kokkos::LayoutStride, typename V::memory_space>(v);
}

template <class T>
std::vector<double> row_of(std::vector<T> const& all, std::size_t row, std::size_t n) {
  std::vector<double> x;
  for (std::size_t j = 0; j < n; ++j) x.push_back(to_double(all[row * n + j]));
  return x;
}

/// Counts elements farther from the reference than allowed; NaN must meet NaN, infinities must be equal.
inline bool is_near(double actual, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= bound;
}

}  // namespace tessera::test

#endif
