// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/quantize.hpp>

#include <tessera/limits.hpp>

#include "quantize/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class Out>
Out rounded(float x) {
  if constexpr (std::is_same_v<Out, std::int8_t>)
    return std::isnan(x) ? std::int8_t{0}
                         : static_cast<std::int8_t>(std::nearbyint(std::fmin(std::fmax(x, -127), 127)));
  else
    return Out::saturate(x);
}

/// The definition in plain fp32, which every backend must match to the last bit.
template <class Out, class In>
struct Reference {
  std::vector<Out> out;
  std::vector<float> scales;
  float amax = 0;

  Reference(std::vector<In> const& in, std::size_t m, std::size_t n, Granularity granularity) : out(m * n) {
    Groups const groups(granularity, m, n);
    for (std::size_t r = 0; r < groups.rows; ++r)
      for (std::size_t c = 0; c < groups.columns; ++c) {
        float tile_amax = 0;
        auto const each = [&](auto const& f) {
          for (std::size_t i = r * groups.row_tile; i < std::min(m, (r + 1) * groups.row_tile); ++i)
            for (std::size_t j = c * groups.column_tile; j < std::min(n, (c + 1) * groups.column_tile); ++j)
              f(i * n + j);
        };
        each([&](std::size_t i) {
          float const x = std::fabs(static_cast<float>(in[i]));
          if (!(x <= tile_amax) && !std::isnan(tile_amax)) tile_amax = x;
        });
        float scale = tile_amax / largest<Out>;
        if (scale < std::numeric_limits<float>::min()) scale = std::numeric_limits<float>::min();
        if (tile_amax == 0) scale = 1;
        scales.push_back(scale);
        each([&](std::size_t i) { out[i] = rounded<Out>(static_cast<float>(in[i]) / scale); });
        if (!(tile_amax <= amax) && !std::isnan(amax)) amax = tile_amax;
      }
  }
};

/// The same View with its strides as numbers, so that tests over layouts instantiate their copies once.
template <class V>
auto strided(V const& v) {
  return Kokkos::View<typename V::data_type, Kokkos::LayoutStride, typename V::memory_space>(v);
}

/// quantize and dequantize into and from given Views, bit by bit against the definition.
template <class Exec, class Out, class In>
void check_views(Out const& out, In const& in, std::vector<typename In::value_type> const& x, Granularity granularity) {
  using Q = typename Out::value_type;
  using T = typename In::value_type;
  std::size_t const m = in.extent(0), n = in.extent(1);
  CAPTURE(detail::granularity_name(granularity));
  CAPTURE(m);
  CAPTURE(n);
  Reference<Q, T> const expected(x, m, n, granularity);
  with_scales<Exec>(granularity, Groups(granularity, m, n), [&](auto const& scales) {
    ViewOf<Exec, float> const amax("amax");
    fill(strided(in), x);
    poison(strided(out));
    poison(scales);
    poison(amax);
    quantize(Exec{}, out, scales, in, QuantizeOptions{.granularity = granularity, .amax = amax});
    CHECK(different(values(scales), expected.scales) == 0);
    CHECK(different(values(strided(out)), expected.out) == 0);
    CHECK(different(values(amax), std::vector<float>{expected.amax}) == 0);
    poison(strided(out));
    poison(scales);
    quantize(Exec{}, out, scales, in, QuantizeOptions{.granularity = granularity});
    CHECK(different(values(scales), expected.scales) == 0);
    CHECK(different(values(strided(out)), expected.out) == 0);

    ViewOf<Exec, float**> const back("back", m, n);
    dequantize(Exec{}, back, out, scales, {.granularity = granularity});
    Groups const groups(granularity, m, n);
    std::vector<float> product(m * n);
    for (std::size_t i = 0; i < m * n; ++i)
      product[i] = static_cast<float>(expected.out[i]) * expected.scales[groups(i / n, i % n)];
    CHECK(different(values(back), product) == 0);
  });
}

