// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tessera/detail/matrix.hpp>
#include <tessera/types.hpp>
#include <type_traits>

#include "reference/float_formats.hpp"
#include "support/support.hpp"

namespace {

using namespace tessera;
using namespace tessera::reference;

#define TESSERA_NARROW_TYPES fp16_t, bf16_t, e4m3_t, e5m2_t

TEST_CASE_TEMPLATE("a storage type is plain bits", T, TESSERA_NARROW_TYPES) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);
  static_assert(std::is_standard_layout_v<T> && alignof(T) == sizeof(T));
  static_assert(!std::is_convertible_v<float, T> && !std::is_convertible_v<T, float>);
  static_assert(scalar_type<T> && float_type<T> && !scalar_type<T const>);
  static_assert(std::is_same_v<type_of<scalar_of<T>>, T> && size_of(scalar_of<T>) == sizeof(T));
  CHECK(T::from_bits(0x5a).bits() == 0x5a);
}

TEST_CASE("element types have names and sizes") {
  CHECK(std::string(name(scalar_of<double>)) == "fp64");
  CHECK(std::string(name(scalar_of<float>)) == "fp32");
  CHECK(std::string(name(scalar_of<fp16_t>)) == "fp16");
  CHECK(std::string(name(scalar_of<bf16_t>)) == "bf16");
  CHECK(std::string(name(scalar_of<e4m3_t>)) == "e4m3");
  CHECK(std::string(name(scalar_of<e5m2_t>)) == "e5m2");
  CHECK(std::string(name(scalar_of<std::int8_t>)) == "int8");
  CHECK(std::string(name(scalar_of<std::int32_t>)) == "int32");
  CHECK(size_of(Scalar::fp64) == 8);
  CHECK(size_of(Scalar::fp32) == 4);
  CHECK(size_of(Scalar::int32) == 4);
  CHECK(size_of(Scalar::int8) == 1);
  static_assert(!scalar_type<long double> && !scalar_type<unsigned> && !float_type<std::int8_t>);
}

