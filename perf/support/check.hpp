// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_CHECK_HPP
#define TESSERA_PERF_CHECK_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/limits.hpp>
#include <tessera/model.hpp>
#include "support/data.hpp"

// The tour's checks: sampled results against fp64 loops over the same random numbers, each with a bound on the error
// that follows from the roundings on the way. u is a unit roundoff, half of epsilon.
namespace tessera::perf {

class Check {
 public:
  void compare(double got, double want, double bound) {
    double const error = std::abs(got - want);
    double const ratio = error == 0 ? 0 : bound > 0 ? error / bound : INFINITY;
    worst_ = std::max(worst_, std::isnan(ratio) ? INFINITY : ratio);
    largest_error_ = std::max(largest_error_, std::isnan(error) ? INFINITY : error);
    ++compared_;
  }
  bool ok() const { return compared_ > 0 && worst_ <= 1; }
  double worst() const { return worst_; }                  ///< largest error as a fraction of its bound
  double largest_error() const { return largest_error_; }  ///< absolute
  std::int64_t compared() const { return compared_; }

 private:
  double worst_ = 0, largest_error_ = 0;
  std::int64_t compared_ = 0;
};

template <class T>
inline constexpr double roundoff = limits<T>::roundoff;
/// Of what the operations compute in.
template <class T>
inline constexpr double compute_roundoff = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

/// The input that fill_random(view, seed) put at `index`.
template <class T>
double input(std::uint64_t seed, std::int64_t index) {
  return to_double(random_element<T>(seed, static_cast<std::uint64_t>(index)));
}

/// `count` positions below n, the first and the last among them.
inline std::vector<std::int64_t> sampled(std::int64_t n, int count) {
  std::vector<std::int64_t> all = {0, n - 1};
  for (int i = 2; i < count; ++i)
    all.push_back(static_cast<std::int64_t>((random_value(77, static_cast<std::uint64_t>(i)) * 0.5 + 0.5) *
                                            static_cast<double>(n)));
  return all;
}

template <class View>
auto on_host(View const& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
}

/// C = A Bᵀ, A (M, K) of seed 1 and B (N, K) of seed 2. K products and additions are rounded once each (tensor cores
/// truncate: twice), the result once to C's type.
template <class T, class TC, class ViewC>
Check check_gemm(ViewC const& c_view, std::int64_t m, std::int64_t n, std::int64_t k) {
  Check check;
  auto const c = on_host(c_view);
  for (std::int64_t const index : sampled(m * n, 200)) {
    std::int64_t const i = index / n, j = index % n;
    double want = 0, magnitude = 0;
    for (std::int64_t l = 0; l < k; ++l) {
      double const product = input<T>(1, i * k + l) * input<T>(2, j * k + l);
      want += product;
      magnitude += std::abs(product);
    }
    double const bound = 2 * static_cast<double>(k + 2) * compute_roundoff<T> * magnitude;
    check.compare(to_double(c(i, j)), want, bound + roundoff<TC> * (std::abs(want) + bound));
  }
  return check;
}

/// y(i) = f(x(i), x2(i % second_length)) with x of seed 1 and x2 of seed 2: 64 roundings of the elementary functions
/// and what they are given, one of the result.
template <class T, class ViewY, class F>
Check check_elements(ViewY const& y_view, std::int64_t second_length, F const& f) {
  Check check;
  auto const y = on_host(y_view);
  for (std::int64_t const i : sampled(static_cast<std::int64_t>(y.size()), 4000)) {
    double const x = input<T>(1, i), x2 = input<T>(2, i % second_length), want = f(x, x2);
    double const computed = 64 * compute_roundoff<T> * (std::abs(want) + std::abs(x) + std::abs(x2));
    check.compare(to_double(y.data()[i]), want, computed + roundoff<T> * std::abs(want));
  }
  return check;
}

/// Sums of rows: n additions.
template <class T, class ViewY>
Check check_row_sums(ViewY const& y_view, std::int64_t columns) {
  Check check;
  auto const y = on_host(y_view);
  for (std::int64_t const row : sampled(static_cast<std::int64_t>(y.size()), 50)) {
    double want = 0, magnitude = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      want += input<T>(1, row * columns + j);
      magnitude += std::abs(input<T>(1, row * columns + j));
    }
    check.compare(to_double(y(row)), want,
                  static_cast<double>(columns) * compute_roundoff<T> * magnitude + roundoff<T> * std::abs(want));
  }
  return check;
}

/// All terms of the sum are positive: n roundings of it and some of each exponential.
template <class T, class ViewY>
Check check_softmax(ViewY const& y_view) {
  Check check;
  auto const y = on_host(y_view);
  auto const columns = static_cast<std::int64_t>(y.extent(1));
  double const relative = static_cast<double>(columns + 64) * compute_roundoff<T> + roundoff<T>;
  for (std::int64_t const row : sampled(static_cast<std::int64_t>(y.extent(0)), 40)) {
    double sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) sum += std::exp(input<T>(1, row * columns + j));
    for (std::int64_t j = 0; j < columns; ++j) {
      double const want = std::exp(input<T>(1, row * columns + j)) / sum;
      check.compare(to_double(y(row, j)), want, relative * want);
    }
  }
  return check;
}

