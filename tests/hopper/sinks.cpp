// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/scores.hpp"

using namespace tessera;
using namespace tessera::test;
using Exec = Kokkos::Cuda;

namespace {

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

void check_sinks(AttentionShape z, int splits) {
  CAPTURE(z.queries);
  CAPTURE(splits);
  HopperAttention const x(z);
  std::vector<float> const sinks_h = {1.5f, 40.0f, -INFINITY, -60.0f};
  ViewOf<Exec, float*> const sinks("sinks", z.heads);
  fill(sinks, sinks_h);
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    x.run({.causal = causal, .sinks = sinks, .splits = splits}, score::Identity{});
    auto r = x.reference(causal, unchanged);
    for (std::size_t row = 0; row < r.lse.size(); ++row) {  // O' = exp(LSE - LSE') O, LSE' = ln(exp(LSE) + exp(sink))
      double const sink = sinks_h[row / z.queries % z.heads], top = std::max(sink, r.lse[row]);
      double const lse = top == -INFINITY ? top : top + std::log(std::exp(sink - top) + std::exp(r.lse[row] - top));
      double const share = lse == -INFINITY ? 0 : std::exp(r.lse[row] - lse);
      double const error = 2 * r.lse_allowed[row] + 0x1p-19 * 60;
      r.lse[row] = lse;
      r.lse_allowed[row] = error;
      for (int c = 0; c < z.d_v; ++c) {
        double& o = r.o[row * z.d_v + c];
        double& allowed = r.allowed[row * z.d_v + c];
        allowed = (allowed + 2 * error * std::fabs(o)) * share;
        o *= share;
      }
    }
    check_attention(r, values(x.o));
    check_lse(r, values(x.lse));
  }
}

/// The reference's O anew, with the weights that are kept.
void check_dropout(AttentionShape z, int splits, bool windowed) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(splits);
  HopperAttention const x(z);
  AttentionDropout const dropout{.p = 0.25, .seed = 0x123456789abcdef0u, .offset = 3};
  AttentionOptions options{.causal = true, .dropout = dropout, .splits = splits};
  if (windowed) options.window_left = z.keys;
  x.run(options, score::Identity{});
  auto r = x.reference(true, unchanged);
  for (std::size_t row = 0; row < r.lse.size(); ++row) {
    int const i = static_cast<int>(row % z.queries), h = static_cast<int>(row / z.queries % z.heads),
              b = static_cast<int>(row / z.queries / z.heads);
    std::size_t const kv = std::size_t(b) * z.kv_heads + h / (z.heads / z.kv_heads);
    std::vector<double> o(z.d_v);
    for (int j = 0; j <= i + z.keys - z.queries; ++j) {
      if (!attention_keeps(dropout, b, h, i, j)) continue;
      double s = 0;
      for (int c = 0; c < z.d; ++c) s += to_double(x.qh[row * z.d + c]) * to_double(x.kh[(kv * z.keys + j) * z.d + c]);
      double const weight = std::exp(s / std::sqrt(double(z.d)) - r.lse[row]) / (1 - dropout.p);
      for (int c = 0; c < z.d_v; ++c) o[c] += weight * to_double(x.vh[(kv * z.keys + j) * z.d_v + c]);
    }
    for (int c = 0; c < z.d_v; ++c) {
      r.o[row * z.d_v + c] = o[c];
      r.allowed[row * z.d_v + c] *= (1 + 8 * unit_roundoff<float>()) / (1 - dropout.p);
    }
  }
  check_attention(r, values(x.o));
  check_lse(r, values(x.lse));
}

}  // namespace

TEST_CASE("the hopper pipeline counts sinks, once where keys are split") {
  for (int splits : {1, 3}) {
    check_sinks({1, 4, 2, 300, 700, 128, 128}, splits);
    check_sinks({2, 4, 1, 3, 900, 64, 64}, splits);  // heads that share keys are rows of a tile
    check_sinks({1, 4, 4, 140, 400, 256, 256}, splits);
  }
  check_sinks({1, 4, 4, 300, 200, 128, 128}, 1);  // causal: a hundred queries see no key
}

TEST_CASE("the hopper pipeline drops the weights that attention_keeps() says") {
  for (int splits : {1, 2}) {
    check_dropout({2, 4, 2, 150, 333, 128, 128}, splits, false);
    check_dropout({1, 2, 2, 257, 300, 64, 56}, splits, true);
    check_dropout({1, 2, 1, 130, 200, 256, 192}, splits, false);
  }
  check_dropout({2, 4, 2, 3, 150, 128, 128}, 1, false);
}
