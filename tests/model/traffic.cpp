// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model.hpp>

#include "support/support.hpp"

namespace model = tessera::model;
using model::AttentionShape;
using model::MatmulShape;
using tessera::ErrorCode;
using tessera::test::contains;
using tessera::test::error_of;

TEST_CASE("model: coalescing, tiling by T and coarsening by C") {
  MatmulShape const s{1024, 1024, 1024, 4};
  double const products = 1024.0 * 1024 * 1024;
  CHECK(model::hbm_traffic_matmul_naive(s).read_bytes == 33 * products);
  CHECK(model::hbm_traffic_matmul_coalesced(s).read_bytes == 5 * products);
  CHECK(model::hbm_traffic_matmul_coalesced({1024, 1024, 1024, 2}).read_bytes == 3 * products);
  CHECK(model::hbm_traffic_matmul_naive(s).written_bytes == 8 * model::hbm_traffic_matmul_coalesced(s).written_bytes);
  double const without = model::hbm_traffic_matmul_without_reuse(s).read_bytes;
  CHECK(without == 8 * products);
  for (std::int64_t const t : {8, 16, 32, 64}) {
    double const tiled = model::hbm_traffic_matmul_tiled(s, t, t).read_bytes;
    CHECK(without / tiled == doctest::Approx(static_cast<double>(t)));  // reuse factor T
    for (std::int64_t const c : {1, 2, 4, 8}) {
      double const coarsened = model::hbm_traffic_matmul_coarsened(s, t, c).read_bytes;
      CHECK(tiled / coarsened == doctest::Approx(2.0 * static_cast<double>(c) / static_cast<double>(1 + c)));
    }
  }
  // One tile that holds everything reads each operand once.
  CHECK(model::hbm_traffic_matmul_tiled(s, 1024, 1024).total_bytes() ==
        model::gemm_work(1024, 1024, 1024, 4, 4, 4).bytes);
}

TEST_CASE("model: partial tiles are read like whole rows of tiles") {
  CHECK(model::hbm_traffic_matmul_tiled({33, 65, 10, 2}, 32, 32).read_bytes == (3 * 33 * 10 + 2 * 10 * 65) * 2);
  CHECK(model::hbm_traffic_matmul_tiled({0, 65, 10, 2}, 32, 32).total_bytes() == 0);
  CHECK(model::hbm_traffic_matmul_naive({7, 9, 0, 4}).read_bytes == 0);
  CHECK(model::hbm_traffic_matmul_naive({7, 9, 0, 4}).written_bytes == 7 * 9 * 32);
}

TEST_CASE("model: chains move 2n tensors, or 2") {
  for (int n = 1; n <= 8; ++n) {
    CHECK(model::hbm_traffic_chain_unfused(n, 1000, 2).total_bytes() == 2.0 * n * 1000 * 2);
    CHECK(model::hbm_traffic_chain_fused(n, 1000, 2).total_bytes() == 2.0 * 1000 * 2);
  }
  CHECK(model::hbm_traffic_chain_unfused(0, 1000, 2).total_bytes() == 0);
  CHECK(model::hbm_traffic_chain_fused(0, 1000, 2).total_bytes() == 0);
  CHECK(model::hbm_traffic_chain_fused(3, 0, 2).total_bytes() == 0);
}

TEST_CASE("model: attention with and without S and P in memory") {
  AttentionShape const s{.batch = 2,
                         .query_heads = 4,
                         .kv_heads = 4,
                         .query_length = 256,
                         .kv_length = 512,
                         .head_size = 64,
                         .value_size = 32};
  double const heads = 8 * 2;  // times the size of an element
  auto const naive = model::hbm_traffic_attention_naive(s, 2);
  CHECK(naive.read_bytes == heads * (256 * 64 + 512 * 64 + 512 * 32 + 2 * 256 * 512));
  CHECK(naive.written_bytes == heads * (2 * 256 * 512 + 256 * 32));
  auto const tiled = model::hbm_traffic_attention_tiled(s, 128, 2);
  CHECK(tiled.read_bytes == heads * (256 * 64 + 2 * 512 * (64 + 32)));
  CHECK(tiled.written_bytes == heads * 256 * 32);
  // A tile of all queries moves the least there is.
  CHECK(model::hbm_traffic_attention_tiled(s, 256, 2).total_bytes() == model::attention_work(s, false, 2).bytes);

  // The naive traffic grows with the square of the length, the tiled one by 1/tile_q of that.
  AttentionShape const longer{.query_length = 16384, .kv_length = 16384, .head_size = 128};
  CHECK(model::hbm_traffic_attention_naive(longer, 2).total_bytes() >
        7 * model::hbm_traffic_attention_tiled(longer, 128, 2).total_bytes() / 4);
  double before = 0;
  for (std::int64_t tile = 256; tile >= 1; tile /= 2) {
    double const now = model::hbm_traffic_attention_tiled(s, tile, 2).total_bytes();
    CHECK(now > before);
    before = now;
  }
}

