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

/// The same to 16 bits past the caches; in order with other stores only after streaming_done(). nullptr as above.
template <class T>
KOKKOS_INLINE_FUNCTION RoundStrip streamed_rounding() {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all == nullptr) return nullptr;
  if constexpr (std::is_same_v<T, fp16_t>) return all->fp16.streamed;
  if constexpr (std::is_same_v<T, bf16_t>) return all->bf16.streamed;
#endif
  return nullptr;
}

/// n pairs of neighbours rounded to bf16, the first and the second of each from an array of its own; `streamed` as
/// above. nullptr likewise.
using RoundPairs = void (*)(float const* first, float const* second, int n, void* to);
KOKKOS_INLINE_FUNCTION RoundPairs pair_rounding([[maybe_unused]] bool streamed) {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all != nullptr) return streamed ? all->bf16.streamed_pairs : all->bf16.pairs;
#endif
  return nullptr;
}

using openmp::Dividing, openmp::Multiplying;
using openmp::least_divisor, openmp::largest_divisor;

/// The one for From.
template <class From, class F>
F of_wide_type(openmp::OfWideTypes<F> const& types) {
  if constexpr (std::is_same_v<From, float>) return types.fp32;
  if constexpr (std::is_same_v<From, fp16_t>) return types.fp16;
  if constexpr (std::is_same_v<From, bf16_t>) return types.bf16;
  return nullptr;
}

/// n neighbours of From divided by scales, rounded to an 8-bit type and saturating; element i by scales[i >> shift], of
/// which at least 32 neighbours share one, or with `shift` 0 each by its own, of which as many are there as fill 32.
/// Scales are from least_divisor to largest_divisor, and their rounded reciprocals are there. nullptr as above.
template <class From, class To>
KOKKOS_INLINE_FUNCTION Dividing strip_division() {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all == nullptr) return nullptr;
  if constexpr (std::is_same_v<To, e4m3_t>) return of_wide_type<From>(all->quotients.e4m3);
  if constexpr (std::is_same_v<To, e5m2_t>) return of_wide_type<From>(all->quotients.e5m2);
  if constexpr (std::is_same_v<To, std::int8_t>) return of_wide_type<From>(all->quotients.int8);
#endif
  return nullptr;
}

/// The same for many rows by scales of columns, prepared once. {} as above, and for other types of input than bf16.
using openmp::ColumnQuotients;
using openmp::steps_of_column, openmp::columns_together;

template <class From, class To>
KOKKOS_INLINE_FUNCTION ColumnQuotients column_division() {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all == nullptr || !std::is_same_v<From, bf16_t>) return {};
  if constexpr (std::is_same_v<To, e4m3_t>) return all->column_quotients.e4m3;
  if constexpr (std::is_same_v<To, e5m2_t>) return all->column_quotients.e5m2;
#endif
  return {};
}

/// The same of products with any scales, from fp32, fp16 or bf16 to an 8-bit float, saturating, or from an 8-bit type
/// to fp16 or bf16.
template <class From, class To>
KOKKOS_INLINE_FUNCTION Multiplying strip_product() {
#if !defined(__CUDACC__)
  static openmp::Roundings const* const all = openmp::roundings();
  if (all == nullptr) return nullptr;
  [[maybe_unused]] auto const widened = [](openmp::Widenings const& type) -> Multiplying {
    if constexpr (std::is_same_v<To, fp16_t>) return type.fp16;
    if constexpr (std::is_same_v<To, bf16_t>) return type.bf16;
    return nullptr;
  };
  if constexpr (std::is_same_v<To, e4m3_t>) return of_wide_type<From>(all->products.e4m3);
  if constexpr (std::is_same_v<To, e5m2_t>) return of_wide_type<From>(all->products.e5m2);
  if constexpr (std::is_same_v<From, e4m3_t>) return widened(all->widenings.e4m3);
  if constexpr (std::is_same_v<From, e5m2_t>) return widened(all->widenings.e5m2);
  if constexpr (std::is_same_v<From, std::int8_t>) return widened(all->widenings.int8);
#endif
  return nullptr;
}

}  // namespace tessera::detail

#endif
