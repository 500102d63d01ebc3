// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/work.hpp>

#include "support/support.hpp"

namespace model = tessera::model;
using model::AttentionShape;
using tessera::ErrorCode;
using tessera::test::error_of;

TEST_CASE("model: work of a matrix product") {
  auto const w = model::gemm_work(8192, 4096, 1024, 2, 1, 4);
  CHECK(w.flops == 2.0 * 8192 * 4096 * 1024);
  CHECK(w.bytes == 8192.0 * 1024 * 2 + 1024.0 * 4096 * 1 + 8192.0 * 4096 * 4);
  CHECK(model::gemm_work(8, 4, 2, 4, 4, 4, true).bytes - model::gemm_work(8, 4, 2, 4, 4, 4).bytes == 8 * 4 * 4);
  CHECK(model::gemm_work(8, 4, 2, 4, 4, 4, false, 3).flops == 3 * 2 * 8 * 4 * 2);
  CHECK(model::gemm_work(0, 4, 2, 4, 4, 4).flops == 0);
  CHECK(model::gemm_work(8, 4, 0, 4, 4, 4).bytes == 8 * 4 * 4);
  CHECK(model::gemm_work(8, 4, 2, 4, 4, 4, false, 0).bytes == 0);
  // Far past 64 bits.
  CHECK(model::gemm_work(1ll << 40, 1ll << 40, 1ll << 40, 2, 2, 2).flops == std::ldexp(1.0, 121));
  error_of([] { model::gemm_work(-1, 1, 1, 4, 4, 4); }, ErrorCode::extent);
  error_of([] { model::gemm_work(1, -1, 1, 4, 4, 4); }, ErrorCode::extent);
  error_of([] { model::gemm_work(1, 1, -1, 4, 4, 4); }, ErrorCode::extent);
  error_of([] { model::gemm_work(1, 1, 1, 4, 4, 4, false, -1); }, ErrorCode::extent);
  error_of([] { model::gemm_work(1, 1, 1, 0, 4, 4); }, ErrorCode::value);
  error_of([] { model::gemm_work(1, 1, 1, 4, 0, 4); }, ErrorCode::value);
  error_of([] { model::gemm_work(1, 1, 1, 4, 4, 0); }, ErrorCode::value);
}

TEST_CASE("model: pairs of causal attention against a count") {
  CHECK(model::attention_pairs(1024, 1024, true) == 1024.0 * 1024 / 2);
  CHECK(model::attention_pairs(1024, 512, false) == 1024.0 * 512);
  CHECK(model::attention_pairs(0, 512, true) == 0);
  CHECK(model::attention_pairs(512, 0, true) == 0);
  for (int q : {1, 7, 32, 100})
    for (int kv : {1, 7, 33, 128}) {
      double counted = 0;
      for (int i = 0; i < q; ++i) counted += std::max(0, std::min(kv, kv - q + i + 1));
      // The formula leaves out half of the diagonal, at most min(q, kv) pairs long.
      CHECK(counted - model::attention_pairs(q, kv, true) == 0.5 * std::min(q, kv));
    }
  error_of([] { model::attention_pairs(-1, 1, true); }, ErrorCode::extent);
  error_of([] { model::attention_pairs(1, -1, true); }, ErrorCode::extent);
}

TEST_CASE("model: work of attention") {
  AttentionShape const s{
      .batch = 2, .query_heads = 16, .kv_heads = 4, .query_length = 4096, .kv_length = 4096, .head_size = 128};
  auto const full = model::attention_work(s, false, 2);
  CHECK(full.flops == 4.0 * 2 * 16 * 4096 * 4096 * 128);
  CHECK(full.bytes == 2.0 * (2 * 2 * 16 * 4096 * 128 + 2 * 2 * 4 * 4096 * 128));
  CHECK(model::attention_work(s, true, 2).flops == full.flops / 2);
  CHECK(model::attention_work(s, false, 2, true).bytes - full.bytes == 2 * 16 * 4096 * 4);
  auto const backward = model::attention_backward_work(s, false, 2);
  CHECK(backward.flops == 2.5 * full.flops);
  CHECK(backward.bytes == 2 * full.bytes + 2 * 16 * 4096 * 4);
  AttentionShape other = s;
  other.value_size = 64;
  CHECK(model::attention_work(other, false, 2).flops == 0.75 * full.flops);
  other.value_size = 128;
  CHECK(model::attention_work(other, false, 2).bytes == full.bytes);
  other.query_length = 0;
  CHECK(model::attention_work(other, true, 2).flops == 0);

  other = s;
  other.kv_heads = 3;
  error_of([&] { model::attention_work(other, false, 2); }, ErrorCode::extent);
  other.kv_heads = 0;
  error_of([&] { model::attention_work(other, false, 2); }, ErrorCode::extent);
  other = s;
  other.head_size = -1;
  error_of([&] { model::attention_backward_work(other, false, 2); }, ErrorCode::extent);
  error_of([&] { model::attention_work(s, false, 0); }, ErrorCode::value);
}

TEST_CASE("model: work of element, row and cast operations") {
  CHECK(model::transform_work(1000, 6, 2, 8).bytes == 8000);
  CHECK(model::transform_work(1000, 6, 2, 8).flops == 8000);
  CHECK(model::rowwise_work(16, 1000, 2, 1, 2).bytes == 16 * 1000 * 3 + 2 * 1000 * 2);
  CHECK(model::rowwise_work(16, 1000, 2, 1).flops == 5 * 16 * 1000);
  CHECK(model::reduce_work(1000, 10, 2, 4).bytes == 2040);
  CHECK(model::reduce_work(1000, 10, 2, 4).flops == 1000);
  CHECK(model::cast_work(1000, 2, 1).bytes == 3000);
  CHECK(model::quantize_work(1000, 128, 2, 1).bytes == 3000 + 8 * 4);
  CHECK(model::quantize_work(1000, 1000, 2, 1).bytes == 3000 + 4);
  CHECK(model::quantize_work(0, 128, 2, 1).bytes == 0);
  CHECK(model::cast_work(0, 4, 2).flops == 0);
  error_of([] { model::transform_work(-1, 4, 4); }, ErrorCode::extent);
  error_of([] { model::transform_work(1, -4, 4); }, ErrorCode::value);
  error_of([] { model::transform_work(1, 4, 4, -1); }, ErrorCode::value);
  error_of([] { model::rowwise_work(-1, 4, 4, 4); }, ErrorCode::extent);
  error_of([] { model::rowwise_work(1, -4, 4, 4); }, ErrorCode::extent);
  error_of([] { model::rowwise_work(1, 4, 4, 4, -1); }, ErrorCode::value);
  error_of([] { model::reduce_work(4, -1, 4, 4); }, ErrorCode::extent);
  error_of([] { model::cast_work(-1, 4, 4); }, ErrorCode::extent);
  error_of([] { model::quantize_work(1, 0, 4, 4); }, ErrorCode::value);
  error_of([] { model::quantize_work(-1, 128, 4, 4); }, ErrorCode::extent);
}

TEST_CASE("model: work adds up and prints with units") {
  auto const w = 2.0 * (model::Work{1e9, 3e6} + model::Work{5e8, 0});
  CHECK(w.flops == 3e9);
  CHECK(w.bytes == 6e6);
  CHECK(model::to_string(w) == "3 GFLOP, 6 MB");
  CHECK(model::to_string(model::Work{0, 12}) == "0 FLOP, 12 B");
}
