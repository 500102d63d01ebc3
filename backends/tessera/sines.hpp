// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_SINES_HPP
#define TESSERA_SINES_HPP

#include <tessera/half_turns.hpp>
#include <tessera/vector_units.hpp>

// Sines of the usual numbers are cheap, those of any number need a table, and loops that become SIMD code have no
// branches. So g++ is told of functions of vectors, as those of the C library have them (x86's "Vector Function ABI"):
// a loop of 16 calls _ZGVeN16v_tessera_sine, which looks at all 16 numbers first. They are in openmp/sines*.cpp.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
extern "C" {
__attribute__((simd("notinbranch"), const)) float tessera_sine(float x) noexcept;
__attribute__((simd("notinbranch"), const)) float tessera_cosine(float x) noexcept;
}
namespace tessera::detail {
/// Whether sine_of_moderate() gives what these do, without calls.
__attribute__((always_inline)) inline bool has_moderate_sines() { return vector_units() != VectorUnits::baseline; }
}  // namespace tessera::detail
#else
TESSERA_PLAIN_FUNCTION float tessera_sine(float x) { return tessera::detail::sine_of_any<false>(x); }
TESSERA_PLAIN_FUNCTION float tessera_cosine(float x) { return tessera::detail::sine_of_any<true>(x); }
namespace tessera::detail {
TESSERA_PLAIN_FUNCTION bool has_moderate_sines() { return false; }
}  // namespace tessera::detail
#endif

#endif
