// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>

#include "reference/attention.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

/// Hides more than half of the pairs, in every head others.
struct Scattered {
  KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const { return (5 * i + 3 * j + 2 * h + b) % 7 < 3; }
};

template <class Exec>
using Workspace = Kokkos::View<unsigned char*, typename Exec::memory_space>;

/// Runs the call with a workspace of just as many bytes as it asks for; what lies behind them stays as it is.
template <class Exec, class O, class Q, class K, class Score = score::Identity, class Mask = mask::All>
void split_attention(O const& o, Q const& q, K const& k, K const& v, AttentionOptions options, Score const& score = {},
                     Mask const& mask = {}) {
  std::size_t const bytes = attention_workspace_size(Exec{}, o, q, k, v, options, score, mask), guard = 64;
  Workspace<Exec> const memory("workspace", bytes + guard);
  poison(memory);
  options.workspace = memory.data();
  options.workspace_bytes = bytes;
  CHECK(attention_plan(Exec{}, o, q, k, v, options, score, mask).splits == std::max(1, options.splits));
  attention(Exec{}, o, q, k, v, options, score, mask);
  CHECK(is_poisoned(Kokkos::subview(memory, std::make_pair(bytes, bytes + guard))));
}

template <class Exec, class T>
struct SplitCase {
  AttentionShape z;
  std::vector<T> qh, kh, vh;
  ViewOf<Exec, T****> q, k, v, o;
  ViewOf<Exec, std::conditional_t<std::is_same_v<T, double>, double, float>***> lse;

  explicit SplitCase(AttentionShape shape)
      : z(shape),
        qh(uniform<T>(std::size_t(z.batch) * z.heads * z.queries * z.d, 1, -2, 2)),
        kh(uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d, 2, -2, 2)),
        vh(uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d_v, 3)),
        q("Q", z.batch, z.heads, z.queries, z.d),
        k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v),
        o("O", z.batch, z.heads, z.queries, z.d_v),
        lse("LSE", z.batch, z.heads, z.queries) {
    fill(q, qh), fill(k, kh), fill(v, vh);
    poison(o), poison(lse);
  }
  AttentionOptions options(int splits) const {
    AttentionOptions x;
    x.splits = splits;
    if constexpr (std::is_same_v<T, double>)
      x.lse_fp64 = lse;
    else
      x.lse = lse;
    return x;
  }
  /// Weights of the merge and its sums over the parts err by less than the sums over the keys do: twice their bound.
  template <class Visible, class Score>
  void check(Visible const& visible, Score const& score) const {
    using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
    double const u_p = sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0;
    auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, score,
                                       2 * unit_roundoff<Compute>(), u_p);
    check_attention(r, values(o));
    check_lse(r, values(lse));
  }
};

