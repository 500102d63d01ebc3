// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_QUOTIENT_STEPS_BODY_HPP
#define TESSERA_OPENMP_QUOTIENT_STEPS_BODY_HPP

#include <tessera/openmp/roundings_body.hpp>

// Quotients of bf16 by scales, rounded to floats of 8 bits, without a division: behind its leading one a number of bf16
// has 7 bits, m below, so while its exponent stays, the result goes a step up at each of a few m, the scale's
// thresholds. There are as many as the type has numbers to an exponent. Results that are not of full precision, but for
// zero, and what is no number are rare; the vectors with these go the way of roundings_body.hpp.
//
// A vocabulary `V` has for that beside what roundings_body.hpp says
//
//     Bytes                              a vector of 2 `lanes` bytes
//     joined(low, high)                  elements from 0 to 0x7fff as bytes, those above 255 as that, in an order of
//                                        its own
//     signs(low, high)                   in this order, bytes whose highest bits are those of the elements
//     with_signs(x, y)                   x and the highest bits of y
//     in_order(x), out_of_order(x)       from this order to that of the elements, and back
//     any_above(x, limit)                unsigned
//     smaller(x, y), difference(x, y)    of bytes, unsigned; differences from 0 on
//     one_more_above(x, y, z)            z, and one more where x > y as signed numbers
//     reached(x, y)                      the least integers that are not below x y - 128, from 0 to 128, of 8 numbers
//     of
//                                        fp64 each, of which the bits are given; in 8 of 16 bytes. Products are exact
//                                        or not near an integer.
//     Table, table<weight>(thresholds, offset)
//                                        for each value j of the 4 upper bits of m, `offset` - 16 j and the doubled
//                                        sum over the thresholds t of 0 if 8 j + 8 <= t, `weight` if t <= 8 j and
//                                        8 j + weight - t between
//     stepped(x, table)                  2 x and what the table has for it
namespace {

typedef unsigned char Thresholds __attribute__((vector_size(16)));
typedef std::uint32_t EightWords __attribute__((vector_size(32)));
typedef std::uint64_t Eight __attribute__((vector_size(64)));
typedef double EightNumbers __attribute__((vector_size(64)));

/// Results are counted from the least one of full precision on, `last` is the largest. They are numbered as the bits of
/// fp32 that are their exponent and their digits.
template <class Type>
struct Steps {
  static constexpr int digits = 10 - Type::dropped, count = 1 << digits, bias = digits == 3 ? 7 : 15;
  /// A step, and how far to shift it, where the last of the 7 bits counts 1.
  static constexpr int weight = 128 >> digits, shift = 7 - digits;
  static constexpr unsigned char last = Type::largest - count;
  static constexpr int fp32_bias = 127;
  /// The result of exponent e (of bf16, with its bias) and m = 0 is e * count + first(reciprocal) - origin.
  static constexpr int origin = (fp32_bias - bias + fp32_bias + 1) * count;

  /// The number of the result of 1, or of what is a few units in the last place below: for all m the results are at
  /// least that, and at most `count` more.
  template <class Words>
  static Words first(Words reciprocal_bits) {
    constexpr std::uint32_t half = 1u << (22 - digits), units = 16;
    return (reciprocal_bits + (half - units)) >> (23 - digits);
  }

  /// The midpoint above the k-th result from `first` on, as bits of fp64; from there on, or above it, quotients go up.
  /// Quotients of fp32 are rounded twice: those from half a unit in the last place below a midpoint on have become it,
  /// which as a tie goes up from odd results and down from even ones.
  static constexpr int to_step = 52 - digits, to_fp64 = 52 - 23;
  static constexpr std::uint64_t rebias = std::uint64_t{1023 - fp32_bias} << 52;
  static constexpr std::uint64_t half_step = (std::uint64_t{1} << (to_step - 1)) + rebias;
  static constexpr std::uint64_t half_unit = std::uint64_t{1} << 28, above = half_unit + 4, from = 0 - half_unit;

  /// What makes a scale's bits those of 128 times it in fp64.
  static constexpr std::uint64_t enlarged = rebias + (std::uint64_t{7} << 52);

  /// The k-th steps and those bits, from even results on and from odd ones. In memory, as a branch would be taken for
  /// every other scale.
  static constexpr std::uint64_t step = std::uint64_t{1} << to_step;
  alignas(64) static constexpr std::uint64_t steps[2][8] = {
      {above, step + from, 2 * step + above, 3 * step + from, 4 * step + above, 5 * step + from, 6 * step + above,
       7 * step + from},
      {from, step + above, 2 * step + from, 3 * step + above, 4 * step + from, 5 * step + above, 6 * step + from,
       7 * step + above}};

