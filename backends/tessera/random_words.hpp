// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_RANDOM_WORDS_HPP
#define TESSERA_RANDOM_WORDS_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>

#include <tessera/openmp/random_words.hpp>

namespace tessera::detail {

using openmp::RandomWords;
using openmp::word_groups_together;

/// The way of a machine whose threads work on long runs of neighbours. nullptr: the plain formula is as good, or a
/// compiler for devices reads this, as with vector units.
KOKKOS_INLINE_FUNCTION RandomWords random_words_of_runs() {
#if !defined(__CUDACC__)
  static RandomWords const words = openmp::random_words();
  return words;
#else
  return nullptr;
#endif
}

}  // namespace tessera::detail

#endif
