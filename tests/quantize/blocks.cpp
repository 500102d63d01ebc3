// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Given scales, transposed copies, counts of what was cut off, stochastic rounding.
#include <tessera/quantize.hpp>

#include <algorithm>
#include <limits>

#include <tessera/limits.hpp>
#include <tessera/stochastic.hpp>

#include "quantize/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct How {
  Granularity granularity = Granularity::per_tensor;
  bool given = false, transposed = false, stochastic = false;
  std::uint64_t seed = 0, offset = 0;
};

template <class Q>
Q rounded(float q, How const& how, std::size_t index) {
  std::uint32_t const shared = philox_word(how.seed, how.offset, index / 2);
  std::uint32_t const word = index % 2 == 0 ? shared : (shared & 0xffff) * 65536 + shared / 65536;
  if constexpr (std::is_same_v<Q, std::int8_t>) {
    if (std::isnan(q)) return 0;
    double const clamped = std::min(std::max(static_cast<double>(q), -127.0), 127.0), whole = std::trunc(clamped);
    if (!how.stochastic) return static_cast<std::int8_t>(std::nearbyint(clamped));
    bool const away = std::ldexp(word >> 8, -24) < std::abs(clamped - whole);
    return static_cast<std::int8_t>(whole + (away ? std::copysign(1.0, clamped) : 0.0));
  } else {
    return how.stochastic ? round_stochastically<Q>(q, word) : Q::saturate(q);
  }
}

/// Whether saturating has changed it: T(x) of a number beyond the largest is not finite.
template <class Q>
bool cut_off(float x, float q) {
  if (!std::isfinite(x) || std::isnan(q)) return false;
  if constexpr (std::is_same_v<Q, std::int8_t>)
    return std::abs(std::nearbyint(q)) > 127;
  else
    return !std::isfinite(static_cast<float>(Q(q)));
}

float larger(float top, float x) { return std::isnan(top) || std::fabs(x) <= top ? top : std::fabs(x); }

/// The scales of the groups of a matrix, in fp32, from its largest magnitudes.
template <class Q>
std::vector<float> own_scales(std::vector<float> const& x, Granularity granularity, std::size_t m, std::size_t n) {
  Groups const group(granularity, m, n);
  std::vector<float> tops(group.rows * group.columns, 0.0f);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) tops[group(i, j)] = larger(tops[group(i, j)], x[i * n + j]);
  for (float& top : tops)
    top = top == 0 ? 1 : std::isnan(top) ? top : std::max(top / largest<Q>, std::numeric_limits<float>::min());
  return tops;
}

template <class T>
std::vector<T> transpose(std::vector<T> const& x, std::size_t m, std::size_t n) {
  std::vector<T> y(m * n);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) y[j * m + i] = x[i * n + j];
  return y;
}

/// The definition, element by element, with scales as given or found.
template <class Q>
struct Expected {
  std::vector<Q> out, transposed;  // the latter (n, m)
  float amax = 0;
  std::int64_t saturated = 0;

  Expected(std::vector<float> const& x, std::size_t m, std::size_t n, How const& how, std::vector<float> const& scales,
           std::vector<float> const& transposed_scales)
      : out(m * n), transposed(m * n) {
    Groups const group(how.granularity, m, n), transposed_group(how.granularity, n, m);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        std::size_t const at = i * n + j;
        float const q = x[at] / scales[group(i, j)];
        out[at] = rounded<Q>(q, how, at);
        saturated += cut_off<Q>(x[at], q);
        amax = larger(amax, x[at]);
        transposed[j * m + i] = how.granularity == Granularity::tile_1x128
                                    ? rounded<Q>(x[at] / transposed_scales[transposed_group(j, i)], how, at)
                                    : out[at];
      }
  }
};

template <class Options>
void set(Options& options, How const& how) {
  options.granularity = how.granularity;
  options.given_scales = how.given;
  options.stochastic = how.stochastic;
  options.seed = how.seed;
  options.offset = how.offset;
}

