// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <tessera/limits.hpp>

#include "reference/float_formats.hpp"
#include "support/support.hpp"

namespace {

using namespace tessera;
using namespace tessera::reference;

TEST_CASE_TEMPLATE("limits follow from the format", T, double, float, fp16_t, bf16_t, e4m3_t, e5m2_t) {
  constexpr FormatParameters f = parameters<T>();
  CHECK(limits<T>::bits == f.bits);
  CHECK(limits<T>::exponent_bits == f.exponent_bits);
  CHECK(limits<T>::mantissa_bits == f.mantissa_bits);
  CHECK(limits<T>::bias == f.bias);
  CHECK(limits<T>::has_infinity == f.infinities);
  CHECK(limits<T>::nan_bits == canonical_nan<T>());
  CHECK(limits<T>::epsilon == std::ldexp(1.0, -f.mantissa_bits));
  CHECK(limits<T>::roundoff == std::ldexp(1.0, -f.mantissa_bits - 1));
  CHECK(limits<T>::min_normal == std::ldexp(1.0, 1 - f.bias));
  CHECK(limits<T>::min_subnormal == std::ldexp(1.0, 1 - f.bias - f.mantissa_bits));
  CHECK(limits<T>::lowest == -limits<T>::max);
  CHECK(decode(limits<T>::largest()) == limits<T>::max);
  CHECK(std::isnan(decode(limits<T>::quiet_nan())));
  if constexpr (limits<T>::has_infinity) CHECK(std::isinf(decode(limits<T>::infinity())));
  // The pattern after the largest finite number is no longer one.
  CHECK(!std::isfinite(decode<T>(static_cast<BitsOf<T>>(bits_of(limits<T>::largest()) + 1))));
}

TEST_CASE("limits are the published ones") {
  static_assert(limits<fp16_t>::max == 65504 && limits<fp16_t>::epsilon == 0x1p-10);
  static_assert(limits<e4m3_t>::max == 448 && limits<e4m3_t>::min_subnormal == 0x1p-9 && !limits<e4m3_t>::has_infinity);
  static_assert(limits<e5m2_t>::max == 57344 && limits<e5m2_t>::min_subnormal == 0x1p-16);
  static_assert(limits<bf16_t>::max == 0x1.fep127 && limits<bf16_t>::min_subnormal == 0x1p-133);
  CHECK(limits<float>::max == std::numeric_limits<float>::max());
  CHECK(limits<float>::epsilon == std::numeric_limits<float>::epsilon());
  CHECK(limits<float>::min_subnormal == std::numeric_limits<float>::denorm_min());
  CHECK(limits<double>::max == std::numeric_limits<double>::max());
  CHECK(limits<double>::epsilon == std::numeric_limits<double>::epsilon());
  CHECK(limits<double>::min_subnormal == std::numeric_limits<double>::denorm_min());
}

/// Reads the limits where the backend runs.
struct ReadLimits {
  Kokkos::View<double*, Kokkos::SharedSpace> out;
  KOKKOS_FUNCTION void operator()(int) const {
    out(0) = limits<e4m3_t>::max;
    out(1) = static_cast<double>(limits<bf16_t>::largest());
    out(2) = limits<fp16_t>::epsilon;
    out(3) = static_cast<double>(limits<fp16_t>::infinity());
  }
};

TEST_CASE_TEMPLATE_DEFINE("limits can be read in a kernel", Exec, limits_in_kernel) {
  Kokkos::View<double*, Kokkos::SharedSpace> const out("out", 4);
  Kokkos::parallel_for(Kokkos::RangePolicy<Exec>(0, 1), ReadLimits{out});
  Kokkos::fence();
  CHECK(out(0) == 448);
  CHECK(out(1) == 0x1.fep127);
  CHECK(out(2) == 0x1p-10);
  CHECK(std::isinf(out(3)));
}
TEST_CASE_TEMPLATE_APPLY(limits_in_kernel, tessera::test::Spaces);

}  // namespace
