// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <tessera/own_row_atoms.hpp>
#include <tessera/streaming.hpp>

namespace {

using namespace tessera;
using Loops = detail::OwnRowAtoms<detail::Host>::Loops;
using NormGradientRow = detail::OwnRowAtoms<detail::Host>::NormGradientRow;

constexpr int most = 1100;

/// Room for a row and what lies behind it, at a line of memory.
struct alignas(64) Row {
  unsigned char bytes[most * 4 + 256];
};

template <class T>
void check_streamed(Loops const& loops, int n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::uniform_real_distribution<float> number(-2, 2);
  Row x, weight, bias, stored, streamed;
  for (Row* row : {&x, &weight, &bias})
    for (int i = 0; i < n; ++i) reinterpret_cast<T*>(row->bytes)[i] = static_cast<T>(number(random));
  std::vector<float> room(static_cast<std::size_t>(detail::OwnRowAtoms<detail::Host>::room(n)));
  auto const same = [&](auto const& write) {
    for (Row* row : {&stored, &streamed}) std::memset(row->bytes, 0x5a, sizeof row->bytes);
    write(stored.bytes, false);
    write(streamed.bytes, true);
    detail::streaming_done();
    CHECK(std::memcmp(stored.bytes, streamed.bytes, sizeof stored.bytes) == 0);
    bool untouched = true;
    for (std::size_t i = n * sizeof(T); i < sizeof stored.bytes; ++i) untouched = untouched && stored.bytes[i] == 0x5a;
    CHECK(untouched);
  };
  loops.exponentials(x.bytes, n, 1, 2, room.data(), {});
  same([&](void* y, bool past) { loops.scaled(room.data(), n, 0.3f, 0, y, past, {}); });
  same([&](void* y, bool past) { loops.shifted(x.bytes, n, 1, 2, 0.5f, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, weight.bytes, bias.bytes, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, weight.bytes, nullptr, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, nullptr, nullptr, y, past, {}); });
  for (bool log : {false, true})
    same([&](void* y, bool past) { loops.weight_gradients(room.data(), weight.bytes, n, 0.3f, 0.2f, log, y, past); });
  std::vector<float> d_weight(room.size()), d_bias(room.size());
  same([&](void* y, bool past) {
    NormGradientRow const row{x.bytes, weight.bytes, bias.bytes, y, 0.1f, 2, 0.3f, 0.2f, {}};
    loops.norm_gradients(&row, 1, n, bias.bytes, d_weight.data(), d_bias.data(), past);
  });
}

/// What two rows give to the gradients of the parameters, in the order of the elements.
template <class T>
void check_parameters(Loops const& loops, int n) {
  Row x[2], g[2], y[2];
  std::vector<double> weight(static_cast<std::size_t>(n)), bias = weight;
  NormGradientRow rows[2];
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < n; ++i) {
      auto const a = static_cast<T>(static_cast<float>(i % 7 + r)), b = static_cast<T>(static_cast<float>(i % 5 - 2));
      reinterpret_cast<T*>(x[r].bytes)[i] = a;
      reinterpret_cast<T*>(g[r].bytes)[i] = b;
      weight[static_cast<std::size_t>(i)] += (static_cast<double>(a) - 1) * 0.5 * static_cast<double>(b);
      bias[static_cast<std::size_t>(i)] += static_cast<double>(b);
    }
    rows[r] = {x[r].bytes, g[r].bytes, nullptr, y[r].bytes, 1, 0.5f, 0, 0, {}};
  }
  std::vector<float> d_weight(static_cast<std::size_t>(detail::OwnRowAtoms<detail::Host>::room(n))), d_bias = d_weight,
                                                                                                     ordered = d_weight;
  loops.norm_gradients(rows, 2, n, nullptr, d_weight.data(), d_bias.data(), false);
  for (auto const& [kept, expected] : {std::pair{&d_weight, &weight}, {&d_bias, &bias}}) {
    loops.in_order(kept->data(), n, ordered.data());
    int far = 0;
    for (int i = 0; i < n; ++i)
      far += static_cast<double>(ordered[static_cast<std::size_t>(i)]) != (*expected)[static_cast<std::size_t>(i)];
    CHECK(far == 0);
  }
}

/// check(an element, loops, n) for the types there are loops for.
template <class Check>
void for_types_and_lengths(Check const& check) {
  for (Scalar type : {Scalar::fp32, Scalar::fp16, Scalar::bf16}) {
    Loops const* const loops = detail::OwnRowAtoms<detail::Host>::of(type);
    if (loops == nullptr) return;  // no instruction set that has them
    CAPTURE(name(type));
    for (int n : {1, 7, 16, 31, 32, 33, 64, 100, 1000, most}) {
      CAPTURE(n);
      if (type == Scalar::fp32) check(float{}, *loops, n);
      if (type == Scalar::fp16) check(fp16_t{}, *loops, n);
      if (type == Scalar::bf16) check(bf16_t{}, *loops, n);
    }
  }
}

TEST_CASE("row loops: what is streamed is what is stored, and nothing behind a row is") {
  for_types_and_lengths([](auto element, Loops const& loops, int n) { check_streamed<decltype(element)>(loops, n); });
}

TEST_CASE("row loops: what rows give to the gradients of parameters lies at their places") {
  for_types_and_lengths([](auto element, Loops const& loops, int n) { check_parameters<decltype(element)>(loops, n); });
}

}  // namespace