TEST_CASE("model: fused LayerNorm moves four times less than five steps") {
  auto const five = model::hbm_traffic_layernorm_five_steps(1024, 4096, 2);
  auto const fused = model::hbm_traffic_layernorm_fused(1024, 4096, 2);
  CHECK(five.total_bytes() == 4 * fused.total_bytes());
  CHECK(fused.total_bytes() == 2.0 * 1024 * 4096 * 2);
  CHECK(model::hbm_traffic_layernorm_five_steps(0, 4096, 2).total_bytes() == 0);
}

TEST_CASE("model: three stacked sigmoids, 8 tensors stored, 5 recomputed") {
  CHECK(model::hbm_traffic_sigmoids_stored(3, 100, 4).total_bytes() == 8 * 100 * 4);
  CHECK(model::hbm_traffic_sigmoids_recomputed(3, 100, 4).total_bytes() == 5 * 100 * 4);
  for (int n = 2; n <= 10; ++n)
    CHECK(model::hbm_traffic_sigmoids_recomputed(n, 100, 4).total_bytes() <
          model::hbm_traffic_sigmoids_stored(n, 100, 4).total_bytes());
}

TEST_CASE("model: traffic refuses negative extents and empty tiles") {
  MatmulShape const good{4, 4, 4, 4};
  for (MatmulShape const bad : {MatmulShape{-1, 4, 4, 4}, MatmulShape{4, -1, 4, 4}, MatmulShape{4, 4, -1, 4}}) {
    error_of([&] { model::hbm_traffic_matmul_naive(bad); }, ErrorCode::extent);
    error_of([&] { model::hbm_traffic_matmul_coalesced(bad); }, ErrorCode::extent);
    error_of([&] { model::hbm_traffic_matmul_without_reuse(bad); }, ErrorCode::extent);
    error_of([&] { model::hbm_traffic_matmul_tiled(bad, 8, 8); }, ErrorCode::extent);
    error_of([&] { model::hbm_traffic_matmul_coarsened(bad, 8, 8); }, ErrorCode::extent);
  }
  error_of([&] { model::hbm_traffic_matmul_naive({4, 4, 4, 0}); }, ErrorCode::value);
  error_of([&] { model::hbm_traffic_matmul_tiled(good, 0, 8); }, ErrorCode::value);
  error_of([&] { model::hbm_traffic_matmul_tiled(good, 8, 0); }, ErrorCode::value);
  error_of([&] { model::hbm_traffic_matmul_coarsened(good, 8, 0); }, ErrorCode::value);
  error_of([&] { model::hbm_traffic_matmul_coarsened(good, 0, 8); }, ErrorCode::value);
  error_of([] { model::hbm_traffic_chain_unfused(-1, 8, 4); }, ErrorCode::extent);
  error_of([] { model::hbm_traffic_chain_fused(1, -8, 4); }, ErrorCode::extent);
  error_of([] { model::hbm_traffic_chain_fused(1, 8, 0); }, ErrorCode::value);
  error_of([] { model::hbm_traffic_attention_naive({.query_length = -1}, 2); }, ErrorCode::extent);
  error_of([] { model::hbm_traffic_attention_tiled({}, 0, 2); }, ErrorCode::value);
  error_of([] { model::hbm_traffic_layernorm_fused(-1, 8, 2); }, ErrorCode::extent);
  error_of([] { model::hbm_traffic_sigmoids_stored(0, 8, 2); }, ErrorCode::value);
  error_of([] { model::hbm_traffic_sigmoids_recomputed(3, -8, 2); }, ErrorCode::extent);
  CHECK(model::to_string(model::Traffic{3e9, 1.5e6}) == "3 GB read, 1.5 MB written");
}

TEST_CASE("model: training memory per parameter") {
  struct Case {
    model::TrainingRecipe recipe;
    double bytes;
  };
  using R = model::TrainingRecipe;
  for (Case const c : {Case{R::bf16_fp32_accumulation, 20}, Case{R::bf16, 16}, Case{R::transformer_engine, 16},
                       Case{R::fp8_lm_o3, 9}, Case{R::deepseek_v3, 15}, Case{R::nanotron_fp8, 10}}) {
    CAPTURE(model::to_string(c.recipe));
    CHECK(model::training_memory(c.recipe, 1).total_bytes() == c.bytes);
    CHECK(model::training_memory(c.recipe, 8'000'000'000).total_bytes() == c.bytes * 8e9);
    CHECK(model::training_memory(c.recipe, 0).total_bytes() == 0);
    error_of([&] { model::training_memory(c.recipe, -1); }, ErrorCode::extent);
  }
  // The accumulator is all that the first two differ in.
  CHECK(model::training_memory(R::bf16, 5).accumulated_gradients_bytes == 0);
  CHECK(model::training_memory(R::bf16_fp32_accumulation, 5).accumulated_gradients_bytes == 20);
  error_of([] { model::training_memory(static_cast<R>(77), 1); }, ErrorCode::value);
  CHECK(contains(model::to_string(model::training_memory(R::bf16_fp32_accumulation, 8'000'000'000)), "160 GB"));
}
