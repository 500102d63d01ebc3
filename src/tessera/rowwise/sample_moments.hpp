// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_SAMPLE_MOMENTS_HPP
#define TESSERA_ROWWISE_SAMPLE_MOMENTS_HPP

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// How many elements, their mean, and their squares about it (about 0 if the norm is not centered).
struct SampleMoments {
  float count = 0, mean = 0, squares = 0;
};

/// Those of `count` elements in all, where each(f, value) is f over value(x) of all parts x: by the formula of Chan,
/// Golub and LeVeque (1983).
template <class Each>
KOKKOS_FORCEINLINE_FUNCTION SampleMoments joined_moments(Each const& each, float count) {
  float const center = each(Add{}, [](auto const& x) { return x.count * x.mean; }) * (count > 0 ? 1 / count : 0.0f);
  return {count, center, each(Add{}, [&](auto const& x) {
            float const difference = x.mean - center;
            return x.squares + x.count * difference * difference;
          })};
}

/// Adds `Packs` packs, values(k) if has(k), of `Width` elements, `elements` of which are there. A pack may be a part of
/// one if it is `Ragged`: has_element(k, j) says what of it is there, and the rest is 0.
template <int Packs, int Width, bool Ragged = false, class Values, class Has, class HasElement>
KOKKOS_FORCEINLINE_FUNCTION void include_packs(SampleMoments& all, int elements, Values const& values, Has const& has,
                                               HasElement const& has_element) {
  auto const count = static_cast<float>(elements);
  // About the mean of the first pack, which is near enough: they are at most so many times as far from it as from
  // their own mean as there are more packs.
  float of_first = Width;
  if constexpr (Ragged) {
    of_first = 0;
    for (int j = 0; j < Width; ++j) of_first += has_element(Constant<0>{}, j) ? 1.0f : 0.0f;
    of_first = of_first > 0 ? of_first : 1.0f;
  }
  float const near = sum_of(values(Constant<0>{})) * (1.0f / of_first);
  float sum = 0, squares = 0;
  unroll<Packs>([&](auto k) {
    auto const x = values(k);
    float own = 0, own_squares = 0;
    for (int j = 0; j < Width; ++j) {
      float difference = x[j] - near;
      if constexpr (Ragged) difference = has_element(k, j) ? difference : 0.0f;
      own += difference;
      own_squares += difference * difference;
    }
    sum += has(k) ? own : 0.0f;
    squares += has(k) ? own_squares : 0.0f;
  });
  if (count == 0) return;
  float const off = sum * (1 / count), center = near + off;
  squares -= sum * off;
  if (all.count == 0) {
    all = {count, center, squares};
    return;
  }
  float const both = all.count + count, difference = center - all.mean, part = count / both;
  all = {both, all.mean + difference * part, all.squares + squares + difference * difference * all.count * part};
}
template <int Packs, int Width, class Values, class Has>
KOKKOS_FORCEINLINE_FUNCTION void include_packs(SampleMoments& all, int elements, Values const& values, Has const& has) {
  include_packs<Packs, Width>(all, elements, values, has, [](auto, int) { return true; });
}

}  // namespace tessera::detail

#endif
