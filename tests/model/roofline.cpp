// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model.hpp>

#include <limits>

#include "support/support.hpp"

namespace model = tessera::model;
using model::Bound;
using model::Type;
using tessera::ErrorCode;
using tessera::test::contains;
using tessera::test::error_of;

TEST_CASE("model: ridge points of an H100") {
  auto const d = model::h100_sxm();
  CHECK(std::lround(model::ridge_point_flops_per_byte(d, Type::bf16)) == 295);
  CHECK(std::lround(model::ridge_point_flops_per_byte(d, Type::fp8)) == 591);
}

TEST_CASE("model: roofline below, at and above the ridge") {
  auto d = model::h100_sxm();
  d.set_peak(Type::bf16, 1000);
  d.hbm_bytes_per_second = 10;

  auto const low = model::roofline(d, Type::bf16, 500, 10);  // 50 FLOP/B of 100
  CHECK(low.bound == Bound::memory);
  CHECK(low.intensity_flops_per_byte == 50);
  CHECK(low.ridge_flops_per_byte == 100);
  CHECK(low.attainable_flops_per_second == 500);
  CHECK(low.attainable_bytes_per_second == 10);
  CHECK(low.seconds == 1);

  auto const at = model::roofline(d, Type::bf16, 1000, 10);
  CHECK(at.bound == Bound::compute);
  CHECK(at.attainable_flops_per_second == 1000);
  CHECK(at.seconds == 1);

  auto const high = model::roofline(d, Type::bf16, 2000, 10);
  CHECK(high.bound == Bound::compute);
  CHECK(high.attainable_flops_per_second == 1000);
  CHECK(high.attainable_bytes_per_second == 5);
  CHECK(high.seconds == 2);
}

TEST_CASE("model: roofline without bytes, without operations, without either") {
  auto const d = model::h200_sxm();
  auto const pure = model::roofline(d, Type::fp32, 67e12, 0);
  CHECK(pure.bound == Bound::compute);
  CHECK(pure.intensity_flops_per_byte == std::numeric_limits<double>::infinity());
  CHECK(pure.attainable_flops_per_second == 67e12);
  CHECK(pure.attainable_bytes_per_second == 0);
  CHECK(pure.seconds == 1);
  auto const copy = model::roofline(d, Type::fp32, 0, 4.8e12);
  CHECK(copy.bound == Bound::memory);
  CHECK(copy.attainable_flops_per_second == 0);
  CHECK(copy.attainable_bytes_per_second == 4.8e12);
  CHECK(copy.seconds == 1);
  auto const nothing = model::roofline(d, Type::fp32, 0, 0);
  CHECK(nothing.seconds == 0);
  CHECK(nothing.bound == Bound::memory);
}

TEST_CASE("model: the roofline rises with intensity and stops at the peak") {
  auto const d = model::a100_80gb();
  double before = 0;
  for (double intensity = 0.25; intensity < 4096; intensity *= 2) {
    auto const r = model::roofline(d, Type::fp16, intensity * 1e9, 1e9);
    CHECK(r.attainable_flops_per_second >= before);
    CHECK(r.attainable_flops_per_second <= d.peak(Type::fp16));
    // Time and rate are two views of one prediction; three roundings.
    CHECK(r.seconds * r.attainable_flops_per_second == doctest::Approx(intensity * 1e9).epsilon(1e-14));
    before = r.attainable_flops_per_second;
  }
  CHECK(before == d.peak(Type::fp16));
}

TEST_CASE("model: roofline refuses what it cannot know") {
  auto const d = model::a100_80gb();
  CHECK(contains(error_of([&] { model::roofline(d, Type::fp8, 1, 1); }, ErrorCode::value), "fp8"));
  auto unknown = d;
  unknown.hbm_bytes_per_second = 0;
  CHECK(contains(error_of([&] { model::roofline(unknown, Type::fp32, 1, 1); }, ErrorCode::value), "bandwidth"));
  error_of([&] { model::roofline(d, Type::fp32, -1, 1); }, ErrorCode::value);
  error_of([&] { model::roofline(d, Type::fp32, 1, -1); }, ErrorCode::value);
  double const nan = std::numeric_limits<double>::quiet_NaN();
  error_of([&] { model::roofline(d, Type::fp32, nan, 1); }, ErrorCode::value);
  error_of([&] { model::roofline(d, Type::fp32, 1, nan); }, ErrorCode::value);
  error_of([&] { model::fraction_of_roofline(d, Type::fp32, {1, 1}, 0); }, ErrorCode::value);
}

