// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_EXTENTS_HPP
#define TESSERA_PERF_EXTENTS_HPP

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// The shapes that are measured.
namespace tessera::perf {

using Extents = std::vector<std::int64_t>;

/// Splits at every `separator`.
inline std::vector<std::string> split(std::string const& text, char separator) {
  std::vector<std::string> parts(1);
  for (char const c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

inline std::int64_t parse_integer(std::string const& text, std::string const& whole) {
  std::size_t used = 0;
  std::int64_t value = -1;
  try {
    value = std::stoll(text, &used);
  } catch (std::exception const&) {
  }
  if (text.empty() || used != text.size() || value < 0)
    throw std::invalid_argument("--size=" + whole + ": '" + text + "' is not a number");
  return value;
}

/// "4096" is a square or cube, "64x8192x8192" lists the extents; "1024:4096:128" as an extent is a sweep in steps of
/// 128. Gives every combination.
inline std::vector<Extents> parse_extents(std::string const& text, std::size_t rank) {
  std::vector<std::string> parts = split(text, 'x');
  if (parts.size() == 1) parts.resize(rank, parts[0]);
  if (parts.size() != rank)
    throw std::invalid_argument("--size=" + text + ": expected " + std::to_string(rank) + " extents, as 64x4096");
  std::vector<Extents> all(1);
  for (std::string const& part : parts) {
    std::vector<std::string> const range = split(part, ':');
    if (range.size() != 1 && range.size() != 3)
      throw std::invalid_argument("--size=" + text + ": a sweep is first:last:step");
    std::int64_t const first = parse_integer(range[0], text);
    std::int64_t const last = range.size() == 3 ? parse_integer(range[1], text) : first;
    std::int64_t const step = range.size() == 3 ? parse_integer(range[2], text) : 1;
    if (step == 0) throw std::invalid_argument("--size=" + text + ": the step of a sweep is 1 at least");
    std::vector<Extents> longer;
    for (Extents const& extents : all)
      for (std::int64_t value = first; value <= last; value += step) {
        longer.push_back(extents);
        longer.back().push_back(value);
      }
    all = longer;
  }
  return all;
}

/// `count` shapes with extents from 1 to `largest`, the same for the same seed.
inline std::vector<Extents> random_extents(int count, std::size_t rank, std::int64_t largest, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Extents> all(static_cast<std::size_t>(count), Extents(rank));
  for (Extents& extents : all)
    for (std::int64_t& extent : extents)
      extent = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(largest)) + 1;
  return all;
}

inline std::vector<Extents> parse_extents(std::vector<std::string> const& texts, std::size_t rank) {
  std::vector<Extents> all;
  for (std::string const& text : texts)
    for (Extents const& extents : parse_extents(text, rank)) all.push_back(extents);
  return all;
}

/// "64x4096"
inline std::string to_string(Extents const& extents) {
  std::string text;
  for (std::int64_t const extent : extents) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

/// A batch of matrix products of one shape.
struct ProductShape {
  std::int64_t batch, m, n, k;
  bool operator==(ProductShape const&) const = default;
};

/// "64x8192x8192" is a product of `batch` matrices, "64x1024x1024x1024" says for itself how many: BxMxNxK. One number
/// is M, N and K.
inline std::vector<ProductShape> parse_products(std::string const& text, std::int64_t batch) {
  bool const batched = split(text, 'x').size() == 4;
  std::vector<ProductShape> all;
  for (Extents const& e : parse_extents(text, batched ? 4 : 3))
    all.push_back(batched ? ProductShape{e[0], e[1], e[2], e[3]} : ProductShape{batch, e[0], e[1], e[2]});
  return all;
}

/// "64x8192x8192", the batch in front where there is one.
inline std::string to_string(ProductShape const& s) {
  return to_string(s.batch == 1 ? Extents{s.m, s.n, s.k} : Extents{s.batch, s.m, s.n, s.k});
}

}  // namespace tessera::perf

#endif
