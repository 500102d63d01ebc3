// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention: attention_fwd/BACKEND/TYPE/VARIANT/B1Hq16Hkv16Sq4096Sk4096D128/IMPLEMENTATION
// Variants: full, causal, window1024 (causal, so many keys), packed and documents (causal, of 512 to 4096 tokens one
// behind the other), and of bf16 causal with a score: alibi, relative (distances up to 128), bias (of each query and
// key, for all heads) and softcap (at 50), in FLOP/s; scaled128, full with scales of each head and 128 keys; decode,
// full in B/s; paged64, the same with keys in shuffled pages of 64 and lengths between an eighth of Sk and Sk. full and
// causal with dropout of a tenth of the weights (full_dropout); these, windows and packed on the pipeline of
// asynchronous copies, whatever else there is (full_tensor_core, full_dropout_tensor_core). The type tf32 is fp32 that
// may be rounded to it; e4m3 has results of bf16. The copy of V that these take is part of the time.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/attention.hpp>
#include "attention/functors.hpp"
#include "support/attention_shape.hpp"
#include "support/documents.hpp"
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// What a query sees. All but "full", "decode" and "paged" are causal; documents lie one behind the other.
struct Sight {
  bool causal = false;
  std::int64_t window = 0;  // keys, if any
  std::vector<int> starts;  // of documents, and their end
  bool decode = false;      // counted in bytes
  std::int64_t page = 0;    // keys of a page, where they are in pages
  bool packed = false;      // told by their starts, else by an id a token and the table of that mask
  bool tile_scales = false;
  std::int64_t pairs = 0;  // visible, of one head
  std::string score;       // functor, if any
  bool drops = false, tensor_core = false;

  static Sight of(std::string const& asked, model::AttentionShape const& s) {
    Sight sight;
    std::string variant = without_tensor_core(asked);
    sight.tensor_core = variant != asked;
    sight.drops = variant == "full_dropout" || variant == "causal_dropout";
    if (sight.drops) variant = variant.substr(0, variant.find('_'));
    if (sight.tensor_core && variant != "full" && variant != "causal" && variant != "packed" &&
        variant.rfind("window", 0) != 0)
      throw std::invalid_argument("--variant=" + asked + ": _tensor_core is for full, causal, windows and packed");
    bool const paged = variant.rfind("paged", 0) == 0;
    if (paged) sight.page = std::stoll(variant.substr(5));
    sight.decode = paged || variant == "decode";
    if (sight.decode) return sight;
    sight.causal = variant != "full" && variant != "scaled128";
    sight.tile_scales = variant == "scaled128";
    bool const square = s.query_length == s.kv_length;
    if (variant == "full" || variant == "causal" || variant == "scaled128") return sight;
    if (variant == "alibi" || variant == "relative" || variant == "bias" || variant == "softcap") {
      sight.score = variant;
      return sight;
    }
    if (!square || s.batch != 1)
      throw std::invalid_argument("--variant=" + variant + " is for one batch entry with as many queries as keys");
    if (variant.rfind("window", 0) == 0)
      sight.take_window(std::stoll(variant.substr(6)), s.query_length);
    else if (variant == "packed" || variant == "documents")
      sight.take_documents(variant == "packed", s.query_length);
    else
      throw std::invalid_argument("--variant=" + asked +
                                  ": full, causal, these with _dropout, window and its keys, packed, documents, alibi, "
                                  "relative, bias, softcap, scaled128, decode, or paged and the keys of a page");
    return sight;
  }

 private:
  void take_window(std::int64_t keys, std::int64_t length) {
    window = keys;
    pairs = window_pairs(length, keys);
  }
  void take_documents(bool by_starts, std::int64_t length) {
    packed = by_starts;
    starts = document_starts(length);
    pairs = document_pairs(starts);
  }
};

/// Of the sequences of a batch, from an eighth to all of the keys.
std::vector<int> mixed_lengths(model::AttentionShape const& s) {
  std::vector<int> all;
  for (std::int64_t b = 0; b < s.batch; ++b)
    all.push_back(static_cast<int>(static_cast<double>(s.kv_length) * (9 + 7 * random_value(7, b)) / 16));
  return all;
}

/// What a variant takes, where lengths differ each sequence with its own.
model::Work work_of(model::AttentionShape const& s, Sight const& sight, int element_bytes) {
  if (sight.page == 0) {
    model::Work work = model::attention_work(s, sight.causal, element_bytes);
    if (sight.pairs > 0)
      work.flops = 4.0 * static_cast<double>(s.query_heads * s.head_size) * static_cast<double>(sight.pairs);
    return work;
  }
  model::Work all{};
  for (int const length : mixed_lengths(s)) {
    model::AttentionShape one = s;
    one.batch = 1;
    one.kv_length = length;
    model::Work const work = model::attention_work(one, false, element_bytes);
    all.flops += work.flops;
    all.bytes += work.bytes;
  }
  return all;
}

