// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include <tessera/row_atoms.hpp>
#include <tessera/streaming.hpp>

namespace {

using namespace tessera;
using Loops = detail::RowAtoms<detail::Host>::Loops;

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
  std::vector<float> room(static_cast<std::size_t>(detail::RowAtoms<detail::Host>::room(n)));
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
  same([&](void* y, bool past) { loops.scaled(room.data(), n, 0.3f, y, past, {}); });
  same([&](void* y, bool past) { loops.shifted(x.bytes, n, 1, 2, 0.5f, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, weight.bytes, bias.bytes, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, weight.bytes, nullptr, y, past, {}); });
  same([&](void* y, bool past) { loops.normalise(x.bytes, n, 0.1f, 2, nullptr, nullptr, y, past, {}); });
}

TEST_CASE("row loops: what is streamed is what is stored, and nothing behind a row is") {
  for (Scalar type : {Scalar::fp32, Scalar::fp16, Scalar::bf16}) {
    Loops const* const loops = detail::RowAtoms<detail::Host>::of(type);
    if (loops == nullptr) return;  // no instruction set that has them
    CAPTURE(name(type));
    for (int n : {1, 7, 16, 31, 32, 33, 64, 100, 1000, most}) {
      CAPTURE(n);
      if (type == Scalar::fp32) check_streamed<float>(*loops, n);
      if (type == Scalar::fp16) check_streamed<fp16_t>(*loops, n);
      if (type == Scalar::bf16) check_streamed<bf16_t>(*loops, n);
    }
  }
}

}  // namespace
