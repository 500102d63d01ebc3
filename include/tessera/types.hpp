// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TYPES_HPP
#define TESSERA_TYPES_HPP

/// \file
/// The element types: fp16_t, bf16_t, e4m3_t and e5m2_t, with their conversions, and the list of all element types.
///
/// Every conversion is written once, in integer arithmetic (and exact additions of normal numbers), so it gives the
/// same bits on every backend and does not depend on the rounding mode or on flush-to-zero modes.
///
/// Rules of a conversion to a narrower type:
///  - one rounding, to nearest, ties to even, also from double; subnormal inputs and results are kept;
///  - overflow and infinities give an infinity, or NaN for e4m3 which has none; the saturating form gives the largest
///    finite value instead;
///  - every NaN gives the one canonical NaN of the result: positive, every exponent and mantissa bit set
///    (fp16 and bf16 0x7fff, e4m3 and e5m2 0x7f, fp32 0x7fffffff). Those are also the bits that NVIDIA's conversion
///    instructions give.

#include <Kokkos_Macros.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera {

/// The element types by name, for run-time dispatch and reports.
enum class Scalar : std::uint8_t { fp64, fp32, fp16, bf16, e4m3, e5m2, int8, int32 };

/// The name of an element type as it is spelt in this library, for example "bf16".
KOKKOS_INLINE_FUNCTION constexpr const char* name(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp64:
      return "fp64";
    case Scalar::fp32:
      return "fp32";
    case Scalar::fp16:
      return "fp16";
    case Scalar::bf16:
      return "bf16";
    case Scalar::e4m3:
      return "e4m3";
    case Scalar::e5m2:
      return "e5m2";
    case Scalar::int8:
      return "int8";
    case Scalar::int32:
      return "int32";
  }
  return "unknown";
}

/// The size of an element in bytes.
KOKKOS_INLINE_FUNCTION constexpr std::size_t size_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp64:
      return 8;
    case Scalar::fp32:
    case Scalar::int32:
      return 4;
    case Scalar::fp16:
    case Scalar::bf16:
      return 2;
    case Scalar::e4m3:
    case Scalar::e5m2:
    case Scalar::int8:
      return 1;
  }
  return 0;
}

template <Scalar S>
class narrow_float;

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 mantissa bits.
using fp16_t = narrow_float<Scalar::fp16>;
/// bfloat16, the upper half of an fp32: 1 sign, 8 exponent, 7 mantissa bits.
using bf16_t = narrow_float<Scalar::bf16>;
/// OCP FP8 E4M3 (the "FN" form): 1 sign, 4 exponent, 3 mantissa bits, no infinity, NaN only as S.1111.111, max 448.
using e4m3_t = narrow_float<Scalar::e4m3>;
/// OCP FP8 E5M2, the upper half of an fp16: 1 sign, 5 exponent, 2 mantissa bits, with infinities.
using e5m2_t = narrow_float<Scalar::e5m2>;

