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

/// Two sums over a row.
struct RowSums {
  float first, second;
};

/// What the gradient of a normalised row is found from, and where it goes.
struct NormGradientRow {
  void const *x, *g;  // the row, and the gradient that comes in
  void const* added;  // to the result; or nullptr
  void* y;
  float center, factor;      // the row is normalised to (x - center) factor
  float mean, mean_product;  // of g weight, and of that times the normalised row
  RowAhead g_ahead;
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
  /// The same of e^(x - top), with a relative error of (2 |x - top| + 4) u.
  float (*exponentials_below)(void const* x, std::int64_t count, float top, float* room, RowAhead ahead);
  /// y = factor room - less.
  void (*scaled)(float const* room, std::int64_t count, float factor, float less, void* y, bool streamed,
                 RowAhead ahead);
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

  /// The weights e^(scale x - top), or x itself if they are `given`, which are kept in `room`: their sum, and that of
  /// weight g, or of g if `log`.
  RowSums (*weights)(void const* x, void const* g, std::int64_t count, bool given, float scale, float top, bool log,
                     float* room, RowAhead ahead, RowAhead g_ahead);
  /// y = factor room (g - total); if `log`, factor (g - total room).
  void (*weight_gradients)(float const* room, void const* g, std::int64_t count, float factor, float total, bool log,
                           void* y, bool streamed);
  /// The sums of g weight and of g weight (x - center) factor; weight may be nullptr. What is added afterwards may be
  /// fetched as well.
  RowSums (*norm_sums)(void const* x, void const* g, void const* weight, std::int64_t count, float center, float factor,
                       RowAhead ahead, RowAhead added_ahead);
  /// y = factor (g weight - mean - n mean_product) + added of neighbouring rows, n = (x - center) factor. What they
  /// give to the gradients of the parameters, n g and g, is added to d_weight and d_bias, which have the order of
  /// `room`; weight, d_weight and d_bias may be nullptr.
  void (*norm_gradients)(NormGradientRow const* rows, int n, std::int64_t count, void const* weight, float* d_weight,
                         float* d_bias, bool streamed);
  /// to[i] = element i of `room`.
  void (*in_order)(float const* room, std::int64_t count, float* to);
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
