// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention: attention_fwd/BACKEND/TYPE/VARIANT/B1Hq16Hkv16Sq4096Sk4096D128/IMPLEMENTATION
#include <algorithm>
#include <cctype>
#include <map>
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

/// What a query sees. All but "full" are causal; documents lie one behind the other.
struct Sight {
  bool causal = false;
  std::int64_t window = 0;  // keys, if any
  std::vector<int> starts;  // of documents, and their end
  bool packed = false;      // told by their starts, else by an id a token and the table of that mask
  std::int64_t pairs = 0;   // visible, of one head

  static Sight of(std::string const& variant, model::AttentionShape const& s) {
    Sight sight;
    sight.causal = variant != "full";
    bool const square = s.query_length == s.kv_length;
    if (variant == "full" || variant == "causal") return sight;
    if (!square || s.batch != 1)
      throw std::invalid_argument("--variant=" + variant + " is for one batch entry with as many queries as keys");
    if (variant.rfind("window", 0) == 0)
      sight.take_window(std::stoll(variant.substr(6)), s.query_length);
    else if (variant == "packed" || variant == "documents")
      sight.take_documents(variant == "packed", s.query_length);
    else
      throw std::invalid_argument("--variant=" + variant + ": full, causal, window and its keys, packed or documents");
    return sight;
  }

 private:
  static std::int64_t triangle(std::int64_t side) { return side * (side + 1) / 2; }
  void take_window(std::int64_t keys, std::int64_t length) {
    window = keys;
    pairs = triangle(length) - (length > keys ? triangle(length - keys) : 0);
  }
  /// Of 512 to 4096 tokens in turn, 16384 together.
  void take_documents(bool by_starts, std::int64_t length) {
    packed = by_starts;
    starts = {0};
    for (int i = 0; starts.back() < length; ++i) {
      constexpr int lengths[] = {512, 1024, 4096, 2048, 1024, 3584, 1024, 3072};
      std::int64_t const tokens = std::min<std::int64_t>(lengths[i % 8], length - starts.back());
      pairs += triangle(tokens);
      starts.push_back(starts.back() + static_cast<int>(tokens));
    }
  }
};

/// Which document a token is of, (1, token).
template <class Exec>
Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> document_ids(std::vector<int> const& starts) {
  Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> ids("ids", 1, starts.back());
  auto const host = Kokkos::create_mirror_view(ids);
  for (std::size_t d = 0; d + 1 < starts.size(); ++d)
    for (int token = starts[d]; token < starts[d + 1]; ++token) host(0, token) = static_cast<int>(d);
  Kokkos::deep_copy(ids, host);
  return ids;
}

template <class Exec, class Operand>
Implementation over_documents(Exec const& exec, Operand const& q, Operand const& k, Operand const& v, Operand const& o,
                              AttentionOptions options, Sight const& sight) {
  if (sight.packed) {
    Kokkos::View<int*, typename Exec::memory_space> starts("starts", sight.starts.size());
    Kokkos::deep_copy(starts, Kokkos::View<int const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                                  sight.starts.data(), sight.starts.size()));
    options.query_starts = options.key_starts = starts;
    return {"tessera",
            [=] {
              [[maybe_unused]] auto const kept = starts;
              attention(exec, o, q, k, v, options);
            },
            tessera::to_string(attention_plan(exec, o, q, k, v, options))};
  }
  auto const mask = mask::consecutive_documents(document_ids<Exec>(sight.starts));
  AttentionPlan const plan = attention_plan(exec, o, q, k, v, options, score::Identity{}, mask);
  mask::TableShape const shape{static_cast<std::int64_t>(q.extent(2)), static_cast<std::int64_t>(k.extent(2))};
  Kokkos::View<int*, typename Exec::memory_space> const storage("table", mask::table_size(plan, shape));
  auto const table = mask::table(exec, mask, plan, shape, storage);
  return {"tessera",
          [=] {
            [[maybe_unused]] auto const kept = storage;
            attention(exec, o, q, k, v, options, score::Identity{}, table);
          },
          tessera::to_string(plan)};
}

