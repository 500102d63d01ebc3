// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ATTENTION_SHAPE_HPP
#define TESSERA_PERF_ATTENTION_SHAPE_HPP

#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/model.hpp>

namespace tessera::perf {

/// "B2Hq16Hkv4Sq512Sk512D128"; B is 1, Hkv is Hq and Sk is Sq where they are left out.
inline model::AttentionShape parse_shape(std::string const& text) {
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

inline std::string to_string(model::AttentionShape const& s) {
  auto const n = [](std::int64_t value) { return std::to_string(value); };
  return "B" + n(s.batch) + "Hq" + n(s.query_heads) + "Hkv" + n(s.kv_heads) + "Sq" + n(s.query_length) + "Sk" +
         n(s.kv_length) + "D" + n(s.head_size);
}

/// A variant's name without what asks for the pipeline of asynchronous copies, if that is there.
inline std::string without_tensor_core(std::string const& variant) {
  std::string const suffix = "_tensor_core";
  bool const asks =
      variant.size() > suffix.size() && variant.compare(variant.size() - suffix.size(), suffix.size(), suffix) == 0;
  return asks ? variant.substr(0, variant.size() - suffix.size()) : variant;
}

/// The shapes of published tables: batch · sequence = 16384, heads · size = 2048.
inline std::vector<std::string> published_attention_sizes(std::initializer_list<int> features,
                                                          std::initializer_list<int> lengths = {1024, 4096, 16384}) {
  std::vector<std::string> all;
  for (int const d : features)
    for (int const s : lengths)
      all.push_back("B" + std::to_string(16384 / s) + "Hq" + std::to_string(2048 / d) + "Sq" + std::to_string(s) + "D" +
                    std::to_string(d));
  return all;
}

}  // namespace tessera::perf

#endif