/// One call with all outputs that a problem can have; `call` gets the options.
template <class Exec, class Transposed, class F>
void with_options(How const& how, Transposed const& transposed, ViewOf<Exec, float**> const& transposed_scales,
                  ViewOf<Exec, float> const& amax, ViewOf<Exec, std::int64_t> const& saturated, F const& call) {
  auto const run = [&](auto options) {
    set(options, how);
    call(options);
  };
  if (!how.transposed)
    run(QuantizeOptions{.amax = amax, .saturated = saturated});
  else if (how.granularity == Granularity::tile_1x128)
    run(QuantizeOptions{
        .amax = amax, .transposed = transposed, .transposed_scales = transposed_scales, .saturated = saturated});
  else
    run(QuantizeOptions{.amax = amax, .transposed = transposed, .saturated = saturated});
}

template <class T>
std::vector<float> in_fp32(std::vector<T> const& x) {
  std::vector<float> y;
  for (T const v : x) y.push_back(static_cast<float>(v));
  return y;
}

/// Every output bit by bit. `given` and `given_transposed` are read where how.given.
template <class Exec, class Out, class Transposed, class In>
void check_views(Out const& out, Transposed const& transposed, In const& in,
                 std::vector<typename In::value_type> const& x, How const& how, std::vector<float> const& given = {},
                 std::vector<float> const& given_transposed = {}) {
  using Q = typename Out::value_type;
  std::size_t const m = in.extent(0), n = in.extent(1);
  CAPTURE(detail::granularity_name(how.granularity));
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(how.given);
  CAPTURE(how.transposed);
  CAPTURE(how.stochastic);
  auto const wide = in_fp32(x);
  auto const scales = how.given ? given : own_scales<Q>(wide, how.granularity, m, n);
  auto const scales_t = how.granularity != Granularity::tile_1x128 ? std::vector<float>{}
                        : how.given                                ? given_transposed
                                    : own_scales<Q>(transpose(wide, m, n), how.granularity, n, m);
  Expected<Q> const expected(wide, m, n, how, scales, scales_t);
  Groups const groups(how.granularity, m, n), groups_t(how.granularity, n, m);
  ViewOf<Exec, float**> const transposed_scales("transposed_scales", n, groups_t.columns);
  ViewOf<Exec, float> const amax("amax");
  ViewOf<Exec, std::int64_t> const saturated("saturated");
  fill(in, x);
  poison(out);
  poison(transposed);
  poison(amax);
  poison(saturated);
  with_scales<Exec>(how.granularity, groups, [&](auto const& s) {
    poison(s);
    poison(transposed_scales);
    if (how.given) {
      fill(s, given);
      if (!scales_t.empty()) fill(transposed_scales, given_transposed);
    }
    with_options<Exec>(how, transposed, transposed_scales, amax, saturated,
                       [&](auto const& options) { quantize(Exec{}, out, s, in, options); });
    CHECK(different(values(s), scales) == 0);
  });
  CHECK(different(values(out), expected.out) == 0);
  CHECK(different(values(amax), std::vector<float>{expected.amax}) == 0);
  CHECK(values(saturated)[0] == expected.saturated);
  if (!how.transposed) return;
  CHECK(different(values(transposed), expected.transposed) == 0);
  if (!scales_t.empty()) CHECK(different(values(transposed_scales), scales_t) == 0);
}

/// Scales by which some elements saturate: half to twice what they would be.
template <class Q>
std::vector<float> near_scales(std::vector<float> const& x, Granularity granularity, std::size_t m, std::size_t n) {
  auto scales = own_scales<Q>(x, granularity, m, n);
  auto const factors = uniform<float>(scales.size(), 77, 0.5, 1.5);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= factors[i];
  return scales;
}