TEST_CASE_TEMPLATE("widening is exact for every pattern, and rounding takes every number back to itself", T,
                   TESSERA_NARROW_TYPES) {
  long wrong = 0;
  for (unsigned pattern = 0; pattern < (1u << (8 * sizeof(T))); ++pattern) {
    auto const bits = static_cast<BitsOf<T>>(pattern);
    T const x = T::from_bits(bits);
    double const expected = decode<T>(bits);
    auto const as_float = static_cast<float>(x);
    auto const as_double = static_cast<double>(x);
    if (std::isnan(expected)) {
      wrong += !std::isnan(as_float) || !std::isnan(as_double) || T(as_float).bits() != canonical_nan<T>() ||
               T(as_double).bits() != canonical_nan<T>() || !isnan(x) || isinf(x) || isfinite(x);
    } else {
      wrong += as_double != expected || as_float != static_cast<float>(expected) ||
               std::signbit(as_float) != std::signbit(expected) || std::signbit(as_double) != std::signbit(expected) ||
               T(as_float).bits() != bits || T(as_double).bits() != bits || isnan(x) ||
               isinf(x) != std::isinf(expected) || isfinite(x) != std::isfinite(expected);
    }
    wrong += signbit(x) != ((pattern >> (8 * sizeof(T) - 1)) != 0);
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("a type known at run time widens as the type itself", T, TESSERA_NARROW_TYPES) {
  detail::AnyFloat const type(scalar_of<T>);
  long wrong = 0;
  for (unsigned pattern = 0; pattern < (1u << (8 * sizeof(T))); ++pattern) {
    T const x = T::from_bits(static_cast<BitsOf<T>>(pattern));
    float const expected = static_cast<float>(x), widened = type.widen(pattern), read = type.read(&x, 0);
    wrong += std::isnan(expected) ? !std::isnan(widened)
                                  : widened != expected || std::signbit(widened) != std::signbit(expected);
    wrong += __builtin_bit_cast(std::uint32_t, read) != __builtin_bit_cast(std::uint32_t, widened);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a type known at run time leaves fp32 as it is") {
  detail::AnyFloat const type(Scalar::fp32);
  using Limits = std::numeric_limits<float>;
  for (float const x : {0.f, -0.f, 1.f, -1.5f, Limits::denorm_min(), -Limits::min() / 2, Limits::max(),
                        Limits::infinity(), -Limits::infinity()}) {
    float const pair[] = {7.f, x};
    CHECK(__builtin_bit_cast(std::uint32_t, type.read(pair, 1)) == __builtin_bit_cast(std::uint32_t, x));
  }
  float const nan = Limits::quiet_NaN();
  CHECK(std::isnan(type.read(&nan, 0)));
}

template <class T, class From>
long wrong_roundings() {
  static std::vector<From> const sample = dense_sample<From>();
  long wrong = 0;
  for (From const x : sample) {
    wrong += T(x).bits() != nearest_pattern<T>(static_cast<double>(x), false);
    wrong += T::saturate(x).bits() != nearest_pattern<T>(static_cast<double>(x), true);
  }
  return wrong;
}

TEST_CASE_TEMPLATE("rounding from float and double agrees with the table of all numbers", T, TESSERA_NARROW_TYPES) {
  CHECK(wrong_roundings<T, float>() == 0);
  CHECK(wrong_roundings<T, double>() == 0);
}

TEST_CASE("known roundings") {
  static_assert(fp16_t(65504.0f).bits() == 0x7bff && fp16_t(65519.996f).bits() == 0x7bff);
  static_assert(fp16_t(65520.0f).bits() == 0x7c00 && fp16_t(-65520.0f).bits() == 0xfc00);
  static_assert(fp16_t::saturate(65520.0f).bits() == 0x7bff && fp16_t::saturate(-1e30).bits() == 0xfbff);
  static_assert(bf16_t(1.00390625f).bits() == 0x3f80 && bf16_t(1.01171875f).bits() == 0x3f82);
  static_assert(e4m3_t(464.0f).bits() == 0x7e && e4m3_t(464.1f).bits() == 0x7f && e4m3_t(-464.1f).bits() == 0x7f);
  static_assert(e4m3_t::saturate(-464.1f).bits() == 0xfe);
  static_assert(e5m2_t(61439.0f).bits() == 0x7b && e5m2_t(61440.0f).bits() == 0x7c);
  static_assert(fp16_t(-0.0f).bits() == 0x8000 && e4m3_t(-0.0).bits() == 0x80 && e4m3_t(-1e-30f).bits() == 0x80);
  float const infinity = std::numeric_limits<float>::infinity();
  CHECK(e4m3_t(infinity).bits() == 0x7f);
  CHECK(e4m3_t(-infinity).bits() == 0x7f);
  CHECK(e4m3_t::saturate(-infinity).bits() == 0xfe);
  CHECK(bf16_t(-infinity).bits() == 0xff80);
  CHECK(bf16_t::saturate(infinity).bits() == 0x7f7f);
  CHECK(bf16_t::saturate(std::nanf("1")).bits() == 0x7fff);
  CHECK(e5m2_t(-std::nanf("2")).bits() == 0x7f);
}

TEST_CASE("a double is rounded once") {
  // Each is just above a tie that rounds down; float would round it onto the tie.
  CHECK(bf16_t(1.0 + 0x1p-8 + 0x1p-40).bits() == 0x3f81);
  CHECK(bf16_t(static_cast<float>(1.0 + 0x1p-8 + 0x1p-40)).bits() == 0x3f80);
  CHECK(fp16_t(1.0 + 0x1p-11 + 0x1p-40).bits() == 0x3c01);
  CHECK(fp16_t(0x1p-25 + 0x1p-60).bits() == 0x0001);
  CHECK(e4m3_t(1.0 + 0x1p-4 + 0x1p-52).bits() == 0x39);
  CHECK(e5m2_t(1.0 + 0x1p-3 + 0x1p-52).bits() == 0x3d);
  // And just below a tie that rounds up.
  CHECK(fp16_t(65520.0 - 0x1p-30).bits() == 0x7bff);
  CHECK(bf16_t(1.0 + 0x3p-8 - 0x1p-40).bits() == 0x3f81);
}

TEST_CASE_TEMPLATE("integers and other narrow types are rounded once", T, TESSERA_NARROW_TYPES) {
  for (int const i : {0, 1, -1, 3, 255, 257, 449, -70000, std::numeric_limits<int>::max(), -16777217}) {
    CHECK(T(i).bits() == nearest_pattern<T>(i, false));
  }
  CHECK(T(4294967295u).bits() == nearest_pattern<T>(4294967295.0, false));
  CHECK(T(static_cast<std::int8_t>(-7)).bits() == nearest_pattern<T>(-7, false));
  long wrong = 0;
  for (unsigned pattern = 0; pattern < 65536; ++pattern) {
    auto const bits = static_cast<std::uint16_t>(pattern);
    if constexpr (!std::is_same_v<T, fp16_t>)
      wrong += T(fp16_t::from_bits(bits)).bits() != nearest_pattern<T>(decode<fp16_t>(bits), false);
    if constexpr (!std::is_same_v<T, bf16_t>)
      wrong += T(bf16_t::from_bits(bits)).bits() != nearest_pattern<T>(decode<bf16_t>(bits), false);
  }
  CHECK(wrong == 0);
}

}  // namespace
