// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_WARP_HPP
#define TESSERA_WARP_HPP

#include <Kokkos_Core.hpp>

#include <tessera/passing.hpp>
#include <tessera/portable/pack.hpp>

namespace tessera::detail {

/// What threads find out together on a machine whose warps have shuffles, and its own conversions of packs. Specialised
/// by the backend that has them:
///
///     thread()                    this thread's place in its team; `lane = thread() % 32`
///     join<Lanes>(x, f)           f over the x of `Lanes` neighbouring lanes, a power of two; each gets the same bits
///     of_lane(x, i)               lane i's x, a number of 32 bits
///     share<Tag, Warps>(x)        every warp of the team gives an x: lane i of each gets that of warp i % Warps; a
///                                 kernel calls it once for each Tag
///     share_in_turn<Tag, Warps>(x, turn)  the same as often as wanted: `turn` is 0, 1, 0 and so on; where their number
///                                 is no power of two as of the next one, of which those that are not there give a T{}
///     begin_posting<Tag>(n), wait_for_posters<Tag>(n)  one after the other before the first of the following calls, by
///                                 all of n neighbouring teams that run at the same time (launch_together)
///     post_part<Tag>(box, x, n, w, i)  the first w warps of each of these teams post an x, for all of them; every
///                                 team's scratch has a `box` for 2 n w parts of posted_part_bytes, at the same place;
///                                 `i` counts the calls
///     posted_part<Tag, X>(box, p, i, first)  lane j of every warp gets part first + j of p = n w, or an X{} if there
///                                 are fewer; before call i + 1 of post_part()
///     settled(scratch)            the same place in scratch, which is not computed again wherever it is needed
///     copy_ahead(to, from)        begins to copy a pack from memory to this thread's place in scratch
///     copy_ahead(to, from, once)  the same of an operand that is read as the ReadOnce says
///     copy_ahead_at<A, B>(to, from)  the same to A packs behind `to` from B elements behind `from`
///     copy_ahead_part(to, from, n)  the same of its first n elements, which is all that is read
///     end_copies()                those since the last call are a group, which may be empty
///     wait_for_copies(n)          all groups of this thread have arrived but the newest n (or fewer)
///     store_at_once(to, pack)     as store_pack() does with 16 bytes, for certain in one access: where rows begin
///                                 anywhere a compiler may take packs apart although `to` is aligned
///     renew(pack)                 leaves it as it is, but what was computed from it is forgotten: it is computed again
///                                 and takes no registers meanwhile
///     largest_magnitude(packs)    of all elements of an array of packs, as the bits of an fp32: a NaN is the largest
///     larger(a, b), smaller(a, b)  of two packs, element by element; of a NaN and a number the number
///     magnitudes<T>(word)         the T of a word, two of 16 bits or one fp32, without their signs
///     larger_magnitudes<T>(a, b)  of two such words, element by element: a NaN is the largest
///     transpose_bytes(words)      4 words of 4 bytes: byte i of word j becomes byte j of word i
///     widened(pack)               a pack of floats; a NaN stays one
///     narrowed<T>(pack)           rounded to nearest even, 8-bit types saturated: the bits of T(x), T::saturate(x)
///     narrowed_words<T>(pack)     the same of 8-bit floats as words: a compiler that sees bytes takes words apart
template <class Exec>
struct WarpAtoms {
  static constexpr bool available = false;
};

}  // namespace tessera::detail

#if defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/warp.hpp>
#endif

namespace tessera::detail {

/// store_pack() of 16 bytes, in one access where the machine can say so for certain.
template <class Exec, class T, int N>
KOKKOS_FORCEINLINE_FUNCTION void store_at_once(T* to, Pack<T, N> const& pack) {
  if constexpr (WarpAtoms<Exec>::available)
    WarpAtoms<Exec>::store_at_once(to, pack);
  else
    store_pack(to, pack);
}

}  // namespace tessera::detail

#endif
