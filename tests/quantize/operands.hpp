// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_QUANTIZE_OPERANDS_HPP
#define TESSERA_TESTS_QUANTIZE_OPERANDS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/limits.hpp>
#include <tessera/quantize.hpp>

#include "support/support.hpp"

namespace tessera::test {

inline constexpr Granularity granularities[] = {Granularity::per_tensor, Granularity::per_row, Granularity::tile_1x128,
                                                Granularity::tile_128x128};

template <class Q>
inline constexpr float largest = static_cast<float>(limits<Q>::max);
template <>
inline constexpr float largest<std::int8_t> = 127;

/// Which scale of a vector of them an element has.
struct Groups {
  std::size_t row_tile, column_tile, rows, columns;  // tiles' extents, and how many there are

  Groups(Granularity granularity, std::size_t m, std::size_t n) {
    row_tile = granularity == Granularity::per_tensor ? m : granularity == Granularity::tile_128x128 ? 128 : 1;
    column_tile = granularity == Granularity::per_tensor || granularity == Granularity::per_row ? n : 128;
    auto const tiles = [](std::size_t extent, std::size_t tile) { return tile == 0 ? 1 : (extent + tile - 1) / tile; };
    rows = tiles(m, row_tile);
    columns = tiles(n, column_tile);
  }
  std::size_t operator()(std::size_t i, std::size_t j) const { return i / row_tile * columns + j / column_tile; }
};

/// How many elements differ, bit by bit.
template <class T>
int different(std::vector<T> const& a, std::vector<T> const& b) {
  int count = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if constexpr (std::is_floating_point_v<T>)  // any NaN for a NaN
      count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(a[i] != a[i] && b[i] != b[i]);
    else
      count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  }
  return count;
}

/// f(a View of the scales), of the rank that the granularity wants.
template <class Exec, class F>
void with_scales(Granularity granularity, Groups const& groups, F const& f) {
  if (granularity == Granularity::per_tensor)
    f(ViewOf<Exec, float>("scales"));
  else if (granularity == Granularity::per_row)
    f(ViewOf<Exec, float*>("scales", groups.rows));
  else
    f(ViewOf<Exec, float**, Kokkos::LayoutLeft>("scales", groups.rows, groups.columns));
}

/// The means over `draws` roundings to e4m3, each off by half a step at most in root mean square, are x within six
/// standard deviations of the mean. A step is an eighth of the number, or the smallest one of e4m3 times the scale,
/// which is 2^-7 at most. rounded(k) is what came back from the draw k.
template <class F>
void check_unbiased(std::vector<float> const& x, F const& rounded) {
  constexpr int draws = 400;
  std::vector<double> sum(x.size(), 0.0);
  for (int k = 0; k < draws; ++k) {
    auto const b = rounded(static_cast<std::uint64_t>(k));
    for (std::size_t i = 0; i < b.size(); ++i) sum[i] += static_cast<double>(b[i]);
  }
  int far = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    auto const exact = static_cast<double>(x[i]);
    double const step = std::max(std::abs(exact) / 8, std::ldexp(limits<e4m3_t>::min_subnormal, -7));
    far += std::abs(sum[i] / draws - exact) > 6 * 0.5 * step / std::sqrt(draws);
  }
  CHECK(far == 0);
}

}  // namespace tessera::test

#endif