template <class Exec, class Out, class Transposed, class In>
void check_every_way(Out const& out, Transposed const& transposed, In const& in,
                     std::vector<typename In::value_type> const& x) {
  using Q = typename Out::value_type;
  std::size_t const m = in.extent(0), n = in.extent(1);
  auto const wide = in_fp32(x);
  for (Granularity const granularity : granularities) {
    auto const scales = near_scales<Q>(wide, granularity, m, n);
    auto const transposed_scales = near_scales<Q>(transpose(wide, m, n), granularity, n, m);
    for (bool const given : {false, true})
      for (bool const copied : {false, true})
        for (bool const stochastic : {false, true})
          check_views<Exec>(out, transposed, in, x, {granularity, given, copied, stochastic, 7, 1234567890123}, scales,
                            transposed_scales);
  }
}

template <class Exec, class Q, class T>
void check_size(std::size_t m, std::size_t n, double range = 3) {
  check_every_way<Exec>(ViewOf<Exec, Q**>("out", m, n), ViewOf<Exec, Q**>("transposed", n, m),
                        ViewOf<Exec, T**>("in", m, n), uniform<T>(m * n, static_cast<unsigned>(m + n), -range, range));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("quantize with given scales, transposed, counting and stochastic, at every size", Exec,
                          blocks_sizes) {
  std::pair<std::size_t, std::size_t> const sizes[] = {{1, 1},    {1, 128}, {3, 5},      {128, 128}, {130, 264},
                                                       {144, 72}, {700, 8}, {272, 1224}, {129, 135}};
  for (auto const& [m, n] : sizes) {
    check_size<Exec, e4m3_t, bf16_t>(m, n);
    check_size<Exec, e5m2_t, float>(m, n);
  }
}

TEST_CASE_TEMPLATE_DEFINE("quantize with given scales, transposed, counting and stochastic, of every type", Exec,
                          blocks_types) {
  for (double const range : {1e-4, 20.0, 6e4}) check_size<Exec, e4m3_t, fp16_t>(130, 136, range);
  check_size<Exec, e4m3_t, float>(130, 136, 1e-22);  // scales below 2^-60
  check_size<Exec, e4m3_t, double>(130, 136);
  check_size<Exec, std::int8_t, float>(130, 136);
}

TEST_CASE_TEMPLATE_DEFINE("quantize transposes any layout and alignment into any", Exec, blocks_layouts) {
  using Strided = Kokkos::View<e4m3_t**, Kokkos::LayoutStride, typename Exec::memory_space>;
  using StridedIn = Kokkos::View<bf16_t**, Kokkos::LayoutStride, typename Exec::memory_space>;
  std::size_t const m = 144, n = 152;
  auto const x = uniform<bf16_t>(m * n, 9, -2, 2);
  auto const part = [](auto const& v, std::size_t first, std::size_t rows, std::size_t columns) {
    return Kokkos::subview(v, std::pair<std::size_t, std::size_t>{first, first + rows},
                           std::pair<std::size_t, std::size_t>{first, first + columns});
  };
  ViewOf<Exec, bf16_t**> const in_right("in", m, n), in_wide("in", m + 2, n + 8);
  ViewOf<Exec, bf16_t**, Kokkos::LayoutLeft> const in_left("in", m, n);
  ViewOf<Exec, e4m3_t**> const right("out", m, n), wide("out", m + 2, n + 8), turned("turned", n, m),
      turned_wide("turned", n + 2, m + 7);
  ViewOf<Exec, e4m3_t**, Kokkos::LayoutLeft> const left("out", m, n), turned_left("turned", n, m);
  auto const check = [&](Strided const& out, Strided const& transposed, StridedIn const& in) {
    check_every_way<Exec>(out, transposed, in, x);
  };
  check(right, turned_left, in_right);
  check(right, part(turned_wide, 1, n, m), in_right);
  check(part(wide, 0, m, n), turned, part(in_wide, 0, m, n));
  check(left, turned, in_left);
  check(part(wide, 1, m, n), turned_left, part(in_wide, 1, m, n));
}

TEST_CASE_TEMPLATE_DEFINE("quantize divides by whatever scale it is given", Exec, blocks_special) {
  float const infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  std::size_t const m = 20, n = 136;
  std::vector<float> scales = {1,      -1,    0,      -0.0f, nan,   infinity, -infinity, 1e-45f, 1e-38f, 1e38f,
                               1e-19f, 1e19f, -1e-3f, 2e-3f, 3e30f, 1e-30f,   0.5f,      4,      1,      1};
  auto x = uniform<float>(m * n, 31, -1000, 1000);
  for (std::size_t i = 0; i < m; ++i) {
    float const special[] = {0, -0.0f, 1e-45f, 1e30f, -3e38f, 464, -464, 464.1f, 61440, -61439};
    if (i < 18) std::copy(std::begin(special), std::end(special), x.begin() + static_cast<std::ptrdiff_t>(i * n));
  }
  x[18 * n] = infinity, x[18 * n + 1] = -infinity, x[18 * n + 2] = nan;
  auto const check = [&]<class Q>(Q) {
    for (bool const transposed : {false, true})
      for (bool const stochastic : {false, true})
        check_views<Exec>(ViewOf<Exec, Q**>("out", m, n), ViewOf<Exec, Q**>("transposed", n, m),
                          ViewOf<Exec, float**>("in", m, n), x,
                          {Granularity::per_row, true, transposed, stochastic, 3, 4}, scales);
  };
  check(e4m3_t{});
  check(e5m2_t{});
  check(std::int8_t{});

  // What the page says, spelt out.
  ViewOf<Exec, float**> const in("in", 4, 1);
  ViewOf<Exec, float*> const given("given", 4);
  ViewOf<Exec, e4m3_t**> const out("out", 4, 1);
  ViewOf<Exec, std::int64_t> const saturated("saturated");
  fill(in, std::vector<float>{-2, 2, 2, 2});
  fill(given, std::vector<float>{0, -1, infinity, nan});
  Kokkos::View<float const*, typename Exec::memory_space> const only_read = given;
  quantize(Exec{}, out, only_read, in,
           QuantizeOptions{.granularity = Granularity::per_row, .given_scales = true, .saturated = saturated});
  auto const y = values(out);
  CHECK(static_cast<float>(y[0]) == -448);
  CHECK(static_cast<float>(y[1]) == -2);
  CHECK(static_cast<float>(y[2]) == 0);
  CHECK(std::isnan(static_cast<float>(y[3])));
  CHECK(values(saturated)[0] == 1);
}

TEST_CASE_TEMPLATE_DEFINE("quantize rounds exact quotients, however near they are to the middle between numbers", Exec,
                          blocks_middles) {
  // Quotients half a unit of fp32 beside the middle between two 8-bit numbers, k 2^e with five bits of k, by scales
  // that have few bits or lie so near to those that quotients come nearest to the middle between two fp32 numbers.
  int const beside[] = {0, 1, 2, 3, 5, 8, 9, 20, -1, -2, -4, -8, -9};
  std::vector<float> scales;
  for (int eighth = 0; eighth < 8; ++eighth)
    for (int const by : beside) {
      auto bits = __builtin_bit_cast(std::uint32_t, 1.0f + static_cast<float>(eighth) / 8);
      bits += static_cast<std::uint32_t>(by);
      scales.push_back(__builtin_bit_cast(float, bits));
    }
  std::size_t const m = scales.size(), n = 31 * 24;
  std::vector<float> x(m * n);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      float const middle = std::ldexp(static_cast<float>(1 + j % 31), static_cast<int>(j / 31 % 8) - 4);
      float const next = std::nextafter(middle, j % 2 == 0 ? 1e9f : 0.0f);
      auto const product = static_cast<double>(scales[i]) * (static_cast<double>(middle) + next) / 2;
      auto const bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(product));
      x[i * n + j] = __builtin_bit_cast(float, bits + static_cast<std::uint32_t>(j / 248) - 1);
    }
  How const how{Granularity::per_row, true, true, false};
  check_views<Exec>(ViewOf<Exec, e4m3_t**>("out", m, n), ViewOf<Exec, e4m3_t**>("transposed", n, m),
                    ViewOf<Exec, float**>("in", m, n), x, how, scales);
  check_views<Exec>(ViewOf<Exec, e5m2_t**>("out", m, n), ViewOf<Exec, e5m2_t**>("transposed", n, m),
                    ViewOf<Exec, float**>("in", m, n), x, how, scales);
}

