// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/packed.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Compares with the reference over all rows, to which keys of other sequences are hidden.
template <class Exec, class T>
void run_packed(AttentionShape z, Starts const& q_starts, Starts const& k_starts, AttentionOptions options = {}) {
  CAPTURE(z.queries);
  CAPTURE(options.causal);
  Operands<Exec, T> x(z);
  auto const lse = x.options();
  options.lse = lse.lse;
  options.lse_fp64 = lse.lse_fp64;
  ViewOf<Exec, int*> const query_starts = on_device<Exec>(q_starts), key_starts = on_device<Exec>(k_starts);
  options.query_starts = query_starts;
  options.key_starts = key_starts;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  expect_rest_untouched(x.ov, q_starts, z.queries, z.d_v, T(0));
  using L = typename decltype(x.lse)::non_const_value_type;
  expect_rest_untouched(x.lse, q_starts, z.queries, 1, L(-INFINITY));
  auto const visible = packed_sight(options, q_starts, k_starts);
  x.check(visible, unchanged, x.scale());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention takes each of packed sequences by itself", Exec, packed_id) {
  run_packed<Exec, float>(packed_shape, query_starts, key_starts);
  run_packed<Exec, float>(packed_shape, query_starts, key_starts, {.causal = true});
  run_packed<Exec, float>(packed_shape, query_starts, query_starts, {.causal = true});
  run_packed<Exec, float>(packed_shape, query_starts, key_starts, {.causal = true, .window_left = 30});
  run_packed<Exec, float>(packed_shape, query_starts, query_starts, {.window_left = 10, .window_right = 50});
  run_packed<Exec, float>(packed_shape, {0, 340}, {0, 400}, {.causal = true});
  run_packed<Exec, float>(packed_shape, {5, 5, 5}, {7, 100, 400});  // no queries at all
  run_packed<Exec, float>(packed_shape, {0}, {400});                // no sequence
}
TEST_CASE_TEMPLATE_APPLY(packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes packed sequences of 16-bit and fp64 operands", Exec, packed_types_id) {
  AttentionShape const z{1, 4, 2, 340, 400, 128, 72};
  run_packed<Exec, bf16_t>(z, query_starts, key_starts, {.causal = true});
  run_packed<Exec, bf16_t>(z, query_starts, key_starts, {.algorithm = AttentionAlgorithm::tiled});
  if constexpr (detail::Machine<Exec>::is_host) run_packed<Exec, double>(packed_shape, query_starts, key_starts);
}
TEST_CASE_TEMPLATE_APPLY(packed_types_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core takes each of packed sequences by itself", Exec, packed_tensor_core_id) {
  AttentionShape const z{1, 4, 2, 340, 400, 128, 72}, narrow{1, 2, 2, 340, 400, 56, 64},
      few{1, 2, 1, 60, 400, 128, 128};
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    run_packed<Exec, bf16_t>(z, query_starts, key_starts, on_tensor_cores<Exec>({.causal = causal}));
    if (!has_tensor_cores<Exec>()) return;  // another kernel runs, which other tests see more of
    run_packed<Exec, fp16_t>(narrow, query_starts, query_starts, on_tensor_cores<Exec>({.causal = causal}));
    run_packed<Exec, bf16_t>(few, {2, 3, 3, 20, 59}, {0, 1, 100, 130, 380}, on_tensor_cores<Exec>({.causal = causal}));
  }
  run_packed<Exec, bf16_t>(z, query_starts, key_starts, on_tensor_cores<Exec>({.causal = true, .window_left = 30}));
  run_packed<Exec, bf16_t>({1, 2, 1, 340, 400, 256, 200}, query_starts, key_starts,
                           on_tensor_cores<Exec>({.window_left = 10, .window_right = 50}));
}
TEST_CASE_TEMPLATE_APPLY(packed_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention takes many short packed sequences", Exec, packed_many_id) {
  Starts const starts = many_short_starts();
  AttentionShape z = packed_shape;
  z.keys = z.queries;
  run_packed<Exec, float>(z, starts, starts, {.causal = true});
}
TEST_CASE_TEMPLATE_APPLY(packed_many_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("packed sequences lie with the sequence before the heads too", Exec, packed_layout_id) {
  AttentionShape const z = packed_shape;
  Operands<Exec, float> x(z);
  auto const swapped = [](auto const& from, int h, int s, int d) {
    auto to = from;
    for (int j = 0; j < h; ++j)
      for (int l = 0; l < s; ++l)
        for (int c = 0; c < d; ++c) to[(std::size_t(l) * h + j) * d + c] = from[(std::size_t(j) * s + l) * d + c];
    return to;
  };
  ViewOf<Exec, float****> q("Q", 1, z.queries, z.heads, z.d), k("K", 1, z.keys, z.kv_heads, z.d),
      v("V", 1, z.keys, z.kv_heads, z.d_v), o("O", 1, z.queries, z.heads, z.d_v);
  fill(q, swapped(x.q, z.heads, z.queries, z.d));
  fill(k, swapped(x.k, z.kv_heads, z.keys, z.d));
  fill(v, swapped(x.v, z.kv_heads, z.keys, z.d_v));
  poison(o);
  auto const q_starts = on_device<Exec>(query_starts), k_starts = on_device<Exec>(key_starts);
  AttentionOptions options{.layout = AttentionLayout::bshd, .query_starts = q_starts, .key_starts = k_starts};
  options.lse = x.lse;
  attention(Exec{}, o, q, k, v, options);
  expect_rest_untouched(o, query_starts, z.queries, z.heads * z.d_v, 0.f);
  expect_rest_untouched(x.lse, query_starts, z.queries, 1, -INFINITY);
  std::vector<float> back(x.ov.size());
  auto const out = values(o);
  for (int j = 0; j < z.heads; ++j)
    for (int l = 0; l < z.queries; ++l)
      for (int c = 0; c < z.d_v; ++c)
        back[(std::size_t(j) * z.queries + l) * z.d_v + c] = out[(std::size_t(l) * z.heads + j) * z.d_v + c];
  fill(x.ov, back);
  x.check(
      [&](int, int i, int j) {
        return sequence_of(query_starts, i) >= 0 && sequence_of(query_starts, i) == sequence_of(key_starts, j);
      },
      unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(packed_layout_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("packed sequences go with key lengths and scores, and know nothing of each other", Exec,
                          packed_lengths_id) {
  AttentionShape const z = packed_shape;
  Operands<Exec, float> x(z);
  Starts const lengths = {1, 0, 9, 100, 2, 4, -5};
  auto const q_starts = on_device<Exec>(query_starts), k_starts = on_device<Exec>(key_starts),
             key_lengths = on_device<Exec>(lengths);
  auto const length = [&](int s) { return std::clamp(lengths[s], 0, key_starts[s + 1] - key_starts[s]); };
  auto k = x.k, v = x.v;
  for (int h = 0; h < z.kv_heads; ++h)
    for (int j = 0; j < z.keys; ++j) {
      int const s = sequence_of(key_starts, j);
      if (s >= 0 && j - key_starts[s] < length(s)) continue;
      for (int c = 0; c < z.d; ++c) k[(std::size_t(h) * z.keys + j) * z.d + c] = NAN;
      for (int c = 0; c < z.d_v; ++c) v[(std::size_t(h) * z.keys + j) * z.d_v + c] = NAN;
    }
  fill(x.kv, k), fill(x.vv, v);
  AttentionOptions options = x.options();
  options.causal = true;
  options.query_starts = q_starts;
  options.key_starts = k_starts;
  options.key_lengths = key_lengths;
  std::vector<float> const slopes{0.5f, 0.25f, 0.125f, 0.0625f};
  ViewOf<Exec, float*> sv("slopes", 4);
  fill(sv, slopes);
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::alibi(sv));
  expect_rest_untouched(x.ov, query_starts, z.queries, z.d_v, 0.f);
  expect_rest_untouched(x.lse, query_starts, z.queries, 1, -INFINITY);
  x.check(
      [&](int, int i, int j) {
        int const s = sequence_of(query_starts, i);
        if (s < 0 || s != sequence_of(key_starts, j) || j - key_starts[s] >= length(s)) return false;
        return j - key_starts[s] <= i - query_starts[s + 1] + length(s);
      },
      [&](double s, int, int h, int i, int j) {
        return s + slopes[h] *
                       (j - key_starts[sequence_of(key_starts, j)] - i + query_starts[sequence_of(query_starts, i)]);
      },
      x.scale());
}
TEST_CASE_TEMPLATE_APPLY(packed_lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("what is wrong with packed sequences is named and nothing written", Exec, packed_errors_id) {
  Operands<Exec, float> const x({1, 2, 1, 10, 12, 8, 8}), two({2, 2, 1, 10, 12, 8, 8});
  auto const error = [&](Operands<Exec, float> const& of, Starts const& q_starts, Starts const& k_starts,
                         ErrorCode code, char const* part) {
    auto const q = on_device<Exec>(q_starts), k = on_device<Exec>(k_starts);
    AttentionOptions options{.query_starts = q, .key_starts = k, .lse = of.lse};
    std::string const what = error_of([&] { attention(Exec{}, of.ov, of.qv, of.kv, of.vv, options); }, code);
    CHECK_MESSAGE(contains(what, part), what);
  };
  error(two, {0, 10}, {0, 12}, ErrorCode::extent, "batch of 1");
  error(x, {0, 5, 10}, {0, 12}, ErrorCode::extent, "query_starts (3) and key_starts (2)");
  error(x, {}, {}, ErrorCode::extent, "(sequences + 1)");
  if constexpr (detail::Machine<Exec>::is_host) {
    error(x, {0, 6, 5, 10}, {0, 1, 2, 12}, ErrorCode::value, "query_starts(2) = 5");
    error(x, {0, 10}, {-1, 12}, ErrorCode::value, "key_starts(0) = -1");
    error(x, {0, 10}, {0, 13}, ErrorCode::value, "12 rows");
  }
  auto const starts = on_device<Exec>({0, 10}), lengths = on_device<Exec>({1, 2});
  error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {.query_starts = starts}); }, ErrorCode::value);
  error_of(
      [&] {
        attention(Exec{}, x.ov, x.qv, x.kv, x.vv,
                  {.query_starts = starts, .key_starts = starts, .key_lengths = lengths});
      },
      ErrorCode::extent);
  error_of(
      [&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {.query_starts = starts, .key_starts = starts, .splits = 2}); },
      ErrorCode::value);
  ViewOf<Exec, int*> const inside(reinterpret_cast<int*>(x.ov.data()), 2);
  error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {.query_starts = inside, .key_starts = starts}); },
           ErrorCode::overlap);
  CHECK(is_poisoned(x.ov));
  CHECK(is_poisoned(x.lse));
}
TEST_CASE_TEMPLATE_APPLY(packed_errors_id, Spaces);
