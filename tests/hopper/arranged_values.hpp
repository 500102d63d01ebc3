// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_HOPPER_ARRANGED_VALUES_HPP
#define TESSERA_TESTS_HOPPER_ARRANGED_VALUES_HPP

#include <functional>
#include <optional>

#include <tessera/attention.hpp>

#include "reference/attention.hpp"
#include "support/key_tiles.hpp"
#include "support/paged.hpp"

// 8 bits, and fp32 in tf32: the types of which the tensor cores read V with the keys contiguous.
namespace tessera::test {

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
  std::optional<std::int64_t> left = {}, right = {};  // a window
  std::vector<int> query_starts = {}, key_starts = {};
  int page = 0, scale_keys = 0;  // of a tile with scales of its own
  int spoiled_sequence = -1;     // K and V are NaN
};

/// Scales that keep products of halves() exact.
inline std::vector<float> scales_of(int n, float first) {
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

/// Which keys a query sees.
struct Sight {
  AttentionShape z;
  Setting const& setting;
  std::vector<int> const& lengths;

  bool operator()(int b, int i, int j) const {
    int own = i, key = j, queries = z.queries, keys = lengths[b];
    if (!setting.key_starts.empty()) {
      int const s = Places{setting.key_starts}.sequence(0, j);
      if (s != Places{setting.query_starts}.sequence(0, i)) return false;
      own -= setting.query_starts[s], key -= setting.key_starts[s];
      queries = setting.query_starts[s + 1] - setting.query_starts[s];
      keys = setting.key_starts[s + 1] - setting.key_starts[s];
    }
    own += keys - queries;
    return key < keys && (!setting.causal || key <= own) && (!setting.left || key >= own - *setting.left) &&
           (!setting.right || key <= own + *setting.right);
  }
};

/// A mask of the caller's own is the same in all heads.
template <class T, class TO, class Score = score::Identity, class Mask = mask::All>
void run_case(
    AttentionShape z, Setting const& setting, Score const& functor = {},
    std::function<double(double, int, int, int, int)> const& expected = [](double s, int, int, int, int) { return s; },
    Mask const& mask = {}) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(setting.causal);
  CAPTURE(setting.splits);
  CAPTURE(setting.page);
  CAPTURE(setting.scale_keys);
  auto const view = [&]<class E>(E, int h, int s, int d) {
    return setting.bshd ? ViewOf<Exec, E****>("", z.batch, s, h, d) : ViewOf<Exec, E****>("", z.batch, h, s, d);
  };
  AttentionLayout const layout = setting.bshd ? AttentionLayout::bshd : AttentionLayout::bhsd;
  auto const q = view(T{}, z.heads, z.queries, z.d);
  auto k = view(T{}, z.kv_heads, z.keys, z.d), v = view(T{}, z.kv_heads, z.keys, z.d_v);
  auto const o = view(TO{}, z.heads, z.queries, z.d_v);
  ViewOf<Exec, float***> const lse("LSE", z.batch, z.heads, z.queries);
  std::size_t const heads = std::size_t(z.batch) * z.heads, kv_heads = std::size_t(z.batch) * z.kv_heads;
  auto const qh = halves<T>(heads * z.queries * z.d, 1), kh = halves<T>(kv_heads * z.keys * z.d, 2);
  auto const vh = sparse<T>(kv_heads * z.keys, z.d_v, 3);
  auto k_stored = kh, v_stored = vh;
  auto lengths = setting.lengths;
  if (lengths.empty()) lengths.assign(z.batch, z.keys);
  if (setting.spoiled) spoil(k_stored, z, lengths, z.d), spoil(v_stored, z, lengths, z.d_v);
  Places const places{setting.key_starts};
  for (auto const& [stored, d] : {std::pair(&k_stored, z.d), std::pair(&v_stored, z.d_v)})
    for (std::size_t i = 0; i < stored->size(); ++i)
      if (places.sequence(0, int(i / d % z.keys)) == setting.spoiled_sequence) (*stored)[i] = T(NAN);
  auto const place = [&](auto const& to, auto const& from, int h, int s, int d) {
    fill(to, setting.bshd ? swapped_heads(from, z.batch, h, s, d) : from);
  };
  place(q, qh, z.heads, z.queries, z.d), place(k, k_stored, z.kv_heads, z.keys, z.d);
  place(v, v_stored, z.kv_heads, z.keys, z.d_v);
  poison(o), poison(lse);

  AttentionOptions options{.causal = setting.causal,
                           .window_left = setting.left,
                           .window_right = setting.right,
                           .layout = layout,
                           .allow_tf32 = true,
                           .lse = lse,
                           .splits = setting.splits,
                           .algorithm = AttentionAlgorithm::hopper,
                           .allow_fallback = false};
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  if (!setting.lengths.empty()) options.key_lengths = device_lengths;
  std::optional<PagedKeys<Exec, T>> paged;
  if (setting.page > 0) {
    paged.emplace(z, setting.page, lengths, layout, kh, vh);
    k = paged->k, v = paged->v;
    options.key_lengths = paged->lengths;
    options.block_table = paged->table;
  }
  ViewOf<Exec, int*> const query_starts("starts", setting.query_starts.size()),
      key_starts("starts", setting.key_starts.size());
  fill(query_starts, setting.query_starts), fill(key_starts, setting.key_starts);
  if (!setting.key_starts.empty()) options.query_starts = query_starts, options.key_starts = key_starts;
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
  auto kx = scaled(kh, ks), vx = scaled(vh, vs);
  int const entries = setting.key_starts.empty() ? z.batch : static_cast<int>(setting.key_starts.size()) - 1;
  int const all_keys = setting.page > 0 ? (z.keys + setting.page - 1) / setting.page * setting.page : z.keys;
  int const tiles = setting.scale_keys > 0 ? (all_keys + setting.scale_keys - 1) / setting.scale_keys : 0;
  ViewOf<Exec, float***> const k_tiles("k_tile_scale", entries, z.kv_heads, tiles),
      v_tiles("v_tile_scale", entries, z.kv_heads, tiles);
  if (setting.scale_keys > 0) {
    auto const kt = scales_of(entries * z.kv_heads * tiles, 0.25f), vt = scales_of(entries * z.kv_heads * tiles, 0.5f);
    fill(k_tiles, kt), fill(v_tiles, vt);
    options.k_tile_scale = k_tiles, options.v_tile_scale = v_tiles, options.scale_keys = setting.scale_keys;
    kx = scaled_by_tiles(kx, z, z.d, kt, tiles, setting.scale_keys, places);
    vx = scaled_by_tiles(vx, z, z.d_v, vt, tiles, setting.scale_keys, places);
  }
  ViewOf<Exec, char*> const workspace("workspace",
                                      attention_workspace_size(Exec{}, o, q, k, v, options, functor, mask));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention(Exec{}, o, q, k, v, options, functor, mask);

  Sight const sight{z, setting, lengths};
  auto const seen = [&](int b, int i, int j) {
    if constexpr (!std::is_same_v<Mask, mask::All>)
      if (!mask(b, 0, i, j)) return false;
    return sight(b, i, j);
  };
  auto r = attention_reference(z, scaled(qh, qs), kx, vx, 1 / std::sqrt(double(z.d)), seen, expected,
                               8 * unit_roundoff<float>(), std::ldexp(1, sizeof(T) == 1 ? -4 : -11));
  allow<T>(r, z, (setting.scaled ? 9 : 1) * (setting.scale_keys > 0 ? 1.5 : 1));
  auto const out = values(o);
  check_attention(r, setting.bshd ? swapped_heads(out, z.batch, z.queries, z.heads, z.d_v) : out);
  check_lse(r, values(lse));
}

}  // namespace tessera::test

#endif