template <class Exec, class T>
std::vector<Implementation> implementations(Exec const& exec, model::AttentionShape const& s, Sight const& sight,
                                            bool plain) {
  using Operand = Tensor4<Exec, T>;
  auto const q = random_view<Operand>(exec, 1, s.batch, s.query_heads, s.query_length, s.head_size);
  auto const k = random_view<Operand>(exec, 2, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const v = random_view<Operand>(exec, 3, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const o = zero_view<Operand>(exec, s.batch, s.query_heads, s.query_length, s.head_size);
  AttentionOptions options;
  options.causal = sight.causal;
  if (sight.window > 0) options.window_left = sight.window - 1;
  if (!sight.starts.empty()) return {over_documents(exec, q, k, v, o, options, sight)};
  std::vector<Implementation> all = {{"tessera", [=] { attention(exec, o, q, k, v, options); },
                                      tessera::to_string(attention_plan(exec, o, q, k, v, options))}};
  if (plain) {
    std::int64_t const rows = s.batch * s.query_heads * s.query_length;
    auto const scores = zero_view<Matrix<Exec, Accumulator<T>>>(exec, rows, s.kv_length);
    all.push_back({"plain", [=] {
                     plain_loop(exec, rows, PlainAttention<Exec, T>{o, q, k, v, scores, options.causal});
                   }});
  }
  return all;
}

template <class Exec, class T>
Case attention_case(Session<Exec>& session, std::string const& variant, std::string const& size) {
  model::AttentionShape const shape = parse_shape(size);
  Sight const sight = Sight::of(variant, shape);
  Case c{"attention_fwd", name(scalar_of<T>), variant, to_string(shape)};
  c.work = model::attention_work(shape, sight.causal, sizeof(T));
  if (sight.pairs > 0)
    c.work.flops = 4.0 * static_cast<double>(shape.query_heads * shape.head_size) * static_cast<double>(sight.pairs);
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  // The scores that the plain loop stores are what limits it.
  double const scores = 4.0 * shape.batch * shape.query_heads * shape.query_length * shape.kv_length;
  bool const plain = session.arguments().peers && sight.pairs == 0 && scores <= (session.on_host ? 64e6 : 2e9);
  c.implementations = {"tessera"};
  if (plain) c.implementations.push_back("plain");
  c.prepare = [&session, shape, sight, plain] { return implementations<Exec, T>(session.exec(), shape, sight, plain); };
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
  all.push_back("B16Hq32Hkv8Sq1Sk8192D128");
  return all;
}

struct Attention {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes = session.sizes({"Hq4Sq512D64", "Hq8Hkv2Sq512D128", "Hq8Hkv2Sq1Sk4096D128"}, gpu_sizes());
    auto const add = [&](std::string const& type, std::string const& variant, std::string const& size) {
      auto const add_of = [&]<class T>() { session.add(attention_case<Exec, T>(session, variant, size)); };
      if constexpr (Session<Exec>::on_host)
        with_type<float, bf16_t, fp16_t, double>(type, add_of);
      else
        with_type<float, bf16_t, fp16_t>(type, add_of);
    };
    for (std::string const& type : session.types({"fp32", "bf16"}, {"bf16"})) {
      for (std::string const& variant : session.variants({"full", "causal"}))
        for (std::string const& size : sizes) add(type, variant, size);
      if (session.arguments().sizes.empty() && session.arguments().variants.empty())
        for (char const* const variant : {"window1024", "packed", "documents"})
          add(type, variant, Session<Exec>::on_host ? "Hq4Sq4096D64" : "B1Hq16Sq16384D128");
    }
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(argc, argv,
                                    "Attention forward; --size=B1Hq32Hkv8Sq4096Sk4096D128 "
                                    "--variant=full,causal,window1024,packed,documents",
                                    tessera::perf::Attention{});
}
