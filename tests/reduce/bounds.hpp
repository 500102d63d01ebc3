// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REDUCE_BOUNDS_HPP
#define TESSERA_TESTS_REDUCE_BOUNDS_HPP

#include <tessera/reduce.hpp>

#include <algorithm>
#include <limits>
#include <vector>

#include "support/support.hpp"

// Reductions in fp64, and how far those of a backend may be from them.
namespace tessera::test {

inline constexpr Reduction all_operations[] = {Reduction::sum,           Reduction::mean,  Reduction::max,
                                               Reduction::amax,          Reduction::norm2, Reduction::min,
                                               Reduction::sum_of_squares};

/// The operation on the elements in fp64, and the sum of what was added up in magnitude, for bounds.
struct Reference {
  double value, magnitude;
};
inline Reference expected(Reduction operation, std::vector<double> const& x) {
  double sum = 0, magnitude = 0, squares = 0, amax = 0, max = -std::numeric_limits<double>::infinity();
  double min = -max;
  for (double v : x) {
    sum += v;
    magnitude += std::abs(v);
    squares += v * v;
    amax = std::max(amax, std::abs(v));
    max = std::max(max, v);
    min = std::min(min, v);
  }
  double const n = static_cast<double>(x.size());
  switch (operation) {
    case Reduction::sum:
      return {sum, magnitude};
    case Reduction::mean:
      return {sum / n, magnitude / n};
    case Reduction::max:
      return {max, 0};
    case Reduction::amax:
      return {amax, 0};
    case Reduction::min:
      return {min, 0};
    case Reduction::sum_of_squares:
      return {squares, squares};
    case Reduction::norm2:
      break;
  }
  return {std::sqrt(squares), std::sqrt(squares)};
}

template <class T>
double unit() {
  if constexpr (std::is_same_v<T, double>)
    return 0x1p-53;
  else if constexpr (std::is_integral_v<T>)
    return 0;
  else
    return std::ldexp(1.0, -1 - detail::FloatFormat<T>::mantissa_bits);
}

/// Error of a sum of n terms: each goes through at most n / 2048 + 300 (and at most n) rounded additions of half a unit
/// of the accumulator relative to the sum of magnitudes; then one rounding of the result, of half a unit of Out (half
/// an integer), and Out's subnormal spacing.
template <class Out, class In>
double bound(Reduction operation, Reference const& want, std::size_t n, bool fp64) {
  bool const wide = fp64 || std::is_same_v<In, double> || std::is_integral_v<In> || operation == Reduction::norm2 ||
                    operation == Reduction::sum_of_squares;
  double const additions = std::min<double>(static_cast<double>(n), static_cast<double>(n) / 2048 + 300) + 2;
  bool const exact = operation == Reduction::max || operation == Reduction::amax || operation == Reduction::min;
  double const accumulated = exact ? 0 : 1.01 * additions * (wide ? 0x1p-53 : 0x1p-24) * want.magnitude;
  double const integer = std::is_integral_v<Out> ? 0.5 : 0;
  // The reference itself is a sum in fp64.
  double const own = exact ? 0 : static_cast<double>(n) * 0x1p-53 * want.magnitude;
  return accumulated + own + unit<Out>() * (std::abs(want.value) + accumulated) + integer + 0x1p-140;
}

template <class Exec>
ViewOf<Exec, std::byte*> workspace_for(std::size_t bytes) {
  return ViewOf<Exec, std::byte*>("workspace", bytes);
}

/// Elements of `in` that belong to each output, in the order of the outputs.
template <class In, class Values>
std::vector<std::vector<double>> groups(In const& in, Values const& x, bool all, int axis) {
  std::size_t inner = 1, n = 1, outer = 1;
  for (int d = 0; d < static_cast<int>(In::rank()); ++d)
    (all || d == axis ? n : d < axis ? outer : inner) *= in.extent(static_cast<std::size_t>(d));
  std::vector<std::vector<double>> result(outer * inner, std::vector<double>(n));
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < inner; ++i) result[o * inner + i][k] = to_double(x[(o * n + k) * inner + i]);
  return result;
}

template <class Exec, class Out, class In>
void check_reduce(Out const& out, In const& in, int axis, std::vector<Reduction> const& operations,
                  bool accumulate_fp64 = false, double low = -1, double high = 1) {
  using O = typename Out::non_const_value_type;
  using I = typename In::non_const_value_type;
  fill(in, uniform<I>(in.size(), 9, low, high));
  auto const parts = groups(in, values(in), Out::rank() == 0, axis);
  for (Reduction operation : operations) {
    ReduceOptions options{.axis = axis, .accumulate_fp64 = accumulate_fp64};
    auto const workspace = workspace_for<Exec>(reduce_workspace_size(Exec{}, out, in, operation, options));
    options.workspace = workspace;
    poison(out);
    reduce(Exec{}, out, in, operation, options);
    auto const got = values(out);
    REQUIRE(got.size() == parts.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      Reference const want = expected(operation, parts[i]);
      double result = 0;
      if constexpr (std::is_integral_v<O>)
        result = static_cast<double>(got[i]);
      else
        result = to_double(got[i]);
      double const error = std::abs(result - want.value);
      double const allowed = bound<O, I>(operation, want, parts[i].size(), accumulate_fp64);
      worst = std::max(worst, std::isnan(error) ? 1e30 : error / allowed);
    }
    INFO("operation " << static_cast<int>(operation) << ", axis " << axis << ", " << in.size()
                      << " elements, workspace " << workspace.size() << ", largest error / bound " << worst);
    CHECK(worst <= 1);
  }
}

inline std::vector<Reduction> const every(std::begin(all_operations), std::end(all_operations));

}  // namespace tessera::test

#endif
