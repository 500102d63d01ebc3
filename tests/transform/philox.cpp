// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/philox.hpp>
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

// Known answers of the authors' own distribution (Random123, kat_vectors): counter, key, result.
struct Known {
  PhiloxCounter counter;
  PhiloxKey key;
  PhiloxCounter result;
};
constexpr Known known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

// The same after seven rounds.
constexpr PhiloxCounter known_of_seven[] = {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48},
                                            {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662},
                                            {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}};

template <int Rounds>
struct KnownWord {
  static constexpr bool wants_index = true;
  Known k;
  KOKKOS_FUNCTION double operator()(std::int64_t i) const {
    return philox4x32<Rounds>(k.counter, k.key)[static_cast<std::size_t>(i)];
  }
};

struct Word {
  static constexpr bool wants_index = true;
  std::uint64_t seed, offset, start;
  KOKKOS_FUNCTION double operator()(std::int64_t i) const {
    return philox_word(seed, offset, start + static_cast<std::uint64_t>(i));
  }
};

}  // namespace

TEST_CASE("two neighbours share a word, each with halves of its own in front") {
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::uint32_t const word = philox_word(3, 7, i), first = philox_shared_word(3, 7, 2 * i),
                        second = philox_shared_word(3, 7, 2 * i + 1);
    CHECK(first == word);
    CHECK((second >> 16) == (word & 0xffff));
    CHECK((second & 0xffff) == (word >> 16));
  }
}

TEST_CASE("keys of all rounds give the words of their seed") {
  constexpr std::uint64_t seed = 0xfedcba9876543210, offset = 0x123456789abcdef;
  PhiloxKeys const keys(seed);
  for (std::uint64_t const group : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 40}) {
    PhiloxCounter const want = philox_words(seed, offset, group), got = keys.words(offset, group);
    for (int w = 0; w < 4; ++w) CHECK(got[w] == want[w]);
  }
}

TEST_CASE_TEMPLATE_DEFINE("philox gives the known answers of Random123", Exec, philox_known) {
  for (std::size_t n = 0; n < std::size(known); ++n) {
    ViewOf<Exec, double*> const out("out", 4), out_of_seven("out", 4);
    transform(Exec{}, out, KnownWord<10>{known[n]});
    transform(Exec{}, out_of_seven, KnownWord<7>{known[n]});
    std::vector<double> const got = values(out), got_of_seven = values(out_of_seven);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(got[i] == static_cast<double>(known[n].result[i]));
      CHECK(got_of_seven[i] == static_cast<double>(known_of_seven[n][i]));
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(philox_known, Spaces);

TEST_CASE_TEMPLATE_DEFINE("philox words are those of the counter (index / 4, offset)", Exec, philox_words) {
  std::uint64_t const seed = 0x123456789abcdef0u, offset = 0xfedcba9876543210u, start = (std::uint64_t{1} << 34) - 6;
  ViewOf<Exec, double*> const out("out", 12);
  transform(Exec{}, out, Word{seed, offset, start});
  std::vector<double> const got = values(out);
  for (std::uint64_t i = 0; i < 12; ++i) {
    std::uint64_t const group = (start + i) / 4;
    PhiloxCounter const words = philox4x32(
        {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), 0x76543210u, 0xfedcba98u},
        {0x9abcdef0u, 0x12345678u});
    CHECK(got[i] == static_cast<double>(words[(start + i) % 4]));
  }
}
TEST_CASE_TEMPLATE_APPLY(philox_words, Spaces);

TEST_CASE("philox numbers are uniform in [0, 1)") {
  int const n = 100000;
  double sum = 0, squares = 0, last = 0, products = 0;
  for (int i = 0; i < n; ++i) {
    double const u = philox_uniform(7, 0, static_cast<std::uint64_t>(i));
    REQUIRE((u >= 0 && u < 1));
    sum += u;
    squares += u * u;
    products += u * last;
    last = u;
  }
  // Five standard deviations of the mean of u (1/12 variance), of u^2 (4/45) and of neighbours' products (7/144).
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1. / 12 / n));
  CHECK(std::abs(squares / n - 1. / 3) < 5 * std::sqrt(4. / 45 / n));
  CHECK(std::abs(products / n - 0.25) < 5 * std::sqrt(7. / 144 / n) * 2);
}
