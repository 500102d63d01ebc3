// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention: attention_fwd/BACKEND/TYPE/VARIANT/B1Hq16Hkv16Sq4096Sk4096D128/IMPLEMENTATION
// Variants: full and causal, in FLOP/s; decode, full in B/s; paged64, the same with keys in shuffled pages of 64 and
// lengths between an eighth of Sk and Sk.
#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/attention.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// "B2Hq16Hkv4Sq512Sk512D128"; B is 1, Hkv is Hq and Sk is Sq where they are left out.
model::AttentionShape parse_shape(std::string const& text) {
  std::map<std::string, std::int64_t> values;
  for (std::size_t at = 0; at < text.size();) {
    std::string key, digits;
    while (at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0) key += text[at++];
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) digits += text[at++];
    if (key.empty() || digits.empty())
      throw std::invalid_argument("--size=" + text + ": expected a shape as B1Hq32Hkv8Sq4096Sk4096D128");
    values[key] = std::stoll(digits);
  }
  auto const get = [&](char const* key, std::int64_t otherwise) {
    auto const found = values.find(key);
    std::int64_t const value = found == values.end() ? otherwise : found->second;
    if (found != values.end()) values.erase(found);
    return value;
  };
  model::AttentionShape s;
  s.batch = get("B", 1);
  s.query_heads = get("Hq", 1);
  s.kv_heads = get("Hkv", s.query_heads);
  s.query_length = get("Sq", 0);
  s.kv_length = get("Sk", s.query_length);
  s.head_size = get("D", 128);
  s.value_size = s.head_size;
  if (!values.empty() || s.query_length == 0)
    throw std::invalid_argument("--size=" + text + ": the letters are B, Hq, Hkv, Sq, Sk, D; Sq is needed");
  return s;
}

std::string to_string(model::AttentionShape const& s) {
  auto const n = [](std::int64_t value) { return std::to_string(value); };
  return "B" + n(s.batch) + "Hq" + n(s.query_heads) + "Hkv" + n(s.kv_heads) + "Sq" + n(s.query_length) + "Sk" +
         n(s.kv_length) + "D" + n(s.head_size);
}

struct Variant {
  bool causal = false, decode = false;
  std::int64_t page = 0;  // keys of a page; 0: they are not in pages

  explicit Variant(std::string const& name) {
    std::string const pages = "paged";
    causal = name == "causal";
    if (name.rfind(pages, 0) == 0) page = std::stoll(name.substr(pages.size()));
    decode = name == "decode" || page > 0;
    if (!causal && !decode && name != "full")
      throw std::invalid_argument("--variant=" + name + ": full, causal, decode or, of keys in pages of 64, paged64");
  }
};

/// Of the sequences of a batch, from an eighth to all of the keys.
std::vector<int> mixed_lengths(model::AttentionShape const& s) {
  std::vector<int> all;
  for (std::int64_t b = 0; b < s.batch; ++b)
    all.push_back(static_cast<int>(static_cast<double>(s.kv_length) * (9 + 7 * random_value(7, b)) / 16));
  return all;
}

/// What a variant's keys take, each sequence with its own.
model::Work work_of(model::AttentionShape const& s, Variant const& variant, int element_bytes) {
  if (variant.page == 0) return model::attention_work(s, variant.causal, element_bytes);
  model::Work all{};
  for (int const length : mixed_lengths(s)) {
    model::AttentionShape one = s;
    one.batch = 1;
    one.kv_length = length;
    model::Work const work = model::attention_work(one, variant.causal, element_bytes);
    all.flops += work.flops;
    all.bytes += work.bytes;
  }
  return all;
}

/// The operation as its user calls it, with the workspace it asks for. The options refer to what is `kept`.
template <class Exec, class Operand, class... Kept>
Implementation ours(Exec const& exec, Operand const& o, Operand const& q, Operand const& k, Operand const& v,
                    AttentionOptions options, Kept const&... kept) {
  Vector<Exec, char> const workspace("workspace", attention_workspace_size(exec, o, q, k, v, options));
  if (workspace.size() > 0) options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  return {"tessera",
          [=] { static_cast<void>(workspace), (static_cast<void>(kept), ...), attention(exec, o, q, k, v, options); },
          tessera::to_string(attention_plan(exec, o, q, k, v, options))};
}