TEST_CASE_TEMPLATE_DEFINE("quantize of NaN and Inf with a transposed copy", Exec, blocks_nan) {
  std::size_t const m = 136, n = 264;
  auto x = uniform<float>(m * n, 12);
  x[3 * n + 5] = std::nanf(""), x[130 * n + 140] = -std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < 128; ++j) x[7 * n + j] = 0;
  for (Granularity const granularity : granularities)
    check_views<Exec>(ViewOf<Exec, e5m2_t**>("out", m, n), ViewOf<Exec, e5m2_t**>("transposed", n, m),
                      ViewOf<Exec, float**>("in", m, n), x, {granularity, false, true, false});
}

TEST_CASE_TEMPLATE_DEFINE("quantize with its own scales given anew gives the same bits", Exec, blocks_again) {
  std::size_t const m = 200, n = 328;
  ViewOf<Exec, bf16_t**> const in("in", m, n);
  ViewOf<Exec, e4m3_t**> const out("out", m, n), again("again", m, n);
  fill(in, uniform<bf16_t>(m * n, 14, -5, 5));
  for (Granularity const granularity : granularities)
    with_scales<Exec>(granularity, Groups(granularity, m, n), [&](auto const& scales) {
      quantize(Exec{}, out, scales, in, {.granularity = granularity});
      quantize(Exec{}, again, scales, in, {.granularity = granularity, .given_scales = true});
      CHECK(different(values(out), values(again)) == 0);
    });
}

