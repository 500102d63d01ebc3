// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_REFERENCE_ROWWISE_HPP
#define TESSERA_TESTS_REFERENCE_ROWWISE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

// Row operations in fp64, one row at a time, in the order of their definitions.
namespace tessera::reference {

using Row = std::vector<double>;

struct Softmax {
  Row softmax, log_softmax;
  double top = 0, log_total = 0;  // maximum of the scaled row, logarithm of the sum of exponentials about it
};

inline Softmax softmax(Row const& x, double scale) {
  Softmax result;
  double top = -std::numeric_limits<double>::infinity();
  for (double v : x) top = std::max(top, scale * v);
  bool const masked = top == -std::numeric_limits<double>::infinity();
  if (masked) top = 0;
  double total = 0;
  for (double v : x) total += std::exp(scale * v - top);
  for (double v : x) {
    result.softmax.push_back(total == 0 ? 0 : std::exp(scale * v - top) / total);
    result.log_softmax.push_back(scale * v - top - (total == 0 ? 0 : std::log(total)));
  }
  result.top = top;
  result.log_total = total == 0 ? 0 : std::log(total);
  return result;
}

struct Norm {
  Row y;
  double mean = 0, rstd = 0, mean_square = 0, mean_magnitude = 0;
};

/// weight and bias may be empty.
inline Norm norm(Row const& x, Row const& weight, Row const& bias, double epsilon, bool centered) {
  Norm result;
  double const n = x.empty() ? 1.0 : static_cast<double>(x.size());
  for (double v : x) result.mean_magnitude += std::abs(v) / n;
  if (centered)
    for (double v : x) result.mean += v / n;
  for (double v : x) result.mean_square += (v - result.mean) * (v - result.mean) / n;
  result.rstd = 1 / std::sqrt(result.mean_square + epsilon);
  for (std::size_t j = 0; j < x.size(); ++j)
    result.y.push_back((x[j] - result.mean) * result.rstd * (weight.empty() ? 1 : weight[j]) +
                       (bias.empty() ? 0 : bias[j]));
  return result;
}

}  // namespace tessera::reference

#endif
