// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_PROBLEM_HPP
#define TESSERA_ELEMENT_REDUCE_PROBLEM_HPP

#include <cstddef>

#include <tessera/element/dimensions.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// What reduce() computes over elements x_1 .. x_n.
enum class Reduction {
  sum,             ///< x_1 + ... + x_n
  mean,            ///< sum / n
  max,             ///< the largest element
  amax,            ///< the largest |x_i|
  norm2,           ///< the square root of the sum of x_i^2
  min,             ///< the smallest element
  sum_of_squares,  ///< x_1^2 + ... + x_n^2
};

namespace detail {

/// A reduction without template arguments, so that the kernels are compiled in the library.
struct ReduceProblem {
  Reduction operation = Reduction::sum;
  Scalar in_type = Scalar::fp32, out_type = Scalar::fp32;
  void const* in = nullptr;
  void* out = nullptr;
  bool accumulate_fp64 = false;
  Dimensions<2> kept;     // operands: input, output
  Dimensions<1> reduced;  // operand: input
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace detail
}  // namespace tessera

#endif