TEST_CASE_TEMPLATE_DEFINE("quantize rounds stochastically without bias", Exec, blocks_bias) {
  std::size_t const m = 16, n = 64;
  auto const x = uniform<float>(m * n, 1, -3, 3);
  ViewOf<Exec, float**> const in("in", m, n), back("back", m, n);
  ViewOf<Exec, e4m3_t**> const out("out", m, n);
  ViewOf<Exec, float> const scale("scale");
  fill(in, x);
  check_unbiased(x, [&](std::uint64_t offset) {
    quantize(Exec{}, out, scale, in, {.stochastic = true, .seed = 9, .offset = offset});
    dequantize(Exec{}, back, out, scale);
    return values(back);
  });
}

TEST_CASE_TEMPLATE_DEFINE("quantize of nothing clears amax and the count", Exec, blocks_empty) {
  for (auto const& [m, n] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 0}, {0, 0}}) {
    ViewOf<Exec, float**> const in("in", m, n), scales("scales", m, (n + 127) / 128),
        transposed_scales("transposed_scales", n, (m + 127) / 128);
    ViewOf<Exec, e4m3_t**> const out("out", m, n), transposed("transposed", n, m);
    ViewOf<Exec, float> const amax("amax"), scale("scale");
    ViewOf<Exec, std::int64_t> const saturated("saturated");
    poison(amax);
    poison(saturated);
    quantize(Exec{}, out, scales, in,
             QuantizeOptions{.granularity = Granularity::tile_1x128,
                             .amax = amax,
                             .transposed = transposed,
                             .transposed_scales = transposed_scales,
                             .saturated = saturated});
    CHECK(values(amax)[0] == 0);
    CHECK(values(saturated)[0] == 0);
    quantize(Exec{}, out, scale, in, QuantizeOptions{.transposed = transposed});
    CHECK(values(scale)[0] == 1);
  }
}