template <class Exec, class Q, class T>
void check_size(std::size_t m, std::size_t n, double range = 3) {
  ViewOf<Exec, T**> const in("in", m, n);
  ViewOf<Exec, Q**> const out("out", m, n);
  auto const x = uniform<T>(m * n, static_cast<unsigned>(m + n), -range, range);
  for (Granularity granularity : granularities) check_views<Exec>(out, in, x, granularity);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("quantize and dequantize give the same bits on every backend at every size", Exec,
                          quantize_sizes) {
  std::pair<std::size_t, std::size_t> const sizes[] = {
      {1, 1},    {1, 7},    {3, 127},  {2, 128},   {5, 129}, {128, 128}, {129, 257}, {127, 5},  {300, 200},
      {2, 1025}, {3, 8192}, {2, 8193}, {1, 20000}, {700, 3}, {7, 264},   {130, 200}, {3, 4104}, {2, 16384}};
  for (auto const& [m, n] : sizes) {
    check_size<Exec, e4m3_t, float>(m, n);
    check_size<Exec, e5m2_t, bf16_t>(m, n);
  }
}

TEST_CASE_TEMPLATE_DEFINE("quantize takes every pair of types", Exec, quantize_types) {
  for (double range : {1e-4, 20.0, 6e4}) {
    check_size<Exec, e4m3_t, bf16_t>(130, 272, range);
    check_size<Exec, e4m3_t, fp16_t>(130, 272, range);
    check_size<Exec, e4m3_t, double>(130, 272, range);
    check_size<Exec, e5m2_t, float>(130, 272, range);
    check_size<Exec, std::int8_t, float>(130, 272, range);
    check_size<Exec, std::int8_t, bf16_t>(130, 272, range);
  }
}

TEST_CASE_TEMPLATE_DEFINE("quantize takes any layout and alignment", Exec, quantize_layouts) {
  std::size_t const m = 140, n = 260;
  auto const x = uniform<bf16_t>(m * n, 9, -2, 2);
  ViewOf<Exec, e4m3_t**> const right("right", m, n);
  ViewOf<Exec, e4m3_t**, Kokkos::LayoutLeft> const left("left", m, n);
  ViewOf<Exec, bf16_t**> const in_right("in", m, n);
  ViewOf<Exec, bf16_t**, Kokkos::LayoutLeft> const in_left("in", m, n);
  auto const odd = [&](auto const& v) {
    return Kokkos::subview(v, std::pair<std::size_t, std::size_t>{1, m + 1},
                           std::pair<std::size_t, std::size_t>{1, n + 1});
  };
  ViewOf<Exec, bf16_t**> const padded_in("in", m + 2, n + 5);
  ViewOf<Exec, e4m3_t**> const padded_out("out", m + 2, n + 3);
  // Gaps between rows that are whole packs: tiles at the edge are partial, rows do not follow one another.
  ViewOf<Exec, bf16_t**> const gaps_in("in", m, 320);
  ViewOf<Exec, e4m3_t**> const gaps_out("out", m, 384);
  auto const whole = uniform<bf16_t>(m * 264, 10, -2, 2);
  auto const front = [&](auto const& v) {
    return Kokkos::subview(v, Kokkos::ALL, std::pair<std::size_t, std::size_t>{0, 264});
  };
  for (Granularity granularity : granularities) {
    check_views<Exec>(front(gaps_out), front(gaps_in), whole, granularity);
    check_views<Exec>(left, in_right, x, granularity);
    check_views<Exec>(left, in_left, x, granularity);
    check_views<Exec>(right, in_left, x, granularity);
    check_views<Exec>(odd(padded_out), odd(padded_in), x, granularity);
  }
}

TEST_CASE_TEMPLATE_DEFINE("zero tiles, subnormals, NaN and Inf have defined scales", Exec, quantize_special) {
  float const infinity = std::numeric_limits<float>::infinity();
  std::size_t const m = 260, n = 300;
  auto const random = uniform<float>(m * n, 12);
  auto const check = [&](auto const& change) {
    auto x = random;
    change(x);
    ViewOf<Exec, float**> const in("in", m, n);
    for (Granularity granularity : granularities) {
      check_views<Exec>(ViewOf<Exec, e4m3_t**>("out", m, n), in, x, granularity);
      check_views<Exec>(ViewOf<Exec, std::int8_t**>("out", m, n), in, x, granularity);
    }
  };
  check([](std::vector<float>& x) { std::fill(x.begin(), x.end(), 0.0f); });
  check([](std::vector<float>& x) { std::fill(x.begin(), x.end(), -0.0f); });
  check([](std::vector<float>& x) {
    for (float& v : x) v *= 1e-42f;  // the scale would be 0
  });
  check([](std::vector<float>& x) {
    for (float& v : x) v *= 3e38f;
  });
  check([](std::vector<float>& x) { x[128 * 300 + 130] = std::nanf(""), x[7] = -std::nanf("5"); });
  check([&](std::vector<float>& x) { x[3] = infinity, x[259 * 300 + 299] = -infinity; });

  // What the page says, spelt out: zeros give scale 1, a NaN comes back as NaN in its whole group and nowhere else.
  auto x = std::vector<float>(2 * 256, 0.0f);
  x[128] = std::nanf("");
  x[256] = 448;
  ViewOf<Exec, float**> const in("in", 2, 256), back("back", 2, 256), scales("scales", 2, 2);
  ViewOf<Exec, e4m3_t**> const out("out", 2, 256);
  fill(in, x);
  quantize(Exec{}, out, scales, in, {.granularity = Granularity::tile_1x128});
  auto const s = values(scales);
  CHECK(s[0] == 1);
  CHECK(std::isnan(s[1]));
  CHECK(s[2] == 1);
  CHECK(s[3] == 1);
  dequantize(Exec{}, back, out, scales, {.granularity = Granularity::tile_1x128});
  auto const y = values(back);
  CHECK(y[0] == 0);
  CHECK(std::isnan(y[130]));
  CHECK(y[256] == 448);
}

TEST_CASE_TEMPLATE_DEFINE("dequantize inverts quantize within half a unit of the format", Exec, quantize_round_trip) {
  std::size_t const m = 70, n = 400;
  auto const x = uniform<float>(m * n, 21, -5, 5);
  ViewOf<Exec, float**> const in("in", m, n);
  ViewOf<Exec, bf16_t**> const back("back", m, n);
  ViewOf<Exec, e4m3_t**> const out("out", m, n);
  ViewOf<Exec, float*> const scales("scales", m);
  fill(in, x);
  quantize(out, scales, in, {.granularity = Granularity::per_row});
  dequantize(back, out, scales, {.granularity = Granularity::per_row});
  auto const y = values(back);
  auto const s = values(scales);
  int far = 0;
  for (std::size_t i = 0; i < m * n; ++i) {
    // Half a unit of e4m3, absolute below its normal numbers; division, product and bf16 round once more each.
    double const half =
        std::max(limits<e4m3_t>::roundoff * std::abs(x[i]), s[i / n] * limits<e4m3_t>::min_subnormal / 2);
    far += std::abs(to_double(y[i]) - x[i]) > half + 2 * limits<bf16_t>::roundoff * std::abs(x[i]);
  }
  CHECK(far == 0);
}

TEST_CASE_TEMPLATE_DEFINE("empty matrices have empty scales, or 1", Exec, quantize_empty) {
  for (auto const& [m, n] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 0}, {0, 0}}) {
    ViewOf<Exec, float**> const in("in", m, n), back("back", m, n);
    ViewOf<Exec, e4m3_t**> const out("out", m, n);
    for (Granularity granularity : granularities)
      with_scales<Exec>(granularity, Groups(granularity, m, n), [&](auto const& scales) {
        ViewOf<Exec, float> const amax("amax");
        poison(amax);
        quantize(Exec{}, out, scales, in, QuantizeOptions{.granularity = granularity, .amax = amax});
        for (float s : values(scales)) CHECK(s == 1);
        CHECK(values(amax)[0] == 0);
        dequantize(Exec{}, back, out, scales, {.granularity = granularity});
      });
  }
}

