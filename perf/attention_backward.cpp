// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of attention: attention_bwd/BACKEND/TYPE/VARIANT/B1Hq16Hkv16Sq4096Sk4096D128/IMPLEMENTATION
// Variants: full, causal, either with sums of dQ in a fixed order (full_deterministic) or with dropout of a tenth of
// the weights (full_dropout); causal ones with a window of keys (window1024), over documents told by ids (documents) or
// by where they begin (packed, packed_deterministic), with scores (alibi, softcap, bias, and dbias, which has a
// gradient; alibi_deterministic); any of them on the pipeline of asynchronous copies, whatever else there is
// (full_tensor_core, full_dropout_tensor_core). Operands of 8 bits have scales of heads. FLOP/s count 2.5 times the
// forward's operations, of visible pairs.
#include <stdexcept>
#include <string>
#include <vector>

#include "attention_backward/operands.hpp"
#include "support/attention_shape.hpp"
#include "support/documents.hpp"
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

struct BackwardVariant {
  AttentionBackwardOptions options;
  std::vector<int> starts;  // of documents
  bool packed = false;      // told by these, else by an id a token
  std::string score;
  std::int64_t pairs = 0;  // of one head, where they are not those of all or of causal attention

  BackwardVariant(std::string const& asked, model::AttentionShape const& s) {
    std::string const name = without_tensor_core(asked);
    if (name != asked) {
      options.forward.algorithm = options.algorithm = AttentionAlgorithm::tensor_core;
      options.forward.allow_fallback = options.allow_fallback = false;
    }
    std::string const base = name.substr(0, name.find('_')), rest = name.substr(base.size());
    options.forward.causal = base != "full";
    options.deterministic = rest == "_deterministic";
    if (rest == "_dropout") options.forward.dropout = {.p = 0.1, .seed = 1};
    bool known = (base == "full" || base == "causal") && (rest.empty() || options.deterministic || rest == "_dropout");
    if ((rest.empty() || options.deterministic) &&
        (base == "alibi" || base == "softcap" || base == "bias" || base == "dbias")) {
      score = base;
      known = true;
    } else if (s.batch == 1 && s.query_length == s.kv_length &&
               ((base == "documents" && rest.empty() && name == asked) ||
                (base == "packed" && (rest.empty() || options.deterministic)))) {
      packed = base == "packed";
      starts = document_starts(s.kv_length);
      pairs = document_pairs(starts);
      known = true;
    } else if (rest.empty() && s.query_length == s.kv_length && base.rfind("window", 0) == 0) {
      std::int64_t const keys = std::stoll(base.substr(6));
      options.forward.window_left = keys - 1;
      pairs = window_pairs(s.kv_length, keys);
      known = true;
    }
    if (!known)
      throw std::invalid_argument(
          "--variant=" + asked +
          ": full, causal, and these with _deterministic or _dropout, alibi, softcap, bias, dbias, and of as "
          "many queries as keys window and its keys, or of one batch entry documents, packed or packed_deterministic; "
          "behind any of them _tensor_core");
  }
};

/// Documents told by where they begin.
template <class Exec, class T>
Implementation backward_over_packed(Exec const& exec, BackwardOperands<Exec, T> const& x,
                                    AttentionBackwardOptions options, std::vector<int> const& document_starts) {
  auto const starts = copied_starts<Exec>(document_starts);
  options.forward.query_starts = options.forward.key_starts = starts;
  return backward_of(exec, x, options, score::Identity{}, mask::All{}, starts);
}

template <class Exec, class T>
Implementation run_variant(Exec const& exec, model::AttentionShape const& shape, BackwardVariant const& variant) {
  BackwardOperands<Exec, T> const x(exec, shape);
  if (variant.packed) return backward_over_packed(exec, x, variant.options, variant.starts);
  if constexpr (std::is_same_v<T, bf16_t>) {
    if (variant.score == "bias" || variant.score == "dbias")
      return backward_with_bias(exec, x, variant.options, variant.score == "dbias");
    if (!variant.score.empty()) return backward_with_score(exec, x, variant.options, variant.score);
    if (!variant.starts.empty()) return backward_over_documents(exec, x, variant.starts);
  }
  return backward_of(exec, x, variant.options);
}

template <class Exec, class T>
Case backward_case(Session<Exec>& session, std::string const& type, std::string const& variant,
                   std::string const& size) {
  model::AttentionShape const shape = parse_shape(size);
  BackwardVariant const made(variant, shape);
  if (!std::is_same_v<T, bf16_t> && (!made.score.empty() || (!made.starts.empty() && !made.packed)))
    throw std::invalid_argument("--variant=" + variant + " is for bf16");
  Case c{"attention_bwd", type, variant, to_string(shape)};
  c.work = model::attention_backward_work(shape, made.options.forward.causal, sizeof(T));
  if (made.pairs > 0)
    c.work.flops =
        10.0 * static_cast<double>(shape.batch * shape.query_heads * shape.head_size) * static_cast<double>(made.pairs);
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  c.implementations = {"tessera"};
  c.prepare = [&session, shape, made] {
    return std::vector<Implementation>{run_variant<Exec, T>(session.exec(), shape, made)};
  };
  return c;
}

/// What is measured when nothing is asked for.
std::vector<std::string> default_variants(bool all) {
  if (!all) return {"full", "causal"};
  return {"full",
          "causal",
          "full_deterministic",
          "causal_deterministic",
          "full_dropout",
          "causal_dropout",
          "window1024",
          "documents",
          "packed",
          "packed_deterministic",
          "alibi",
          "softcap"};
}

struct AttentionBackward {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    bool const chosen = !session.arguments().sizes.empty();
    std::vector<std::string> published = published_attention_sizes({64, 128, 256});
    for (char const* few_heads : {"Hq16Hkv2Sq4096D128", "Hq8Hkv2Sq4096D256"}) published.push_back(few_heads);
    auto const sizes = session.sizes({"Hq4Sq512D64", "Hq8Hkv2Sq512D128"}, published);
    std::vector<std::string> const further = chosen ? sizes : std::vector<std::string>{"Hq16Sq16384D128"};
    bool const all = !chosen && !Session<Exec>::on_host;
    for (std::string const& type : session.types({"fp32", "bf16"}, {"bf16", "e4m3"})) {
      bool const narrow = type == "e4m3" || type == "e5m2";
      auto const variants = narrow && all ? std::vector<std::string>{"causal"} : default_variants(all);
      for (std::string const& variant : session.variants(variants))
        for (std::string const& size : !narrow && (variant == "full" || variant == "causal") ? sizes : further)
          with_type<float, bf16_t, fp16_t, e4m3_t, e5m2_t>(
              type, [&]<class T>() { session.add(backward_case<Exec, T>(session, type, variant, size)); });
    }
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "Gradients of attention; --size=B1Hq32Hkv8Sq4096Sk4096D128 --variant=full,causal,full_deterministic",
      tessera::perf::AttentionBackward{});
}
