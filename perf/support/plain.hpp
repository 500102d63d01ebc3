// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_PLAIN_HPP
#define TESSERA_PERF_PLAIN_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>

#include <tessera/attention_options.hpp>
#include "support/data.hpp"
#include "support/peers.hpp"

// The baseline: each operation as the plain loop that one writes first, parallel over its outputs or rows.
namespace tessera::perf {

/// What a plain loop computes in.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double,
                                       std::conditional_t<std::is_integral_v<T>, std::int32_t, float>>;

template <class Exec>
using IndexRange = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;

template <class Exec, class Body>
void plain_loop(Exec const& exec, std::int64_t n, Body const& body) {
  Kokkos::parallel_for("tessera::perf::plain", IndexRange<Exec>(exec, 0, n), body);
}

/// The triple loop: element (i, j) of C is a sum over k.
template <class Exec, class T, class TC>
struct PlainGemm {
  Matrix<Exec, T> a, b;
  Matrix<Exec, TC> c;
  bool transpose_a, transpose_b;
  std::int64_t n, k;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    using Sum = Accumulator<T>;
    std::int64_t const i = index / n, j = index % n;
    Sum sum = 0;
    for (std::int64_t l = 0; l < k; ++l)
      sum += static_cast<Sum>(transpose_a ? a(l, i) : a(i, l)) * static_cast<Sum>(transpose_b ? b(j, l) : b(l, j));
    c(i, j) = static_cast<TC>(sum);
  }
};

/// The first `rows` rows of a product, all of them by default; of a batch only the first product.
template <class Exec, class T, class TC>
Implementation plain_gemm(Exec const& exec, GemmOperands<Exec, T, TC> const& x, std::int64_t rows = -1) {
  std::int64_t const m = rows < 0 ? x.m : std::min(rows, x.m);
  Implementation plain{
      "plain", [=] {
        plain_loop(exec, m * x.n, PlainGemm<Exec, T, TC>{x.a, x.b, x.c, x.transpose_a, x.transpose_b, x.n, x.k});
      }};
  plain.share = x.m > 0 ? static_cast<double>(m) / static_cast<double>(x.m) : 1;
  return plain;
}

/// out(i) = f(in(i)...) one element after the other.
template <class F, class TOut, class... TIn>
struct PlainTransform;
template <class F, class TOut, class TIn>
struct PlainTransform<F, TOut, TIn> {
  F f;
  TOut* out;
  TIn const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    out[i] = static_cast<TOut>(f(static_cast<Accumulator<TIn>>(in[i])));
  }
};
/// The second input has one row, repeated, when columns is its length.
template <class F, class TOut, class TIn, class TIn2>
struct PlainTransform<F, TOut, TIn, TIn2> {
  F f;
  TOut* out;
  TIn const* in;
  TIn2 const* second;
  std::int64_t second_length;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    using V = Accumulator<TIn>;
    out[i] = static_cast<TOut>(f(static_cast<V>(in[i]), static_cast<V>(second[i % second_length])));
  }
};

/// x as it is: the plain loop's conversion is the assignment.
struct PlainSame {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x) const {
    return x;
  }
};

/// softmax of one row: maximum, sum, result, three passes.
template <class Exec, class T>
struct PlainSoftmax {
  Matrix<Exec, T> out, in;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    using V = Accumulator<T>;
    auto const n = static_cast<std::int64_t>(in.extent(1));
    V largest = static_cast<V>(in(row, 0)), sum = 0;
    for (std::int64_t j = 1; j < n; ++j) {
      V const x = static_cast<V>(in(row, j));
      largest = x > largest ? x : largest;
    }
    for (std::int64_t j = 0; j < n; ++j) sum += Kokkos::exp(static_cast<V>(in(row, j)) - largest);
    for (std::int64_t j = 0; j < n; ++j)
      out(row, j) = static_cast<T>(Kokkos::exp(static_cast<V>(in(row, j)) - largest) / sum);
  }
};

