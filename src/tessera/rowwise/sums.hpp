// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SUMS_HPP
#define TESSERA_ROWWISE_SUMS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/unroll.hpp>

// For kernels that have two portions of a row at hand.
namespace tessera::detail {

template <class Acc>
struct TwoSums {
  Acc first, second;
};

/// The sums of f(x, y) and g(x, y) over a row, where x is the walk's portion and y another; prepare(p) fills both. The
/// order of the additions is that of Walk::sum.
template <class Acc, class Walk, class Prepare, class F, class G>
KOKKOS_FORCEINLINE_FUNCTION TwoSums<Acc> two_sums(Walk& row, typename Walk::Portion const& y, Prepare const& prepare,
                                                  F const& f, G const& g) {
  constexpr int packs = Walk::Shape::packs, width = Walk::Shape::width;
  Acc first[width], second[width];
  for (int j = 0; j < width; ++j) first[j] = second[j] = Acc(0);
  row.for_each_portion(prepare, [&](std::int64_t) TESSERA_INLINE_LAMBDA {
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < row.used(); ++j) {
        first[j] += f(row.x[k][j], y[k][j]);
        second[j] += g(row.x[k][j], y[k][j]);
      }
    });
  });
  for (int half = width / 2; half >= 8; half /= 2)
    for (int j = 0; j < half; ++j) {
      first[j] += first[j + half];
      second[j] += second[j + half];
    }
  for (int j = 1; j < (width < 8 ? width : 8); ++j) {
    first[0] += first[j];
    second[0] += second[j];
  }
  Acc const whole = row.template join<Add>(first[0], Acc(0));
  return {whole, row.template join<Add>(second[0], Acc(0))};
}

}  // namespace tessera::detail

#endif
