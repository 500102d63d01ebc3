// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/arranged_values.hpp"

#include <cstring>

using namespace tessera;
using namespace tessera::test;

TEST_CASE("the hopper pipeline attends over e4m3") {
  for (bool causal : {false, true}) {
    run_case<e4m3_t, bf16_t>({1, 2, 2, 128, 128, 128, 128}, {.causal = causal});
    run_case<e4m3_t, bf16_t>({2, 4, 2, 100, 333, 128, 128}, {.causal = causal});
    run_case<e4m3_t, float>({1, 2, 1, 300, 200, 128, 120}, {.causal = causal});  // causal: some queries see no key
    run_case<e4m3_t, fp16_t>({1, 2, 1, 257, 385, 64, 64}, {.causal = causal});
    run_case<e4m3_t, bf16_t>({1, 2, 2, 129, 511, 80, 72}, {.causal = causal});
    run_case<e4m3_t, float>({1, 1, 1, 70, 257, 48, 37}, {.causal = causal});  // V as bytes, O as single elements
    run_case<e4m3_t, bf16_t>({1, 2, 1, 150, 170, 256, 256}, {.causal = causal});
    run_case<e4m3_t, bf16_t>({2, 2, 2, 257, 641, 208, 200}, {.causal = causal});
    run_case<e4m3_t, bf16_t>({2, 8, 2, 3, 700, 128, 128}, {.causal = causal});  // four heads a tile
    run_case<e4m3_t, bf16_t>({2, 8, 2, 1, 300, 256, 256}, {.causal = causal});
    run_case<e4m3_t, e4m3_t>({1, 2, 2, 20, 90, 64, 64}, {.causal = causal});
  }
  for (bool causal : {false, true}) run_case<e4m3_t, bf16_t>({1, 1, 1, 130, 4100, 128, 128}, {.causal = causal});
}

TEST_CASE("the hopper pipeline attends over e5m2") {
  for (bool causal : {false, true}) {
    run_case<e5m2_t, bf16_t>({2, 4, 2, 100, 333, 128, 128}, {.causal = causal});
    run_case<e5m2_t, float>({1, 2, 1, 257, 385, 64, 40}, {.causal = causal});
    run_case<e5m2_t, bf16_t>({1, 2, 1, 150, 170, 256, 256}, {.causal = causal});
    run_case<e5m2_t, bf16_t>({2, 8, 2, 3, 700, 128, 128}, {.causal = causal});
  }
}

TEST_CASE("the hopper pipeline attends over fp32 in tf32") {
  for (bool causal : {false, true}) {
    run_case<float, float>({1, 2, 2, 128, 128, 128, 128}, {.causal = causal});
    run_case<float, float>({2, 4, 2, 100, 333, 128, 128}, {.causal = causal});
    run_case<float, bf16_t>({1, 2, 1, 300, 200, 128, 120}, {.causal = causal});
    run_case<float, float>({1, 2, 1, 257, 385, 64, 64}, {.causal = causal});
    run_case<float, float>({1, 2, 2, 129, 511, 72, 40}, {.causal = causal});
    run_case<float, float>({1, 1, 1, 70, 257, 44, 37}, {.causal = causal});
    run_case<float, float>({2, 8, 2, 3, 700, 128, 128}, {.causal = causal});
    run_case<float, float>({2, 12, 2, 5, 300, 64, 64}, {.causal = causal});
  }
}

TEST_CASE("scales, lengths, layouts and parts of the keys go with arranged values") {
  for (bool causal : {false, true}) {
    Setting const setting{.causal = causal, .scaled = true};
    run_case<e4m3_t, bf16_t>({2, 4, 2, 140, 333, 128, 128}, setting);
    run_case<e4m3_t, bf16_t>({2, 4, 2, 2, 333, 64, 64}, setting);  // scales differ: a head a tile
    run_case<float, float>({2, 4, 2, 140, 150, 64, 64}, setting);
    Setting const layout{.causal = causal, .bshd = true};
    run_case<e4m3_t, bf16_t>({2, 4, 2, 140, 150, 128, 128}, layout);
    run_case<float, float>({2, 4, 2, 140, 150, 128, 128}, layout);
    Setting const lengths{.causal = causal, .spoiled = true, .lengths = {177, 300, 0, 5}};
    run_case<e4m3_t, bf16_t>({4, 2, 1, 130, 300, 128, 128}, lengths);
    run_case<float, float>({4, 2, 1, 130, 300, 128, 128}, lengths);
    Setting const parts{.causal = causal, .splits = 3};
    run_case<e4m3_t, bf16_t>({2, 8, 2, 1, 1500, 128, 128}, parts);
    run_case<e4m3_t, bf16_t>({1, 2, 1, 150, 700, 256, 256}, parts);
    run_case<float, float>({2, 2, 1, 40, 500, 64, 64}, parts);
  }
}

