// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PAIR_SHORT_ROWS_HPP
#define TESSERA_ELEMENT_PAIR_SHORT_ROWS_HPP

#include <cstdint>
#include <limits>
#include <type_traits>

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

/// Rows of whole packs that a few lanes have in registers, as of ReduceShortRows.
template <class Exec, class T, class Pair, class Shape>
struct PairShortRows {
  static constexpr int threads = 128, width = static_cast<int>(pack_bytes / sizeof(T)), lanes = Shape::lanes,
                       rows_at_once = threads / lanes, rows_a_team = rows_at_once * Shape::rows;
  static constexpr int teams_at_once = Shape::packs > 4 ? 6 : 10;  // rows are read twice from registers
  static constexpr bool starts_early = true;
  using Atoms = WarpAtoms<Exec>;
  using Bits = PackBits<T, width>;
  using Of = ShortRowPair<Pair>;

  T const* in;
  PairOutput out;
  std::int64_t by, out_by;  // elements between rows, and between results
  int rows, packs;
  float sign;  // -1 where the smallest numbers are looked for

  std::int64_t teams() const { return (std::int64_t{rows} + rows_a_team - 1) / rows_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    int const thread = Atoms::thread(), lane = thread % lanes,
              first = team.league_rank() * rows_a_team + thread / lanes;
    T const beyond(-sign * Kokkos::Experimental::infinity_v<float>);
    Bits bits[Shape::rows][Shape::packs];
    unroll<Shape::rows>([&](auto r) {
      int const row = first + r * rows_at_once;
      T const* const from = in + row * by + lane * width;
      unroll<Shape::packs>([&](auto p) {
        bits[r][p] = Bits::filled(beyond);
        if (row < rows && p * lanes + lane < packs)
          bits[r][p] = *reinterpret_cast<Bits const*>(from + p * (lanes * width));
      });
    });
    unroll<Shape::rows>([&](auto r) {
      int const row = first + r * rows_at_once;
      Of const of_row{Atoms::template join<lanes>(
          largest(bits[r]), [](float a, float b) TESSERA_INLINE_LAMBDA { return larger_or_nan(a, b); })};
      typename Of::Own own = Of::none;
      unroll<Shape::packs>([&](auto p) { of_row.add(own, values(bits[r][p]), (p * lanes + lane) * width); });
      own = Atoms::template join<lanes>(own, [](auto a, auto b) TESSERA_INLINE_LAMBDA { return Of::joined(a, b); });
      if (row < rows && lane == 0) out.store(row * out_by, of_row.pair(own));
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Pack<float, width> values(Bits const& bits) const {
    auto x = Atoms::widened(bits.pack());
    for (int j = 0; j < width; ++j) x[j] *= sign;
    return x;
  }
  KOKKOS_FORCEINLINE_FUNCTION float largest(Bits const (&bits)[Shape::packs]) const {
    Pack<float, width> value = values(bits[0]);
    unroll<Shape::packs - 1>([&](auto p) {
      auto const x = values(bits[p + 1]);
      for (int j = 0; j < width; ++j) value[j] = larger_or_nan(value[j], x[j]);
    });
    for (int half = width / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) value[j] = larger_or_nan(value[j], value[j + half]);
    return value[0];
  }
};

/// Starts such a kernel for `rows` rows of so many packs, if they are short.
template <class T, class Pair, class Exec>
bool start_pair_short_rows(char const* label, Exec const& exec, T const* in, PairOutput const& out, std::int64_t rows,
                           std::int64_t packs, std::int64_t by, std::int64_t out_by, float sign) {
  if (packs > longest_short_row || rows > std::numeric_limits<int>::max() - 256) return false;
  with_short_row_shape(packs, [&](auto shape) {
    using Kernel = PairShortRows<KernelSpace<Exec>, T, Pair, decltype(shape)>;
    Kernel const kernel{in, out, by, out_by, static_cast<int>(rows), static_cast<int>(packs), sign};
    launch<Kernel::threads, Kernel::teams_at_once>(label, exec, kernel.teams(), 0, kernel);
  });
  return true;
}

}  // namespace tessera::detail

#endif
