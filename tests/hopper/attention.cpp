// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>

#include <tessera/attention.hpp>

#include "reference/attention.hpp"
#include "support/paged.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

template <class T, class TO = T, class Score, class Visible, class Expected>
void run_case(AttentionShape z, AttentionOptions options, Score const& functor, Visible const& visible,
              Expected const& expected) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(options.causal);
  bool const heads_first = options.layout == AttentionLayout::bhsd;
  auto const view = [&]<class E>(E, std::string const& name, int h, int s, int d) {
    return heads_first ? ViewOf<Exec, E****>(name, z.batch, h, s, d) : ViewOf<Exec, E****>(name, z.batch, s, h, d);
  };
  auto const q = view(T{}, "Q", z.heads, z.queries, z.d), k = view(T{}, "K", z.kv_heads, z.keys, z.d),
             v = view(T{}, "V", z.kv_heads, z.keys, z.d_v);
  auto const o = view(TO{}, "O", z.heads, z.queries, z.d_v);
  ViewOf<Exec, float***> lse("LSE", z.batch, z.heads, z.queries);
  auto const qh = uniform<T>(q.size(), 1, -2, 2), kh = uniform<T>(k.size(), 2, -2, 2), vh = uniform<T>(v.size(), 3);
  auto const swapped = [&](auto const& from, int outer, int inner, int d) {
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
  options.lse = lse;
  options.algorithm = AttentionAlgorithm::hopper;
  options.allow_fallback = false;
  attention(Exec{}, o, q, k, v, options, functor);
  // ex2.approx errs by 2^-22 relative to its result, four roundings of fp32; weights are rounded to the factors' type.
  auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, expected,
                                     4 * unit_roundoff<float>(), 2 * unit_roundoff<T>());
  check_attention(r, swapped(values(o), z.queries, z.heads, z.d_v));
  check_lse(r, values(lse));
}

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

template <class T = bf16_t, class TO = T>
void run_plain(AttentionShape z, bool causal, AttentionLayout layout = AttentionLayout::bhsd) {
  int const offset = z.keys - z.queries;
  run_case<T, TO>(
      z, {.causal = causal, .layout = layout}, score::Identity{},
      [=](int, int i, int j) { return !causal || j <= i + offset; }, unchanged);
}

template <class T = bf16_t, class Score = score::Identity, class Expected = decltype(unchanged)>
void run_window(AttentionShape z, int left, int right, Score const& functor = {}, Expected const& expected = {}) {
  CAPTURE(left);
  CAPTURE(right);
  int const offset = z.keys - z.queries;
  run_case<T>(
      z, {.window_left = left, .window_right = right}, functor,
      [=](int, int i, int j) { return j >= i + offset - left && j <= i + offset + right; }, expected);
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
    run_plain({1, 2, 1, 150, 170, 256, 256}, causal);
    run_plain({2, 2, 2, 257, 641, 192, 136}, causal);
    run_plain({1, 1, 1, 3, 81, 16, 248}, causal);
    run_plain({2, 8, 2, 1, 700, 128, 128}, causal);  // decoding: four heads a tile
    run_plain({2, 12, 2, 5, 300, 64, 64}, causal);
    run_plain({2, 8, 2, 16, 300, 128, 128}, causal);
    run_plain({1, 32, 2, 4, 70, 256, 256}, causal);
  }
}

TEST_CASE("the hopper pipeline attends over fp16, and into fp32") {
  for (bool causal : {false, true}) {
    run_plain<fp16_t>({1, 2, 1, 150, 333, 128, 128}, causal);
    run_plain<fp16_t>({1, 2, 2, 129, 200, 64, 56}, causal);
    run_plain<fp16_t>({1, 1, 1, 130, 4100, 128, 120}, false);
    run_plain<fp16_t, float>({1, 2, 1, 150, 170, 256, 256}, causal);
    run_plain<bf16_t, float>({1, 2, 2, 129, 511, 72, 104}, causal);
  }
}

TEST_CASE("the hopper pipeline's tiles of 192 features") {
  for (bool causal : {false, true}) {
    run_plain({1, 2, 1, 150, 170, 192, 192}, causal);
    run_plain({2, 4, 2, 129, 641, 160, 136}, causal);
    run_plain({1, 2, 2, 300, 200, 40, 176}, causal);
    run_plain<fp16_t, float>({1, 2, 1, 140, 333, 136, 144}, causal, AttentionLayout::bshd);
  }
  run_window({1, 2, 2, 333, 600, 192, 160}, 90, -10);
}

