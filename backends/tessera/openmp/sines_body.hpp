// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_SINES_BODY_HPP
#define TESSERA_OPENMP_SINES_BODY_HPP

#include <cstdint>

#include <tessera/half_turns.hpp>

// Sines and cosines of vectors, for a source compiled with the instructions of an instruction set `V`, which provides
//
//     Floats, Words            vectors of `lanes` elements of fp32 and of 32 bits
//     all(x)                   x in every lane
//     plus_product(x, y, z)    x + y z, rounded once
//     all_within(x, limit)     whether |x| < limit in every lane; not where one is NaN
namespace {

using tessera::detail::largest_turned;

/// y, with those of the large numbers in x in place.
template <class V, bool Ahead>
__attribute__((noinline, cold)) typename V::Floats with_large(typename V::Floats x, typename V::Floats y) {
  for (int i = 0; i < V::lanes; ++i)
    if (!(__builtin_fabsf(x[i]) < largest_turned)) y[i] = tessera::detail::sine_of_any<Ahead>(x[i]);
  return y;
}

/// Of the half turns in x the nearest whole number decides the sign, and the rest, an angle of up to pi / 2, goes into
/// a polynomial. It is x - turns pi, pi in three parts (W. J. Cody, W. Waite, "Software Manual for the Elementary
/// Functions", 1980), none of which is negative: so the rest of -0 is -0. What a number gives does not depend on its
/// neighbours.
template <class V, bool Ahead>
typename V::Floats sine_of_lanes(typename V::Floats x) {
  using Floats = typename V::Floats;
  using Words = typename V::Words;
  Floats const magic = V::all(12582912.0f);  // 1.5 2^23: a sum with it has no fraction bits
  Floats const half_turns = V::plus_product(Ahead ? V::all(-0.5f) : magic, x, V::all(0.318309873f));
  Floats const shifted = Ahead ? half_turns + magic : half_turns;
  Floats const turns = Ahead ? (shifted - magic) + V::all(0.5f) : shifted - magic;
  Floats r = V::plus_product(x, -turns, V::all(3.1415925f));
  r = V::plus_product(r, -turns, V::all(1.50995788e-7f));
  r = V::plus_product(r, -turns, V::all(1.07806059e-14f));
  Floats const square = r * r;
  Floats p = V::plus_product(V::all(-1.98095382e-4f), square, V::all(2.60562979e-6f));
  p = V::plus_product(V::all(8.33306555e-3f), p, square);
  p = V::plus_product(V::all(-1.66666597e-1f), p, square);
  // The angle's sign is that of its sine, also of a zero; an odd number of half turns changes it.
  Words const sine = reinterpret_cast<Words>(V::plus_product(r, r * square, p)),
              sign = reinterpret_cast<Words>(r) & 0x80000000u;
  Words const odd = Ahead ? reinterpret_cast<Words>(shifted) ^ 1u : reinterpret_cast<Words>(shifted);
  Floats const y = reinterpret_cast<Floats>((sine | sign) ^ odd << 31);
  return V::all_within(x, largest_turned) ? y : with_large<V, Ahead>(x, y);
}

}  // namespace

#endif