namespace {

/// Row 3 of Q has a NaN and, where T has one, row 200 an infinity. Twice, for the bits.
template <class T, class TO>
void check_special_rows(int d) {
  CAPTURE(d);
  constexpr int s = 300;
  ViewOf<Exec, T****> const q("Q", 1, 1, s, d), k("K", 1, 1, s, d), v("V", 1, 1, s, d);
  ViewOf<Exec, TO****> const o("O", 1, 1, s, d);
  auto qh = uniform<T>(q.size(), 1, 0.1, 1);
  fill(k, uniform<T>(k.size(), 2, 0.1, 1)), fill(v, uniform<T>(v.size(), 3));
  qh[3 * d] = T(NAN);
  if (sizeof(T) > 1) qh[200 * d] = T(INFINITY);
  fill(q, qh);
  AttentionOptions options{.allow_tf32 = true, .algorithm = AttentionAlgorithm::hopper, .allow_fallback = false};
  ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, o, q, k, v, options));
  options.workspace = workspace.data(), options.workspace_bytes = workspace.size();
  attention(Exec{}, o, q, k, v, options);
  auto const first = values(o);
  int wrong = 0;
  for (int i = 0; i < s; ++i)
    for (int c = 0; c < d; ++c)
      wrong += std::isnan(to_double(first[i * d + c])) != (i == 3 || (sizeof(T) > 1 && i == 200));
  CHECK(wrong == 0);
  poison(o);
  attention(Exec{}, o, q, k, v, options);
  CHECK(std::memcmp(values(o).data(), first.data(), first.size() * sizeof(TO)) == 0);
}

}  // namespace

TEST_CASE("NaN and Inf stay in their rows of arranged values, and bits are repeated") {
  for (int d : {64, 128, 256}) check_special_rows<e4m3_t, bf16_t>(d);
  for (int d : {64, 128}) check_special_rows<float, float>(d);
}

TEST_CASE("the plan says what keeps e4m3 and fp32 from the hopper pipeline") {
  ViewOf<Exec, e4m3_t****> const q("Q", 1, 2, 64, 128);
  ViewOf<Exec, bf16_t****> const o("O", 1, 2, 64, 128), wide_o("O", 1, 2, 64, 256);
  ViewOf<Exec, float****> const single("Q", 1, 2, 64, 128), wide("Q", 1, 2, 64, 256);
  ViewOf<Exec, char*> const workspace("workspace", 2 * 128 * 64 * 4);
  AttentionOptions const room{.allow_tf32 = true, .workspace = workspace.data(), .workspace_bytes = workspace.size()};
  auto const reason = [](auto const& o, auto const& x, AttentionOptions const& options, auto const&... functors) {
    AttentionPlan const plan = attention_plan(Exec{}, o, x, x, x, options, functors...);
    CHECK(plan.algorithm == AttentionAlgorithm::tiled);
    return std::string(plan.reason);
  };
  CHECK(attention_plan(Exec{}, o, q, q, q, room).algorithm == AttentionAlgorithm::hopper);
  CHECK(attention_plan(Exec{}, o, single, single, single, room).algorithm == AttentionAlgorithm::hopper);
  CHECK(attention_workspace_size(Exec{}, o, q, q, q) == 2 * 128 * 128);  // lines of 128 bytes
  CHECK(contains(reason(o, q, {}), "options.workspace"));
  auto less = room, tiles = room;
  less.workspace_bytes = 2 * 128 * 128 - 1;
  CHECK(contains(reason(o, q, less), "options.workspace"));
  CHECK(contains(reason(o, single, {}), "allow_tf32"));
  CHECK(contains(reason(wide_o, wide, room), "128 features"));
  ViewOf<Exec, float***> const scales("scales", 1, 1, 1);
  tiles.k_tile_scale = scales, tiles.scale_keys = 100;
  CHECK(contains(reason(o, q, tiles), "multiple of 128 keys"));
  tiles.scale_keys = 256;
  CHECK(contains(reason(o, single, tiles), "8-bit operands"));
  CHECK(attention_plan(Exec{}, o, q, q, q, tiles).algorithm == AttentionAlgorithm::hopper);
  CHECK(contains(reason(o, q, room, score::with_dropout()), "dropout"));
  // This source is compiled for that pipeline, so that functors of its own run there.
  CHECK(attention_plan(Exec{}, o, q, q, q, room, score::SoftCap{4.0}).algorithm == AttentionAlgorithm::hopper);
  poison(o);
  auto const asked = [&] {
    attention(Exec{}, o, q, q, q, {.algorithm = AttentionAlgorithm::hopper, .allow_fallback = false});
  };
  CHECK(contains(error_of(asked, ErrorCode::unsupported), "attention_workspace_size"));
  CHECK(is_poisoned(o));
}