/// The operation as its user calls it, with the workspace it asks for. The options refer to what is `kept`.
template <class Exec, class Output, class Operand, class... Kept>
Implementation ours(Exec const& exec, Output const& o, Operand const& q, Operand const& k, Operand const& v,
                    AttentionOptions options, Kept const&... kept) {
  Vector<Exec, char> const workspace("workspace", attention_workspace_size(exec, o, q, k, v, options));
  if (workspace.size() > 0) options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  return {"tessera",
          [=] { static_cast<void>(workspace), (static_cast<void>(kept), ...), attention(exec, o, q, k, v, options); },
          tessera::to_string(attention_plan(exec, o, q, k, v, options))};
}

/// Operands of 8 bits have results of 16.
template <class T>
using OutputOf = std::conditional_t<sizeof(T) == 1, bf16_t, T>;

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
  auto const o = zero_view<Tensor4<Exec, OutputOf<T>>>(exec, s.batch, s.query_heads, s.query_length, s.head_size);
  return {ours(exec, o, q, k, v, {.key_lengths = lengths, .block_table = table}, table, lengths)};
}

/// Documents told by where they begin.
template <class Exec, class Output, class Operand>
Implementation over_packed(Exec const& exec, Output const& o, Operand const& q, Operand const& k, Operand const& v,
                           AttentionOptions options, std::vector<int> const& document_starts) {
  auto const starts = copied_starts<Exec>(document_starts);
  options.query_starts = options.key_starts = starts;
  return ours(exec, o, q, k, v, options, starts);
}

/// Elements are times a scale of each head and 128 keys.
template <class Exec, class Output, class Operand>
Implementation with_tile_scales(Exec const& exec, Output const& o, Operand const& q, Operand const& k, Operand const& v,
                                AttentionOptions options) {
  using Scales = Kokkos::View<float***, Kokkos::LayoutRight, typename Exec::memory_space>;
  int const tiles = (k.extent_int(2) + 127) / 128;
  auto const of_k = random_view<Scales>(exec, 8, k.extent(0), k.extent(1), tiles),
             of_v = random_view<Scales>(exec, 9, k.extent(0), k.extent(1), tiles);
  for (auto const& scales : {of_k, of_v}) {  // in [1, 3)
    float* const x = scales.data();
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Exec>(exec, 0, scales.size()), KOKKOS_LAMBDA(int i) { x[i] += 2; });
  }
  options.k_tile_scale = of_k, options.v_tile_scale = of_v;
  return ours(exec, o, q, k, v, options, of_k, of_v);
}

