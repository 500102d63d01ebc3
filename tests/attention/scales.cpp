// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"

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
