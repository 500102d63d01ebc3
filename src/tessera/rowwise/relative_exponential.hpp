// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_RELATIVE_EXPONENTIAL_HPP
#define TESSERA_ROWWISE_RELATIVE_EXPONENTIAL_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/elementary.hpp>
#include <tessera/rowwise/packed_rows.hpp>

namespace tessera::detail {

/// e^(s x) as 2^(factor x - offset), in one multiply-add and a power of two, 0 below 2^-126. Offsets are integers, so
/// that sums relative to different ones are joined without an error, and what rounding has made of `factor` only counts
/// with the distance to the maximum.
struct RelativeExponential {
  float factor;  // log2(e) s

  struct Reference {
    float factor, offset;
  };

  KOKKOS_FORCEINLINE_FUNCTION explicit RelativeExponential(float scale) : factor(1.44269504088896341f * scale) {}

  /// The largest of s x / |s| in the first operand of a thread's packs, and of `top`.
  template <class Rows, class Packs>
  KOKKOS_FORCEINLINE_FUNCTION float top_of(float top, Packs const& packs) const {
    using Atoms = typename Rows::Atoms;
    auto const over = [&](auto const& f) TESSERA_INLINE_LAMBDA {
      typename Rows::Raw all = packs.template raw<0>(Constant<0>{});
      unroll<Packs::batch - 1>(
          [&](auto k) { all = f(all, packs.template raw<0>(Constant<decltype(k)::value + 1>{})); });
      return Atoms::widened(all);
    };
    if (factor >= 0)
      return larger(
          top, largest(over([](auto const& a, auto const& b) TESSERA_INLINE_LAMBDA { return Atoms::larger(a, b); })));
    auto x = over([](auto const& a, auto const& b) TESSERA_INLINE_LAMBDA { return Atoms::smaller(a, b); });
    for (int j = 0; j < x.size; ++j) x[j] = -x[j];
    return larger(top, largest(x));
  }

  /// For no elements.
  KOKKOS_FORCEINLINE_FUNCTION Reference none() const { return {factor, 0}; }
  /// For elements up to `top`, which may be -Inf: all exponentials are 0 then.
  KOKKOS_FORCEINLINE_FUNCTION Reference reference(float top) const {
    float const offset = Kokkos::floor(top * Kokkos::fabs(factor));
    return Kokkos::fabs(offset) < largest_offset ? Reference{factor, offset} : far_reference(top);
  }

  /// Takes a thread's packs into what has been found of a row, whose `part` has a maximum, which becomes `top`, the
  /// top_of() it and these, and a sum; f(k, x) sees the exponentials of pack k. Returns what other sums of the row so
  /// far are to be multiplied by.
  template <class State, class Packs, class F>
  KOKKOS_FORCEINLINE_FUNCTION float take(State& row, float top, Packs const& packs, F const& f) const {
    Reference const to = reference(top);
    float const factor = change(row.part.top, row.to, to);
    float sum = 0;
    unroll<Packs::batch>([&](auto k) {
      auto x = packs.template values<0>(k);
      for (int j = 0; j < x.size; ++j) x[j] = (*this)(x[j], to);
      sum += sum_of(x);
      f(k, x);
    });
    row.part.top = top;
    row.part.sum = row.part.sum * factor + sum;
    row.to = to;
    return factor;
  }
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float x, Reference const& to) const {
    return power_of_two(Kokkos::fma(x, to.factor, -to.offset));
  }
  /// What a sum up to `top` and relative to `from` is to be multiplied by to be relative to `to`, of larger elements.
  KOKKOS_FORCEINLINE_FUNCTION static float change(float top, Reference const& from, Reference const& to) {
    bool const counts = top != -Kokkos::Experimental::infinity_v<float> && from.factor == to.factor;
    return power_of_two(counts ? from.offset - to.offset : -Kokkos::Experimental::infinity_v<float>);
  }
  /// If that is reference(top).
  KOKKOS_FORCEINLINE_FUNCTION float change(float top, Reference const& to) const {
    return change(top, reference(top), to);
  }
  /// The logarithm of a sum, relative to that of its largest exponential.
  KOKKOS_FORCEINLINE_FUNCTION static float log_of_sum(float sum, float top, Reference const& to) {
    float const beyond =
        top == -Kokkos::Experimental::infinity_v<float> ? 0.0f : Kokkos::fma(top, -Kokkos::fabs(to.factor), to.offset);
    float const whole = Kokkos::trunc(beyond);  // not 0 only far from 0, where that would be the larger part of both
    return Kokkos::log(sum * power_of_two(whole)) + 0.693147180559945309f * (beyond - whole);
  }

 private:
  /// Below it the rounding of an offset is a small part of an exponent.
  static constexpr float largest_offset = 2147483648.0f;

  KOKKOS_FORCEINLINE_FUNCTION static float power_of_two(float exponent) {
    KOKKOS_IF_ON_HOST((return exponent < -126 ? 0.0f : Kokkos::exp2(exponent);))
    KOKKOS_IF_ON_DEVICE((return exp2_approximate(exponent);))
  }
  /// So far from 0 other elements are so far from the largest that their exponentials are 0 beside its own. To find
  /// that a factor need not be right, but its products exact.
  KOKKOS_FORCEINLINE_FUNCTION Reference far_reference(float top) const {
    if (top == -Kokkos::Experimental::infinity_v<float>) return {factor, 0};
    float const exact = Kokkos::fabs(top) < 0x1p64f
                            ? __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, factor) & 0xff800000u)
                            : (factor < 0 ? -0x1p-30f : 0x1p-30f);
    return {exact, top * Kokkos::fabs(exact)};
  }
};

/// The same as 2^(factor (x - top)), subnormal numbers too: two more instructions, for rows of fp32 that registers
/// hold.
struct DifferenceExponential : RelativeExponential {
  struct Reference {
    float element;
  };

  using RelativeExponential::RelativeExponential;

  KOKKOS_FORCEINLINE_FUNCTION Reference none() const { return {0}; }
  KOKKOS_FORCEINLINE_FUNCTION Reference reference(float top) const {
    return {top == -Kokkos::Experimental::infinity_v<float> ? 0.0f : factor < 0 ? -top : top};
  }
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float x, Reference const& to) const {
    return Kokkos::exp2(factor * (x - to.element));
  }
  KOKKOS_FORCEINLINE_FUNCTION float change(float top, Reference const& from, Reference const& to) const {
    return top == -Kokkos::Experimental::infinity_v<float> ? 0.0f : (*this)(from.element, to);
  }
  KOKKOS_FORCEINLINE_FUNCTION float change(float top, Reference const& to) const {
    return change(top, reference(top), to);
  }
  KOKKOS_FORCEINLINE_FUNCTION static float log_of_sum(float sum, float, Reference const&) { return Kokkos::log(sum); }
};

/// The maximum and the sum of parts, with each() as of RowExchange, and what the sum is relative to; nothing else.
template <class Part, class Exponential, class Each>
KOKKOS_FORCEINLINE_FUNCTION Part joined_exponentials(Exponential const& exponential, Each const& each,
                                                     typename Exponential::Reference& to) {
  Part all;
  all.top = each(Larger{}, [](auto const& x) { return x.top; });
  to = exponential.reference(all.top);
  all.sum = each(Add{}, [&](auto const& x) { return x.sum * exponential.change(x.top, to); });
  return all;
}

/// What has been found of a row that is read, and what its sums are relative to.
template <class Part>
struct RelativeState {
  Part part;
  RelativeExponential::Reference to;
};

}  // namespace tessera::detail

#endif
