// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// One element, one off a tile, several tiles with residues, more keys than queries and the other way round, heads that
/// share keys.
constexpr AttentionShape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},      {1, 2, 2, 7, 5, 3, 9},       {2, 4, 2, 33, 65, 16, 16},
    {1, 3, 1, 65, 33, 40, 24},  {1, 2, 1, 130, 257, 64, 64}, {1, 1, 1, 1, 300, 72, 128},
    {1, 2, 2, 97, 97, 128, 80}, {2, 6, 2, 1, 90, 24, 40},    {1, 8, 1, 8, 5, 8, 8}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward matches the reference on odd shapes, full and causal", Exec,
                          backward_id) {
  for (AttentionShape z : shapes) {
    check_backward<Exec, float>(z, {});
    check_backward<Exec, float>(z, causal(), true);
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes heads of up to 256 features", Exec, backward_features_id) {
  check_backward<Exec, float>({1, 1, 1, 35, 70, 256, 256}, causal());
  check_backward<Exec, float>({1, 2, 1, 34, 40, 129, 200}, {});
  check_backward<Exec, bf16_t>({1, 1, 1, 35, 40, 250, 17}, {});
}
TEST_CASE_TEMPLATE_APPLY(backward_features_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes 16-bit operands and gives fp32 gradients of them", Exec,
                          backward_types_id) {
  check_backward<Exec, fp16_t>({2, 2, 1, 50, 70, 64, 64}, causal());
  check_backward<Exec, bf16_t>({1, 4, 2, 130, 200, 128, 128}, {}, true);
  check_backward<Exec, bf16_t, float>({1, 2, 2, 150, 129, 96, 112}, causal());
  AttentionBackwardOptions deterministic = causal();
  deterministic.deterministic = true;
  check_backward<Exec, bf16_t>({1, 2, 1, 150, 129, 64, 64}, deterministic);
}
TEST_CASE_TEMPLATE_APPLY(backward_types_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward shares the keys of few heads out among teams", Exec,
                          backward_shares_keys_id) {
  AttentionShape const z{1, 2, 1, 150, 700, 24, 40};  // no whole number of tiles, nor of tiles for any number of teams
  check_backward<Exec, float>(z, {});
  check_backward<Exec, float>(z, causal());
  check_backward<Exec, bf16_t>(z, {});
  check_backward<Exec, bf16_t>(z, causal());
}
TEST_CASE_TEMPLATE_APPLY(backward_shares_keys_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes a gradient of O of another type", Exec, backward_mixed_id) {
  AttentionShape const z{1, 2, 1, 70, 90, 40, 24};
  BackwardOperands<Exec, bf16_t> const x(z, everything);
  ViewOf<Exec, float****> const d_o("dO", z.batch, z.heads, z.queries, z.d_v);
  fill(d_o, std::vector<float>(x.d_o.begin(), x.d_o.end()));
  AttentionBackwardOptions options;
  ViewOf<Exec, char*> const workspace(
      "workspace", attention_backward_workspace_size(Exec{}, x.dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov, x.x.lse,
                                                     d_o, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(Exec{}, x.dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov, x.x.lse, d_o, options);
  Exec{}.fence();
  x.check();
}
TEST_CASE_TEMPLATE_APPLY(backward_mixed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward runs in fp64 on the CPU", Exec, backward_fp64_id) {
  if constexpr (detail::Machine<Exec>::is_host) {
    check_backward<Exec, double>({1, 2, 1, 40, 53, 20, 33}, {}, true);
    check_backward<Exec, double>({1, 2, 2, 70, 53, 100, 128}, causal());
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_fp64_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward sees the keys of a window", Exec, backward_window_id) {
  for (int left : {0, 5, 70}) {
    AttentionBackwardOptions o = causal();
    o.forward.window_left = left;
    check_backward<Exec, float>({1, 2, 1, 130, 150, 16, 24}, o);
    check_backward<Exec, float>({1, 1, 1, 150, 100, 16, 24}, o);  // the first queries see nothing
  }
  AttentionBackwardOptions ahead;
  ahead.forward.window_left = 3;
  ahead.forward.window_right = 9;
  AttentionShape const z{1, 1, 1, 140, 120, 8, 8};
  BackwardOperands<Exec, float> x(z, [](int, int i, int j) { return j >= i - 20 - 3 && j <= i - 20 + 9; });
  x.run(ahead);
  x.check();
}
TEST_CASE_TEMPLATE_APPLY(backward_window_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward leaves keys behind a length without gradient, whatever they are", Exec,
                          backward_lengths_id) {
  for (bool is_causal : {false, true}) {
    AttentionBackwardOptions o;
    o.forward.causal = is_causal;
    check_backward_lengths<Exec, float>({4, 2, 1, 60, 130, 40, 24}, {70, 0, 129, 33}, o);
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward names what does not fit and writes nothing", Exec, backward_errors_id) {
  AttentionShape const z{1, 2, 1, 9, 11, 8, 8};
  BackwardOperands<Exec, float> const x(z, everything);
  auto const before = values(x.dq);
  auto const run = [&](auto const& dq, AttentionBackwardOptions o) {
    ViewOf<Exec, char*> workspace("workspace", 1 << 16);
    if (o.workspace_bytes == 0) o.workspace_bytes = workspace.size();
    o.workspace = workspace.data();
    attention_backward(Exec{}, dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov, x.x.lse, x.dov, o);
  };
  ViewOf<Exec, float****> const narrow("narrow", 1, 2, 9, 7);
  CHECK_THROWS_WITH_AS(run(narrow, {}), doctest::Contains("dQ"), Error);
  CHECK_THROWS_WITH_AS(run(x.x.qv, {}), doctest::Contains("Q"), Error);  // overlaps Q
  AttentionBackwardOptions small;
  small.workspace_bytes = 16;
  CHECK_THROWS_WITH_AS(run(x.dq, small), doctest::Contains("workspace"), Error);
  AttentionBackwardOptions scaled;
  ViewOf<Exec, float***> const one("one", 1, 1, 1);
  scaled.forward.k_tile_scale = one;
  CHECK_THROWS_WITH_AS(run(x.dq, scaled), doctest::Contains("scales of tiles of keys"), Error);
  AttentionBackwardOptions refused;
  refused.algorithm = AttentionAlgorithm::tensor_core;
  refused.allow_fallback = false;
  CHECK_THROWS_WITH_AS(run(x.dq, refused), doctest::Contains("tensor_core"), Error);
  auto const after = values(x.dq);
  CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0);
}
TEST_CASE_TEMPLATE_APPLY(backward_errors_id, Spaces);