namespace detail {

/// The bit layout of a binary floating-point format. Every format here has exponent bias 2^(exponent_bits - 1) - 1.
/// `finite` formats have no infinity: the largest exponent holds numbers, and only the last magnitude is NaN.
template <class Bits, int ExponentBits, int MantissaBits, bool Finite = false>
struct FloatLayout {
  using bits_type = Bits;
  static constexpr int bits = 8 * sizeof(Bits);
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int mantissa_bits = MantissaBits;
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr bool finite = Finite;
  static constexpr Bits sign_bit = static_cast<Bits>(Bits{1} << (bits - 1));
  static constexpr Bits nan_bits = static_cast<Bits>(sign_bit - 1);
  static constexpr Bits min_normal_bits = static_cast<Bits>(Bits{1} << MantissaBits);
  static constexpr Bits mantissa_mask = static_cast<Bits>(min_normal_bits - 1);
  /// The magnitude above which every pattern is NaN: the infinity, or the largest number of a finite format.
  static constexpr Bits last_bits = static_cast<Bits>(Finite ? nan_bits - 1 : nan_bits - mantissa_mask);
  static constexpr Bits max_bits = static_cast<Bits>(Finite ? last_bits : last_bits - 1);
  /// What a finite number too large for the format becomes when it is not saturated.
  static constexpr Bits overflow_bits = static_cast<Bits>(Finite ? nan_bits : last_bits);
};

template <class T>
struct FloatFormat;
template <>
struct FloatFormat<double> : FloatLayout<std::uint64_t, 11, 52> {
  static constexpr Scalar scalar = Scalar::fp64;
};
template <>
struct FloatFormat<float> : FloatLayout<std::uint32_t, 8, 23> {
  static constexpr Scalar scalar = Scalar::fp32;
};
template <>
struct FloatFormat<fp16_t> : FloatLayout<std::uint16_t, 5, 10> {
  static constexpr Scalar scalar = Scalar::fp16;
};
template <>
struct FloatFormat<bf16_t> : FloatLayout<std::uint16_t, 8, 7> {
  static constexpr Scalar scalar = Scalar::bf16;
};
template <>
struct FloatFormat<e4m3_t> : FloatLayout<std::uint8_t, 4, 3, true> {
  static constexpr Scalar scalar = Scalar::e4m3;
};
template <>
struct FloatFormat<e5m2_t> : FloatLayout<std::uint8_t, 5, 2> {
  static constexpr Scalar scalar = Scalar::e5m2;
};

/// Rounds a float or double to the format `To`, whose bits are returned. `overflow` is the magnitude that finite
/// overflow and infinities become. The result of every lane is computed and then selected: there is no branch, so
/// that loops over it become SIMD code.
template <class To, class From>
KOKKOS_INLINE_FUNCTION constexpr typename FloatFormat<To>::bits_type round_bits(
    From value, typename FloatFormat<To>::bits_type overflow) {
  using Source = FloatFormat<From>;
  using Target = FloatFormat<To>;
  using Wide = typename Source::bits_type;
  using Bits = typename Target::bits_type;
  constexpr int dropped = Source::mantissa_bits - Target::mantissa_bits;
  constexpr int rebias = Source::bias - Target::bias;

  const Wide pattern = __builtin_bit_cast(Wide, value);
  const Wide magnitude = pattern & Source::nan_bits;
  Wide rounded = magnitude;
  if constexpr (rebias > 0) {
    // Below the smallest normal number of the target the exponent stays and the number of dropped bits grows. From
    // mantissa_bits + 2 dropped bits on the result is zero, as for subnormals of the source.
    const Wide exponent = magnitude >> Source::mantissa_bits;
    const Wide kept = exponent > Wide{rebias + 1} ? exponent : Wide{rebias + 1};
    const Wide wanted = dropped + kept - exponent;
    const Wide limit = Source::mantissa_bits + 2;
    const Wide shift = wanted < limit ? wanted : limit;
    const Wide significand = (magnitude & Source::mantissa_mask) | Source::min_normal_bits;
    const Wide half = (Wide{1} << (shift - 1)) - 1 + ((significand >> shift) & 1);
    // The leading bit of a normal significand adds the last one to the exponent.
    rounded = ((kept - Wide{rebias + 1}) << Target::mantissa_bits) + ((significand + half) >> shift);
  } else if constexpr (dropped > 0) {
    const Wide half = (Wide{1} << (dropped - 1)) - 1 + ((magnitude >> dropped) & 1);
    rounded = (magnitude + half) >> dropped;
  }
  rounded = rounded > Target::max_bits ? Wide{overflow} : rounded;
  const Wide sign = (pattern >> (Source::bits - Target::bits)) & Target::sign_bit;
  // Where overflow is NaN it has to lose its sign, as NaN inputs do.
  const bool nan = magnitude > Source::last_bits || (Target::finite && rounded == Target::nan_bits);
  return static_cast<Bits>(nan ? Wide{Target::nan_bits} : rounded | sign);
}

/// Widens the bits of a `From` exactly to `To` (float or double). A NaN stays NaN, with an unspecified payload.
template <class To, class From>
KOKKOS_INLINE_FUNCTION constexpr To widen_bits(typename FloatFormat<From>::bits_type pattern) {
  using Source = FloatFormat<From>;
  using Target = FloatFormat<To>;
  using Wide = typename Target::bits_type;
  constexpr int gained = Target::mantissa_bits - Source::mantissa_bits;
  constexpr int rebias = Target::bias - Source::bias;

  if constexpr (rebias == 0) {
    return __builtin_bit_cast(To, static_cast<Wide>(Wide{pattern} << gained));
  } else {
    const Wide magnitude = Wide{pattern} & Source::nan_bits;
    const Wide sign = (Wide{pattern} & Source::sign_bit) << (Target::bits - Source::bits);
    Wide shifted = (magnitude << gained) + (Wide{rebias} << Target::mantissa_bits);
    if constexpr (Source::finite) {
      shifted |= magnitude > Source::last_bits ? Target::nan_bits : 0;
    } else {
      shifted = magnitude >= Source::last_bits ? (magnitude << gained) | Target::last_bits : shifted;
    }
    // A subnormal 0.m 2^e is 1.m 2^e - 2^e, an exact difference of two normal numbers, at no risk of flush-to-zero;
    // nothing is subtracted from the others. The subtraction comes last and is done always, so that there is no branch.
    const bool subnormal = magnitude < Source::min_normal_bits;
    shifted += subnormal ? Target::min_normal_bits : 0;
    const Wide power = subnormal ? Wide{rebias + 1} << Target::mantissa_bits : 0;
    const To difference = __builtin_bit_cast(To, shifted) - __builtin_bit_cast(To, power);
    return __builtin_bit_cast(To, (__builtin_bit_cast(Wide, difference) & Target::nan_bits) | sign);
  }
}

}  // namespace detail

