// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_EPILOGUE_HPP
#define TESSERA_EPILOGUE_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/compose.hpp>
#include <tessera/detail/array.hpp>
#include <tessera/detail/normal_distribution.hpp>
#include <tessera/functors.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/types.hpp>
#include <tessera/unroll.hpp>

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
///
/// An epilogue that does better with many elements at a time may also have
///
///     template <int R, int N>
///     KOKKOS_FUNCTION auto read(std::int64_t row, std::int64_t step, std::int64_t col) const;
///     template <class T, int R, int N, class Read>
///     KOKKOS_FUNCTION void pack(T (&x)[R][N], Read const& read) const;
///
/// (pack() with the Gathering as last parameter). pack() does the same to x[i][j], element (row + i·step, col + j), all
/// of them in C, col a multiple of N, with what read(), if there is one, has returned for their places a while before:
/// what comes from memory is on its way meanwhile. Neither is called where the member
/// `template <int N> KOKKOS_FUNCTION bool aligned() const`, if there is one, says that N neighbours of what is read
/// cannot be loaded at once. A kernel calls whichever suits it.
///
/// As for functors of transform(), an epilogue with a member `for_narrow()` is replaced by what that returns where C is
/// of 16 or 8 bits and x fp32: see narrow_functors.hpp. The ready ones have it, and a chain replaces its parts.
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

/// read() and pack() as above, of any epilogue.
template <int R, int N, class Epilogue>
KOKKOS_FORCEINLINE_FUNCTION auto read(Epilogue const& epilogue, std::int64_t row, std::int64_t step, std::int64_t col) {
  if constexpr (requires { epilogue.template read<R, N>(row, step, col); })
    return epilogue.template read<R, N>(row, step, col);
  else
    return Nothing{};
}
template <class Epilogue, class T, int R, int N, class Read>
KOKKOS_FORCEINLINE_FUNCTION void apply_pack(Epilogue const& epilogue, T (&x)[R][N], Read const& read, std::int64_t row,
                                            std::int64_t step, std::int64_t col, Gathered<Epilogue>& gathered) {
  if constexpr (requires { epilogue.pack_chained(x, read, row, step, col, gathered); }) {
    epilogue.pack_chained(x, read, row, step, col, gathered);
  } else if constexpr (requires { epilogue.pack(x, read, gathered); }) {
    epilogue.pack(x, read, gathered);
  } else if constexpr (requires { epilogue.pack(x, read); }) {
    epilogue.pack(x, read);
  } else {
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i) TESSERA_UNROLL
    for (int j = 0; j < N; ++j) x[i][j] = apply(epilogue, x[i][j], row + i * step, col + j, gathered);
  }
}
template <int N, class Epilogue>
KOKKOS_FORCEINLINE_FUNCTION bool aligned(Epilogue const& epilogue) {
  if constexpr (requires { epilogue.template aligned<N>(); })
    return epilogue.template aligned<N>();
  else
    return true;
}

/// N neighbours, loaded at once from a multiple of their size (16 bytes at most). They stay as they are in memory:
/// narrow elements would take a register each.
template <class T, int N>
struct Neighbours {
  struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
    std::uint32_t v[N * sizeof(T) / 4];
  } words;
  struct Elements {
    T v[N];
  };
  KOKKOS_FORCEINLINE_FUNCTION explicit Neighbours(T const* from) : words(*reinterpret_cast<Words const*>(from)) {}
  KOKKOS_DEFAULTED_FUNCTION Neighbours() = default;
  KOKKOS_FORCEINLINE_FUNCTION T operator[](int j) const { return Kokkos::bit_cast<Elements>(words).v[j]; }
};
/// Whether N neighbours can be loaded at once, from every multiple of N in every line.
template <int N, class T>
KOKKOS_FORCEINLINE_FUNCTION bool is_aligned(T const* first, std::int64_t line_stride) {
  constexpr std::size_t bytes = N * sizeof(T), pack = bytes < 16 ? bytes : 16;
  return ((reinterpret_cast<std::uintptr_t>(first) | static_cast<std::uintptr_t>(line_stride) * sizeof(T)) &
          (pack - 1)) == 0;
}

/// A functor of x alone, such as the ready ones that transform() takes: each(fn::softplus{}).
template <class F>
struct Each {
  F f;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return static_cast<T>(f(x));
  }
  constexpr auto for_narrow() const { return Each<detail::NarrowOf<F>>{tessera::for_narrow(f)}; }
};
template <class F>
Each<F> each(F const& f) {
  return {f};
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
  template <int R, int N>
  KOKKOS_FUNCTION auto read(std::int64_t row, std::int64_t step, std::int64_t col) const {
    if constexpr (PerRow) {
      Column<Element, R> read;
      TESSERA_UNROLL
      for (int i = 0; i < R; ++i) read.v[i] = values(row + i * step);
      return read;
    } else {
      return Neighbours<Element, N>(&values(col));
    }
  }
  template <class T, int R, int N, class Read>
  KOKKOS_FUNCTION void pack(T (&x)[R][N], Read const& read) const {
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i) TESSERA_UNROLL
    for (int j = 0; j < N; ++j) x[i][j] += static_cast<T>(read[PerRow ? i : j]);
  }
  template <int N>
  KOKKOS_FUNCTION bool aligned() const {
    return PerRow || (values.stride(0) == 1 && is_aligned<N>(values.data(), 0));
  }

 private:
  using Element = typename V::non_const_value_type;
  template <class T, int R>
  struct Column {
    T v[R];
    KOKKOS_FORCEINLINE_FUNCTION T operator[](int i) const { return v[i]; }
  };
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
  template <int R, int N>
  KOKKOS_FUNCTION void pack(float (&x)[R][N], Nothing) const {
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i) detail::normal_products(x[i]);
  }
  static constexpr auto for_narrow() { return Each<fn::narrow::gelu>{}; }
};

