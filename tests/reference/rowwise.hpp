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

struct SoftmaxGradient {
  Row softmax, log_softmax;                        // gradients of the input of either
  double mean = 0, total = 0;                      // sum of p g; sum of g
  double mean_magnitude = 0, total_magnitude = 0;  // the same of |g|
};

/// Of p = softmax(scale x) and the gradient g of the result.
inline SoftmaxGradient softmax_backward(Row const& p, Row const& g, double scale) {
  SoftmaxGradient result;
  for (std::size_t j = 0; j < p.size(); ++j) {
    result.mean += p[j] * g[j];
    result.total += g[j];
    result.mean_magnitude += p[j] * std::abs(g[j]);
    result.total_magnitude += std::abs(g[j]);
  }
  for (std::size_t j = 0; j < p.size(); ++j) {
    result.softmax.push_back(scale * p[j] * (g[j] - result.mean));
    result.log_softmax.push_back(scale * (g[j] - p[j] * result.total));
  }
  return result;
}

struct NormGradient {
  Row x_hat, d_in;                              // of the row
  double mean_gradient = 0, mean_product = 0;   // of w g, and of w g xhat
  double magnitude = 0, product_magnitude = 0;  // of |w g| and |w g xhat|
};

/// Of a row, its statistics, weight (may be empty) and the gradient g of the result.
inline NormGradient norm_backward(Row const& x, Row const& g, Row const& weight, double mean, double rstd,
                                  bool centered) {
  NormGradient result;
  auto const n = static_cast<double>(x.size());
  auto const scaled = [&](std::size_t j) { return weight.empty() ? g[j] : g[j] * weight[j]; };
  for (std::size_t j = 0; j < x.size(); ++j) {
    double const x_hat = (x[j] - (centered ? mean : 0)) * rstd;
    result.x_hat.push_back(x_hat);
    result.mean_gradient += centered ? scaled(j) / n : 0;
    result.mean_product += scaled(j) * x_hat / n;
    result.magnitude += std::abs(scaled(j)) / n;
    result.product_magnitude += std::abs(scaled(j) * x_hat) / n;
  }
  for (std::size_t j = 0; j < x.size(); ++j)
    result.d_in.push_back(rstd * (scaled(j) - result.mean_gradient - result.x_hat[j] * result.mean_product));
  return result;
}

}  // namespace tessera::reference

#endif
