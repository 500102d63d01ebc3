// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

AttentionBackwardOptions with(AttentionOptions const& forward, bool deterministic = false) {
  AttentionBackwardOptions o;
  o.forward = forward;
  o.deterministic = deterministic;
  return o;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes each of packed sequences by itself", Exec, backward_packed_id) {
  auto const check = [](Starts const& q, Starts const& k, AttentionOptions const& forward, bool d_lse = false) {
    check_packed_backward<Exec, float>(packed_shape, q, k, with(forward), d_lse);
  };
  check(query_starts, key_starts, {});
  check(query_starts, key_starts, {.causal = true}, true);
  check(query_starts, query_starts, {.causal = true});
  check(query_starts, key_starts, {.causal = true, .window_left = 30});
  check(query_starts, query_starts, {.window_left = 10, .window_right = 50}, true);
  check({0, 340}, {0, 400}, {.causal = true});
  check({5, 5, 5}, {7, 100, 400}, {});        // no queries at all: keys of sequences have gradients of 0
  check({7, 100, 340}, {5, 5, 5}, {});        // nor keys
  check({100, 100, 340}, {0, 300, 400}, {});  // one of either is missing
  check({0}, {400}, {});                      // no sequence: nothing is written
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes many short packed sequences", Exec, backward_packed_many_id) {
  Starts const starts = many_short_starts();
  AttentionShape z = packed_shape;
  z.keys = z.queries;
  check_packed_backward<Exec, float>(z, starts, starts, with({.causal = true}));
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_many_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes packed sequences of 16-bit and fp64 operands", Exec,
                          backward_packed_types_id) {
  AttentionShape const z{1, 4, 2, 340, 400, 128, 72};
  for (bool deterministic : {false, true}) {
    check_packed_backward<Exec, bf16_t>(z, query_starts, key_starts, with({.causal = true}, deterministic), true);
    check_packed_backward<Exec, fp16_t, float>({1, 2, 1, 340, 400, 48, 64}, query_starts, key_starts,
                                               with({}, deterministic));
  }
  check_packed_backward<Exec, bf16_t>({1, 2, 1, 340, 400, 136, 200}, query_starts, key_starts, with({.causal = true}));
  if constexpr (detail::Machine<Exec>::is_host)
    check_packed_backward<Exec, double>(packed_shape, query_starts, key_starts, with({.causal = true}), true);
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_types_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("packed sequences know nothing of each other's gradients", Exec, backward_packed_apart_id) {
  for (int spoiled : {3, 4}) {
    check_packed_apart<Exec, float>(packed_shape, with({.causal = true}), spoiled);
    check_packed_apart<Exec, bf16_t>({1, 4, 2, 340, 400, 128, 64}, with({}), spoiled);
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_apart_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients of packed sequences go with key lengths, scores and dropout", Exec,
                          backward_packed_lengths_id) {
  Starts const lengths = {1, 0, 9, 100, 2, 4, -5};
  AttentionDropout const dropout{.p = 0.25, .seed = 7, .offset = 3};
  std::vector<float> const of_heads{0.5f, 0.25f, 0.125f, 0.0625f};
  ViewOf<Exec, float*> const slopes("slopes", 4);
  fill(slopes, of_heads);
  auto const query_of = [](int i) { return i - query_starts[std::size_t(sequence_of(query_starts, i))]; };
  auto const key_of = [](int j) { return j - key_starts[std::size_t(sequence_of(key_starts, j))]; };
  AttentionRules rules;
  rules.score = [&](double s, int, int h, int i, int j) {
    return s + double(of_heads[std::size_t(h)]) * (key_of(j) - query_of(i));
  };
  rules.kept = [&](int, int h, int i, int j) {
    return attention_keeps(dropout, sequence_of(query_starts, i), h, query_of(i), key_of(j)) ? 1 / 0.75 : 0;
  };
  PackedBackward<Exec, float> x(packed_shape, query_starts, key_starts, with({.causal = true, .dropout = dropout}),
                                lengths, false, rules);
  auto k = x.x.x.k, v = x.x.x.v;
  for (int j = 0; j < packed_shape.keys; ++j) {
    int const s = sequence_of(key_starts, j);
    if (s >= 0 && key_of(j) < lengths[std::size_t(s)]) continue;
    for (int h = 0; h < packed_shape.kv_heads; ++h) {
      std::size_t const row = std::size_t(h) * packed_shape.keys + j;
      for (int c = 0; c < packed_shape.d; ++c) k[row * packed_shape.d + c] = NAN;
      for (int c = 0; c < packed_shape.d_v; ++c) v[row * packed_shape.d_v + c] = INFINITY;
    }
  }
  fill(x.x.x.kv, k), fill(x.x.x.vv, v);
  x.run(score::with_dropout(score::alibi(slopes)));
  x.check();
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients of packed sequences lie with the sequence before the heads too", Exec,
                          backward_packed_layout_id) {
  AttentionShape const z = packed_shape;
  PackedBackward<Exec, float> const x(z, query_starts, key_starts, with({.causal = true}));
  auto const swapped = [](auto const& from, char const* name) {
    int const heads = static_cast<int>(from.extent(1)), rows = static_cast<int>(from.extent(2)),
              width = static_cast<int>(from.extent(3));
    auto const all = values(from);
    auto to = all;
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < rows; ++i)
        for (int c = 0; c < width; ++c)
          to[(std::size_t(i) * heads + h) * width + c] = all[(std::size_t(h) * rows + i) * width + c];
    ViewOf<Exec, float****> v(std::string(name), std::size_t(1), from.extent(2), from.extent(1), from.extent(3));
    fill(v, to);
    return v;
  };
  auto const back = [](auto const& to, auto const& from) {
    std::size_t const heads = to.extent(1), rows = to.extent(2), width = to.extent(3);
    auto const all = values(from);
    auto own = all;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t c = 0; c < width; ++c) own[(h * rows + i) * width + c] = all[(i * heads + h) * width + c];
    fill(to, own);
  };
  auto const& own = x.x;
  auto const& of = own.x;
  auto const dq = swapped(own.dq, "dQ"), dk = swapped(own.dk, "dK"), dv = swapped(own.dv, "dV");
  auto const q = swapped(of.qv, "Q"), k = swapped(of.kv, "K"), v = swapped(of.vv, "V"), o = swapped(of.ov, "O"),
             d_o = swapped(own.dov, "dO");
  AttentionBackwardOptions options = x.options;
  options.forward.layout = AttentionLayout::bshd;
  ViewOf<Exec, char*> const workspace(
      "workspace", attention_backward_workspace_size(Exec{}, dq, dk, dv, q, k, v, o, of.lse, d_o, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(Exec{}, dq, dk, dv, q, k, v, o, of.lse, d_o, options);
  back(own.dq, dq), back(own.dk, dk), back(own.dv, dv);
  x.check();
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_layout_id, Spaces);

TEST_CASE("the gradients of packed sequences are those of finite differences") {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  PackedBackward<Exec, double> const x({1, 2, 1, 13, 17, 5, 7}, {1, 4, 4, 12}, {0, 5, 6, 16}, with({.causal = true}),
                                       {}, true);
  auto const& of = x.x.x;
  AttentionOptions forward = x.options.forward;
  forward.lse_fp64 = of.lse;
  auto const loss = [&] {
    attention(Exec{}, of.ov, of.qv, of.kv, of.vv, forward);
    auto const o = values(of.ov), lse = values(of.lse);
    double sum = 0;
    for (int h = 0; h < of.z.heads; ++h)
      for (int i = 0; i < of.z.queries; ++i) {
        std::size_t const row = std::size_t(h) * of.z.queries + i;
        if (sequence_of(x.q_starts, i) < 0 || lse[row] == -INFINITY) continue;
        for (int c = 0; c < of.z.d_v; ++c) sum += o[row * of.z.d_v + c] * x.x.d_o[row * of.z.d_v + c];
        sum += lse[row] * x.x.d_lse[row];
      }
    return sum;
  };
  loss();
  x.run();
  auto const check = [&](auto const& operand, auto const& gradient, Starts const& starts, int rows, int width) {
    auto const expected = values(gradient);
    for (std::size_t i = 0; i < operand.size(); i += 3) {
      if (sequence_of(starts, static_cast<int>(i / width % rows)) < 0) continue;
      CHECK(std::fabs(central_difference(operand.data()[i], 1e-5, loss) - expected[i]) <=
            1e-8 * (1 + std::fabs(expected[i])));
    }
  };
  check(of.qv, x.x.dq, x.q_starts, of.z.queries, of.z.d);
  check(of.kv, x.x.dk, x.k_starts, of.z.keys, of.z.d);
  check(of.vv, x.x.dv, x.k_starts, of.z.keys, of.z.d_v);
}

TEST_CASE_TEMPLATE_DEFINE("what is wrong with packed sequences of gradients is named and nothing written", Exec,
                          backward_packed_errors_id) {
  auto const error = [](AttentionShape z, Starts const& q, Starts const& k, ErrorCode code, char const* part) {
    BackwardOperands<Exec, float> const x(z, everything);
    auto const q_starts = on_device<Exec>(q), k_starts = on_device<Exec>(k);
    AttentionBackwardOptions o;
    o.forward.query_starts = q_starts;
    o.forward.key_starts = k_starts;
    std::string const what = error_of([&] { x.run(o); }, code);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK(is_poisoned(x.dq));
    CHECK(is_poisoned(x.dk));
    CHECK(is_poisoned(x.dv));
  };
  AttentionShape const one{1, 2, 1, 10, 12, 8, 8}, two{2, 2, 1, 10, 12, 8, 8};
  error(two, {0, 10}, {0, 12}, ErrorCode::extent, "batch of 1");
  error(one, {0, 5, 10}, {0, 12}, ErrorCode::extent, "query_starts (3) and key_starts (2)");
  if constexpr (detail::Machine<Exec>::is_host) {
    error(one, {0, 6, 5, 10}, {0, 1, 2, 12}, ErrorCode::value, "query_starts(2) = 5");
    error(one, {0, 10}, {0, 13}, ErrorCode::value, "12 rows");
  }
  BackwardOperands<Exec, float> const x(one, everything);
  AttentionBackwardOptions o;
  auto const starts = on_device<Exec>({0, 10});
  o.forward.query_starts = starts;
  error_of([&] { x.run(o); }, ErrorCode::value);  // without those of keys
  Kokkos::deep_copy(x.dk, 0);                     // starts that are right
  ViewOf<Exec, int*> const inside(reinterpret_cast<int*>(x.dk.data()), 2);
  o.forward.key_starts = inside;
  std::string const what = error_of([&] { x.run(o); }, ErrorCode::overlap);
  CHECK_MESSAGE(contains(what, "key_starts"), what);
  for (float const g : values(x.dk)) CHECK(g == 0);
  CHECK(is_poisoned(x.dv));
}
TEST_CASE_TEMPLATE_APPLY(backward_packed_errors_id, Spaces);