TEST_CASE("the hopper pipeline's tiles of 96 features, by three consumers") {
  run_plain({1, 2, 1, 300, 500, 96, 96}, false);
  run_plain({2, 4, 2, 180, 229, 72, 80}, false);
  run_plain({2, 4, 2, 385, 224, 72, 80}, false);  // one query in the last tile
  run_plain({1, 2, 2, 191, 113, 16, 96}, false);
  run_plain<fp16_t, float>({1, 2, 1, 400, 100, 88, 96}, false, AttentionLayout::bshd);
  run_plain({1, 2, 1, 250, 4200, 96, 88}, true);
  run_plain<fp16_t>({1, 1, 1, 4300, 4100, 72, 72}, true);  // two hundred queries see no key
}

TEST_CASE("the hopper pipeline's tiles of 112 features, by three consumers") {
  run_plain({1, 2, 1, 300, 500, 112, 112}, false);
  run_plain({2, 4, 2, 180, 229, 104, 112}, false);
  run_plain({1, 2, 2, 191, 93, 24, 104}, false);
  run_plain<fp16_t, float>({1, 2, 1, 400, 100, 112, 96}, false, AttentionLayout::bshd);
  run_plain({1, 2, 1, 250, 4200, 112, 104}, true);
  run_plain<fp16_t>({1, 1, 1, 4300, 4100, 104, 104}, true);
}

TEST_CASE("the hopper pipeline's short tiles of 64 features, without a mask") {
  run_plain({2, 4, 2, 200, 333, 64, 64}, false);
  run_plain<fp16_t, float>({1, 2, 1, 66, 70, 56, 64}, false, AttentionLayout::bshd);
}

TEST_CASE("the hopper pipeline's long key tiles") { run_plain({1, 1, 1, 130, 4100, 128, 120}, false); }

TEST_CASE("the hopper pipeline takes the layout with the sequence first") {
  run_plain({2, 4, 2, 140, 150, 128, 128}, true, AttentionLayout::bshd);
}

TEST_CASE("the hopper pipeline sees through sliding windows") {
  run_window({2, 4, 2, 700, 900, 128, 128}, 200, 0);
  run_window({1, 2, 1, 700, 700, 128, 120}, 30, 150);
  run_window({1, 2, 2, 600, 333, 64, 64}, 100, 20);
  run_window({1, 2, 2, 333, 600, 256, 256}, 90, -10);
  run_window({2, 4, 1, 1, 900, 64, 64}, 500, 0);  // the window as narrower K and V
  run_window<fp16_t>({1, 2, 1, 300, 4500, 128, 128}, 4300, 0);
  run_window({1, 2, 1, 300, 400, 128, 128}, 100, 0, score::SoftCap{4.0},
             [](double s, int, int, int, int) { return 4.0 * std::tanh(s / 4.0); });
}

TEST_CASE("the hopper pipeline reads nothing into keys behind a length") {
  AttentionShape const z{4, 2, 1, 130, 300, 128, 128};
  std::vector<int> const lengths = {177, 300, 0, 5};
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  ViewOf<Exec, bf16_t****> const q("Q", z.batch, z.heads, z.queries, z.d), o("O", z.batch, z.heads, z.queries, z.d),
      k("K", z.batch, z.kv_heads, z.keys, z.d), v("V", z.batch, z.kv_heads, z.keys, z.d);
  auto const qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2),
             vh = uniform<bf16_t>(v.size(), 3);
  auto const hidden = [&](std::vector<bf16_t> x) {
    for (int b = 0; b < z.batch; ++b)
      for (int j = lengths[b]; j < z.keys; ++j)
        for (int c = 0; c < z.d; ++c) x[(std::size_t(b) * z.keys + j) * z.d + c] = bf16_t(NAN);
    return x;
  };
  fill(q, qh), fill(k, hidden(kh)), fill(v, hidden(vh));
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    poison(o);
    attention(Exec{}, o, q, k, v,
              {.causal = causal,
               .key_lengths = device_lengths,
               .algorithm = AttentionAlgorithm::hopper,
               .allow_fallback = false});
    auto const visible = [&](int b, int i, int j) {
      return j < lengths[b] && (!causal || j <= i + lengths[b] - z.queries);
    };
    auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, unchanged,
                                       4 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
    check_attention(r, values(o));
  }
}

