// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm_block_scaled.hpp>
#include <tessera/quantize.hpp>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Kokkos::LayoutLeft;
using Kokkos::LayoutRight;

constexpr int blocks(int extent) { return (extent + 127) / 128; }

/// Scales between 2^-6 and 2^6, as far apart as blocks of real data may be.
std::vector<float> random_scales(std::size_t n, unsigned seed) {
  std::vector<float> scales = uniform<float>(n, seed, -6, 6);
  for (float& x : scales) x = std::exp2(x);
  return scales;
}

/// What products of 8-bit numbers lose on the tensor cores, where 32 of them and the sum so far are aligned to the
/// largest and cut at 13 bits; elsewhere three roundings more than a sum has, of the scales' products.
template <class Exec>
double lost() {
  return detail::has_bulk_pipeline<Exec> ? std::ldexp(33.0 / 8 + 4, -13) : std::ldexp(3.0, -24);
}

template <class Exec, class TA, class TB, class TC, class LA, class LC = LayoutRight>
void check_scaled(int m, int n, int k, double beta, GemmOptions options) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(options.tile_m);
  CAPTURE(options.tile_n);
  options.op_b = Op::transpose;
  ViewOf<Exec, TA**, LA> a("A", m, k);
  ViewOf<Exec, TB**, LA> b("B", n, k);
  ViewOf<Exec, TC**, LC> c("C", m, n);
  ViewOf<Exec, float**, LA> sa("scales_a", m, blocks(k)), sb("scales_b", blocks(n), blocks(k));
  auto const ah = uniform<TA>(a.size(), 1);
  auto const bh = uniform<TB>(b.size(), 2);
  auto const ch = uniform<TC>(c.size(), 3);
  auto const sah = random_scales(sa.size(), 4), sbh = random_scales(sb.size(), 5);
  fill(a, ah), fill(b, bh), fill(c, ch), fill(sa, sah), fill(sb, sbh);
  if (beta == 0) poison(c, 0xFF);
  options.workspace_bytes = gemm_workspace_size(Exec{}, 1.5, a, b, beta, c, options);
  ViewOf<Exec, unsigned char*> const workspace("workspace", options.workspace_bytes);
  if (workspace.size() > 0) options.workspace = workspace.data();
  gemm_block_scaled(Exec{}, 1.5, a, sa, b, sb, beta, c, options);
  std::vector<double> x(ah.size()), y(bh.size());
  for (int i = 0; i < m; ++i)
    for (int p = 0; p < k; ++p)
      x[std::size_t(i) * k + p] = to_double(ah[std::size_t(i) * k + p]) * sah[std::size_t(i) * blocks(k) + p / 128];
  for (int p = 0; p < k; ++p)
    for (int j = 0; j < n; ++j)
      y[std::size_t(p) * n + j] =
          to_double(bh[std::size_t(j) * k + p]) * sbh[std::size_t(j / 128) * blocks(k) + p / 128];
  check_gemm<float>(gemm_reference(m, n, k, 1.5, x, y, beta, ch), values(c), k, lost<Exec>());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm_block_scaled multiplies blocks by their scales", Exec, scaled_id) {
  for (auto [m, n, k] :
       {std::tuple(1, 1, 1), std::tuple(33, 65, 129), std::tuple(130, 272, 400), std::tuple(200, 400, 256)}) {
    check_scaled<Exec, e4m3_t, e4m3_t, float, LayoutRight>(m, n, k, 0, {});
    check_scaled<Exec, e4m3_t, e5m2_t, bf16_t, LayoutRight>(m, n, k, 0.5, {});
    check_scaled<Exec, e5m2_t, e5m2_t, float, LayoutLeft>(m, n, k, 0, {});
    check_scaled<Exec, e5m2_t, e4m3_t, fp16_t, LayoutLeft, LayoutLeft>(m, n, k, 0, {});
    check_scaled<Exec, e4m3_t, e4m3_t, float, LayoutRight>(m, n, k, 0, {.algorithm = Algorithm::coarsened});
  }
}
TEST_CASE_TEMPLATE_APPLY(scaled_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_block_scaled multiplies with every tile", Exec, tiles_id) {
  if (!detail::has_bulk_pipeline<Exec>) return;
  for (auto [tile_m, tile_n] : {std::pair(128, 128), std::pair(64, 128)})
    for (auto [cluster_m, cluster_n] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)})
      for (int k : {640, 1400})  // 5 and 11 blocks, which are taken by eights, pairs and alone
        check_scaled<Exec, e4m3_t, e4m3_t, bf16_t, LayoutRight>(
            300, 520, k, 0, {.tile_m = tile_m, .tile_n = tile_n, .cluster_m = cluster_m, .cluster_n = cluster_n});
}
TEST_CASE_TEMPLATE_APPLY(tiles_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_block_scaled undoes quantize", Exec, quantize_id) {
  int const m = 70, n = 150, k = 300;
  ViewOf<Exec, float**> a("A", m, k), b("B", n, k), c("C", m, n);
  ViewOf<Exec, e4m3_t**> qa("A", m, k), qb("B", n, k);
  ViewOf<Exec, float**> sa("scales_a", m, blocks(k)), sb("scales_b", blocks(n), blocks(k));
  auto const ah = uniform<float>(a.size(), 1, -1000, 1000), bh = uniform<float>(b.size(), 2, -1e-3, 1e-3);
  fill(a, ah), fill(b, bh);
  quantize(Exec{}, qa, sa, a, {.granularity = Granularity::tile_1x128});
  quantize(Exec{}, qb, sb, b, {.granularity = Granularity::tile_128x128});
  gemm_block_scaled(Exec{}, 1, qa, sa, qb, sb, 0, c, {.op_b = Op::transpose});
  std::vector<float> turned(bh.size());
  for (int j = 0; j < n; ++j)
    for (int p = 0; p < k; ++p) turned[std::size_t(p) * n + j] = bh[std::size_t(j) * k + p];
  // Both factors were rounded to e4m3: relative to its block's largest element, a unit roundoff of 2^-4 at most each.
  auto const r = gemm_reference(m, n, k, 1, ah, turned, 0, values(c));
  auto const got = values(c);
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(got[i] - r.c[i]) / (2.2 * std::ldexp(1.0, -4) * r.magnitude[i]));
  CHECK(worst < 1);
}
TEST_CASE_TEMPLATE_APPLY(quantize_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_block_scaled names scales that do not fit and writes nothing", Exec, errors_id) {
  ViewOf<Exec, e4m3_t**> a("A", 3, 130), b("B", 5, 130);
  ViewOf<Exec, float**> c("C", 3, 5), sa("scales_a", 3, 2), sb("scales_b", 1, 2), short_a("scales_a", 3, 1),
      wide_b("scales_b", 2, 2);
  GemmOptions const nt{.op_b = Op::transpose};
  poison(c);
  CHECK(contains(error_of([&] { gemm_block_scaled(Exec{}, 1, a, short_a, b, sb, 0, c, nt); }, ErrorCode::extent),
                 "scales_a"));
  CHECK(contains(error_of([&] { gemm_block_scaled(Exec{}, 1, a, sa, b, wide_b, 0, c, nt); }, ErrorCode::extent),
                 "scales_b"));
  GemmOptions tiled{.op_b = Op::transpose, .algorithm = Algorithm::tiled, .allow_fallback = false};
  CHECK(contains(error_of([&] { gemm_block_scaled(Exec{}, 1, a, sa, b, sb, 0, c, tiled); }, ErrorCode::unsupported),
                 "tiled"));
  CHECK(is_poisoned(c));
}
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