TEST_CASE_TEMPLATE_DEFINE("quantize names what is wrong with its options and writes nothing", Exec, blocks_errors) {
  std::size_t const m = 3, n = 200;
  ViewOf<Exec, float**> const in("in", m, n), scales("scales", m, 2), turned_scales("turned_scales", n, 1),
      few("few", n, 2);
  ViewOf<Exec, e4m3_t**> const out("out", m, n), turned("turned", n, m), same("same", m, n);
  ViewOf<Exec, float> const one("one");
  ViewOf<Exec, std::int64_t> const saturated("saturated");
  Kokkos::View<float const, typename Exec::memory_space> const only_read = one;
  auto const tiles = Granularity::tile_1x128;
  for (auto const& v : {out, turned}) poison(v);
  for (auto const& v : {scales, turned_scales}) poison(v);
  poison(one);
  poison(saturated);
  Exec const exec;
  auto const raises = [&](ErrorCode code, char const* part, auto const& call) {
    auto const text = error_of(call, code);
    CHECK(contains(text, "tessera::quantize"));
    CHECK(contains(text, part));
  };
  raises(ErrorCode::extent, "transposed (3, 200)",
         [&] { quantize(exec, out, one, in, QuantizeOptions{.transposed = same}); });
  raises(ErrorCode::extent, "transposed_scales (200, 2)", [&] {
    quantize(exec, out, scales, in,
             QuantizeOptions{.granularity = tiles, .transposed = turned, .transposed_scales = few});
  });
  raises(ErrorCode::value, "needs transposed_scales",
         [&] { quantize(exec, out, scales, in, QuantizeOptions{.granularity = tiles, .transposed = turned}); });
  raises(ErrorCode::value, "tile_1x128 alone", [&] {
    quantize(exec, out, one, in, QuantizeOptions{.transposed = turned, .transposed_scales = turned_scales});
  });
  raises(ErrorCode::value, "const", [&] { quantize(exec, out, only_read, in); });

  using Memory = typename Exec::memory_space;
  using Right = Kokkos::LayoutRight;
  Kokkos::View<e4m3_t**, Right, Memory> const null_turned(static_cast<e4m3_t*>(nullptr), n, m),
      over_out(out.data(), n, m), over_in(reinterpret_cast<e4m3_t*>(in.data()), n, m);
  Kokkos::View<float**, Right, Memory> const over_scales(scales.data(), n, 1);
  Kokkos::View<std::int64_t, Right, Memory> const over_turned(reinterpret_cast<std::int64_t*>(turned.data()));
  Kokkos::View<float, Right, Memory> const in_out(reinterpret_cast<float*>(out.data()));
  raises(ErrorCode::null_data, "transposed",
         [&] { quantize(exec, out, one, in, QuantizeOptions{.transposed = null_turned}); });
  raises(ErrorCode::overlap, "transposed",
         [&] { quantize(exec, out, one, in, QuantizeOptions{.transposed = over_out}); });
  raises(ErrorCode::overlap, "transposed",
         [&] { quantize(exec, out, one, in, QuantizeOptions{.transposed = over_in}); });
  raises(ErrorCode::overlap, "transposed_scales", [&] {
    quantize(exec, out, scales, in,
             QuantizeOptions{.granularity = tiles, .transposed = turned, .transposed_scales = over_scales});
  });
  raises(ErrorCode::overlap, "saturated",
         [&] { quantize(exec, out, one, in, QuantizeOptions{.transposed = turned, .saturated = over_turned}); });
  raises(ErrorCode::overlap, "out", [&] { quantize(exec, out, in_out, in, {.given_scales = true}); });
  for (auto const& v : {out, turned}) CHECK(is_poisoned(v));
  for (auto const& v : {scales, turned_scales}) CHECK(is_poisoned(v));
  CHECK(is_poisoned(one));
  CHECK(is_poisoned(saturated));
}

TEST_CASE_TEMPLATE_APPLY(blocks_sizes, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_types, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_layouts, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_special, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_middles, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_nan, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_again, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_bias, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_empty, Spaces);
TEST_CASE_TEMPLATE_APPLY(blocks_errors, Spaces);
