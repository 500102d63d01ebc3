// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/limits.hpp>
#include <tessera/mx.hpp>

#include "quantize/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// The scale's exponent by its definition, in fp64; 128 stands for NaN.
template <class Q>
int expected_exponent(double amax, MxScale how) {
  if (!std::isfinite(amax)) return 128;
  if (amax == 0) return 0;
  double const largest = limits<Q>::max;
  int exponent = std::ilogb(amax) - std::ilogb(largest);
  if (how == MxScale::up)
    for (exponent -= 2; std::ldexp(largest, exponent) < amax;) ++exponent;
  return std::max(exponent, -127);
}

template <class Exec, class Q, class T>
void check_blocks(std::size_t rows, std::size_t n, std::vector<T> const& x, MxScale how) {
  CAPTURE(rows);
  CAPTURE(n);
  std::size_t const blocks = (n + 31) / 32;
  ViewOf<Exec, T**> const in("in", rows, n), back("back", rows, n);
  ViewOf<Exec, Q**> const out("out", rows, n);
  ViewOf<Exec, e8m0_t**> const scales("scales", rows, blocks);
  fill(in, x);
  poison(out);
  poison(scales);
  poison(back);
  mx_quantize(Exec{}, out, scales, in, {.scale = how});
  mx_dequantize(Exec{}, back, out, scales);
  auto const q = values(out);
  auto const s = values(scales);
  auto const b = values(back);
  int wrong = 0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t block = 0; block < blocks; ++block) {
      double amax = 0;
      for (std::size_t j = 32 * block; j < std::min(n, 32 * block + 32); ++j) {
        double const v = std::abs(to_double(static_cast<float>(to_double(x[i * n + j]))));
        amax = v > amax || std::isnan(v) ? v : amax;
        if (std::isnan(amax)) break;
      }
      int const exponent = expected_exponent<Q>(amax, how);
      wrong += s[i * blocks + block].bits() != static_cast<std::uint8_t>(exponent + 127);
      for (std::size_t j = 32 * block; j < std::min(n, 32 * block + 32); ++j) {
        std::size_t const at = i * n + j;
        if (exponent == 128) {
          wrong += !std::isnan(to_double(b[at]));
          continue;
        }
        double const quotient = std::ldexp(to_double(static_cast<float>(to_double(x[at]))), -exponent);
        Q const expected = Q::saturate(quotient);
        wrong += expected.bits() != q[at].bits();
        T const product = T(std::ldexp(to_double(expected), exponent));
        wrong += to_double(product) != to_double(b[at]);
      }
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("e8m0 holds every power of two from 2^-127 to 2^127") {
  for (int bits = 0; bits < 255; ++bits)
    CHECK(static_cast<double>(static_cast<float>(e8m0_t::from_bits(static_cast<std::uint8_t>(bits)))) ==
          std::ldexp(1.0, bits - 127));
  CHECK(std::isnan(static_cast<float>(e8m0_t::from_bits(255))));
}

TEST_CASE_TEMPLATE_DEFINE("mx_quantize gives the bits of the definition, back and forth", Exec, values_id) {
  for (MxScale how : {MxScale::down, MxScale::up})
    for (std::size_t n : {1u, 31u, 32u, 33u, 96u, 1024u, 1056u}) {
      auto const wide = uniform<float>(7 * n, static_cast<unsigned>(n), -900, 900);
      check_blocks<Exec, e4m3_t>(7, n, wide, how);
      check_blocks<Exec, e5m2_t>(7, n, wide, how);
      check_blocks<Exec, e4m3_t>(5, n, uniform<bf16_t>(5 * n, 2, -1e-3, 1e-3), how);
      check_blocks<Exec, e5m2_t>(5, n, uniform<fp16_t>(5 * n, 3, -6e4, 6e4), how);
      check_blocks<Exec, e4m3_t>(3, n, uniform<double>(3 * n, 4), how);
    }
}

TEST_CASE_TEMPLATE_DEFINE("mx_quantize of zeros, powers, subnormals, the largest numbers, NaN and Inf", Exec,
                          special_id) {
  constexpr std::size_t n = 32;
  std::vector<float> x;
  for (float value : {0.0f, 1.0f, 448.0f, 449.0f, 511.0f, 1e-44f, 1.17549435e-38f, 3.4028235e38f, 2.9e38f}) {
    for (std::size_t j = 0; j < n; ++j)
      x.push_back(value * static_cast<float>(n - j) / n * (j % 2 == 0 ? 1.0f : -1.0f));
  }
  for (float value : {std::numeric_limits<float>::infinity(), std::nanf("")})
    for (std::size_t j = 0; j < n; ++j) x.push_back(j == 5 ? value : 1.0f);
  for (MxScale how : {MxScale::down, MxScale::up}) {
    check_blocks<Exec, e4m3_t>(11, n, x, how);
    check_blocks<Exec, e5m2_t>(11, n, x, how);
  }
  ViewOf<Exec, float**> const nothing("nothing", 0, 64);
  mx_quantize(Exec{}, ViewOf<Exec, e4m3_t**>("q", 0, 64), ViewOf<Exec, e8m0_t**>("s", 0, 2), nothing);
}

TEST_CASE_TEMPLATE_DEFINE("mx_quantize takes any layout and rounds stochastically without bias", Exec, layouts_id) {
  constexpr std::size_t rows = 6, n = 64;
  auto const x = uniform<float>(rows * n, 1, -3, 3);
  ViewOf<Exec, float**> const in("in", rows, n), back("back", rows, n);
  ViewOf<Exec, float**, Kokkos::LayoutLeft> const left("left", rows, n);
  ViewOf<Exec, e4m3_t**> const out("out", rows, n);
  ViewOf<Exec, e4m3_t**, Kokkos::LayoutLeft> const other("other", rows, n);
  ViewOf<Exec, e8m0_t**> const scales("scales", rows, n / 32);
  ViewOf<Exec, e8m0_t**, Kokkos::LayoutLeft> const other_scales("other_scales", rows, n / 32);
  ViewOf<Exec, float**> const wide_in("wide_in", rows, n + 32);
  ViewOf<Exec, e4m3_t**> const wide_out("wide_out", rows, n + 32);
  auto const inner = [](auto const& a) { return Kokkos::subview(a, Kokkos::ALL, Kokkos::pair<int, int>(32, 32 + n)); };
  fill(in, x);
  Kokkos::deep_copy(inner(wide_in), in);
  fill(left, x);
  for (bool stochastic : {false, true}) {
    MxOptions const options{.scale = MxScale::up, .stochastic = stochastic, .seed = 5, .offset = 1};
    mx_quantize(Exec{}, out, scales, in, options);
    mx_quantize(other, other_scales, left, options);
    auto const a = values(out), b = values(other);
    int wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i].bits() != b[i].bits();
    CHECK(wrong == 0);
    mx_quantize(inner(wide_out), other_scales, inner(wide_in), options);  // rows apart from each other
    auto const c = values(wide_out);
    for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i].bits() != c[i / n * (n + 32) + 32 + i % n].bits();
    CHECK(wrong == 0);
  }
  check_unbiased(x, [&](std::uint64_t offset) {
    mx_quantize(Exec{}, out, scales, in, {.scale = MxScale::up, .stochastic = true, .seed = 9, .offset = offset});
    mx_dequantize(Exec{}, back, out, scales);
    return values(back);
  });
}

TEST_CASE_TEMPLATE_DEFINE("mx_quantize names what is wrong and writes nothing", Exec, errors_id) {
  ViewOf<Exec, float**> const in("in", 3, 40), narrow_in("narrow_in", 3, 39);
  ViewOf<Exec, e4m3_t**> const out("out", 3, 40);
  ViewOf<Exec, e8m0_t**> const scales("scales", 3, 2), few("few", 3, 1), short_scales("short", 2, 2);
  poison(out);
  poison(scales);
  auto text = error_of([&] { mx_quantize(Exec{}, out, scales, narrow_in); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::mx_quantize"));
  text = error_of([&] { mx_quantize(Exec{}, out, few, in); }, ErrorCode::extent);
  CHECK(contains(text, "scales (3, 1)"));
  error_of([&] { mx_quantize(Exec{}, out, short_scales, in); }, ErrorCode::extent);
  text = error_of([&] { mx_dequantize(Exec{}, in, out, few); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::mx_dequantize"));
  Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> const null(static_cast<float*>(nullptr), 3,
                                                                                     40);
  error_of([&] { mx_quantize(Exec{}, out, scales, null); }, ErrorCode::null_data);
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(scales));
}

TEST_CASE_TEMPLATE_APPLY(values_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
