// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// One element, one off a tile, several tiles with residues, more keys than queries and the other way round, few
/// queries of several heads that share keys.
constexpr AttentionShape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},       {1, 2, 2, 7, 5, 3, 9},      {2, 4, 2, 33, 65, 16, 16},  {1, 3, 1, 65, 33, 40, 24},
    {1, 2, 1, 130, 257, 64, 64}, {1, 1, 1, 1, 300, 72, 128}, {1, 2, 2, 97, 97, 128, 80}, {2, 6, 2, 1, 90, 24, 40},
    {1, 6, 2, 4, 50, 16, 16},    {2, 8, 2, 15, 140, 16, 16}, {1, 8, 1, 8, 5, 8, 8}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention matches the reference on odd shapes, full and causal", Exec, shapes_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) check_case<Exec, float>(z, causal);
}
TEST_CASE_TEMPLATE_APPLY(shapes_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes heads of up to 256 features", Exec, features_id) {
  check_case<Exec, float>({1, 1, 1, 35, 70, 256, 256}, true);
  check_case<Exec, float>({1, 2, 1, 34, 40, 129, 200}, false);
  check_case<Exec, bf16_t>({1, 1, 1, 35, 40, 250, 17}, false);
}
TEST_CASE_TEMPLATE_APPLY(features_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes 16-bit operands", Exec, types_id) {
  for (bool causal : {false, true}) {
    check_case<Exec, fp16_t>({2, 2, 1, 50, 70, 64, 64}, causal);
    check_case<Exec, bf16_t>({2, 2, 1, 50, 70, 64, 64}, causal);
    check_case<Exec, bf16_t>({1, 4, 2, 130, 300, 128, 128}, causal);
    check_case<Exec, bf16_t>({1, 2, 2, 257, 129, 96, 112}, causal);
    check_case<Exec, bf16_t>({1, 4, 2, 130, 300, 128, 128}, causal, AttentionAlgorithm::tiled);
  }
}
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention in fp64 runs on the CPU", Exec, fp64_id) {
  if constexpr (detail::Machine<Exec>::is_host) {
    check_case<Exec, double>({2, 2, 1, 50, 70, 40, 24}, true);
    check_case<Exec, double>({1, 1, 1, 50, 70, 200, 150}, false);
  } else {
    CHECK_FALSE(detail::attention_runs<Exec, double>);
  }
}
TEST_CASE_TEMPLATE_APPLY(fp64_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention reads key lengths and ignores what lies behind them", Exec, lengths_id) {
  AttentionShape const z{4, 2, 1, 40, 150, 32, 48};
  for (bool causal : {false, true}) {
    Operands<Exec, float> x(z);
    std::vector<int> const lengths{150, 0, 77, 999};
    ViewOf<Exec, int*> lv("lengths", 4);
    fill(lv, lengths);
    auto const length = [&](int b) { return std::min(lengths[b], z.keys); };
    auto spoiled_k = x.k, spoiled_v = x.v;
    for (int b = 0; b < z.batch; ++b)
      for (int j = length(b); j < z.keys; ++j) {
        for (int c = 0; c < z.d; ++c) spoiled_k[(std::size_t(b) * z.keys + j) * z.d + c] = NAN;
        for (int c = 0; c < z.d_v; ++c) spoiled_v[(std::size_t(b) * z.keys + j) * z.d_v + c] = INFINITY;
      }
    fill(x.kv, spoiled_k);
    fill(x.vv, spoiled_v);
    AttentionOptions options = x.options();
    options.causal = causal;
    options.key_lengths = lv;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
    x.check([&](int b, int i, int j) { return j < length(b) && (!causal || j <= i + length(b) - z.queries); },
            unchanged, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes score functors", Exec, scores_id) {
  AttentionShape const z{2, 4, 2, 45, 140, 32, 32};
  AttentionOptions options;
  SUBCASE("soft cap, causal") {
    Operands<Exec, float> x(z);
    options = x.options();
    options.causal = true;
    options.scale = 0.7;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::SoftCap{5.0});
    // tanh errs by a few units of its argument's rounding: the slope is at most 1, so the bound on scores holds.
    x.check([&](int, int i, int j) { return j <= i + z.keys - z.queries; },
            [](double s, int, int, int, int) { return 5.0 * std::tanh(s / 5.0); }, 0.7);
  }
  SUBCASE("ALiBi") {
    Operands<Exec, float> x(z);
    std::vector<float> const slopes{0.5f, 0.25f, 0.125f, 0.0625f};
    ViewOf<Exec, float*> sv("slopes", 4);
    fill(sv, slopes);
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, x.options(), score::alibi(sv, z.keys - z.queries));
    x.check(
        everything, [&](double s, int, int h, int i, int j) { return s + slopes[h] * (j - i - (z.keys - z.queries)); },
        x.scale());
  }
  SUBCASE("an additive bias that hides keys") {
    Operands<Exec, float> x(z);
    auto bias = uniform<float>(std::size_t(z.heads) * z.keys, 9);
    for (std::size_t i = 0; i < bias.size(); i += 3) bias[i] = -INFINITY;
    ViewOf<Exec, float****> bv("bias", 1, z.heads, 1, z.keys);
    fill(bv, bias);
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, x.options(), score::additive_bias(bv));
    x.check(
        everything, [&](double s, int, int h, int, int j) { return s + bias[std::size_t(h) * z.keys + j]; }, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(scores_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes any strides and the layout with the sequence first", Exec, layouts_id) {
  AttentionShape const z{2, 4, 2, 37, 71, 24, 40};
  Operands<Exec, float> x(z);
  SUBCASE("batch, sequence, head, feature") {
    auto const swapped = [](auto const& from, int b, int h, int s, int d) {
      auto to = from;
      for (int i = 0; i < b; ++i)
        for (int j = 0; j < h; ++j)
          for (int l = 0; l < s; ++l)
            for (int c = 0; c < d; ++c)
              to[((std::size_t(i) * s + l) * h + j) * d + c] = from[((std::size_t(i) * h + j) * s + l) * d + c];
      return to;
    };
    ViewOf<Exec, float****> q("Q", 2, 37, 4, 24), k("K", 2, 71, 2, 24), v("V", 2, 71, 2, 40), o("O", 2, 37, 4, 40);
    fill(q, swapped(x.q, 2, 4, 37, 24));
    fill(k, swapped(x.k, 2, 2, 71, 24));
    fill(v, swapped(x.v, 2, 2, 71, 40));
    AttentionOptions options = x.options();
    options.layout = AttentionLayout::bshd;
    attention(Exec{}, o, q, k, v, options);
    fill(x.ov, swapped(values(o), 2, 37, 4, 40));
  }
  SUBCASE("LayoutLeft and features apart") {
    ViewOf<Exec, float****, Kokkos::LayoutLeft> q("Q", 2, 4, 37, 24), o("O", 2, 4, 37, 40);
    ViewOf<Exec, float*****> wide("K", 2, 2, 71, 24, 3);
    auto const k = Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, 1);
    fill(q, x.q);
    fill(k, x.k);
    attention(Exec{}, o, q, k, x.vv, x.options());
    fill(x.ov, values(o));
  }
  x.check(everything, unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
