// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels for packed rows on a CPU's imitation of warps. Where there is a GPU the other tests run them on it.
#ifndef TESSERA_TESTS_PACKED_ROWS_HPP
#define TESSERA_TESTS_PACKED_ROWS_HPP

#include <cmath>
#include <vector>

#include "rows.hpp"
#include "support/warps.hpp"

namespace tessera::test {

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

}  // namespace tessera::test

#endif
