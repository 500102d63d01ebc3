// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_bias.hpp"
#include "attention/packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr BiasShape bias_shapes[] = {
    {true, true, true}, {false, true, true}, {false, false, true}, {true, false, false}, {false, false, false}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward gives an additive bias its gradient", Exec, backward_bias_id) {
  for (BiasShape const has : bias_shapes) {
    run_bias<Exec, float>({2, 4, 2, 33, 65, 16, 24}, has, {}, true);
    run_bias<Exec, float>({2, 2, 1, 130, 97, 8, 8}, has, causal());  // the first queries see nothing
  }
  AttentionBackwardOptions windowed = causal();
  windowed.forward.window_left = 20;
  run_bias<Exec, float>({1, 2, 2, 150, 170, 8, 16}, {true, true, true}, windowed);
  run_bias<Exec, float>({1, 2, 2, 150, 170, 8, 16}, {false, true, false}, windowed);
  run_bias<Exec, bf16_t>({2, 2, 1, 70, 90, 64, 64}, {false, true, true}, causal());
  run_bias<Exec, bf16_t>({1, 2, 1, 40, 50, 200, 136}, {false, true, true}, {});
  AttentionBackwardOptions dropping = causal();
  dropping.forward.dropout = {.p = 0.25, .seed = 7, .offset = 3};
  run_bias<Exec, float, true>({2, 2, 1, 50, 70, 16, 16}, {false, true, true}, dropping, true);
  if constexpr (detail::Machine<Exec>::is_host)
    run_bias<Exec, double>({2, 2, 1, 40, 53, 20, 33}, {false, true, true}, causal(), true);
}
TEST_CASE_TEMPLATE_APPLY(backward_bias_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("a bias has no gradient behind key lengths, and one where its View repeats itself", Exec,
                          backward_bias_lengths_id) {
  AttentionShape const z{4, 2, 1, 60, 130, 16, 24};
  std::vector<int> const lengths{70, 0, 129, 33};
  ViewOf<Exec, int*> const lengths_view("lengths", lengths.size());
  fill(lengths_view, lengths);
  Bias<Exec, float> const bias(z, {false, true, true});
  BackwardOperands<Exec, float> const x(
      z,
      [=](int b, int i, int j) {
        int const keys = lengths[std::size_t(b)];
        return j < keys && j <= i + keys - z.queries;
      },
      false, bias.rules());
  AttentionBackwardOptions o = causal();
  o.forward.key_lengths = lengths_view;
  ViewOf<Exec, float****> const d_bias("d_bias", 1, z.heads, z.queries, z.keys);
  poison(d_bias);
  o.d_bias = d_bias;
  // The same elements for every batch entry, told by a stride.
  Kokkos::View<float const****, Kokkos::LayoutStride, typename Exec::memory_space> const repeated(
      bias.values.data(), Kokkos::LayoutStride(z.batch, 0, z.heads, bias.values.stride(1), z.queries,
                                               bias.values.stride(2), z.keys, bias.values.stride(3)));
  x.run(o, score::additive_bias(repeated));
  x.check();
  check_bias(x, bias, d_bias);
}
TEST_CASE_TEMPLATE_APPLY(backward_bias_lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("the gradient of a bias is the same bits again, and 0 where nothing is attended", Exec,
                          backward_bias_again_id) {
  AttentionShape const z{3, 2, 1, 90, 70, 16, 16};
  Bias<Exec, float> const bias(z, {false, false, false});
  BackwardOperands<Exec, float> const x(z, everything, false, bias.rules());
  ViewOf<Exec, float****> const d_bias("d_bias", 1, 1, 1, z.keys);
  AttentionBackwardOptions o;
  o.d_bias = d_bias;
  auto const score = score::additive_bias(bias.values);
  x.run(o, score);
  auto const once = values(d_bias);
  for (int again = 0; again < 2; ++again) {
    poison(d_bias);
    x.run(o, score);
    CHECK(values(d_bias) == once);
  }
  for (AttentionShape const none : {AttentionShape{0, 2, 1, 9, 70, 8, 8}, AttentionShape{2, 2, 1, 0, 70, 8, 8}}) {
    BackwardOperands<Exec, float> const y(none, everything, false, bias.rules());
    poison(d_bias);
    y.run(o, score);
    for (float const g : values(d_bias)) CHECK(g == 0);
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_bias_again_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("what is wrong with the gradient of a bias is named and nothing written", Exec,
                          backward_bias_errors_id) {
  AttentionShape const z{1, 2, 1, 9, 11, 8, 8};
  Bias<Exec, float> const bias(z, {true, true, true});
  BackwardOperands<Exec, float> const x(z, everything, false, bias.rules());
  ViewOf<Exec, float****> const d_bias("d_bias", 1, 2, 9, 11), narrow("narrow", 1, 2, 9, 10),
      keyless("keyless", 1, 2, 9, 1);
  poison(d_bias);
  auto const error = [&](auto const& score, AttentionBackwardOptions const& o, ErrorCode code, char const* part) {
    std::string const what = error_of([&] { x.run(o, score); }, code);
    CHECK_MESSAGE(contains(what, part), what);
  };
  auto const score = score::additive_bias(bias.values);
  AttentionBackwardOptions o;
  o.d_bias = d_bias;
  error(score::Identity{}, o, ErrorCode::unsupported, "score::additive_bias");
  error(score::additive_bias(keyless), o, ErrorCode::unsupported, "all keys");
  AttentionBackwardOptions packed = o;
  auto const q_starts = on_device<Exec>({0, 9}), k_starts = on_device<Exec>({0, 11});
  packed.forward.query_starts = q_starts;
  packed.forward.key_starts = k_starts;
  error(score, packed, ErrorCode::unsupported, "packed sequences");
  o.d_bias = narrow;
  error(score, o, ErrorCode::extent, "d_bias");
  ViewOf<Exec, double****> const wide("wide", 1, 2, 9, 11);
  AttentionBackwardOptions in_double;
  in_double.d_bias_fp64 = wide;
  error(score, in_double, ErrorCode::value, "d_bias_fp64");
  o.d_bias = x.dov;
  error(score, o, ErrorCode::overlap, "dO");
  o.d_bias = bias.values;
  error(score, o, ErrorCode::overlap, "bias");
  CHECK(is_poisoned(d_bias));
  CHECK(is_poisoned(x.dq));
  CHECK(is_poisoned(x.dk));
  CHECK(is_poisoned(x.dv));
}
TEST_CASE_TEMPLATE_APPLY(backward_bias_errors_id, Spaces);
