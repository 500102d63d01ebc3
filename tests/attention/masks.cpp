// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <optional>

#include "attention/operands.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using End = std::optional<std::int64_t>;

/// Whether query i sees key j through a window, of as many keys and queries.
bool in_window(AttentionOptions const& o, int i, int j, int keys, int queries) {
  std::int64_t const own = i + keys - queries;
  return (!o.window_left || j >= own - *o.window_left) && (!o.window_right || j <= own + *o.window_right) &&
         (!o.causal || j <= own);
}

template <class Exec, class T>
void run_window(AttentionShape z, End left, End right, bool causal, AttentionOptions const& asked = {}) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(left.value_or(-1000));
  CAPTURE(right.value_or(-1000));
  CAPTURE(causal);
  Operands<Exec, T> x(z);
  AttentionOptions options = asked;
  options.lse = x.options().lse;
  options.lse_fp64 = x.options().lse_fp64;
  options.window_left = left;
  options.window_right = right;
  options.causal = causal;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  x.check([&](int, int i, int j) { return in_window(options, i, j, z.keys, z.queries); }, unchanged, x.scale());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention sees through sliding windows", Exec, windows_id) {
  for (AttentionShape z : {AttentionShape{1, 2, 1, 300, 300, 16, 24}, AttentionShape{2, 2, 2, 131, 420, 8, 8},
                           AttentionShape{1, 2, 1, 200, 77, 16, 16}}) {
    run_window<Exec, float>(z, 100, 0, false);
    run_window<Exec, float>(z, 20, {}, true);
    run_window<Exec, float>(z, 0, 0, false);
    run_window<Exec, float>(z, {}, 30, false);
    run_window<Exec, float>(z, 7, 130, false);
    run_window<Exec, float>(z, 150, 40, true);  // causal: nothing further right
  }
}
TEST_CASE_TEMPLATE_APPLY(windows_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes windows that miss their own key, and all of them", Exec, window_ends_id) {
  AttentionShape const z{1, 2, 2, 140, 140, 8, 8};
  run_window<Exec, float>(z, -3, 40, false);
  run_window<Exec, float>(z, 40, -5, false);
  run_window<Exec, float>(z, 3, -4, false);  // nobody sees a key
  run_window<Exec, float>(z, -140, {}, false);
  run_window<Exec, float>(z, {}, -140, false);
  run_window<Exec, float>(z, std::int64_t(1) << 40, std::int64_t(1) << 40, false);
  run_window<Exec, float>(z, -(std::int64_t(1) << 40), {}, false);
  run_window<Exec, float>({1, 2, 2, 5, 0, 8, 8}, 2, 0, false);
}
TEST_CASE_TEMPLATE_APPLY(window_ends_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention of one query sees through windows", Exec, one_query_id) {
  AttentionShape const z{2, 6, 2, 1, 300, 16, 24};
  run_window<Exec, float>(z, 99, 0, false);
  run_window<Exec, float>(z, 130, {}, true);
  run_window<Exec, float>(z, 99, -20, true);
  run_window<Exec, float>(z, {}, -300, false);
  run_window<Exec, float>(z, -1, {}, false);
}
TEST_CASE_TEMPLATE_APPLY(one_query_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention sees through windows of 16-bit and fp64 operands", Exec, window_types_id) {
  run_window<Exec, bf16_t>({1, 4, 2, 300, 500, 128, 96}, 130, 3, false);
  run_window<Exec, bf16_t>({1, 4, 2, 300, 500, 128, 96}, 130, 3, true, {.algorithm = AttentionAlgorithm::tiled});
  run_window<Exec, fp16_t>({1, 2, 2, 90, 90, 200, 40}, 33, {}, true);
  if constexpr (detail::Machine<Exec>::is_host) run_window<Exec, double>({1, 2, 2, 90, 190, 20, 40}, 50, 0, false);
}
TEST_CASE_TEMPLATE_APPLY(window_types_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core sees through windows", Exec, window_tensor_core_id) {
  AttentionOptions const asked = on_tensor_cores<Exec>();
  for (AttentionShape z : {AttentionShape{1, 4, 2, 300, 500, 128, 96}, AttentionShape{2, 2, 1, 333, 420, 64, 64},
                           AttentionShape{1, 2, 2, 200, 77, 256, 248}, AttentionShape{2, 4, 2, 40, 410, 120, 128}}) {
    run_window<Exec, bf16_t>(z, 130, 3, false, asked);
    if (!has_tensor_cores<Exec>()) break;  // another kernel runs, which other tests see more of
    run_window<Exec, fp16_t>(z, 33, {}, true, asked);
    run_window<Exec, bf16_t>(z, {}, 30, false, asked);
    run_window<Exec, bf16_t>(z, 3, -4, false, asked);  // nobody sees a key
    run_window<Exec, bf16_t>(z, -70, 150, false, asked);
  }
  run_window<Exec, bf16_t>({2, 8, 2, 1, 700, 128, 128}, 299, 0, false, asked);
}
TEST_CASE_TEMPLATE_APPLY(window_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("windows go with key lengths and scores", Exec, window_lengths_id) {
  AttentionShape const z{4, 2, 1, 70, 300, 16, 16};
  for (int const queries : {70, 1}) {
    AttentionShape shape = z;
    shape.queries = queries;
    Operands<Exec, float> x(shape);
    std::vector<int> const lengths{300, 0, 77, 151};
    ViewOf<Exec, int*> lv("lengths", 4);
    fill(lv, lengths);
    auto v = x.v;
    for (int b = 0; b < z.batch; ++b)
      for (std::size_t e = std::size_t(lengths[b]) * z.d_v; e < std::size_t(z.keys) * z.d_v; ++e)
        v[std::size_t(b) * z.keys * z.d_v + e] = NAN;
    fill(x.vv, v);
    AttentionOptions options = x.options();
    options.window_left = 60;
    options.window_right = 2;
    options.key_lengths = lv;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::SoftCap{3.0});
    x.check([&](int b, int i, int j) { return j < lengths[b] && in_window(options, i, j, lengths[b], queries); },
            [](double s, int, int, int, int) { return 3.0 * std::tanh(s / 3.0); }, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(window_lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("keys and values outside of all windows are not read", Exec, window_reads_id) {
  AttentionShape const z{1, 1, 1, 40, 600, 16, 16};  // the queries are the last 40; a window of 50 begins at key 510
  Operands<Exec, float> x(z);
  auto k = x.k, v = x.v;
  for (int e = 0; e < 384 * 16; ++e) k[e] = v[e] = NAN;  // whole tiles of any machine
  fill(x.kv, k), fill(x.vv, v);
  AttentionOptions options = x.options();
  options.window_left = 50;
  options.causal = true;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  x.check([&](int, int i, int j) { return in_window(options, i, j, z.keys, z.queries); }, unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(window_reads_id, Spaces);
