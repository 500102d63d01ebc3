// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROUNDINGS_HPP
#define TESSERA_OPENMP_ROUNDINGS_HPP

// From fp32 to types of 16 and of 8 bits, one version an instruction set. What compilers make of the storage types
// shifts each element by a count of its own and is most of the time of those who round as fast as memory stores; the
// instructions for fp16 round all subnormal numbers alike.
namespace tessera::detail::openmp {

/// n neighbours, to the bits that the storage types give; `from` and `to` do not overlap.
using Rounding = void (*)(float const* from, int n, void* to);

/// By what overflow becomes: the type's infinity or NaN, or its largest number.
struct RoundingsOfType {
  Rounding overflowing, saturating;
};
struct Roundings {
  RoundingsOfType fp16, bf16, e4m3, e5m2;
  Rounding int8;  // from -127 to 127; NaN becomes 0
};

/// The best versions this processor runs, within the cap; nullptr: none is better than what compilers make of the
/// storage types.
Roundings const* roundings();

}  // namespace tessera::detail::openmp

#endif
