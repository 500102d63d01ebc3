// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>

#include "reference/attention.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

template <class Score, class Visible, class Expected>
void run_case(AttentionShape z, bool causal, Score const& functor, Visible const& visible, Expected const& expected,
              AttentionLayout layout = AttentionLayout::bhsd) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(causal);
  bool const heads_first = layout == AttentionLayout::bhsd;
  auto const view = [&](std::string const& name, int h, int s, int d) {
    return heads_first ? ViewOf<Exec, bf16_t****>(name, z.batch, h, s, d)
                       : ViewOf<Exec, bf16_t****>(name, z.batch, s, h, d);
  };
  auto const q = view("Q", z.heads, z.queries, z.d), k = view("K", z.kv_heads, z.keys, z.d),
             v = view("V", z.kv_heads, z.keys, z.d_v), o = view("O", z.heads, z.queries, z.d_v);
  ViewOf<Exec, float***> lse("LSE", z.batch, z.heads, z.queries);
  auto const qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2),
             vh = uniform<bf16_t>(v.size(), 3);
  auto const swapped = [&](std::vector<bf16_t> const& from, int outer, int inner, int d) {
    if (heads_first) return from;
    auto to = from;
    for (int b = 0; b < z.batch; ++b)
      for (int i = 0; i < outer; ++i)
        for (int j = 0; j < inner; ++j)
          for (int c = 0; c < d; ++c)
            to[((std::size_t(b) * inner + j) * outer + i) * d + c] =
                from[((std::size_t(b) * outer + i) * inner + j) * d + c];
    return to;
  };
  fill(q, swapped(qh, z.heads, z.queries, z.d)), fill(k, swapped(kh, z.kv_heads, z.keys, z.d));
  fill(v, swapped(vh, z.kv_heads, z.keys, z.d_v));
  poison(o), poison(lse);
  attention(Exec{}, o, q, k, v,
            {.causal = causal,
             .layout = layout,
             .lse = lse,
             .algorithm = AttentionAlgorithm::hopper,
             .allow_fallback = false},
            functor);
  // ex2.approx errs by 2^-22 relative to its result, four roundings of fp32; weights are rounded to bf16.
  auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, expected,
                                     4 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
  check_attention(r, swapped(values(o), z.queries, z.heads, z.d_v));
  check_lse(r, values(lse));
}

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

void run_plain(AttentionShape z, bool causal, AttentionLayout layout = AttentionLayout::bhsd) {
  int const offset = z.keys - z.queries;
  run_case(
      z, causal, score::Identity{}, [=](int, int i, int j) { return !causal || j <= i + offset; }, unchanged, layout);
}

}  // namespace

TEST_CASE("the hopper pipeline attends over lengths and features that are no multiple of its tiles") {
  for (bool causal : {false, true}) {
    run_plain({1, 2, 2, 128, 128, 128, 128}, causal);
    run_plain({2, 4, 2, 100, 333, 128, 128}, causal);
    run_plain({1, 2, 1, 300, 200, 128, 128}, causal);  // causal: a hundred queries see no key
    run_plain({1, 2, 1, 257, 385, 64, 64}, causal);
    run_plain({1, 2, 2, 129, 511, 72, 104}, causal);
    run_plain({1, 1, 1, 1, 700, 40, 16}, causal);
    run_plain({1, 2, 2, 140, 1300, 128, 128}, causal);
  }
}

TEST_CASE("the hopper pipeline's long key tiles") { run_plain({1, 1, 1, 130, 4100, 128, 120}, false); }

TEST_CASE("the hopper pipeline takes the layout with the sequence first") {
  run_plain({2, 4, 2, 140, 150, 128, 128}, true, AttentionLayout::bshd);
}

TEST_CASE("the hopper pipeline takes a score functor") {
  AttentionShape const z{1, 2, 1, 150, 200, 128, 128};
  run_case(
      z, true, score::SoftCap{4.0}, [=](int, int i, int j) { return j <= i + z.keys - z.queries; },
      [](double s, int, int, int, int) { return 4.0 * std::tanh(s / 4.0); });
}

TEST_CASE("the plan names what keeps an attention from the hopper pipeline") {
  ViewOf<Exec, bf16_t****> q("Q", 1, 2, 64, 128), o("O", 1, 2, 64, 128), big("Q", 1, 2, 64, 192),
      big_o("O", 1, 2, 64, 192), odd("Q", 1, 2, 64, 100), odd_o("O", 1, 2, 64, 100);
  CHECK(attention_plan(Exec{}, o, q, q, q).algorithm == AttentionAlgorithm::hopper);
  CHECK(contains(attention_plan(Exec{}, big_o, big, big, big).reason, "128 features"));
  CHECK(contains(attention_plan(Exec{}, odd_o, odd, odd, odd).reason, "16 bytes"));
  ViewOf<Exec, int*> lengths("lengths", 1);
  CHECK(contains(attention_plan(Exec{}, o, q, q, q, {.key_lengths = lengths}).reason, "length"));
}
