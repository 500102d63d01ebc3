// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_NUMERATOR_HPP
#define TESSERA_ATTENTION_NUMERATOR_HPP

#include <Kokkos_Core.hpp>

#include <tessera/atoms.hpp>

namespace tessera::detail {

/// The tensor cores' own sums are cut: what a step adds comes in registers of its own.
template <class Atoms>
concept AddsApart = Atoms::adds_apart;

/// Σ weights · values of M queries, relative to the newest maximum that it has been told of.
template <class Atoms, int M, int N>
struct Numerator {
  using Math = typename Atoms::Math;
  typename Atoms::template Accumulator<M, N> sum;

  KOKKOS_FORCEINLINE_FUNCTION explicit Numerator(Math& math) : sum(math) {}
  KOKKOS_FORCEINLINE_FUNCTION void begin(Math&) const {}
  /// Starts a step's product.
  template <class Weights, class Values>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Weights const& p, Values const& v, bool first) {
    math.multiply(p, v, sum, !first);
  }
  /// Before the softmax takes the scores that follow that product.
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void remember(Softmax const&) const {}
  /// The product is done, the softmax has its new maximum.
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math& math, Softmax const& softmax) {
    softmax.rescale(math, sum);
  }
  /// The last product is done.
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void end(Math&, Softmax const&) const {}
  KOKKOS_FORCEINLINE_FUNCTION auto& product() { return sum; }
};

/// Of such sums: to bring what was there to a product's maximum and to add it is one multiply-add, as the first alone.
template <AddsApart Atoms, int M, int N>
struct Numerator<Atoms, M, N> {
  using Math = typename Atoms::Math;
  typename Atoms::template Accumulator<M, N> sum, step;
  typename Atoms::template RowValues<M> factors;  // that belong to the step

  KOKKOS_FORCEINLINE_FUNCTION explicit Numerator(Math& math) : sum(math), step(math), factors(math) {}
  KOKKOS_FORCEINLINE_FUNCTION void begin(Math& math) {
    math.clear(sum);
    math.begin(step);
  }
  template <class Weights, class Values>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Weights const& p, Values const& v, bool) {
    math.multiply(p, v, step, false);
  }
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void remember(Softmax const& softmax) {
    factors = softmax.factors();
  }
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math& math, Softmax const&) {
    math.scale_and_add(sum, factors, step);
  }
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void end(Math& math, Softmax const& softmax) {
    math.scale_and_add(sum, softmax.factors(), step);
  }
  KOKKOS_FORCEINLINE_FUNCTION auto& product() { return step; }
};

}  // namespace tessera::detail

#endif