/// The tanh approximation of GELU (Hendrycks and Gimpel 2016).
struct GeluTanh {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::gelu_tanh{}(x);
  }
  static constexpr auto for_narrow() { return Each<fn::narrow::gelu_tanh>{}; }
};

/// x / (1 + e^{-x})
struct Silu {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::silu{}(x);
  }
  static constexpr auto for_narrow() { return Each<fn::narrow::silu>{}; }
};

/// x for x > 0, else alpha·(e^x − 1).
struct Elu {
  double alpha = 1;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t, std::int64_t) const {
    return fn::elu{alpha}(x);
  }
  constexpr auto for_narrow() const { return Each<fn::narrow::elu>{fn::elu{alpha}.for_narrow()}; }
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
  template <class Line, int R>
  struct Lines {
    Line line[R];
  };
  template <int R, int N>
  KOKKOS_FUNCTION auto read(std::int64_t row, std::int64_t step, std::int64_t col) const {
    auto const* at = &values(row, col);
    Lines<Neighbours<typename V::non_const_value_type, N>, R> read;
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i, at += step * stride(0))
      read.line[i] = Neighbours<typename V::non_const_value_type, N>(at);
    return read;
  }
  template <class T, int R, int N, class Read>
  KOKKOS_FUNCTION void pack(T (&x)[R][N], Read const& read) const {
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i) TESSERA_UNROLL
    for (int j = 0; j < N; ++j) x[i][j] += static_cast<T>(read.line[i][j]);
  }
  template <int N>
  KOKKOS_FUNCTION bool aligned() const {
    return stride(1) == 1 && is_aligned<N>(values.data(), stride(0));
  }

 private:
  KOKKOS_FUNCTION std::int64_t stride(int i) const { return static_cast<std::int64_t>(values.stride(i)); }
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
    gathered.largest = detail::larger(gathered.largest, Kokkos::abs(static_cast<float>(x)));
    return limited(x * T(scale));
  }
  template <class T, int R, int N>
  KOKKOS_FUNCTION void pack(T (&x)[R][N], Nothing, Gathering& gathered) const {
    float largest = 0;
    TESSERA_UNROLL
    for (int i = 0; i < R; ++i) {
      float of_row = 0;
      TESSERA_UNROLL
      for (int j = 0; j < N; ++j) {
        of_row = detail::larger(of_row, Kokkos::abs(static_cast<float>(x[i][j])));
        x[i][j] *= T(scale);
      }
      largest = detail::larger(largest, of_row);
    }
    gathered.largest = detail::larger(gathered.largest, largest);
    // Seldom is there anything to limit. In fp64 the largest is rounded and says too little.
    if (!std::is_same_v<T, float> || !(Kokkos::abs(largest * scale) <= limit)) {
      TESSERA_UNROLL
      for (int i = 0; i < R; ++i) TESSERA_UNROLL
      for (int j = 0; j < N; ++j) x[i][j] = limited(x[i][j]);
    }
  }
  KOKKOS_FUNCTION void end(Gathering const& gathered) const {
    // The plain read spares nearly every atomic; a stale one only costs an atomic that changes nothing.
    if (gathered.largest > *static_cast<float volatile*>(amax.data()))
      Kokkos::atomic_max(amax.data(), gathered.largest);
  }

 private:
  template <class T>
  KOKKOS_FUNCTION T limited(T x) const {  // two selections: nested ones become branches
    T const low = x < T(-limit) ? T(-limit) : x;
    return low > T(limit) ? T(limit) : low;
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
  template <class OfFirst, class OfSecond>
  struct Both {
    OfFirst first;
    OfSecond second;
  };
  template <int R, int N>
  KOKKOS_FUNCTION auto read(std::int64_t row, std::int64_t step, std::int64_t col) const {
    auto const of_first = epilogue::read<R, N>(first, row, step, col);
    auto const of_second = epilogue::read<R, N>(second, row, step, col);
    return Both<std::remove_const_t<decltype(of_first)>, std::remove_const_t<decltype(of_second)>>{of_first, of_second};
  }
  /// With the place, which a part that has no pack() needs.
  template <class T, int R, int N, class Read>
  KOKKOS_FUNCTION void pack_chained(T (&x)[R][N], Read const& read, std::int64_t row, std::int64_t step,
                                    std::int64_t col, Gathering& gathered) const {
    apply_pack(first, x, read.first, row, step, col, gathered.first);
    apply_pack(second, x, read.second, row, step, col, gathered.second);
  }
  template <int N>
  KOKKOS_FUNCTION bool aligned() const {
    return epilogue::aligned<N>(first) && epilogue::aligned<N>(second);
  }
  KOKKOS_FUNCTION void end(Gathering const& gathered) const {
    epilogue::end(first, gathered.first);
    epilogue::end(second, gathered.second);
  }
  constexpr auto for_narrow() const {
    return Chain<detail::NarrowOf<First>, detail::NarrowOf<Second>>{tessera::for_narrow(first),
                                                                    tessera::for_narrow(second)};
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