  /// All thresholds of a scale.
  template <class V>
  static Thresholds thresholds(std::uint32_t first, std::uint32_t scale_bits) {
    Eight midpoints;
    __builtin_memcpy(&midpoints, steps[first % 2], sizeof midpoints);
    midpoints += first * step + half_step;
    Thresholds const m = V::reached(midpoints, Eight{} + ((std::uint64_t{scale_bits} << to_fp64) + enlarged));
    if constexpr (count == 8) return m;
    return m | Thresholds{0, 0, 0, 0, 255, 255, 255, 255};
  }
};

/// 2 lanes numbers of bf16.
template <class V>
struct Bf16Pair {
  typename V::Halves low, high;

  explicit Bf16Pair(unsigned char const* from) {
    __builtin_memcpy(&low, from, sizeof low);
    __builtin_memcpy(&high, from + sizeof low, sizeof high);
  }
  /// Bytes of ones in place of all but zeros.
  typename V::Bytes numbers() const {
    using Halves = typename V::Halves;
    return V::signs(reinterpret_cast<Halves>((low & all_but_sign) != 0),
                    reinterpret_cast<Halves>((high & all_but_sign) != 0));
  }
};

/// Stores results, unless some are not in [0, last].
template <class V, class Type>
[[gnu::always_inline]] inline bool store_results(typename V::Bytes results, Bf16Pair<V> const& x, unsigned char* to) {
  using S = Steps<Type>;
  using Bytes = typename V::Bytes;
  Bytes const signs = V::signs(x.low, x.high);
  Bytes const magnitudes = results + static_cast<unsigned char>(S::count);
  Bytes bits = V::with_signs(magnitudes, signs);
  if (__builtin_expect(V::any_above(results, S::last), 0)) {
    Bytes const numbers = x.numbers();
    if (V::any_above(results & numbers, S::last)) return false;
    bits = V::with_signs(magnitudes & numbers, signs);
  }
  bits = V::in_order(bits);
  __builtin_memcpy(to, &bits, sizeof bits);
  return true;
}

/// As divide_all, without inlining it.
template <class V, class Type>
[[gnu::noinline]] void divide_others(unsigned char const* from, int n, float const* scales, float const* reciprocals,
                                     int shift, unsigned char* to) {
  divide_all<V, Bf16, ToEightBits<V, Type, true>>(from, n, scales, reciprocals, shift, to);
}

template <class V, class Type>
[[gnu::always_inline]] inline typename V::Table table_of(std::uint32_t scale_bits, float reciprocal) {
  using S = Steps<Type>;
  std::uint32_t const first = S::first(__builtin_bit_cast(std::uint32_t, reciprocal));
  std::uint32_t const offset = 2 * S::weight * (first - static_cast<std::uint32_t>(S::origin));
  return V::template table<S::weight>(S::template thresholds<V>(first, scale_bits), static_cast<std::uint16_t>(offset));
}

/// Neighbours often share the scale of the group before. Where others occur there are often more of them near, so the
/// rest of their group goes with them.
template <class V, class Type>
void divide_by_steps(void const* from, int n, float const* scales, float const* reciprocals, int shift, void* to) {
  using S = Steps<Type>;
  constexpr int together = 2 * V::lanes;
  auto const* const in = static_cast<unsigned char const*>(from);
  auto* const out = static_cast<unsigned char*>(to);
  int const group = 1 << shift;
  if (group < together) return divide_others<V, Type>(in, n, scales, reciprocals, shift, out);
  typename V::Table table;
  std::uint32_t scale_of_table = 0;
  for (int begin = 0; begin < n; begin += group, ++scales, ++reciprocals) {
    auto const scale = __builtin_bit_cast(std::uint32_t, *scales);
    if (scale != scale_of_table) table = table_of<V, Type>(scale, *reciprocals);
    scale_of_table = scale;
    int const end = n - begin < group ? n : begin + group;
    int i = begin;
    for (; i + together <= end; i += together) {
      Bf16Pair<V> const x(in + i * Bf16::size);
      typename V::Bytes const results =
          V::joined(V::stepped(x.low, table) >> (S::shift + 1), V::stepped(x.high, table) >> (S::shift + 1));
      if (!store_results<V, Type>(results, x, out + i)) break;
    }
    if (i < end) divide_others<V, Type>(in + i * Bf16::size, end - i, scales, reciprocals, shift, out + i);
  }
}

using tessera::detail::openmp::steps_of_column, tessera::detail::openmp::columns_together;

/// What columns_together columns have, all in V's order.
struct ColumnSteps {
  signed char unreached[8][columns_together];  // one less than thresholds
  /// The exponent whose results are from 2 steps of it below 0 on, and the byte that makes them that.
  unsigned char exponent[columns_together], offset[columns_together];
};
static_assert(sizeof(ColumnSteps) == steps_of_column * columns_together);

template <class V, class Type>
void prepare_eight(float const* scales, float const* reciprocals, ColumnSteps& steps, int at) {
  using S = Steps<Type>;
  EightWords scale, reciprocal;
  __builtin_memcpy(&scale, scales, sizeof scale);
  __builtin_memcpy(&reciprocal, reciprocals, sizeof reciprocal);
  Eight const factor = (__builtin_convertvector(scale, Eight) << S::to_fp64) + S::enlarged;
  Eight const first = __builtin_convertvector(S::first(reciprocal), Eight), odd = 0 - (first & 1);
  Eight const step = (first << S::to_step) + S::half_step, even_tie = (S::above & ~odd) | (S::from & odd),
              odd_tie = (S::above & odd) | (S::from & ~odd);
  for (int k = 0; k < S::count; ++k) {
    Eight const midpoint = step + (std::uint64_t(k) << S::to_step) + (k % 2 == 0 ? even_tie : odd_tie);
    Thresholds const m = V::reached(midpoint, factor);
    __builtin_memcpy(steps.unreached[k] + at, &m, 8);
  }
}
template <class V, class Type>
void prepare_columns(float const* scales, float const* reciprocals, int n, void* prepared) {
  using S = Steps<Type>;
  using Bytes = typename V::Bytes;
  auto const order = [](void* bytes, unsigned char less) {
    auto* const at = static_cast<unsigned char*>(bytes);
    for (int i = 0; i < columns_together; i += 2 * V::lanes) {
      Bytes x;
      __builtin_memcpy(&x, at + i, sizeof x);
      x = V::out_of_order(x - less);
      __builtin_memcpy(at + i, &x, sizeof x);
    }
  };
  auto* steps = static_cast<ColumnSteps*>(prepared);
  for (int c = 0; c < n; c += columns_together, ++steps) {
    for (int i = 0; i < columns_together; i += 8)
      prepare_eight<V, Type>(scales + c + i, reciprocals + c + i, *steps, i);
    for (int i = 0; i < columns_together; ++i) {
      std::uint32_t const first = S::first(__builtin_bit_cast(std::uint32_t, reciprocals[c + i]));
      std::uint32_t const below = S::origin - first, exponent = (below + S::count - 1) >> S::digits;
      steps->exponent[i] = static_cast<unsigned char>(exponent - 2);
      steps->offset[i] = static_cast<unsigned char>((exponent - 2) * S::count - below);
    }
    for (int k = 0; k < S::count; ++k) order(steps->unreached[k], 1);
    order(steps->exponent, 0);
    order(steps->offset, 0);
  }
}

/// Results of each column by its own scale; `at` the first column's.
template <class V, class Type>
typename V::Bytes results_of(Bf16Pair<V> const& x, ColumnSteps const& steps, int at) {
  using S = Steps<Type>;
  using Bytes = typename V::Bytes;
  using Halves = typename V::Halves;
  auto const prepared = [&](void const* bytes) {
    Bytes y;
    __builtin_memcpy(&y, static_cast<unsigned char const*>(bytes) + at, sizeof y);
    return y;
  };
  Bytes const m = V::joined(x.low & 0x7f, x.high & 0x7f);
  Bytes exponent = V::joined((x.low + x.low) >> 8, (x.high + x.high) >> 8);
  exponent = V::difference(exponent, prepared(steps.exponent));
  exponent = V::smaller(exponent, Bytes{} + static_cast<unsigned char>(255 >> S::digits));
  Bytes results = reinterpret_cast<Bytes>(reinterpret_cast<Halves>(exponent) << S::digits) + prepared(steps.offset);
  for (int k = 0; k < S::count; ++k) results = V::one_more_above(m, prepared(steps.unreached[k]), results);
  return results;
}
template <class V, class Type>
void divide_columns(void const* from, int n, float const* scales, float const* reciprocals, void const* prepared,
                    void* to) {
  constexpr int together = 2 * V::lanes;
  auto const* const in = static_cast<unsigned char const*>(from);
  auto* const out = static_cast<unsigned char*>(to);
  auto const* const steps = static_cast<ColumnSteps const*>(prepared);
  int i = 0;
  while (i < n) {
    if (i + together <= n) {
      Bf16Pair<V> const x(in + i * Bf16::size);
      auto const results = results_of<V, Type>(x, steps[i / columns_together], i % columns_together);
      if (__builtin_expect(store_results<V, Type>(results, x, out + i), 1)) {
        i += together;
        continue;
      }
    }
    int const others = n - i < columns_together ? n - i : columns_together;
    divide_others<V, Type>(in + i * Bf16::size, others, scales + i, reciprocals + i, 0, out + i);
    i += others;
  }
}

template <class V, class Type>
constexpr tessera::detail::openmp::ColumnQuotients by_columns{prepare_columns<V, Type>, divide_columns<V, Type>};

/// all_roundings, those of bf16 by steps.
template <class V>
constexpr tessera::detail::openmp::Roundings with_steps = [] {
  tessera::detail::openmp::Roundings all = all_roundings<V>;
  all.quotients.e4m3.bf16 = divide_by_steps<V, E4m3>;
  all.quotients.e5m2.bf16 = divide_by_steps<V, E5m2>;
  all.column_quotients = {by_columns<V, E4m3>, by_columns<V, E5m2>};
  return all;
}();

}  // namespace

#endif
