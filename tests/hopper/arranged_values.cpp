// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>

#include "reference/attention.hpp"
#include "support/paged.hpp"

// e4m3, and fp32 in tf32: the types of which the tensor cores read V with the keys contiguous.
using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

/// Multiples of 1/2 up to 2 in size: their products add up exactly even in the 14 bits that tensor cores keep of e4m3.
template <class T>
std::vector<T> halves(std::size_t n, unsigned seed) {
  auto x = uniform<T>(n, seed, -2, 2);
  for (T& e : x) e = T(static_cast<float>(std::round(2 * to_double(e)) / 2));
  return x;
}

/// Positive where key and feature agree in their remainders by 64, and in one element of sixteen besides, else 0: an
/// element of O has few weights, and has lost its value when one of them went to another key.
template <class T>
std::vector<T> sparse(std::size_t rows, int cols, unsigned seed) {
  auto x = uniform<bf16_t>(rows * cols, seed, 0.25, 1);
  auto const kept = uniform<float>(rows * cols, seed + 1, 0, 16);
  std::vector<T> v(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    v[i] = T(i / cols % 64 == i % cols % 64 || kept[i] < 1 ? static_cast<float>(x[i]) : 0.0f);
  return v;
}

/// Where Q, K and V are and what they are times.
struct Setting {
  bool causal = false, bshd = false, scaled = false, spoiled = false;  // NaN behind the lengths
  int splits = 0;
  std::vector<int> lengths = {};
};

/// Scales that keep products of halves() exact.
std::vector<float> scales_of(int n, float first) {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = first * static_cast<float>(i % 3 + 1);
  return x;
}

template <class T>
std::vector<float> scaled(std::vector<T> const& x, std::vector<float> const& scale) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(x[i]) * scale[i / (x.size() / scale.size())];
  return y;
}

template <class T>
void spoil(std::vector<T>& x, AttentionShape const& z, std::vector<int> const& lengths, int cols) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (static_cast<int>(i / cols % z.keys) >= lengths[i / cols / z.keys / z.kv_heads]) x[i] = T(NAN);
}

/// Weights of e4m3 have 2^-4 of error each, of the largest of a row 2^-18 where they are subnormal; where a step's
/// products are not added in fp32, a sum is cut to 14 bits at every step and for every product. tf32 weights have
/// 2^-11.
template <class T>
void allow(AttentionReference& r, AttentionShape const& z, double largest_value) {
  if (sizeof(T) != 1) return;
  double const products = z.keys / 64.0 + z.keys / 16.0 + 2;
  for (std::size_t i = 0; i < r.allowed.size(); ++i)
    r.allowed[i] +=
        std::ldexp(products * largest_value, -18) + std::ldexp(products + z.keys / 32.0, -13) * std::fabs(r.o[i]);
}

template <class T, class TO>
void run_case(AttentionShape z, Setting const& setting) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(setting.causal);
  CAPTURE(setting.splits);
  auto const view = [&]<class E>(E, int h, int s, int d) {
    return setting.bshd ? ViewOf<Exec, E****>("", z.batch, s, h, d) : ViewOf<Exec, E****>("", z.batch, h, s, d);
  };
  auto const q = view(T{}, z.heads, z.queries, z.d), k = view(T{}, z.kv_heads, z.keys, z.d),
             v = view(T{}, z.kv_heads, z.keys, z.d_v);
  auto const o = view(TO{}, z.heads, z.queries, z.d_v);
  ViewOf<Exec, float***> const lse("LSE", z.batch, z.heads, z.queries);
  std::size_t const heads = std::size_t(z.batch) * z.heads, kv_heads = std::size_t(z.batch) * z.kv_heads;
  auto const qh = halves<T>(heads * z.queries * z.d, 1), kh = halves<T>(kv_heads * z.keys * z.d, 2);
  auto const vh = sparse<T>(kv_heads * z.keys, z.d_v, 3);
  auto k_stored = kh, v_stored = vh;
  auto lengths = setting.lengths;
  if (lengths.empty()) lengths.assign(z.batch, z.keys);
  if (setting.spoiled) spoil(k_stored, z, lengths, z.d), spoil(v_stored, z, lengths, z.d_v);
  auto const place = [&](auto const& to, auto const& from, int h, int s, int d) {
    fill(to, setting.bshd ? swapped_heads(from, z.batch, h, s, d) : from);
  };
  place(q, qh, z.heads, z.queries, z.d), place(k, k_stored, z.kv_heads, z.keys, z.d);
  place(v, v_stored, z.kv_heads, z.keys, z.d_v);
  poison(o), poison(lse);

  AttentionOptions options{.causal = setting.causal,
                           .layout = setting.bshd ? AttentionLayout::bshd : AttentionLayout::bhsd,
                           .allow_tf32 = true,
                           .lse = lse,
                           .splits = setting.splits,
                           .algorithm = AttentionAlgorithm::hopper,
                           .allow_fallback = false};
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  if (!setting.lengths.empty()) options.key_lengths = device_lengths;
  ViewOf<Exec, float**> const q_scale("q_scale", z.batch, z.heads), k_scale("k_scale", z.batch, z.kv_heads),
      v_scale("v_scale", 1, z.kv_heads);
  std::vector<float> ones(1, 1.0f), qs = ones, ks = ones, vs = ones;
  if (setting.scaled) {
    qs = scales_of(static_cast<int>(heads), 0.5f), ks = scales_of(static_cast<int>(kv_heads), 0.25f);
    auto const v_heads = scales_of(z.kv_heads, 3.0f);
    vs.clear();
    for (int b = 0; b < z.batch; ++b) vs.insert(vs.end(), v_heads.begin(), v_heads.end());
    fill(q_scale, qs), fill(k_scale, ks), fill(v_scale, v_heads);
    options.q_scale = q_scale, options.k_scale = k_scale, options.v_scale = v_scale;
  }
  ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, o, q, k, v, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention(Exec{}, o, q, k, v, options);

  auto const visible = [&](int b, int i, int j) {
    return j < lengths[b] && (!setting.causal || j <= i + lengths[b] - z.queries);
  };
  auto r = attention_reference(
      z, scaled(qh, qs), scaled(kh, ks), scaled(vh, vs), 1 / std::sqrt(double(z.d)), visible,
      [](double s, int, int, int, int) { return s; }, 8 * unit_roundoff<float>(),
      std::ldexp(1, sizeof(T) == 1 ? -4 : -11));
  allow<T>(r, z, setting.scaled ? 9 : 1);
  auto const out = values(o);
  check_attention(r, setting.bshd ? swapped_heads(out, z.batch, z.queries, z.heads, z.d_v) : out);
  check_lse(r, values(lse));
}

}  // namespace

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
  auto less = room, window = room;
  less.workspace_bytes = 2 * 128 * 128 - 1;
  CHECK(contains(reason(o, q, less), "options.workspace"));
  CHECK(contains(reason(o, single, {}), "allow_tf32"));
  CHECK(contains(reason(wide_o, wide, room), "128 features"));
  window.window_left = 5;
  CHECK(contains(reason(o, q, window), "windows"));
  CHECK(contains(reason(o, q, room, score::SoftCap{4.0}), "own"));
  poison(o);
  auto const asked = [&] {
    attention(Exec{}, o, q, q, q, {.algorithm = AttentionAlgorithm::hopper, .allow_fallback = false});
  };
  CHECK(contains(error_of(asked, ErrorCode::unsupported), "attention_workspace_size"));
  CHECK(is_poisoned(o));
}