/// weight (seed 2) and, centred, bias (seed 3); with_residual adds the residual of seed 4, rounded to T. The statistics
/// are sums of n terms.
template <class T, class ViewY>
Check check_norm(ViewY const& y_view, bool centered, bool with_residual, double epsilon) {
  Check check;
  auto const y = on_host(y_view);
  auto const columns = static_cast<std::int64_t>(y.extent(1));
  double const n = static_cast<double>(columns), relative = (2 * n + 64) * compute_roundoff<T>;
  std::vector<double> x(static_cast<std::size_t>(columns));
  for (std::int64_t const row : sampled(static_cast<std::int64_t>(y.extent(0)), 40)) {
    double mean = 0, magnitude = 0, squares = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      double& value = x[static_cast<std::size_t>(j)];
      value = input<T>(1, row * columns + j);
      if (with_residual) value = to_double(static_cast<T>(value + input<T>(4, row * columns + j)));
      mean += value / n;
      magnitude += std::abs(value) / n;
    }
    if (!centered) mean = 0;
    for (double const value : x) squares += (value - mean) * (value - mean) / n;
    double const rstd = 1 / std::sqrt(squares + epsilon);
    for (std::int64_t j = 0; j < columns; ++j) {
      double const weight = input<T>(2, j), bias = centered ? input<T>(3, j) : 0;
      double const scaled = (x[static_cast<std::size_t>(j)] - mean) * rstd * weight, want = scaled + bias;
      double const computed =
          relative * (std::abs(scaled) + std::abs(weight) * rstd * (centered ? magnitude : 0) + std::abs(bias));
      check.compare(to_double(y(row, j)), want, computed + roundoff<T> * (std::abs(want) + computed));
    }
  }
  return check;
}

/// Q, K, V of seeds 1, 2, 3 as [B,H,S,D]. A score's error δ changes its weight by the factor e^δ; the weights may be
/// rounded to T before the second product, which sums S_k of them.
template <class T, class ViewO>
Check check_attention(ViewO const& o_view, model::AttentionShape const& s, bool causal) {
  Check check;
  auto const o = on_host(o_view);
  std::int64_t const d = s.head_size;
  double const u = compute_roundoff<T>, scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> weight(static_cast<std::size_t>(s.kv_length));
  for (std::int64_t const row : sampled(s.batch * s.query_heads * s.query_length, 24)) {
    std::int64_t const i = row % s.query_length, h = row / s.query_length % s.query_heads;
    std::int64_t const b = row / (s.query_length * s.query_heads), hk = h / (s.query_heads / s.kv_heads);
    std::int64_t const kv = (b * s.kv_heads + hk) * s.kv_length * d;
    std::int64_t const keys = causal ? std::max<std::int64_t>(i + 1 + s.kv_length - s.query_length, 0) : s.kv_length;
    double sum = 0, delta = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      double score = 0, magnitude = 0;
      for (std::int64_t x = 0; x < d; ++x) {
        double const product = input<T>(1, row * d + x) * input<T>(2, kv + j * d + x);
        score += product;
        magnitude += std::abs(product);
      }
      // Scores of numbers in (-1, 1) need no subtraction of their maximum.
      sum += weight[static_cast<std::size_t>(j)] = std::exp(score * scale);
      delta = std::max(delta, 2 * (static_cast<double>(d) + 8) * u * magnitude * scale);
    }
    double const relative = 2 * delta + 2 * static_cast<double>(keys + 64) * u + 2 * roundoff<T>;
    for (std::int64_t x = 0; x < d; ++x) {
      double want = 0, magnitude = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double const term = weight[static_cast<std::size_t>(j)] / sum * input<T>(3, kv + j * d + x);
        want += term;
        magnitude += std::abs(term);
      }
      check.compare(to_double(o(b, h, i, x)), want, relative * magnitude + roundoff<T> * std::abs(want));
    }
  }
  return check;
}

/// One rounding to nearest.
template <class From, class To, class ViewY>
Check check_cast(ViewY const& y_view) {
  Check check;
  auto const y = on_host(y_view);
  for (std::int64_t const i : sampled(static_cast<std::int64_t>(y.size()), 4000)) {
    double const x = input<From>(1, i);
    check.compare(to_double(y.data()[i]), x, std::max(roundoff<To> * std::abs(x), limits<To>::min_subnormal / 2));
  }
  return check;
}

/// Tiles of 128 elements of a row: the scale to two roundings of fp32, each element to half a unit of To.
template <class From, class To, class ViewY, class ViewS>
Check check_quantize(ViewY const& y_view, ViewS const& scale_view) {
  Check check;
  auto const y = on_host(y_view);
  auto const scales = on_host(scale_view);
  auto const columns = static_cast<std::int64_t>(y.extent(1)), tiles = static_cast<std::int64_t>(scales.extent(1));
  for (std::int64_t const tile : sampled(static_cast<std::int64_t>(scales.size()), 200)) {
    std::int64_t const row = tile / tiles, first = tile % tiles * 128, last = std::min(first + 128, columns);
    double amax = 0;
    for (std::int64_t j = first; j < last; ++j) amax = std::max(amax, std::abs(input<From>(1, row * columns + j)));
    double const scale = to_double(scales(row, tile % tiles)), want = amax / limits<To>::max;
    check.compare(scale, want, 2 * 0x1p-24 * want);
    for (std::int64_t j = first; j < last; ++j) {
      double const x = input<From>(1, row * columns + j);
      double const half_unit = std::max(roundoff<To> * std::abs(x), scale * limits<To>::min_subnormal / 2);
      check.compare(to_double(y(row, j)) * scale, x, half_unit * (1 + 0x1p-20));
    }
  }
  return check;
}

}  // namespace tessera::perf

#endif
