// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"
#include "support/key_tiles.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Powers of two: products with them are exact.
std::vector<float> powers(int n, int lowest) {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = std::ldexp(1.0f, lowest + i % 3);
  return x;
}

template <class T>
std::vector<float> scaled(std::vector<T> const& x, std::vector<float> const& scales) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(x[i]) * scales[i * scales.size() / x.size()];
  return y;
}

/// Scales of every head, of Q and K of every batch entry too; weights that some machine rounds to T err by 2 u of it.
template <class Exec, class T, class TO, class Score = score::Identity>
void run_case(AttentionShape z, AttentionOptions options, Score const& functor = {}, double cap = 0) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  Operands<Exec, T, TO> x(z);
  auto const qs = powers(z.batch * z.heads, -1), ks = powers(z.batch * z.kv_heads, -2), vs = powers(z.kv_heads, 1);
  ViewOf<Exec, float**> const q_scale("q_scale", z.batch, z.heads), k_scale("k_scale", z.batch, z.kv_heads),
      v_scale("v_scale", 1, z.kv_heads);
  fill(q_scale, qs), fill(k_scale, ks), fill(v_scale, vs);
  options.q_scale = q_scale, options.k_scale = k_scale, options.v_scale = v_scale;
  options.lse = x.lse;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, functor);
  std::vector<float> all_vs;
  for (int b = 0; b < z.batch; ++b) all_vs.insert(all_vs.end(), vs.begin(), vs.end());
  auto const r = attention_reference(
      z, scaled(x.q, qs), scaled(x.k, ks), scaled(x.v, all_vs), x.scale(),
      [&](int, int i, int j) { return !options.causal || j <= i + z.keys - z.queries; },
      [=](double s, int, int, int, int) { return cap > 0 ? cap * std::tanh(s / cap) : s; }, unit_roundoff<float>(),
      sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0);
  check_attention(r, values(x.ov));
  check_lse(r, values(x.lse));
}

