// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_LARGEST_HPP
#define TESSERA_CUDA_LARGEST_HPP

#include <climits>

#include <tessera/cuda/ptx.hpp>

namespace tessera::detail {

/// The largest of numbers by their bits, in whose order positive ones are, negative ones below; NaN without a sign is
/// above. In Chains of which none waits for the other.
template <int Chains>
struct LargestOf {
  int top[Chains];
  __device__ __forceinline__ LargestOf() {
#pragma unroll
    for (int& x : top) x = INT_MIN;
  }
  __device__ __forceinline__ void join(int i, float a, float b) {
    int& x = top[i % Chains];
    x = ptx::largest(x, __float_as_int(a), __float_as_int(b));
  }
  /// Whether it is not above a limit that is not negative.
  __device__ __forceinline__ bool within(float limit) const {
    bool is = limit >= 0;
#pragma unroll
    for (int x : top) is = is && x <= __float_as_int(limit);
    return is;
  }
};

}  // namespace tessera::detail

#endif
