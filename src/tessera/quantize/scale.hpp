// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_SCALE_HPP
#define TESSERA_QUANTIZE_SCALE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/element/magnitude.hpp>
#include <tessera/limits.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/operand.hpp>

namespace tessera::detail {

using WideTypes = TypeList<bf16_t, fp16_t, float, double>;
using QuantizedTypes = TypeList<e4m3_t, e5m2_t, std::int8_t>;

/// The largest number of an 8-bit type.
inline float largest_of(Scalar type) {
  return static_cast<float>(type == Scalar::e4m3   ? limits<e4m3_t>::max
                            : type == Scalar::e5m2 ? limits<e5m2_t>::max
                                                   : 127.0);
}

/// The one canonical NaN in place of whichever had the largest payload.
KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits canonical(MagnitudeBits bits) {
  return bits > 0x7f800000 ? 0x7fffffff : bits;
}

KOKKOS_FORCEINLINE_FUNCTION float scale_of(MagnitudeBits amax, float largest) {
  constexpr float smallest = 1.17549435e-38f;  // 2^-126
  if (amax == 0) return 1.0f;
  if (amax > 0x7f800000) return __builtin_bit_cast(float, MagnitudeBits{0x7fffffff});
  float const scale = __builtin_bit_cast(float, amax) / largest;
  return scale < smallest ? smallest : scale;
}

/// scale_of(canonical(tops[i])) for n of them, without a branch. All are bits of numbers that are not negative, which
/// are in order as integers.
KOKKOS_FORCEINLINE_FUNCTION void find_scales_of(MagnitudeBits const* tops, int n, float largest, float* scales) {
  constexpr MagnitudeBits smallest = 0x00800000, one = 0x3f800000, infinity = 0x7f800000, nan = 0x7fffffff;
  for (int i = 0; i < n; ++i) {
    MagnitudeBits const top = tops[i];
    MagnitudeBits bits = __builtin_bit_cast(MagnitudeBits, __builtin_bit_cast(float, top) / largest);
    bits = bits < smallest ? smallest : bits;
    bits = top == 0 ? one : bits;
    bits = top > infinity ? nan : bits;
    scales[i] = __builtin_bit_cast(float, bits);
  }
}

/// x / scale for many x of a group that `scale` is the scale of, in five instructions each: the reciprocal is rounded
/// once, and two steps of the remainder, each exact in a fused product and sum, round the quotient correctly (P. W.
/// Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Scales below 2^-60
/// and their elements are enlarged, since a remainder must not be subnormal; for quotients below 2^-18, which every
/// 8-bit type rounds to 0, it may be.
class Quotient {
 public:
  KOKKOS_FUNCTION explicit Quotient(float scale) {
    constexpr float small = 8.6736174e-19f, enlarged = 1.8446744e19f;  // 2^-60, 2^64
    bool const finite = scale <= 3.4028235e38f;
    factor_ = scale < small ? enlarged : 1.0f;
    divisor_ = finite ? scale * factor_ : 0.0f;
    reciprocal_ = 1.0f / (finite ? divisor_ : scale);  // else 0, or NaN: products with it are right
  }
  /// What is to be divided, once before operator().
  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void enlarge(Pack<float, N>& x) const {
    if (factor_ != 1.0f)
      for (int j = 0; j < N; ++j) x[j] *= factor_;
  }
  /// The remainders have the sign that keeps that of -0.
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float x) const { return rounded(x, divisor_, reciprocal_); }
  KOKKOS_FORCEINLINE_FUNCTION static float rounded(float x, float divisor, float reciprocal) {
    float q = x * reciprocal;
    q = Kokkos::fma(Kokkos::fma(divisor, q, -x), -reciprocal, q);
    return Kokkos::fma(Kokkos::fma(divisor, q, -x), -reciprocal, q);
  }

 private:
  float factor_, divisor_, reciprocal_;
};

/// *to = max(*to, amax) among the teams; looks before it writes, as few tiles raise the maximum.
KOKKOS_FORCEINLINE_FUNCTION void raise(float* to, MagnitudeBits amax) {
  auto* const bits = reinterpret_cast<MagnitudeBits*>(to);
  if (amax > Kokkos::atomic_load(bits)) Kokkos::atomic_max(bits, amax);
}

}  // namespace tessera::detail

#endif
