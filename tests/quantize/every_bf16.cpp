// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All bf16 numbers by scales of all kinds: CPUs find their 8-bit quotients from thresholds of a scale instead of
// dividing.
#include <cmath>
#include <limits>
#include <random>

#include <tessera/quantize.hpp>

#include "quantize/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr std::size_t numbers = 65536;

/// Quotients on midpoints between 8-bit numbers, and next to them where fp32 rounds to them: scales with few bits,
/// their neighbours, midpoints' reciprocals. Largest magnitudes by the largest number of a type; any others; and last
/// those by which nothing is divided this way.
std::vector<float> scales_of_all_kinds() {
  std::vector<float> scales;
  for (float const few : {1.0f, 1.5f, 1.25f, 1.75f, 1.0625f, 1.9375f, 7.0f, 9.0f, 11.0f, 13.0f, 15.0f, 17.0f, 255.0f})
    for (int const exponent : {-60, -7, 0, 3, 40})
      for (int const ulps : {-1, 0, 1})
        scales.push_back(std::ldexp(few, exponent) * (1 + static_cast<float>(ulps) * 0x1p-23f));
  for (int k = 17; k < 32; k += 2) {
    scales.push_back(32.0f / static_cast<float>(k));
    scales.push_back(std::nextafter(scales.back(), 1.0f));
    scales.push_back(std::nextafter(scales.back(), 2.0f) * 8);
  }
  std::mt19937 random(5);
  std::uniform_real_distribution<float> significand(1, 2);
  for (int i = 0; i < 60; ++i) {
    float const s = significand(random);
    scales.push_back(std::ldexp(s, i - 30));
    scales.push_back(static_cast<float>(bf16_t(s)) * std::ldexp(1.0f, i % 7) / (i % 2 == 0 ? 448.0f : 57344.0f));
  }
  for (float const s : {0x1p-70f, 0x1.8p60f, 0x1p90f, 0x1p-126f, 0x1p-140f, 0.0f, -1.5f}) scales.push_back(s);
  scales.push_back(std::numeric_limits<float>::infinity());
  scales.push_back(std::numeric_limits<float>::quiet_NaN());
  return scales;
}

bf16_t number(std::size_t i) { return bf16_t::from_bits(static_cast<std::uint16_t>(i)); }

template <class Q>
Q quotient(bf16_t x, float scale) {
  return Q::saturate(static_cast<float>(x) / scale);
}

/// A row for each scale, which is no multiple of what is worked on together.
template <class Exec, class Q>
void check_rows() {
  auto const scales = scales_of_all_kinds();
  std::size_t const n = numbers + 45, m = scales.size();
  std::vector<bf16_t> x(m * n);
  std::vector<Q> expected(m * n);
  for (std::size_t i = 0; i < m * n; ++i) {
    x[i] = number(i % n);
    expected[i] = quotient<Q>(x[i], scales[i / n]);
  }
  ViewOf<Exec, bf16_t**> const in("in", m, n);
  ViewOf<Exec, Q**> const out("out", m, n);
  ViewOf<Exec, float*> const given("scales", m);
  fill(in, x);
  fill(given, scales);
  poison(out);
  quantize(Exec{}, out, given, in, {.granularity = Granularity::per_row, .given_scales = true});
  CHECK(different(values(out), expected) == 0);
}

/// A column for each scale, of the transposed copy, and scales in turn for the tiles of rows. Those by which columns
/// beside are not divided this way either are only those of the last blocks.
template <class Exec, class Q>
void check_columns() {
  auto const scales = scales_of_all_kinds();
  std::size_t const others = 4, blocks = numbers / 128 + others, m = 128 * blocks, n = scales.size();
  std::size_t const tiles = (n + 127) / 128;
  std::vector<bf16_t> x(m * n);
  std::vector<Q> expected(m * n), expected_transposed(m * n);
  std::vector<float> of_tiles(m * tiles), of_columns(n * blocks);
  for (std::size_t i = 0; i < of_tiles.size(); ++i) of_tiles[i] = scales[i % n];
  for (std::size_t i = 0; i < of_columns.size(); ++i) {
    float const s = scales[i / blocks];
    of_columns[i] = (s >= 0x1p-60f && s <= 0x1p60f) || i % blocks >= blocks - others ? s : 0.75f;
  }
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      x[i * n + j] = number(i);
      expected[i * n + j] = quotient<Q>(number(i), of_tiles[i * tiles + j / 128]);
      expected_transposed[j * m + i] = quotient<Q>(number(i), of_columns[j * blocks + i / 128]);
    }
  ViewOf<Exec, bf16_t**> const in("in", m, n);
  ViewOf<Exec, Q**> const out("out", m, n), transposed("transposed", n, m);
  ViewOf<Exec, float**> const given("scales", m, tiles), transposed_scales("transposed_scales", n, blocks);
  fill(in, x);
  fill(given, of_tiles);
  fill(transposed_scales, of_columns);
  poison(out);
  poison(transposed);
  QuantizeOptions options{.transposed = transposed, .transposed_scales = transposed_scales};
  options.granularity = Granularity::tile_1x128;
  options.given_scales = true;
  quantize(Exec{}, out, given, in, options);
  CHECK(different(values(out), expected) == 0);
  CHECK(different(values(transposed), expected_transposed) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("quantize divides every bf16 number by scales of all kinds", Exec, every_bf16_by_rows) {
  check_rows<Exec, e4m3_t>();
  check_rows<Exec, e5m2_t>();
}

TEST_CASE_TEMPLATE_DEFINE("quantize divides every bf16 number by scales of columns", Exec, every_bf16_by_columns) {
  check_columns<Exec, e4m3_t>();
  check_columns<Exec, e5m2_t>();
}

TEST_CASE_TEMPLATE_APPLY(every_bf16_by_rows, Spaces);
TEST_CASE_TEMPLATE_APPLY(every_bf16_by_columns, Spaces);
