// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/cast.hpp>
#include <tessera/elementary.hpp>
#include <tessera/softmax.hpp>
#include <tessera/streaming.hpp>
#include <tessera/transform.hpp>
#include <tessera/vector_units.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "support/elements.hpp"
#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

void weighted(float const* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = static_cast<float>(i) * x[i];
}

/// |y - exact| in units of the last place of exact, subnormal ones included.
double units(double y, double exact) {
  int const exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::abs(y - exact) / std::ldexp(1.0, exponent - 23);
}

template <class Exec>
using Floats = ViewOf<Exec, float**>;

/// Rows that together with the results are larger than the last cache.
std::size_t many_rows(std::size_t columns, std::size_t bytes_an_element) {
  return static_cast<std::size_t>(detail::last_cache_bytes()) / (columns * bytes_an_element) + 2;
}

/// op(out, in) of all rows, whose results are streamed, is to the bit what it is of a few rows at a time.
template <class Out, class Op>
void check_streamed(std::size_t columns, Op const& op) {
  std::size_t const rows = many_rows(columns, sizeof(float) + sizeof(Out));
  CHECK(detail::worth_streaming(static_cast<std::int64_t>(rows * columns * (sizeof(float) + sizeof(Out)))) ==
        detail::worth_streaming(detail::last_cache_bytes() + 1));
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const in("in", rows, columns);
  Kokkos::View<Out**, Kokkos::LayoutRight, Kokkos::HostSpace> const all("all", rows, columns);
  for (std::size_t i = 0; i < rows * columns; ++i)
    in.data()[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 8 & 0xffff) - 32768) / 8192.0f;
  op(all, in);
  std::size_t const some = rows / 3;
  Kokkos::View<Out**, Kokkos::LayoutRight, Kokkos::HostSpace> const few("few", some, columns);
  for (std::size_t first = 0; first < rows; first += some) {
    std::size_t const end = std::min(rows, first + some);
    auto const part = [&](auto const& v, std::size_t from) {
      return Kokkos::subview(v, std::pair(from, from + end - first), Kokkos::ALL);
    };
    op(part(few, 0), part(in, first));
    CHECK(std::memcmp(few.data(), all.data() + first * columns, (end - first) * columns * sizeof(Out)) == 0);
  }
}

}  // namespace

TEST_CASE("vector units: no more than TESSERA_MAX_ISA allows, and all give the same numbers") {
  char const* const cap = std::getenv("TESSERA_MAX_ISA");
  detail::VectorUnits const units_at_hand = detail::vector_units();
  if (cap != nullptr && std::string(cap) == "baseline") CHECK(units_at_hand == detail::VectorUnits::baseline);
  if (cap != nullptr && std::string(cap) == "avx2") CHECK(units_at_hand <= detail::VectorUnits::avx2);
  constexpr int n = 1003;
  std::vector<float> x(n), y(n), plain(n);
  for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i % 17) - 8;
  weighted(x.data(), n, plain.data());
  detail::for_vector_units<weighted>()(x.data(), n, y.data());
  CHECK(y == plain);
}

TEST_CASE("elementary functions of a CPU: units in the last place") {
  double exponential = 0, tangent = 0;
  for (std::uint32_t bits = 0x80000000u; bits <= 0xff800000u; bits += 7919) {  // from -0 to -Inf
    float const x = Kokkos::bit_cast<float>(bits);
    exponential = std::max(exponential, units(detail::exp_below(x), std::exp(static_cast<double>(x))));
    tangent = std::max({tangent, units(detail::hyperbolic_tangent(x), std::tanh(static_cast<double>(x))),
                        units(detail::hyperbolic_tangent(-x), std::tanh(-static_cast<double>(x)))});
  }
  CHECK(exponential <= 1.5);
  CHECK(tangent <= 2);
  float const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  CHECK(std::isnan(detail::exp_below(nan)));
  CHECK(detail::exp_below(-infinity) == 0);
  CHECK(detail::exp_below(0.0f) == 1);
  CHECK(std::isnan(detail::hyperbolic_tangent(nan)));
  CHECK(detail::hyperbolic_tangent(-infinity) == -1);
  CHECK(std::signbit(detail::hyperbolic_tangent(-0.0f)));
}

TEST_CASE("streamed copies end where they should, wherever they begin") {
  alignas(64) static unsigned char from[512], to[512];
  for (int i = 0; i < 512; ++i) from[i] = static_cast<unsigned char>(7 * i + 1);
  for (std::size_t bytes : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 127u, 128u, 200u, 320u})
    for (std::size_t in : {0u, 1u, 33u})
      for (std::size_t out : {0u, 1u, 4u, 16u, 63u, 64u}) {
        std::memset(to, 0, sizeof to);
        if (detail::worth_streaming(std::numeric_limits<std::int64_t>::max())) {
          detail::stream(to + out, from + in, bytes);
          detail::streaming_done();
          CHECK(std::memcmp(to + out, from + in, bytes) == 0);
          int touched = 0;
          for (std::size_t i = 0; i < sizeof to; ++i) touched += (i < out || i >= out + bytes) && to[i] != 0;
          CHECK(touched == 0);
        }
      }
}

#if defined(KOKKOS_ENABLE_OPENMP)
TEST_CASE("results larger than the caches: softmax, casts and transforms give the same bits (OpenMP)") {
  Kokkos::OpenMP const exec;
  check_streamed<float>(512, [&](auto const& y, auto const& x) { softmax(exec, y, x); });
  check_streamed<bf16_t>(1000, [&](auto const& y, auto const& x) { softmax(exec, y, x); });  // rows of no whole strips
  check_streamed<bf16_t>(1024, [&](auto const& y, auto const& x) { cast(exec, y, x); });
  check_streamed<float>(1000, [&](auto const& y, auto const& x) { transform(exec, y, fn::relu{}, x); });
  check_streamed<e4m3_t>(768, [&](auto const& y, auto const& x) { transform(exec, y, fn::silu{}, x); });
}
#endif
