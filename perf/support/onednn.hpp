// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ONEDNN_HPP
#define TESSERA_PERF_ONEDNN_HPP

#include <cstdint>
#include <functional>
#include <string>

// oneDNN's matrix products, in a source of their own: nvcc 13.0 does not survive the header of oneDNN 2.6.
namespace tessera::perf {

/// C (m, n) = op(A) op(B) + beta C, row-major without gaps, all of fp32 or all of bf16 (beta = 0).
struct OneDnnProduct {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, bf16;
  void const* a;
  void const* b;
  void* c;
  float beta;
  int threads;
};

/// Runs the product; all that can be prepared is.
std::function<void()> onednn_product(OneDnnProduct const& product);

/// "2.6.3"
std::string onednn_version();

}  // namespace tessera::perf

#endif