template <class Exec, class T>
void run_split_case(AttentionShape z, int splits, bool causal, AttentionOptions const& asked = {}) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(splits);
  CAPTURE(causal);
  SplitCase<Exec, T> const x(z);
  AttentionOptions options = x.options(splits);
  options.causal = causal;
  options.algorithm = asked.algorithm;
  options.allow_fallback = asked.allow_fallback;
  split_attention<Exec>(x.o, x.q, x.k, x.v, options);
  x.check([&](int, int i, int j) { return !causal || j <= i + z.keys - z.queries; }, unchanged);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention in parts of the keys is attention", Exec, parts_id) {
  for (bool causal : {false, true}) {
    run_split_case<Exec, float>({1, 1, 1, 1, 1, 1, 1}, 2, causal);
    run_split_case<Exec, float>({2, 4, 2, 3, 700, 24, 40}, 3, causal);  // heads that share keys
    run_split_case<Exec, float>({1, 2, 1, 70, 411, 72, 16}, 2, causal);
    run_split_case<Exec, float>({1, 2, 2, 5, 300, 16, 7}, 9, causal);   // more parts than tiles of keys
    run_split_case<Exec, float>({1, 1, 1, 200, 130, 8, 8}, 2, causal);  // causal: queries without a key
    run_split_case<Exec, bf16_t>({2, 4, 1, 1, 900, 64, 64}, 5, causal);
    run_split_case<Exec, fp16_t>({1, 2, 1, 3, 500, 130, 200}, 4, causal);
  }
  if constexpr (detail::Machine<Exec>::is_host) run_split_case<Exec, double>({1, 2, 1, 3, 500, 40, 24}, 3, true);
}
TEST_CASE_TEMPLATE_APPLY(parts_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core attends in parts of the keys", Exec, parts_tensor_core_id) {
  AttentionOptions const asked = on_tensor_cores<Exec>();
  for (bool causal : {false, true}) {
    run_split_case<Exec, bf16_t>({2, 8, 2, 1, 900, 128, 128}, 5, causal, asked);  // heads are rows of a tile
    run_split_case<Exec, bf16_t>({2, 8, 2, 5, 700, 64, 64}, 20, causal, asked);   // more parts than tiles of keys
    run_split_case<Exec, fp16_t>({1, 2, 1, 150, 500, 128, 104}, 3, causal, asked);
    run_split_case<Exec, fp16_t>({1, 2, 1, 3, 500, 136, 200}, 4, causal, asked);
  }
}
TEST_CASE_TEMPLATE_APPLY(parts_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("parts of the keys follow key lengths, scores and layouts", Exec, split_options_id) {
  AttentionShape const z{4, 4, 2, 2, 600, 16, 24};
  SUBCASE("key lengths: parts without a key, entries without a key") {
    SplitCase<Exec, float> const x(z);
    std::vector<int> const lengths = {600, 0, 1, 333};
    ViewOf<Exec, int*> const lv("lengths", 4);
    fill(lv, lengths);
    auto spoiled = x.vh;
    for (int b = 0; b < z.batch; ++b)
      for (int h = 0; h < z.kv_heads; ++h)
        for (int j = lengths[b]; j < z.keys; ++j)
          spoiled[((std::size_t(b) * z.kv_heads + h) * z.keys + j) * z.d_v] = NAN;
    fill(x.v, spoiled);
    for (bool causal : {false, true}) {
      AttentionOptions options = x.options(4);
      options.causal = causal;
      options.key_lengths = lv;
      split_attention<Exec>(x.o, x.q, x.k, x.v, options);
      x.check([&](int b, int i, int j) { return j < lengths[b] && (!causal || j <= i + lengths[b] - z.queries); },
              unchanged);
    }
  }
  SUBCASE("a score") {
    SplitCase<Exec, float> const x(z);
    split_attention<Exec>(x.o, x.q, x.k, x.v, x.options(3), score::SoftCap{5.0});
    x.check([](int, int, int) { return true; }, [](double s, int, int, int, int) { return 5.0 * std::tanh(s / 5.0); });
  }
  SUBCASE("a window") {
    SplitCase<Exec, float> const x({2, 4, 2, 70, 600, 16, 24});
    AttentionOptions options = x.options(3);
    options.causal = true;
    options.window_left = 250;
    split_attention<Exec>(x.o, x.q, x.k, x.v, options);
    x.check([](int, int i, int j) { return j <= i + 530 && j >= i + 280; }, unchanged);
  }
  SUBCASE("a mask, and its table") {
    SplitCase<Exec, float> const x({2, 4, 2, 5, 600, 16, 24});
    Scattered const mask;
    auto const seen = [&](int b, int h, int i, int j) { return mask(b, h, i, j); };
    auto const check = [&](auto const& m) {
      poison(x.o), poison(x.lse);
      split_attention<Exec>(x.o, x.q, x.k, x.v, x.options(3), score::Identity{}, m);
      x.check([](int, int, int) { return true; },
              [&](double s, int b, int h, int i, int j) { return seen(b, h, i, j) ? s : -INFINITY; });
    };
    check(mask);
    AttentionPlan const plan = attention_plan(Exec{}, x.o, x.q, x.k, x.v, {}, score::Identity{}, mask);
    mask::TableShape const shape{5, 600, 2, 4};
    ViewOf<Exec, int*> const storage("table", mask::table_size(plan, shape));
    check(mask::table(Exec{}, mask, plan, shape, storage));
  }
  SUBCASE("the sequence before the heads, and O of another type") {
    SplitCase<Exec, float> const x({2, 2, 2, 2, 500, 16, 24});
    auto const swapped = [](auto const& from) {  // (b, 2, s, c) as (b, s, 2, c)
      ViewOf<Exec, float****> const to("swapped", from.extent(0), from.extent(2), from.extent(1), from.extent(3));
      auto const in = values(from);
      auto out = in;
      std::size_t const s = from.extent(2), d = from.extent(3);
      for (std::size_t b = 0; b < from.extent(0); ++b)
        for (std::size_t h = 0; h < 2; ++h)
          for (std::size_t i = 0; i < s; ++i)
            for (std::size_t c = 0; c < d; ++c) out[((b * s + i) * 2 + h) * d + c] = in[((b * 2 + h) * s + i) * d + c];
      fill(to, out);
      return to;
    };
    ViewOf<Exec, float****> const o("O", 2, 2, 2, 24);
    AttentionOptions options = x.options(3);
    options.layout = AttentionLayout::bshd;
    split_attention<Exec>(o, swapped(x.q), swapped(x.k), swapped(x.v), options);
    fill(x.o, values(swapped(o)));
    x.check([](int, int, int) { return true; }, unchanged);
    ViewOf<Exec, bf16_t****> const narrow("O", 2, 2, 2, 24);
    split_attention<Exec>(narrow, x.q, x.k, x.v, {.splits = 3});
    auto const wide = values(x.o);
    auto const rounded = values(narrow);
    for (std::size_t i = 0; i < wide.size(); ++i) CHECK(float(rounded[i]) == doctest::Approx(wide[i]).epsilon(0.01));
  }
}
TEST_CASE_TEMPLATE_APPLY(split_options_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention in parts gives the same bits in every run", Exec, repeat_id) {
  SplitCase<Exec, float> const x({2, 4, 2, 3, 1500, 32, 32});
  split_attention<Exec>(x.o, x.q, x.k, x.v, x.options(6));
  auto const first = values(x.o), first_lse = values(x.lse);
  poison(x.o);
  split_attention<Exec>(x.o, x.q, x.k, x.v, x.options(6));
  CHECK(values(x.o) == first);
  CHECK(values(x.lse) == first_lse);
}
TEST_CASE_TEMPLATE_APPLY(repeat_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention's workspace is what it says, or an error that writes nothing", Exec,
                          workspace_id) {
  Exec const e;
  SplitCase<Exec, float> const x({2, 4, 2, 3, 900, 16, 24});
  AttentionOptions options = x.options(4);
  std::size_t const bytes = attention_workspace_size(e, x.o, x.q, x.k, x.v, options);
  CHECK(bytes == std::size_t(4) * 2 * 4 * 3 * (24 + 1) * sizeof(float));
  CHECK(attention_workspace_size(e, x.o, x.q, x.k, x.v, x.options(1)) == 0);
  Workspace<Exec> const memory("workspace", bytes + 16);
  auto const error = [&](void* workspace, std::size_t size, char const* part) {
    options.workspace = workspace;
    options.workspace_bytes = size;
    std::string const what = error_of([&] { attention(e, x.o, x.q, x.k, x.v, options); }, ErrorCode::workspace);
    CHECK_MESSAGE(contains(what, part), what);
  };
  error(nullptr, 0, std::to_string(bytes).c_str());
  error(memory.data(), bytes - 1, std::to_string(bytes).c_str());
  error(memory.data() + 4, bytes, "aligned");
  error(nullptr, bytes, "address");
  error(nullptr, SIZE_MAX, "address");
  options.workspace = x.q.data();
  options.workspace_bytes = bytes;
  error_of([&] { attention(e, x.o, x.q, x.k, x.v, options); }, ErrorCode::overlap);
  options = x.options(-1);
  error_of([&] { attention(e, x.o, x.q, x.k, x.v, options); }, ErrorCode::value);
  CHECK(is_poisoned(x.o));
  CHECK(is_poisoned(x.lse));
}
TEST_CASE_TEMPLATE_APPLY(workspace_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention splits the keys on its own as far as the workspace goes", Exec, automatic_id) {
  Exec const e;
  SplitCase<Exec, float> const x({1, 1, 1, 1, 20000, 8, 8});
  std::size_t const bytes = attention_workspace_size(e, x.o, x.q, x.k, x.v);
  AttentionPlan const without = attention_plan(e, x.o, x.q, x.k, x.v);
  CHECK(without.splits == 1);
  CHECK(without.workspace_bytes == 0);
  CHECK(without.workspace_wanted == bytes);
  Workspace<Exec> const memory("workspace", bytes + 1000);
  AttentionOptions options = x.options(0);
  options.workspace = memory.data();
  options.workspace_bytes = bytes + 1000;
  AttentionPlan const with = attention_plan(e, x.o, x.q, x.k, x.v, options);
  CHECK(with.splits == with.splits_wanted);
  CHECK(with.workspace_bytes == bytes);
  if (with.splits > 1) {  // where there is more than one core
    CHECK(contains(to_string(without), "would allow " + std::to_string(with.splits) + " splits"));
    CHECK(contains(to_string(with), std::to_string(with.splits) + " splits, " + std::to_string(bytes) + " bytes"));
  }
  attention(e, x.o, x.q, x.k, x.v, options);
  x.check([](int, int, int) { return true; }, unchanged);
}
TEST_CASE_TEMPLATE_APPLY(automatic_id, Spaces);

TEST_CASE("parts of the keys fill the machine where there is something to gain") {
  auto const splits = [](std::int64_t tiles, std::int64_t steps, bool ragged = false) {
    return detail::attention_splits(
        {tiles, steps, 264, 4, 64, ragged, 105.6, {.team = 4, .merge = 6, .saturation = 0.8}});
  };
  CHECK(splits(8, 2048) == 16);  // as many teams as memory serves, and no more
  CHECK(splits(128, 128) == 1);
  CHECK(splits(32, 128) == 4);
  CHECK(splits(264, 2048) == 1);
  CHECK(splits(8, 7) == 1);     // too few steps
  CHECK(splits(0, 2048) == 1);  // nothing to do
  CHECK(splits(8, 16) <= 4);    // four steps a part at least
  CHECK(splits(1, 1 << 20) <= 264);
  CHECK(splits(512, 128, true) > splits(512, 128));  // short entries leave room
}