/// A 16- or 8-bit floating-point number as it is stored; arithmetic is done in float. Trivially copyable, of the size
/// and alignment of its bits; default construction leaves it uninitialised. See fp16_t, bf16_t, e4m3_t and e5m2_t, and
/// the file's description for the rules of conversions.
template <Scalar S>
class narrow_float {
  using Format = detail::FloatFormat<narrow_float>;

 public:
  using bits_type = typename Format::bits_type;

  narrow_float() = default;
  /// Rounds to nearest even, without saturation.
  KOKKOS_FUNCTION constexpr explicit narrow_float(float value)
      : bits_(detail::round_bits<narrow_float>(value, Format::overflow_bits)) {}
  /// Rounds to nearest even, once, without saturation.
  KOKKOS_FUNCTION constexpr explicit narrow_float(double value)
      : bits_(detail::round_bits<narrow_float>(value, Format::overflow_bits)) {}
  /// Rounds an integer of at most 32 bits to nearest even, once, without saturation.
  template <std::integral Integer>
  requires(sizeof(Integer) <= 4) KOKKOS_FUNCTION constexpr explicit narrow_float(Integer value)
      : narrow_float(static_cast<double>(value)) {}
  /// Rounds another narrow type to nearest even, without saturation.
  template <Scalar Other>
  requires(Other != S) KOKKOS_FUNCTION constexpr explicit narrow_float(narrow_float<Other> value)
      : narrow_float(static_cast<float>(value)) {}

  /// The number with these bits.
  KOKKOS_FUNCTION static constexpr narrow_float from_bits(bits_type bits) {
    narrow_float result{};
    result.bits_ = bits;
    return result;
  }
  /// Rounds to nearest even; overflow and infinities give the largest finite number of that sign, NaN stays NaN.
  KOKKOS_FUNCTION static constexpr narrow_float saturate(float value) {
    return from_bits(detail::round_bits<narrow_float>(value, Format::max_bits));
  }
  KOKKOS_FUNCTION static constexpr narrow_float saturate(double value) {
    return from_bits(detail::round_bits<narrow_float>(value, Format::max_bits));
  }

