// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The warp-specialised pipeline at the ends of what it takes.
#include <tessera/attention.hpp>
#include <tessera/gemm.hpp>

#include "reference/attention.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;
using Matrix = ViewOf<Exec, bf16_t**>;
using Heads = ViewOf<Exec, bf16_t****>;

constexpr AttentionOptions hopper{.algorithm = AttentionAlgorithm::hopper, .allow_fallback = false};
constexpr auto everything = [](int, int, int) { return true; };
constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

/// Numbers in [-1, 1) that depend on the place, made on the device: there are too many to send.
template <class View>
void fill_by_place(View const& v, unsigned seed) {
  bf16_t* const to = v.data();
  Kokkos::parallel_for(
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(0, std::int64_t(v.size())),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto x = static_cast<std::uint32_t>(i * 2654435761u + seed);
        x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
        to[i] = bf16_t(static_cast<float>(x >> 8) * 0x1p-23f - 1);
      });
}
AttentionReference expected(AttentionShape z, std::vector<bf16_t> const& q, std::vector<bf16_t> const& k,
                            std::vector<bf16_t> const& v) {
  return attention_reference(z, q, k, v, 1 / std::sqrt(double(z.d)), everything, unchanged, 4 * unit_roundoff<float>(),
                             2 * unit_roundoff<bf16_t>());
}

}  // namespace

TEST_CASE("the hopper pipeline attends over more than 2^31 elements") {
  constexpr int rows = (1 << 24) + 70, part = 70, d = 128, keys = 50;
  Heads const q("Q", 1, 1, rows, d), o("O", 1, 1, rows, d), k("K", 1, 1, keys, d), v("V", 1, 1, keys, d);
  static_assert(std::int64_t(rows) * d > INT_MAX);
  fill_by_place(q, 1), fill_by_place(k, 2), fill_by_place(v, 3);
  attention(Exec{}, o, q, k, v, hopper);
  for (int first : {0, (1 << 23) - 7, rows - part}) {
    CAPTURE(first);
    auto const here = std::pair(first, first + part);
    auto const of = [&](Heads const& m) { return values(Kokkos::subview(m, 0, 0, here, Kokkos::ALL)); };
    check_attention(expected({1, 1, 1, part, keys, d, d}, of(q), values(k), values(v)), of(o));
  }
}

TEST_CASE("the hopper pipeline multiplies more than 2^31 elements") {
  constexpr int rows = (1 << 24) + 70, part = 70, n = 136, k = 128;
  Matrix const a("A", rows, k), b("B", k, n), c("C", rows, n);
  fill_by_place(a, 1), fill_by_place(b, 2);
  gemm(Exec{}, 1, a, b, 0, c, {.algorithm = Algorithm::hopper, .allow_fallback = false});
  for (int first : {0, (1 << 23) - 7, rows - part}) {
    CAPTURE(first);
    auto const here = std::pair(first, first + part);
    auto const got = values(Kokkos::subview(c, here, Kokkos::ALL));
    auto const left = values(Kokkos::subview(a, here, Kokkos::ALL));
    check_gemm<float>(gemm_reference(part, n, k, 1, left, values(b), 0, got), got, k);
  }
}

TEST_CASE("the hopper pipeline attends over 131072 keys, and over one") {
  for (AttentionShape z : {AttentionShape{1, 1, 1, 70, 131072, 64, 64}, AttentionShape{1, 2, 1, 300, 1, 128, 128}}) {
    CAPTURE(z.keys);
    Heads const q("Q", 1, z.heads, z.queries, z.d), o("O", 1, z.heads, z.queries, z.d), k("K", 1, 1, z.keys, z.d),
        v("V", 1, 1, z.keys, z.d);
    fill_by_place(q, 1), fill_by_place(k, 2), fill_by_place(v, 3);
    attention(Exec{}, o, q, k, v, hopper);
    check_attention(expected(z, values(q), values(k), values(v)), values(o));
  }
}

TEST_CASE("the hopper pipeline keeps NaN and Inf in their rows, bears very large scores, and repeats its bits") {
  constexpr int s = 300;
  for (int d : {64, 96, 112, 128, 192, 256}) {
    CAPTURE(d);
    Heads const q("Q", 1, 1, s, d), k("K", 1, 1, s, d), v("V", 1, 1, s, d), o("O", 1, 1, s, d);
    auto qh = uniform<bf16_t>(q.size(), 1, 0.1, 1);
    fill(k, uniform<bf16_t>(k.size(), 2, 0.1, 1)), fill(v, uniform<bf16_t>(v.size(), 3));
    qh[3 * d] = bf16_t(NAN), qh[200 * d] = bf16_t(INFINITY);
    fill(q, qh);
    attention(Exec{}, o, q, k, v, hopper);
    auto const first = values(o);
    int wrong = 0;
    for (int i = 0; i < s; ++i)
      for (int c = 0; c < d; ++c) wrong += std::isnan(to_double(first[i * d + c])) != (i == 3 || i == 200);
    CHECK(wrong == 0);
    for (int i = 0; i < 3; ++i) {
      poison(o);
      attention(Exec{}, o, q, k, v, hopper);
      CHECK(std::memcmp(values(o).data(), first.data(), first.size() * sizeof(bf16_t)) == 0);
    }
    for (bf16_t& x : qh) x = bf16_t(1e30f);
    fill(q, qh);
    attention(Exec{}, o, q, k, v, hopper);
    for (bf16_t x : values(o)) wrong += !std::isfinite(to_double(x));
    CHECK(wrong == 0);
  }
}
