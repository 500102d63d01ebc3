// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROUNDINGS_HPP
#define TESSERA_OPENMP_ROUNDINGS_HPP

// From fp32 to types of 16 and of 8 bits, and between those of 8 and others by a factor or a divisor, one version an
// instruction set. What compilers make of the storage types shifts each element by a count of its own and is most of
// the time of those who round as fast as memory stores; the instructions for fp16 round all subnormal numbers alike.
namespace tessera::detail::openmp {

/// n neighbours, to the bits that the storage types give; `from` and `to` do not overlap.
using Rounding = void (*)(float const* from, int n, void* to);

/// n pairs of neighbours, the first and the second of each from an array of its own.
using PairRounding = void (*)(float const* first, float const* second, int n, void* to);

/// By what overflow becomes: the type's infinity or NaN, or its largest number.
struct RoundingsOfType {
  Rounding overflowing, saturating;
  // `overflowing` past the caches, but for what is no whole vector; in order with other stores only after a fence.
  // nullptr for 8 bits.
  Rounding streamed = nullptr;
  // `overflowing` and `streamed` of pairs. nullptr but for bf16.
  PairRounding pairs = nullptr, streamed_pairs = nullptr;
};

/// n neighbours by scales: element i by scales[i >> shift], of which at least 32 share one. The two do not overlap.
using Multiplying = void (*)(void const* from, int n, float const* scales, int shift, void* to);
/// The same, or with `shift` 0 each by its own, of which as many are there as fill 32. Scales are from least_divisor to
/// largest_divisor, and their rounded reciprocals are there.
using Dividing = void (*)(void const* from, int n, float const* scales, float const* reciprocals, int shift, void* to);
inline constexpr float least_divisor = 0x1p-60f, largest_divisor = 0x1p60f;

/// Quotients of bf16 by a scale for each column, as above, of many rows: prepare() makes of the scales, a multiple of
/// columns_together, what each row takes, steps_of_column bytes each.
inline constexpr int steps_of_column = 10, columns_together = 64;
struct ColumnQuotients {
  void (*prepare)(float const* scales, float const* reciprocals, int n, void* steps) = nullptr;
  void (*divide)(void const* from, int n, float const* scales, float const* reciprocals, void const* steps,
                 void* to) = nullptr;
};

/// By the type on the other side.
template <class F>
struct OfWideTypes {
  F fp32, fp16, bf16;
};
/// To a type of 8 bits: quotients or products in fp32, rounded to the type and saturating.
using Quotients = OfWideTypes<Dividing>;
using Products = OfWideTypes<Multiplying>;
/// From a type of 8 bits: products in fp32, rounded to 16 bits.
struct Widenings {
  Multiplying fp16, bf16;
};

struct Roundings {
  RoundingsOfType fp16, bf16, e4m3, e5m2;
  Rounding int8;  // from -127 to 127; NaN becomes 0
  struct {
    Quotients e4m3, e5m2, int8;
  } quotients;
  struct {
    ColumnQuotients e4m3, e5m2;
  } column_quotients;
  struct {
    Products e4m3, e5m2;
  } products;
  struct {
    Widenings e4m3, e5m2, int8;
  } widenings;
};

/// The best versions this processor runs, within the cap; nullptr: none is better than what compilers make of the
/// storage types.
Roundings const* roundings();

}  // namespace tessera::detail::openmp

#endif