/// Scales of tiles of keys beside one of V for all. `tiles` fewer than the longest sequence has: the last is for the
/// rest.
template <class Exec, class T, class TO, class Score = score::Identity>
void run_tiles(AttentionShape z, int scale_keys, AttentionOptions options, Places const& places = {},
               Score const& functor = {}, double cap = 0) {
  CAPTURE(z.keys);
  CAPTURE(scale_keys);
  Operands<Exec, T, TO> x(z);
  bool const packed = !places.starts.empty();
  int const entries = packed ? int(places.starts.size()) - 1 : z.batch,
            tiles = packed ? 2 : (z.keys + scale_keys - 1) / scale_keys;
  auto const ks = powers(entries * z.kv_heads * tiles, -2), vs = powers(entries * z.kv_heads * tiles, -1);
  ViewOf<Exec, float***> const k_scale("k_tile_scale", entries, z.kv_heads, tiles),
      v_scale("v_tile_scale", entries, z.kv_heads, tiles);
  ViewOf<Exec, float**> const all("v_scale", 1, 1);
  fill(k_scale, ks), fill(v_scale, vs), fill(all, std::vector<float>{4.0f});
  options.k_tile_scale = k_scale, options.v_tile_scale = v_scale, options.v_scale = all;
  options.scale_keys = scale_keys;
  ViewOf<Exec, int*> const starts("starts", places.starts.size());
  fill(starts, places.starts);
  if (packed) options.query_starts = options.key_starts = starts;
  x.attend(options, functor);
  AttentionOptions asked = options;
  asked.workspace_bytes = SIZE_MAX;
  bool const narrow = sizeof(T) == 1 && attention_plan(Exec{}, x.ov, x.qv, x.kv, x.vv, asked, functor).algorithm ==
                                            AttentionAlgorithm::hopper;  // weights of e4m3
  auto const visible = [&](int b, int i, int j) {
    int const s = places.sequence(b, j);
    if (packed && places.sequence(b, i) != s) return false;
    int const own = packed ? i : i + z.keys - z.queries;
    return (!options.causal || j <= own) && (!options.window_left || j >= own - *options.window_left);
  };
  auto const r = attention_reference(
      z, scaled(x.q, {1.0f}), scaled_by_tiles(x.k, z, z.d, ks, tiles, scale_keys, places),
      scaled(scaled_by_tiles(x.v, z, z.d_v, vs, tiles, scale_keys, places), {4.0f}), x.scale(), visible,
      [=](double s, int, int, int, int) { return cap > 0 ? cap * std::tanh(s / cap) : s; }, unit_roundoff<float>(),
      narrow ? unit_roundoff<e4m3_t>() : (sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0));
  check_attention(r, values(x.ov));
  check_lse(r, values(x.lse));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("elements may be scales times what is stored", Exec, scales_id) {
  for (bool causal : {false, true}) {
    AttentionOptions const options{.causal = causal};
    run_case<Exec, float, float>({2, 4, 2, 45, 140, 32, 24}, options);
    run_case<Exec, bf16_t, bf16_t>({2, 4, 2, 70, 140, 128, 128}, options);
    run_case<Exec, e4m3_t, bf16_t>({2, 4, 2, 45, 140, 32, 24}, options);
    run_case<Exec, e5m2_t, float>({2, 4, 2, 3, 140, 48, 48}, options);
    run_case<Exec, float, float>({1, 2, 1, 33, 70, 16, 16}, options, score::SoftCap{2.0}, 2.0);
  }
}
TEST_CASE_TEMPLATE_APPLY(scales_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("one scale may serve every head, and heads that share keys stay together", Exec, one_id) {
  AttentionShape const z{2, 6, 2, 3, 90, 24, 40};
  Operands<Exec, e4m3_t, float> x(z);
  ViewOf<Exec, float**> const scale("scale", 1, 1);
  fill(scale, std::vector<float>{0.25f});
  AttentionOptions options = x.options();
  options.q_scale = options.v_scale = scale;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  auto const r = attention_reference(z, scaled(x.q, {0.25f}), scaled(x.k, {1.0f}), scaled(x.v, {0.25f}), x.scale(),
                                     everything, unchanged, unit_roundoff<float>(), 0);
  check_attention(r, values(x.ov));
  check_lse(r, values(x.lse));
}
TEST_CASE_TEMPLATE_APPLY(one_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tiles of keys may have scales of their own", Exec, tiles_id) {
  for (bool causal : {false, true}) {
    AttentionOptions const options{.causal = causal};
    run_tiles<Exec, e4m3_t, bf16_t>({2, 4, 2, 70, 300, 32, 24}, 128, options);
    run_tiles<Exec, e5m2_t, float>({2, 4, 2, 3, 300, 32, 48}, 37, options);  // heads together
    run_tiles<Exec, float, float>({1, 2, 1, 33, 150, 16, 16}, 1, options);
    run_tiles<Exec, bf16_t, bf16_t>({1, 2, 1, 33, 150, 64, 64}, 1000, options);
    run_tiles<Exec, float, float>({1, 2, 1, 33, 150, 16, 16}, 64, options, {}, score::SoftCap{2.0}, 2.0);
  }
  run_tiles<Exec, e4m3_t, bf16_t>({2, 2, 1, 40, 300, 32, 32}, 64, {.causal = true, .window_left = 70});
  run_tiles<Exec, e4m3_t, bf16_t>({2, 2, 1, 1, 300, 32, 32}, 64, {.causal = true, .window_left = 70});
  run_tiles<Exec, e4m3_t, float>({1, 2, 1, 1, 900, 32, 32}, 128, {.splits = 3});
  run_tiles<Exec, e4m3_t, bf16_t>({1, 4, 2, 300, 300, 32, 32}, 64, {.causal = true}, {{0, 17, 17, 200, 300}});
}
TEST_CASE_TEMPLATE_APPLY(tiles_id, Spaces);

TEST_CASE("scales of other tiles of keys are errors that name them") {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  Operands<Exec, float> x({2, 4, 2, 5, 70, 8, 8});
  ViewOf<Exec, float***> const right("scale", 2, 2, 3), fewer("scale", 2, 2, 2), heads("scale", 2, 4, 3);
  auto const refused = [&](AttentionOptions const& options, ErrorCode code) {
    return error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options); }, code);
  };
  CHECK(contains(refused({.k_tile_scale = fewer, .scale_keys = 32}, ErrorCode::extent),
                 "k_tile_scale (2, 2, 2) is not (2 or 1, 2 or 1, 3) for tiles of 32 keys"));
  CHECK(contains(refused({.v_tile_scale = heads, .scale_keys = 32}, ErrorCode::extent), "v_tile_scale"));
  CHECK(contains(refused({.v_tile_scale = right, .scale_keys = 0}, ErrorCode::value), "scale_keys 0"));
  CHECK(is_poisoned(x.ov));
  CHECK_NOTHROW(attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {.v_tile_scale = right, .scale_keys = 32}));
}

TEST_CASE("scales of other batches or heads are errors that name them") {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  Operands<Exec, float> x({2, 4, 2, 5, 7, 8, 8});
  ViewOf<Exec, float**> const right("scale", 2, 4), wrong("scale", 2, 3);
  auto const refused = [&](AttentionOptions const& options) {
    return error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options); }, ErrorCode::extent);
  };
  CHECK(contains(refused({.q_scale = wrong}), "q_scale (2, 3) is not (2 or 1, 4 or 1)"));
  CHECK(contains(refused({.k_scale = right}), "k_scale (2, 4) is not (2 or 1, 2 or 1)"));
  CHECK(contains(refused({.v_scale = right}), "v_scale"));
  CHECK(is_poisoned(x.ov));
}