TEST_CASE_TEMPLATE_DEFINE("quantize names what is wrong and writes nothing", Exec, quantize_errors) {
  ViewOf<Exec, float**> const in("in", 3, 200), tiles("tiles", 3, 2), back("back", 3, 200), back_narrow("back", 3, 199);
  ViewOf<Exec, e4m3_t**> const out("out", 3, 200), narrow("narrow", 3, 199);
  ViewOf<Exec, float*> const rows("rows", 3), few("few", 2);
  ViewOf<Exec, float> const one("one"), amax("amax");
  auto const row = QuantizeOptions{.granularity = Granularity::per_row};
  for (auto const& v : {out, narrow}) poison(v);
  for (auto const& v : {rows, few}) poison(v);
  for (auto const& v : {tiles, back, back_narrow}) poison(v);
  poison(one);
  poison(amax);
  Exec const exec;
  auto const raises = [&](ErrorCode code, char const* part, auto const& call) {
    auto const text = error_of(call, code);
    CHECK(contains(text, "quantize"));
    CHECK(contains(text, part));
  };
  raises(ErrorCode::extent, "(3, 199)", [&] { quantize(exec, narrow, one, in); });
  raises(ErrorCode::extent, "per_tensor needs rank 0", [&] { quantize(exec, out, rows, in); });
  raises(ErrorCode::extent, "per_row needs rank 1", [&] { quantize(exec, out, one, in, row); });
  raises(ErrorCode::extent, "per_row of a matrix (3, 200)", [&] { quantize(exec, out, few, in, row); });
  raises(ErrorCode::extent, "tile_128x128",
         [&] { quantize(exec, out, tiles, in, {.granularity = Granularity::tile_128x128}); });
  raises(ErrorCode::extent, "(3, 199)", [&] { dequantize(exec, back_narrow, out, one); });
  raises(ErrorCode::extent, "tile_1x128",
         [&] { dequantize(exec, back, out, rows, {.granularity = Granularity::tile_1x128}); });

  using Memory = typename Exec::memory_space;
  using Right = Kokkos::LayoutRight;
  Kokkos::View<float**, Right, Memory> const null_in(static_cast<float*>(nullptr), 3, 200);
  Kokkos::View<e4m3_t**, Right, Memory> const null_out(static_cast<e4m3_t*>(nullptr), 3, 200);
  Kokkos::View<float, Right, Memory> const null_one(static_cast<float*>(nullptr));
  raises(ErrorCode::null_data, "in (3, 200)", [&] { quantize(exec, out, one, null_in); });
  raises(ErrorCode::null_data, "out (3, 200)", [&] { quantize(exec, null_out, one, in); });
  raises(ErrorCode::null_data, "scales ()", [&] { quantize(exec, out, null_one, in); });
  raises(ErrorCode::null_data, "amax", [&] { quantize(exec, out, one, in, QuantizeOptions{.amax = null_one}); });
  raises(ErrorCode::null_data, "in (3, 200)", [&] { dequantize(exec, back, null_out, one); });
  raises(ErrorCode::null_data, "out (3, 200)", [&] { dequantize(exec, null_in, out, one); });
  raises(ErrorCode::null_data, "scales", [&] { dequantize(exec, back, out, null_one); });

  Kokkos::View<e4m3_t**, Right, Memory> const over_in(reinterpret_cast<e4m3_t*>(in.data()), 3, 200);
  Kokkos::View<float*, Right, Memory> const in_row(in.data(), 3), out_row(reinterpret_cast<float*>(out.data()), 3);
  Kokkos::View<float, Right, Memory> const in_one(in.data()), out_one(reinterpret_cast<float*>(out.data()));
  raises(ErrorCode::overlap, "out", [&] { quantize(exec, over_in, one, in); });
  raises(ErrorCode::overlap, "scales", [&] { quantize(exec, out, in_row, in, row); });
  raises(ErrorCode::overlap, "scales", [&] { quantize(exec, out, out_row, in, row); });
  raises(ErrorCode::overlap, "amax", [&] { quantize(exec, out, one, in, QuantizeOptions{.amax = in_one}); });
  raises(ErrorCode::overlap, "amax", [&] { quantize(exec, out, one, in, QuantizeOptions{.amax = out_one}); });
  raises(ErrorCode::overlap, "amax", [&] { quantize(exec, out, one, in, QuantizeOptions{.amax = one}); });
  raises(ErrorCode::overlap, "out", [&] { dequantize(exec, in, over_in, one); });
  raises(ErrorCode::overlap, "out", [&] { dequantize(exec, in, out, in_one); });
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(narrow));
  CHECK(is_poisoned(rows));
  CHECK(is_poisoned(few));
  CHECK(is_poisoned(one));
  CHECK(is_poisoned(amax));
  CHECK(is_poisoned(back));
  CHECK(is_poisoned(back_narrow));
}

TEST_CASE_TEMPLATE_APPLY(quantize_sizes, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_types, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_layouts, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_special, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_round_trip, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_empty, Spaces);
TEST_CASE_TEMPLATE_APPLY(quantize_errors, Spaces);