/// Keys in pages, each page somewhere else in the pool.
template <class Exec, class T>
std::vector<Implementation> paged_implementations(Exec const& exec, model::AttentionShape const& s, std::int64_t page) {
  using Operand = Tensor4<Exec, T>;
  using Table = Matrix<Exec, int>;
  std::int64_t const columns = (s.kv_length + page - 1) / page, pages = s.batch * columns;
  Table const table("table", s.batch, columns);
  Vector<Exec, int> const lengths("lengths", s.batch);
  std::vector<int> order(pages), of_entries = mixed_lengths(s);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  Kokkos::deep_copy(
      table, Kokkos::View<int**, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>(order.data(), s.batch, columns));
  Kokkos::deep_copy(lengths,
                    Kokkos::View<int*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>(of_entries.data(), s.batch));
  auto const q = random_view<Operand>(exec, 1, s.batch, s.query_heads, s.query_length, s.head_size);
  auto const k = random_view<Operand>(exec, 2, pages, s.kv_heads, page, s.head_size);
  auto const v = random_view<Operand>(exec, 3, pages, s.kv_heads, page, s.head_size);
  auto const o = zero_view<Operand>(exec, s.batch, s.query_heads, s.query_length, s.head_size);
  return {ours(exec, o, q, k, v, {.key_lengths = lengths, .block_table = table}, table, lengths)};
}

template <class Exec, class T>
std::vector<Implementation> implementations(Exec const& exec, model::AttentionShape const& s, bool causal, bool plain) {
  using Operand = Tensor4<Exec, T>;
  auto const q = random_view<Operand>(exec, 1, s.batch, s.query_heads, s.query_length, s.head_size);
  auto const k = random_view<Operand>(exec, 2, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const v = random_view<Operand>(exec, 3, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const o = zero_view<Operand>(exec, s.batch, s.query_heads, s.query_length, s.head_size);
  AttentionOptions options;
  options.causal = causal;
  std::vector<Implementation> all = {ours(exec, o, q, k, v, options)};
  if (plain) {
    std::int64_t const rows = s.batch * s.query_heads * s.query_length;
    auto const scores = zero_view<Matrix<Exec, Accumulator<T>>>(exec, rows, s.kv_length);
    all.push_back({"plain", [=] { plain_loop(exec, rows, PlainAttention<Exec, T>{o, q, k, v, scores, causal}); }});
  }
  return all;
}

template <class Exec, class T>
Case attention_case(Session<Exec>& session, std::string const& name_of_variant, std::string const& size) {
  model::AttentionShape const shape = parse_shape(size);
  Variant const variant(name_of_variant);
  Case c{"attention_fwd", name(scalar_of<T>), name_of_variant, to_string(shape)};
  c.work = work_of(shape, variant, sizeof(T));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = !variant.decode;
  // The scores that the plain loop stores are what limits it.
  double const scores = 4.0 * shape.batch * shape.query_heads * shape.query_length * shape.kv_length;
  bool const plain = session.arguments().peers && variant.page == 0 && scores <= (session.on_host ? 64e6 : 2e9);
  c.implementations = {"tessera"};
  if (plain) c.implementations.push_back("plain");
  c.prepare = [&session, shape, variant, plain] {
    if (variant.page > 0) return paged_implementations<Exec, T>(session.exec(), shape, variant.page);
    return implementations<Exec, T>(session.exec(), shape, variant.causal, plain);
  };
  return c;
}

/// The shapes of published tables: batch · sequence = 16384, heads · size = 2048.
std::vector<std::string> gpu_sizes() {
  std::vector<std::string> all;
  for (int const d : {64, 128, 256})
    for (int const s : {1024, 4096, 16384})
      all.push_back("B" + std::to_string(16384 / s) + "Hq" + std::to_string(2048 / d) + "Sq" + std::to_string(s) + "D" +
                    std::to_string(d));
  all.push_back("B16Hq16Sq777D128");
  return all;
}
std::vector<std::string> const gpu_decode_sizes = {"B64Hq32Hkv8Sq1Sk8192D128", "B16Hq32Hkv8Sq1Sk8192D128",
                                                   "B1Hq32Hkv8Sq1Sk131072D128"};

struct Attention {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes = session.sizes({"Hq4Sq512D64", "Hq8Hkv2Sq512D128"}, gpu_sizes());
    auto const decode_sizes = session.sizes({"Hq8Hkv2Sq1Sk4096D128", "B4Hq8Hkv2Sq1Sk4096D128"}, gpu_decode_sizes);
    for (std::string const& type : session.types({"fp32", "bf16"}, {"bf16"}))
      for (std::string const& variant : session.variants({"full", "causal", "decode", "paged64"}))
        for (std::string const& size : Variant(variant).decode ? decode_sizes : sizes) {
          auto const add = [&]<class T>() { session.add(attention_case<Exec, T>(session, variant, size)); };
          if constexpr (Session<Exec>::on_host)
            with_type<float, bf16_t, fp16_t, double>(type, add);
          else
            with_type<float, bf16_t, fp16_t>(type, add);
        }
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "Attention forward; --size=B1Hq32Hkv8Sq4096Sk4096D128 --variant=full,causal,decode,paged64",
      tessera::perf::Attention{});
}