template <class Exec, class T>
std::vector<Implementation> implementations(Exec const& exec, model::AttentionShape const& s, Sight const& sight,
                                            bool tf32, [[maybe_unused]] bool plain) {
  using Operand = Tensor4<Exec, T>;
  auto const q = random_view<Operand>(exec, 1, s.batch, s.query_heads, s.query_length, s.head_size);
  auto const k = random_view<Operand>(exec, 2, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const v = random_view<Operand>(exec, 3, s.batch, s.kv_heads, s.kv_length, s.head_size);
  auto const o = zero_view<Tensor4<Exec, OutputOf<T>>>(exec, s.batch, s.query_heads, s.query_length, s.head_size);
  AttentionOptions options{.causal = sight.causal, .allow_tf32 = tf32};
  if (sight.window > 0) options.window_left = sight.window - 1;
  if (sight.drops) options.dropout = {.p = 0.1, .seed = 1};
  if (sight.tensor_core) {
    options.algorithm = AttentionAlgorithm::tensor_core;
    options.allow_fallback = false;
  }
  if constexpr (std::is_same_v<T, bf16_t>) {
    if (!sight.score.empty()) return {attention_with_score(exec, q, k, v, o, sight.score)};
    if (!sight.starts.empty() && !sight.packed) return {attention_over_documents(exec, q, k, v, o, sight.starts)};
  }
  if (!sight.starts.empty()) return {over_packed(exec, o, q, k, v, options, sight.starts)};
  if (sight.tile_scales) return {with_tile_scales(exec, o, q, k, v, options)};
  std::vector<Implementation> all = {ours(exec, o, q, k, v, options)};
  if constexpr (sizeof(T) > 1) {
    if (!plain) return all;
    std::int64_t const rows = s.batch * s.query_heads * s.query_length;
    auto const scores = zero_view<Matrix<Exec, Accumulator<T>>>(exec, rows, s.kv_length);
    all.push_back({"plain", [=] {
                     plain_loop(exec, rows, PlainAttention<Exec, T>{o, q, k, v, scores, options.causal});
                   }});
  }
  return all;
}

template <class Exec, class T>
Case attention_case(Session<Exec>& session, std::string const& type, std::string const& variant,
                    std::string const& size) {
  model::AttentionShape const shape = parse_shape(size);
  Sight const sight = Sight::of(variant, shape);
  bool const own_mask = !sight.starts.empty() && !sight.packed;
  if ((!sight.score.empty() || own_mask) && !std::is_same_v<T, bf16_t>)
    throw std::invalid_argument("--variant=" + variant + " is for bf16");
  Case c{"attention_fwd", type, variant, to_string(shape)};
  c.work = work_of(shape, sight, sizeof(T));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = !sight.decode;
  // The scores that the plain loop stores are what limits it.
  double const scores = 4.0 * shape.batch * shape.query_heads * shape.query_length * shape.kv_length;
  bool const ordinary = sight.pairs == 0 && sight.page == 0 && sight.score.empty() && !sight.tile_scales &&
                        !sight.drops && !sight.tensor_core;
  bool const plain = session.arguments().peers && ordinary && sizeof(T) > 1 && scores <= (session.on_host ? 64e6 : 2e9);
  c.implementations = {"tessera"};
  if (plain) c.implementations.push_back("plain");
  c.prepare = [&session, shape, sight, plain, tf32 = type == "tf32"] {
    if (sight.page > 0) return paged_implementations<Exec, T>(session.exec(), shape, sight.page);
    return implementations<Exec, T>(session.exec(), shape, sight, tf32, plain);
  };
  return c;
}

/// And one whose rows fill no whole tiles, and heads of other features.
std::vector<std::string> gpu_sizes() {
  auto all = published_attention_sizes({64, 128, 256});
  all.push_back("B16Hq16Sq777D128");
  for (auto const& size : published_attention_sizes({72, 96, 112, 160, 192}, {4096})) all.push_back(size);
  return all;
}
std::vector<std::string> const gpu_decode_sizes = {"B64Hq32Hkv8Sq1Sk8192D128", "B16Hq32Hkv8Sq1Sk8192D128",
                                                   "B1Hq32Hkv8Sq1Sk131072D128"};

/// Of the types beside bf16, in "full" and "causal".
std::vector<std::string> gpu_sizes_of(std::string const& type) {
  if (type == "tf32") return {"B4Hq16Sq4096D128"};
  return {"B4Hq16Sq4096D128", "B1Hq16Sq16384D128", "B4Hq8Sq4096D256", "B1Hq8Sq16384D256"};
}

/// Types that have cases of their own on a GPU.
bool is_further(std::string const& type) { return type == "e4m3" || type == "e5m2" || type == "tf32"; }
/// What is measured when nothing is asked for; `chosen`: but the sizes are.
std::vector<std::string> variants_of(std::string const& type, bool chosen, bool on_host) {
  std::vector<std::string> all = {"full", "causal"};
  if (type == "e4m3" && !chosen) all.push_back("scaled128");
  if (chosen || is_further(type)) return all;
  all.insert(all.end(), {"window1024", "packed", "decode", "paged64"});
  if (type != "bf16") return all;  // functors are kernels to compile, for one type
  all.push_back("documents");
  if (!on_host) all.insert(all.end(), {"alibi", "relative", "bias", "softcap"});
  return all;
}

struct Attention {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes = session.sizes({"Hq4Sq512D64", "Hq8Hkv2Sq512D128"}, gpu_sizes());
    auto const decode_sizes = session.sizes({"Hq8Hkv2Sq1Sk4096D128", "B4Hq8Hkv2Sq1Sk4096D128"}, gpu_decode_sizes);
    auto const document_sizes = session.sizes({"Hq4Sq4096D64"}, {"B1Hq16Sq16384D128"});
    auto const add = [&](std::string const& type, std::string const& variant, std::string const& size) {
      auto const add_of = [&]<class T>() { session.add(attention_case<Exec, T>(session, type, variant, size)); };
      std::string const elements = type == "tf32" ? "fp32" : type;
      if constexpr (Session<Exec>::on_host)
        with_type<float, bf16_t, fp16_t, e4m3_t, e5m2_t, double>(elements, add_of);
      else
        with_type<float, bf16_t, fp16_t, e4m3_t, e5m2_t>(elements, add_of);
    };
    auto const sizes_of = [&](std::string const& variant) -> std::vector<std::string> const& {
      if (variant == "full" || variant == "causal") return sizes;
      return variant == "decode" || variant.rfind("paged", 0) == 0 ? decode_sizes : document_sizes;
    };
    bool const chosen = !session.arguments().sizes.empty();
    for (std::string const& type : session.types({"fp32", "bf16"}, {"bf16", "e4m3", "tf32"}))
      for (std::string const& variant : session.variants(variants_of(type, chosen, Session<Exec>::on_host)))
        for (std::string const& size : is_further(type) ? session.sizes(sizes, gpu_sizes_of(type)) : sizes_of(variant))
          add(type, variant, size);
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv,
      "Attention forward; --size=B1Hq32Hkv8Sq4096Sk4096D128 "
      "--variant=full,causal,full_dropout,full_tensor_core,window1024,packed,documents,alibi,relative,bias,softcap,"
      "scaled128,decode,paged64",
      tessera::perf::Attention{});
}
