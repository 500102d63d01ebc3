// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROW_LOOPS_HPP
#define TESSERA_OPENMP_ROW_LOOPS_HPP

#include <cstdint>

// The row atoms of one core: loops over elements that are neighbours in memory, one version an instruction set. Rows
// are short beside the caches and are walked several times, so that the memory idles unless somebody asks it for the
// next row meanwhile: that is what `ahead` is for.
namespace tessera::detail::openmp {

/// Elements of `value` are where they are said to be or, with `ahead`, as far behind that as those of the loop are
/// behind its first one: these are fetched into the second-level cache while the loop runs. nullptr: nothing is.
struct RowAhead {
  char const* from = nullptr;
  std::int64_t bytes = 0;  // from there on that may be fetched
};

/// For elements of one type, fp32, fp16 or bf16. Sums are in fp32, in an order that depends on the number of elements
/// alone. `room` is fp32, in an order of the version's own, for `count` elements and those to the next multiple of
/// row_room_multiple. Results are streamed past the caches if `streamed`; their first element is then at a multiple of
/// 64 bytes.
struct RowLoops {
  /// The largest; NaNs do not count, and -Inf if there is nothing else.
  float (*largest)(void const* x, std::int64_t count, RowAhead ahead);
  /// The sum of e^(scale x - top), which are kept in `room` unless that is nullptr. Of 16-bit elements with a relative
  /// error of 2 (|scale x| + |scale x - top| + 4) u, u = 2^-24.
  float (*exponentials)(void const* x, std::int64_t count, float scale, float top, float* room, RowAhead ahead);
  /// y = factor * room.
  void (*scaled)(float const* room, std::int64_t count, float factor, void* y, bool streamed, RowAhead ahead);
  /// y = (scale x - top) - rest.
  void (*shifted)(void const* x, std::int64_t count, float scale, float top, float rest, void* y, bool streamed,
                  RowAhead ahead);
  float (*sum)(void const* x, std::int64_t count, RowAhead ahead);
  /// The sum of (x - center)^2.
  float (*squares)(void const* x, std::int64_t count, float center, RowAhead ahead);
  /// sum = x + added, rounded; and the sum of what has been stored.
  float (*add)(void const* x, void const* added, std::int64_t count, void* sum, RowAhead ahead);
  /// y = (x - center) factor weight + bias; weight and bias, or bias alone, may be nullptr.
  void (*normalise)(void const* x, std::int64_t count, float center, float factor, void const* weight, void const* bias,
                    void* y, bool streamed, RowAhead ahead);
};
inline constexpr std::int64_t row_room_multiple = 64;

/// The best versions this processor runs, within the cap.
struct RowLoopsOfTypes {
  RowLoops fp32, fp16, bf16;
};
/// nullptr: no instruction set that runs is better than what compilers make of plain loops.
RowLoopsOfTypes const* row_loops();

}  // namespace tessera::detail::openmp

#endif