  KOKKOS_FUNCTION constexpr bits_type bits() const { return bits_; }

  /// Exact. A NaN stays NaN, but its sign and payload are unspecified: this is the fast path of kernels (for bf16 one
  /// shift). tessera::cast gives the canonical NaN.
  KOKKOS_FUNCTION constexpr explicit operator float() const { return detail::widen_bits<float, narrow_float>(bits_); }
  /// Exact, with the same remark.
  KOKKOS_FUNCTION constexpr explicit operator double() const { return detail::widen_bits<double, narrow_float>(bits_); }

 private:
  bits_type bits_;
};

static_assert(std::is_trivial_v<fp16_t> && std::is_trivial_v<bf16_t> && sizeof(fp16_t) == 2 && sizeof(bf16_t) == 2);
static_assert(std::is_trivial_v<e4m3_t> && std::is_trivial_v<e5m2_t> && sizeof(e4m3_t) == 1 && sizeof(e5m2_t) == 1);

template <Scalar S>
KOKKOS_INLINE_FUNCTION constexpr bool isnan(narrow_float<S> value) {
  using Format = detail::FloatFormat<narrow_float<S>>;
  return (value.bits() & Format::nan_bits) > Format::last_bits;
}

template <Scalar S>
KOKKOS_INLINE_FUNCTION constexpr bool isinf(narrow_float<S> value) {
  using Format = detail::FloatFormat<narrow_float<S>>;
  return !Format::finite && (value.bits() & Format::nan_bits) == Format::last_bits;
}

template <Scalar S>
KOKKOS_INLINE_FUNCTION constexpr bool isfinite(narrow_float<S> value) {
  using Format = detail::FloatFormat<narrow_float<S>>;
  return (value.bits() & Format::nan_bits) <= Format::max_bits;
}

template <Scalar S>
KOKKOS_INLINE_FUNCTION constexpr bool signbit(narrow_float<S> value) {
  return (value.bits() & detail::FloatFormat<narrow_float<S>>::sign_bit) != 0;
}

namespace detail {

template <class T>
struct ScalarOf {};
template <class T>
requires requires { FloatFormat<T>::scalar; }
struct ScalarOf<T> {
  static constexpr Scalar value = FloatFormat<T>::scalar;
};
template <>
struct ScalarOf<std::int8_t> {
  static constexpr Scalar value = Scalar::int8;
};
template <>
struct ScalarOf<std::int32_t> {
  static constexpr Scalar value = Scalar::int32;
};

template <Scalar S>
struct TypeOf {
  using type = narrow_float<S>;
};
template <>
struct TypeOf<Scalar::fp64> {
  using type = double;
};
template <>
struct TypeOf<Scalar::fp32> {
  using type = float;
};
template <>
struct TypeOf<Scalar::int8> {
  using type = std::int8_t;
};
template <>
struct TypeOf<Scalar::int32> {
  using type = std::int32_t;
};

}  // namespace detail

/// One of the element types of this library: double, float, fp16_t, bf16_t, e4m3_t, e5m2_t, int8_t, int32_t (not
/// const).
template <class T>
concept scalar_type = requires {
  detail::ScalarOf<T>::value;
};

/// One of the six floating-point element types.
template <class T>
concept float_type = scalar_type<T> && !std::integral<T>;

/// The name of the element type T.
template <scalar_type T>
inline constexpr Scalar scalar_of = detail::ScalarOf<T>::value;

/// The element type of that name.
template <Scalar S>
using type_of = typename detail::TypeOf<S>::type;

}  // namespace tessera

#endif  // TESSERA_TYPES_HPP
