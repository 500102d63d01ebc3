// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_NUMERATOR_HPP
#define TESSERA_ATTENTION_NUMERATOR_HPP

#include <Kokkos_Core.hpp>

#include <tessera/atoms.hpp>
#include <tessera/portable/pack.hpp>

namespace tessera::detail {

/// The tensor cores' own sums are cut to so few bits that over many keys they would lose their value: what a step adds
/// comes in registers of its own, of so many columns at a time, and is added in fp32.
template <class Atoms>
concept AddsApart = Atoms::columns_apart >
0;

/// Σ weights · values of M queries. A step's product is that of the weights which the softmax has given last.
template <class Atoms, int M, int N>
struct Numerator {
  using Math = typename Atoms::Math;
  static constexpr bool multiplies_first = false;  // in a turn, before the next scores
  typename Atoms::template Accumulator<M, N> sum;

  KOKKOS_FORCEINLINE_FUNCTION explicit Numerator(Math& math) : sum(math) {}
  KOKKOS_FORCEINLINE_FUNCTION void begin(Math&) const {}
  /// Starts a step's product.
  template <class Weights, class Values, class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Weights const& p, Values const& v, Softmax const&, bool first) {
    math.multiply(p, v, sum, !first);
  }
  /// Until that product is done.
  KOKKOS_FORCEINLINE_FUNCTION void wait(Math& math) { math.template wait_all_but<0>(sum); }
  /// After that, and when the softmax has a new maximum.
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math& math, Softmax& softmax) {
    softmax.rescale(math, sum);
  }
  KOKKOS_FORCEINLINE_FUNCTION void end(Math&) const {}
};

/// Apart in all columns: the step before is added while the next scores are multiplied. To bring what was there to its
/// maximum and to add it is one multiply-add, as the first alone would be.
template <AddsApart Atoms, int M, int N>
requires(Atoms::columns_apart == N) struct Numerator<Atoms, M, N> {
  using Math = typename Atoms::Math;
  static constexpr bool multiplies_first = false;
  typename Atoms::template Accumulator<M, N> sum, step;
  typename Atoms::template RowValues<M> factors;  // that belong to the step

  KOKKOS_FORCEINLINE_FUNCTION explicit Numerator(Math& math) : sum(math), step(math), factors(math) {}
  KOKKOS_FORCEINLINE_FUNCTION void begin(Math& math) {
    math.clear(sum);
    math.clear(step);
  }
  template <class Weights, class Values, class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Weights const& p, Values const& v, Softmax const& softmax,
                                            bool) {
    end(math);
    factors = softmax.factors();
    math.multiply(p, v, step, false);
  }
  KOKKOS_FORCEINLINE_FUNCTION void wait(Math& math) { math.template wait_all_but<0>(step); }
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math&, Softmax const&) const {}
  KOKKOS_FORCEINLINE_FUNCTION void end(Math& math) { math.template scale_and_add<0>(sum, factors, step); }
};

/// Apart in a few columns at a time, those before them being added meanwhile. Beside them and the numerator there are
/// no registers for scores, which come after.
template <AddsApart Atoms, int M, int N>
requires(Atoms::columns_apart < N) struct Numerator<Atoms, M, N> {
  using Math = typename Atoms::Math;
  static constexpr bool multiplies_first = true;
  static constexpr int columns = Atoms::columns_apart, pairs = N / columns / 2;
  static_assert(N % (2 * columns) == 0);
  typename Atoms::template Accumulator<M, N> sum;

  KOKKOS_FORCEINLINE_FUNCTION explicit Numerator(Math& math) : sum(math) {}
  KOKKOS_FORCEINLINE_FUNCTION void begin(Math& math) { math.clear(sum); }
  template <class Weights, class Values, class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Weights const& p, Values const& v, Softmax const& softmax,
                                            bool) {
    typename Atoms::template Accumulator<M, columns> even(math), odd(math);
    math.multiply(p, v, even, false);
    unroll<pairs>([&](auto pair) {
      constexpr int col = pair * 2 * columns;
      math.multiply(p, v, odd, false, col + columns);
      math.template wait_for<1>(even);
      math.template scale_and_add<col>(sum, softmax.factors(), even);
      if constexpr (pair + 1 < pairs) math.multiply(p, v, even, false, col + 2 * columns);
      math.template wait_for<(pair + 1 < pairs ? 1 : 0)>(odd);
      math.template scale_and_add<col + columns>(sum, softmax.factors(), odd);
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION void wait(Math&) const {}
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math&, Softmax const&) const {}
  KOKKOS_FORCEINLINE_FUNCTION void end(Math&) const {}
};

}  // namespace tessera::detail

#endif