/// LayerNorm or, not centred, RMSNorm of one row, with weight.
template <class Exec, class T>
struct PlainNorm {
  Matrix<Exec, T> out, in;
  Vector<Exec, T> weight;
  bool centered;
  double epsilon;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    using V = Accumulator<T>;
    auto const n = static_cast<std::int64_t>(in.extent(1));
    V mean = 0, squares = 0;
    if (centered) {
      for (std::int64_t j = 0; j < n; ++j) mean += static_cast<V>(in(row, j));
      mean /= static_cast<V>(n);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      V const x = static_cast<V>(in(row, j)) - mean;
      squares += x * x;
    }
    V const scale = V(1) / Kokkos::sqrt(squares / static_cast<V>(n) + static_cast<V>(epsilon));
    for (std::int64_t j = 0; j < n; ++j)
      out(row, j) = static_cast<T>((static_cast<V>(in(row, j)) - mean) * scale * static_cast<V>(weight(j)));
  }
};

/// Sum of one row.
template <class Exec, class T>
struct PlainRowSum {
  Vector<Exec, T> out;
  Matrix<Exec, T> in;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    Accumulator<T> sum = 0;
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(in.extent(1)); ++j)
      sum += static_cast<Accumulator<T>>(in(row, j));
    out(row) = static_cast<T>(sum);
  }
};

/// One row of attention, its scores stored: o = softmax(q Kᵀ / √d) V for query i of head h of batch b.
template <class Exec, class T>
struct PlainAttention {
  using V = Accumulator<T>;
  Tensor4<Exec, T> out, q, k, v;
  Matrix<Exec, V> scores;  // (B·H·S_q, S_k)
  bool causal;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const heads = static_cast<std::int64_t>(q.extent(1)), queries = static_cast<std::int64_t>(q.extent(2));
    auto const all = static_cast<std::int64_t>(k.extent(2)), d = static_cast<std::int64_t>(q.extent(3));
    std::int64_t const b = row / (heads * queries), h = row / queries % heads, i = row % queries;
    std::int64_t const hk = h / (heads / static_cast<std::int64_t>(k.extent(1)));
    std::int64_t const keys = causal ? Kokkos::min(all, Kokkos::max<std::int64_t>(i + 1 + all - queries, 0)) : all;
    V const scale = V(1) / Kokkos::sqrt(static_cast<V>(d));
    V largest = -Kokkos::Experimental::infinity_v<V>, sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      V s = 0;
      for (std::int64_t x = 0; x < d; ++x) s += static_cast<V>(q(b, h, i, x)) * static_cast<V>(k(b, hk, j, x));
      scores(row, j) = s * scale;
      largest = Kokkos::max(largest, s * scale);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      scores(row, j) = Kokkos::exp(scores(row, j) - largest);
      sum += scores(row, j);
    }
    for (std::int64_t x = 0; x < static_cast<std::int64_t>(v.extent(3)); ++x) {
      V o = 0;
      for (std::int64_t j = 0; j < keys; ++j) o += scores(row, j) * static_cast<V>(v(b, hk, j, x));
      out(b, h, i, x) = static_cast<T>(keys > 0 ? o / sum : V(0));
    }
  }
};

/// Quantisation of 128 elements of a row: their largest magnitude, then each divided by the scale.
template <class Exec, class From, class To>
struct PlainQuantize {
  Matrix<Exec, To> out;
  Matrix<Exec, float> scales;
  Matrix<Exec, From> in;
  float largest;  // number of To
  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    auto const tiles = static_cast<std::int64_t>(scales.extent(1)), columns = static_cast<std::int64_t>(in.extent(1));
    std::int64_t const row = index / tiles, first = index % tiles * 128, last = Kokkos::min(first + 128, columns);
    float amax = 0;
    for (std::int64_t j = first; j < last; ++j) amax = Kokkos::max(amax, Kokkos::abs(static_cast<float>(in(row, j))));
    float const scale = amax > 0 ? amax / largest : 1;
    for (std::int64_t j = first; j < last; ++j) out(row, j) = To::saturate(static_cast<float>(in(row, j)) / scale);
    scales(row, index % tiles) = scale;
  }
};

/// A copy that moves as many bytes as the operation: what the memory allows at this size.
template <class Exec>
Implementation device_copy(Exec const& exec, double bytes) {
  auto const half = static_cast<std::size_t>(bytes / 2);
  auto const from = random_view<Vector<Exec, float>>(exec, 9, half / sizeof(float));
  auto const to = zero_view<Vector<Exec, float>>(exec, half / sizeof(float));
  return {"copy", [=] { Kokkos::deep_copy(exec, to, from); }};
}

}  // namespace tessera::perf

#endif
