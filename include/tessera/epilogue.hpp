// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_EPILOGUE_HPP
#define TESSERA_EPILOGUE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/functors.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// What happens to a matrix product's accumulator before it is stored. An epilogue is a trivially copyable functor
///
///     template <class T> KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col) const;
///
/// called once for every element (row, col) of C with x = alpha·(A·B) + beta·C in the accumulator's type (fp32, or fp64
/// for fp64 operands); what it returns is rounded to C's type. A fourth parameter, when the functor takes one, is the
/// index in the batch. It is never called outside C.
///
/// An epilogue that gathers something over many elements has a type `Gathering`, default-constructed once for many
/// calls, takes a reference to it as its fourth parameter, and has `void end(Gathering const&) const`, called with it
/// after them.
namespace epilogue {

template <class Epilogue>
concept gathers = requires {
  typename Epilogue::Gathering;
};

struct Nothing {};
template <class Epilogue>
struct GatheredBy {
  using type = Nothing;
};
template <gathers Epilogue>
struct GatheredBy<Epilogue> {
  using type = typename Epilogue::Gathering;
};
/// What an epilogue gathers; Nothing for most.
template <class Epilogue>
using Gathered = typename GatheredBy<Epilogue>::type;

/// One call, whether it gathers or not.
template <class Epilogue, class T>
KOKKOS_FORCEINLINE_FUNCTION T apply(Epilogue const& epilogue, T x, std::int64_t row, std::int64_t col,
                                    Gathered<Epilogue>& gathered) {
  if constexpr (gathers<Epilogue>)
    return epilogue(x, row, col, gathered);
  else
    return epilogue(x, row, col);
}
template <class Epilogue>
KOKKOS_FORCEINLINE_FUNCTION void end(Epilogue const& epilogue, Gathered<Epilogue> const& gathered) {
  if constexpr (gathers<Epilogue>) epilogue.end(gathered);
}

/// Leaves the accumulator as it is.
struct Identity {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return x;
  }
};

/// x + bias(col), or x + bias(row).
template <class V, bool PerRow = false>
struct Bias {
  V values;
  explicit Bias(V const& bias) : values(bias) { static_assert(V::rank() == 1, "a bias is a View of rank 1"); }
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col) const {
    return x + static_cast<T>(values(PerRow ? row : col));
  }
};
template <class V>
Bias<V> bias(V const& values) {
  return Bias<V>(values);
}
template <class V>
Bias<V, true> row_bias(V const& values) {
  return Bias<V, true>(values);
}

struct Relu {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return x < T(0) ? T(0) : x;  // NaN stays NaN
  }
};

/// x·Φ(x), exact.
struct Gelu {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::gelu{}(x);
  }
};

/// The tanh approximation of GELU (Hendrycks and Gimpel 2016).
struct GeluTanh {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::gelu_tanh{}(x);
  }
};

/// x / (1 + e^{-x})
struct Silu {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::silu{}(x);
  }
};

/// x for x > 0, else alpha·(e^x − 1).
struct Elu {
  double alpha = 1;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return x > T(0) ? x : T(alpha) * Kokkos::expm1(x);
  }
};

/// x + residual(row, col)
template <class V>
struct Residual {
  V values;
  explicit Residual(V const& residual) : values(residual) {
    static_assert(V::rank() == 2, "a residual is a View of rank 2");
  }
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col) const {
    return x + static_cast<T>(values(row, col));
  }
};
template <class V>
Residual<V> residual(V const& values) {
  return Residual<V>(values);
}

/// factor·x
struct Scale {
  double factor = 1;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return T(factor) * x;
  }
};

/// amax = max(amax, |x|) over all elements, NaN ignored; then x·scale, saturated to ±limit, ready for a narrow C. Set
/// amax to zero on the same execution-space instance before the product.
template <class V>
struct Quantize {
  V amax;
  float scale;
  float limit;
  Quantize(V const& amax_view, float scale_factor, float largest)
      : amax(amax_view), scale(scale_factor), limit(largest) {
    static_assert(V::rank() == 0 && std::is_same_v<typename V::value_type, float>, "amax is a View<float> of rank 0");
  }
  struct Gathering {
    float largest = 0;
  };
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t, Gathering& gathered) const {
    float const size = static_cast<float>(x < T(0) ? -x : x);
    gathered.largest = size > gathered.largest ? size : gathered.largest;
    T const y = x * T(scale), low = y < T(-limit) ? T(-limit) : y;  // two selections: nested ones become branches
    return low > T(limit) ? T(limit) : low;
  }
  KOKKOS_FUNCTION void end(Gathering const& gathered) const {
    // The plain read spares nearly every atomic; a stale one only costs an atomic that changes nothing.
    if (gathered.largest > *static_cast<float volatile*>(amax.data()))
      Kokkos::atomic_max(amax.data(), gathered.largest);
  }
};
template <class V>
Quantize<V> quantize(V const& amax, float scale, float limit) {
  return Quantize<V>(amax, scale, limit);
}

/// Second after First: chain(bias(b), Relu{}) is relu(x + b).
template <class First, class Second>
struct Chain {
  First first;
  Second second;
  struct Gathering {
    Gathered<First> first;
    Gathered<Second> second;
  };
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col, Gathering& gathered) const {
    return apply(second, apply(first, x, row, col, gathered.first), row, col, gathered.second);
  }
  KOKKOS_FUNCTION void end(Gathering const& gathered) const {
    epilogue::end(first, gathered.first);
    epilogue::end(second, gathered.second);
  }
};
template <class First, class Second>
Chain<First, Second> chain(First const& first, Second const& second) {
  return {first, second};
}
template <class First, class Second, class... Rest>
auto chain(First const& first, Second const& second, Rest const&... rest) {
  return chain(chain(first, second), rest...);
}

}  // namespace epilogue
}  // namespace tessera

#endif
