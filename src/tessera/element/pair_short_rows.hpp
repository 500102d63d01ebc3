// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PAIR_SHORT_ROWS_HPP
#define TESSERA_ELEMENT_PAIR_SHORT_ROWS_HPP

#include <cstdint>
#include <limits>

#include <tessera/element/pair_data.hpp>
#include <tessera/element/reduce_short_rows.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// What becomes of a row, most of all of which is its largest number: that is found first.
template <class Pair>
struct ShortRowPair;

/// Its place: the first element that equals it, or that is a NaN if it is one.
template <>
struct ShortRowPair<FirstLargest<float>> {
  using Own = std::int32_t;
  static constexpr Own none = std::numeric_limits<Own>::max();
  float top;

  template <int Width>
  KOKKOS_FORCEINLINE_FUNCTION void add(Own& own, Pack<float, Width> const& x, std::int32_t first) const {
    std::int32_t place = none;
    for (int j = Width - 1; j >= 0; --j) place = x[j] == top ? first + j : place;
    if (top != top)
      for (int j = Width - 1; j >= 0; --j) place = x[j] != x[j] ? first + j : place;
    own = place < own ? place : own;
  }
  KOKKOS_FORCEINLINE_FUNCTION static Own joined(Own a, Own b) { return a < b ? a : b; }
  KOKKOS_FORCEINLINE_FUNCTION FirstLargest<float> pair(Own own) const { return {top, own}; }
};

/// The sum of exponentials relative to it, or to a finite number beside it.
template <>
struct ShortRowPair<ExponentialSum<float>> {
  using Own = float;
  static constexpr Own none = 0;
  float top;

  template <int Width>
  KOKKOS_FORCEINLINE_FUNCTION void add(Own& own, Pack<float, Width> const& x, std::int32_t) const {
    float const reference = finite_beside(top);
    for (int j = 0; j < Width; ++j) own += exp2_approximate((x[j] - reference) * 1.44269504088896341f);
  }
  KOKKOS_FORCEINLINE_FUNCTION static Own joined(Own a, Own b) { return a + b; }
  KOKKOS_FORCEINLINE_FUNCTION ExponentialSum<float> pair(Own own) const { return {top, own}; }
};

/// Such results of short rows, which are read twice from registers.
template <class Exec, class T, class Pair, class Shape>
struct PairShortRows {
  using Rows = ShortRows<Exec, T, Shape>;
  using Of = ShortRowPair<Pair>;
  static constexpr int teams_at_once = Shape::packs > 4 ? 6 : 10, lanes = Rows::lanes, width = Rows::width;
  static constexpr bool starts_early = true;

  Rows rows;
  PairOutput out;
  std::int64_t out_stride;  // elements between results
  float sign;               // -1 where the smallest numbers are looked for

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    auto const values = [&](auto const& bits) TESSERA_INLINE_LAMBDA {
      auto x = Rows::Atoms::widened(bits.pack());
      for (int j = 0; j < width; ++j) x[j] *= sign;
      return x;
    };
    T const beyond(-sign * Kokkos::Experimental::infinity_v<float>);
    rows.each_row(team, beyond, [&](int row, auto const& packs) TESSERA_INLINE_LAMBDA {
      Of const of_row{Rows::template reduced<Largest>(packs, values)};
      typename Of::Own own = Of::none;
      unroll<Shape::packs>([&](auto p) { of_row.add(own, values(packs[p]), (p * lanes + Rows::lane()) * width); });
      own =
          Rows::Atoms::template join<lanes>(own, [](auto a, auto b) TESSERA_INLINE_LAMBDA { return Of::joined(a, b); });
      if (rows.stores(row)) out.store(row * out_stride, of_row.pair(own));
    });
  }
};

/// Starts such a kernel for `rows` rows of so many packs, longest_short_row at most. Whether it has: not where rows are
/// too many to count.
template <class T, class Pair, class Exec>
bool start_pair_short_rows(char const* label, Exec const& exec, T const* in, PairOutput const& out, std::int64_t rows,
                           std::int64_t packs, std::int64_t stride, std::int64_t out_stride, float sign) {
  if (rows > std::numeric_limits<int>::max() - 256) return false;
  with_short_row_shape(packs, [&](auto shape) {
    using Kernel = PairShortRows<KernelSpace<Exec>, T, Pair, decltype(shape)>;
    Kernel const kernel{{in, stride, static_cast<int>(rows), static_cast<int>(packs)}, out, out_stride, sign};
    launch<Kernel::Rows::threads, Kernel::teams_at_once>(KernelLabel{label, "along short rows of whole packs"}, exec,
                                                         kernel.rows.teams(), 0, kernel);
  });
  return true;
}

}  // namespace tessera::detail

#endif