TEST_CASE("model: the fraction of the roofline") {
  auto const d = model::h200_sxm();
  auto const work = model::gemm_work(4096, 4096, 4096, 2, 2, 2);
  CHECK(model::roofline(d, Type::bf16, work).bound == Bound::compute);
  // 792 TFLOP/s of 989.5.
  CHECK(model::fraction_of_roofline(d, Type::bf16, work, work.flops / 792e12) == doctest::Approx(792 / 989.5));
  CHECK(contains(model::to_string(model::roofline(d, Type::bf16, work)), "bound by compute"));
  CHECK(contains(model::to_string(model::roofline(d, Type::bf16, work)), "989.5 TFLOP/s attainable, 138.9 us"));
}

TEST_CASE("model: waves on an A100, 256x128 tiles") {
  auto const d = model::a100_80gb();
  auto const one = model::waves(d, 1792, 1792, 256, 128);
  CHECK(one.tiles == 98);
  CHECK(one.slots == 108);
  CHECK(one.waves == 1);
  CHECK(one.tail_efficiency == doctest::Approx(98.0 / 108));
  CHECK(one.tile_efficiency == 1);
  auto const two = model::waves(d, 1793, 1793, 256, 128);
  CHECK(two.tiles == 120);
  CHECK(two.waves == 2);
  CHECK(two.tail_efficiency == doctest::Approx(120.0 / 216));
  CHECK(two.efficiency() < 0.5);
  CHECK(model::to_string(one) == "98 tiles in 1 waves of 108, tail 90.74 %, tiles 100 % filled");
}

TEST_CASE("model: waves at the edges") {
  auto const d = model::h100_sxm();
  auto const none = model::waves(d, 0, 4096, 128, 256);
  CHECK(none.tiles == 0);
  CHECK(none.waves == 0);
  CHECK(none.efficiency() == 1);
  auto const small = model::waves(d, 1, 1, 128, 256);
  CHECK(small.tiles == 1);
  CHECK(small.tail_efficiency == doctest::Approx(1.0 / 132));
  CHECK(small.tile_efficiency == doctest::Approx(1.0 / (128 * 256)));
  auto const full = model::waves(d, 132 * 128, 256, 128, 256);
  CHECK(full.waves == 1);
  CHECK(full.efficiency() == 1);
  CHECK(model::waves(d, 132 * 128 + 1, 256, 128, 256).waves == 2);
  CHECK(model::waves(d, 264 * 128, 256, 128, 256, 2).waves == 1);
  std::int64_t const huge = std::numeric_limits<std::int64_t>::max();
  CHECK(model::waves(d, huge, 1, 128, 128).tiles == huge / 128 + 1);

  error_of([&] { model::waves(d, -1, 1, 128, 128); }, ErrorCode::extent);
  error_of([&] { model::waves(d, 1, -1, 128, 128); }, ErrorCode::extent);
  error_of([&] { model::waves(d, 1, 1, 0, 128); }, ErrorCode::value);
  error_of([&] { model::waves(d, 1, 1, 128, 0); }, ErrorCode::value);
  error_of([&] { model::waves(d, 1, 1, 128, 128, 0); }, ErrorCode::value);
  error_of([&] { model::waves(model::DeviceModel{}, 1, 1, 128, 128); }, ErrorCode::value);
}

TEST_CASE("model: the saw-tooth of waves only falls where a tile begins") {
  auto const d = model::a100_80gb();
  for (std::int64_t n = 1; n < 4096; ++n) {
    auto const a = model::waves(d, 1792, n, 256, 128), b = model::waves(d, 1792, n + 1, 256, 128);
    REQUIRE(b.waves >= a.waves);
    if (n % 128 != 0) REQUIRE(b.efficiency() > a.efficiency());
  }
}