/// Parts of the keys in a workspace as large as they ask for; twice the bound of sums over the keys holds the merge.
template <class T>
void run_parts(AttentionShape z, int splits, bool causal) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(splits);
  ViewOf<Exec, T****> const q("Q", z.batch, z.heads, z.queries, z.d), o("O", z.batch, z.heads, z.queries, z.d_v),
      k("K", z.batch, z.kv_heads, z.keys, z.d), v("V", z.batch, z.kv_heads, z.keys, z.d_v);
  ViewOf<Exec, float***> const lse("LSE", z.batch, z.heads, z.queries);
  auto const qh = uniform<T>(q.size(), 1, -2, 2), kh = uniform<T>(k.size(), 2, -2, 2), vh = uniform<T>(v.size(), 3);
  std::vector<int> lengths(z.batch, z.keys);
  lengths[0] = z.keys / 3;
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(q, qh), fill(k, kh), fill(v, vh), fill(device_lengths, lengths);
  poison(o), poison(lse);
  AttentionOptions options{.causal = causal,
                           .key_lengths = device_lengths,
                           .lse = lse,
                           .splits = splits,
                           .algorithm = AttentionAlgorithm::hopper,
                           .allow_fallback = false};
  ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, o, q, k, v, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention(Exec{}, o, q, k, v, options);
  auto const r = attention_reference(
      z, qh, kh, vh, 1 / std::sqrt(double(z.d)),
      [&](int b, int i, int j) { return j < lengths[b] && (!causal || j <= i + lengths[b] - z.queries); }, unchanged,
      8 * unit_roundoff<float>(), 2 * unit_roundoff<T>());
  check_attention(r, values(o));
  check_lse(r, values(lse));
}

TEST_CASE("the hopper pipeline attends in parts of the keys") {
  run_parts<bf16_t>({2, 8, 2, 1, 1500, 128, 128}, 6, false);  // heads that share keys are rows of a tile
  run_parts<bf16_t>({2, 2, 1, 40, 700, 64, 56}, 3, true);
  run_parts<fp16_t>({2, 2, 2, 3, 900, 72, 104}, 30, true);  // more parts than tiles of keys
  run_parts<bf16_t>({1, 2, 1, 150, 1100, 128, 128}, 4, true);
  run_parts<bf16_t>({2, 4, 2, 2, 400, 256, 256}, 3, false);
  run_parts<fp16_t>({2, 2, 1, 200, 500, 256, 192}, 2, true);
}

template <class T>
void run_paged(AttentionShape z, int page, std::vector<int> const& lengths, bool causal,
               AttentionLayout layout = AttentionLayout::bhsd) {
  CAPTURE(page);
  CAPTURE(z.d);
  CAPTURE(causal);
  PagedKeys<Exec, T> const x(z, page, lengths, layout);
  bool const heads_first = layout == AttentionLayout::bhsd;
  int const h = heads_first ? z.heads : z.queries, s = heads_first ? z.queries : z.heads;
  auto const qh = uniform<T>(std::size_t(z.batch) * z.heads * z.queries * z.d, 4, -2, 2);
  ViewOf<Exec, T****> const q("Q", z.batch, h, s, z.d), o("O", z.batch, h, s, z.d_v);
  fill(q, heads_first ? qh : swapped_heads(qh, z.batch, z.heads, z.queries, z.d));
  for (int splits : {1, 3}) {
    CAPTURE(splits);
    AttentionOptions options{.causal = causal,
                             .layout = layout,
                             .key_lengths = x.lengths,
                             .block_table = x.table,
                             .splits = splits,
                             .algorithm = AttentionAlgorithm::hopper,
                             .allow_fallback = false};
    ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, o, q, x.k, x.v, options));
    options.workspace = workspace.size() > 0 ? workspace.data() : nullptr;
    options.workspace_bytes = workspace.size();
    poison(o);
    attention(Exec{}, o, q, x.k, x.v, options);
    auto const r = attention_reference(
        z, qh, x.kh, x.vh, 1 / std::sqrt(double(z.d)),
        [&](int b, int i, int j) { return j < lengths[b] && (!causal || j <= i + lengths[b] - z.queries); }, unchanged,
        8 * unit_roundoff<float>(), 2 * unit_roundoff<T>());
    check_attention(r, heads_first ? values(o) : swapped_heads(values(o), z.batch, z.queries, z.heads, z.d_v));
  }
}

TEST_CASE("the hopper pipeline reads keys from pages") {
  for (bool causal : {false, true}) {
    run_paged<bf16_t>({3, 8, 2, 1, 700, 128, 128}, 64, {700, 65, 0}, causal);
    run_paged<bf16_t>({2, 4, 2, 5, 300, 128, 128}, 16, {299, 33}, causal);
    run_paged<fp16_t>({2, 2, 1, 70, 520, 64, 64}, 32, {500, 31}, causal);
    run_paged<bf16_t>({2, 2, 1, 3, 1000, 72, 128}, 256, {1000, 257}, causal);
    run_paged<bf16_t>({2, 4, 2, 130, 300, 256, 256}, 128, {129, 300}, causal);
  }
  run_paged<bf16_t>({2, 8, 2, 1, 300, 128, 128}, 64, {300, 90}, false, AttentionLayout::bshd);
}

