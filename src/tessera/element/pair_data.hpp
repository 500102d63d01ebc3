// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PAIR_DATA_HPP
#define TESSERA_ELEMENT_PAIR_DATA_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/arg_reduce.hpp>
#include <tessera/elementary.hpp>

namespace tessera::detail {

/// Whether x, which comes later, takes the place of the first of the largest numbers: it is larger, or the first NaN.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION bool takes_first_place(A x, A first) {
  return !(x <= first) & (first == first);
}

/// The largest finite numbers in the place of infinities, so that no difference to it is NaN unless the other is.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A finite_beside(A x) {
  constexpr A most = std::numeric_limits<A>::max(), least = std::numeric_limits<A>::lowest();
  A const above = x < least ? least : x;
  return above > most ? most : above;
}

/// The first of the largest numbers, or of the NaNs if there are any. An index of -1: nothing yet.
template <class A>
struct FirstLargest {
  A value = 0;
  std::int64_t index = -1;

  KOKKOS_FORCEINLINE_FUNCTION static FirstLargest joined(FirstLargest const& a, FirstLargest const& b) {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    bool const nan_a = a.value != a.value, nan_b = b.value != b.value;
    bool const equal = a.value == b.value || (nan_a && nan_b);
    if (equal) return a.index < b.index ? a : b;
    return nan_a || (!nan_b && a.value > b.value) ? a : b;
  }
};

/// The sum of exponentials relative to `top`, the largest exponent; that of -Inf alone is any number.
template <class A>
struct ExponentialSum {
  A top = -Kokkos::Experimental::infinity_v<A>, sum = 0;

  KOKKOS_FORCEINLINE_FUNCTION static ExponentialSum joined(ExponentialSum const& a, ExponentialSum const& b) {
    A const top = b.top > a.top ? b.top : a.top;
    return {top, a.weight(top) + b.weight(top)};
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION A weight(A relative_to) const {
    return top == relative_to ? sum : sum * exp_below(top - relative_to);
  }
};

/// The loops over what is reduced: input and, with `indexed`, the elements counted with the last axis fastest.
inline Dimensions<2> indexed_loops(Dimensions<1> const& reduced, bool indexed) {
  Dimensions<2> loops;
  std::int64_t index = 1;
  for (int d = 0; d < reduced.rank; ++d) {
    loops.add(reduced.extent[d], {reduced.stride[0][d], indexed ? index : 0});
    index *= reduced.extent[d];
  }
  loops.collapse();
  return loops;
}

/// Bytes of workspace for the parts of results, of whichever operation.
template <class Plan>
std::size_t bytes_of_parts(Plan const& plan) {
  constexpr std::size_t of_pair = 16;
  static_assert(sizeof(FirstLargest<double>) <= of_pair && sizeof(ExponentialSum<double>) <= of_pair);
  return plan.parts == 1 ? 0 : static_cast<std::size_t>(plan.parts * plan.results) * of_pair;
}
/// The most that any of the operations needs: which loops make one may differ between them.
template <class Plan>
std::size_t most_bytes_of_parts(ReduceProblem const& problem) {
  return std::max(bytes_of_parts(Plan(problem, false)), bytes_of_parts(Plan(problem, true)));
}

/// Where results go.
struct PairOutput {
  void* data;
  Scalar type;
  bool wide_index;

  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t at, FirstLargest<A> const& x) const {
    if (wide_index)
      static_cast<std::int64_t*>(data)[at] = x.index;
    else
      static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(x.index);
  }
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t at, ExponentialSum<A> const& x) const {
    A const lowest = -Kokkos::Experimental::infinity_v<A>;
    A const value = x.top == lowest && x.sum == x.sum ? lowest : x.top + logarithm(x.sum);
    if (type == Scalar::fp64)
      static_cast<double*>(data)[at] = static_cast<double>(value);
    else
      static_cast<float*>(data)[at] = static_cast<float>(value);
  }
};

}  // namespace tessera::detail

#endif
