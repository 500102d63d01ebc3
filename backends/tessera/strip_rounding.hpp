// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_STRIP_ROUNDING_HPP
#define TESSERA_STRIP_ROUNDING_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/openmp/roundings.hpp>
#include <tessera/types.hpp>

namespace tessera::detail {

/// n neighbouring numbers of fp32 rounded to a type, to the bits that the storage types give; int8 to nearest even from
/// -127 to 127, NaN becomes 0. `from` and `to` do not overlap.
using RoundStrip = void (*)(float const* from, int n, void* to);

/// The way of a machine whose threads work on long runs of neighbours; `saturate`: overflow becomes the largest number.
/// nullptr: loops over the storage types are as good, or a compiler for devices reads this, as with vector units.
template <class T>
KOKKOS_INLINE_FUNCTION RoundStrip strip_rounding([[maybe_unused]] bool saturate) {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all == nullptr) return nullptr;
  [[maybe_unused]] auto const of = [&](openmp::RoundingsOfType const& type) {
    return saturate ? type.saturating : type.overflowing;
  };
  if constexpr (std::is_same_v<T, fp16_t>) return of(all->fp16);
  if constexpr (std::is_same_v<T, bf16_t>) return of(all->bf16);
  if constexpr (std::is_same_v<T, e4m3_t>) return of(all->e4m3);
  if constexpr (std::is_same_v<T, e5m2_t>) return of(all->e5m2);
  if constexpr (std::is_same_v<T, std::int8_t>) return all->int8;
#endif
  return nullptr;
}

}  // namespace tessera::detail

#endif