TEST_CASE("the hopper pipeline takes packed sequences and stores no row of another") {
  std::vector<int> const q_starts = {2, 131, 131, 132, 700, 890}, k_starts = {0, 200, 300, 300, 950, 955};
  AttentionShape const z{1, 4, 2, 900, 1000, 128, 128};
  ViewOf<Exec, int*> const query_starts("query starts", q_starts.size()), key_starts("key starts", k_starts.size());
  fill(query_starts, q_starts), fill(key_starts, k_starts);
  ViewOf<Exec, bf16_t****> const q("Q", 1, z.heads, z.queries, z.d), k("K", 1, z.kv_heads, z.keys, z.d),
      v("V", 1, z.kv_heads, z.keys, z.d), o("O", 1, z.heads, z.queries, z.d);
  auto const qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2);
  auto const vh = uniform<bf16_t>(v.size(), 3);
  auto spoiled = vh;  // the last sequence and what is behind it: no other may take notice
  for (int h = 0; h < z.kv_heads; ++h)
    for (int e = 952 * z.d; e < z.keys * z.d; ++e) spoiled[std::size_t(h) * z.keys * z.d + e] = bf16_t(NAN);
  fill(q, qh), fill(k, kh), fill(v, spoiled);
  auto const sequence = [](std::vector<int> const& starts, int row) {
    return static_cast<int>(std::upper_bound(starts.begin(), starts.end(), row) - starts.begin()) - 1;
  };
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    fill(o, std::vector<bf16_t>(o.size(), bf16_t(0.f)));
    attention(Exec{}, o, q, k, v,
              {.causal = causal,
               .query_starts = query_starts,
               .key_starts = key_starts,
               .algorithm = AttentionAlgorithm::hopper,
               .allow_fallback = false});
    auto out = values(o);
    for (int h = 0; h < z.heads; ++h)
      for (int e = 700 * z.d; e < 890 * z.d; ++e) {
        bf16_t& x = out[std::size_t(h) * z.queries * z.d + e];
        if (!causal || e >= 888 * z.d) CHECK(std::isnan(static_cast<float>(x)));
        x = bf16_t(0.f);
      }
    auto const visible = [&](int, int i, int j) {
      int const s = sequence(q_starts, i);
      if (i < 2 || s > 3 || s != sequence(k_starts, j)) return false;
      return !causal || j - k_starts[s + 1] <= i - q_starts[s + 1];
    };
    auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, unchanged,
                                       4 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
    check_attention(r, out);
  }
  // Wrong starts are nobody's rows but those of the operands.
  fill(query_starts, std::vector<int>{-5, 800, 100, 1 << 30, 3, 900});
  fill(key_starts, std::vector<int>{5000, 0, 999, 7, -1, 1 << 30});
  attention(Exec{}, o, q, k, v, {.causal = true, .query_starts = query_starts, .key_starts = key_starts});
  Exec{}.fence();
}

TEST_CASE("the hopper pipeline takes a score functor") {
  AttentionShape const z{1, 2, 1, 150, 200, 128, 128};
  run_case<bf16_t>(
      z, {.causal = true}, score::SoftCap{4.0}, [=](int, int i, int j) { return j <= i + z.keys - z.queries; },
      [](double s, int, int, int, int) { return 4.0 * std::tanh(s / 4.0); });
}

TEST_CASE("the plan names what keeps an attention from the hopper pipeline") {
  ViewOf<Exec, bf16_t****> q("Q", 1, 2, 64, 128), o("O", 1, 2, 64, 128), odd("Q", 1, 2, 64, 100),
      odd_o("O", 1, 2, 64, 100);
  ViewOf<Exec, fp16_t****> half("Q", 1, 2, 64, 128), half_o("O", 1, 2, 64, 128);
  CHECK(attention_plan(Exec{}, o, q, q, q).algorithm == AttentionAlgorithm::hopper);
  CHECK(attention_plan(Exec{}, half_o, half, half, half).algorithm == AttentionAlgorithm::hopper);
  CHECK(contains(attention_plan(Exec{}, half_o, q, q, q).reason, "fp32"));
  CHECK(contains(attention_plan(Exec{}, odd_o, odd, odd, odd).reason, "16 bytes"));
  AttentionOptions const paged{.key_lengths = ViewOf<Exec, int*>("lengths", 1),
                               .block_table = ViewOf<Exec, int**>("table", 1, 2)};
  ViewOf<Exec, bf16_t****> const pool("K", 3, 2, 20, 128);
  CHECK(contains(attention_plan(Exec{}, o, q, pool, pool, paged).reason, "pages of 8"));
}
