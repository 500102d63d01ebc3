// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/stochastic.hpp>
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// The numbers of T in order, from 0 to the largest.
template <class T>
double number(unsigned bits) {
  return to_double(T::from_bits(static_cast<typename std::remove_cvref_t<decltype(T().bits())>>(bits)));
}

/// Every gap between two neighbours of T (of 16 bits: some): x at a part of the way is rounded up by words below that
/// part and down by others, exactly at it down.
template <class T>
int wrong_neighbours() {
  int wrong = 0;
  unsigned const last = static_cast<unsigned>(limits<T>::largest().bits());
  for (unsigned bits = 0; bits < last; bits += sizeof(T) == 1 || bits < 100 || bits + 200 > last ? 1 : 97) {
    double const low = number<T>(bits), high = number<T>(bits + 1);
    for (int part : {0, 1, 5, 8, 15}) {
      double const x = low + (high - low) * part / 16;
      for (double sign : {1.0, -1.0})
        for (bool wide : {true, false}) {
          if (!wide && static_cast<double>(static_cast<float>(x)) != x) continue;
          auto const round = [&](std::uint32_t word) {
            return wide ? to_double(round_stochastically<T>(sign * x, word))
                        : to_double(round_stochastically<T>(static_cast<float>(sign * x), word));
          };
          auto const limit = static_cast<std::uint32_t>(part) << 28;
          wrong += round(0xffffffffu) != sign * low;
          wrong += round(limit) != sign * low;
          if (part > 0) wrong += round(0) != sign * high || round(limit - 256) != sign * high;
        }
    }
  }
  return wrong;
}

/// fp32 of every kind, rounded by integers, and the same numbers in fp64, rounded by the definition. Of a word fp32
/// uses the upper 24 bits.
template <class T>
int unlike_fp64() {
  int wrong = 0;
  for (std::uint64_t i = 0; i < 300000; ++i) {
    std::uint32_t const pattern = philox_word(5, 0, i), word = philox_word(5, 1, i), upper = word & ~0xffu;
    // Half of them near the numbers of T, of which 8-bit types have few among all of fp32.
    float const x = i % 2 == 0 ? __builtin_bit_cast(float, pattern)
                               : std::ldexp(__builtin_bit_cast(float, (pattern & 0x807fffffu) | 0x3f800000u),
                                            static_cast<int>(i / 2 % 40) - 22);
    T const rounded = round_stochastically<T>(x, word);
    wrong += rounded.bits() != round_stochastically<T>(static_cast<double>(x), upper).bits();
    wrong += rounded.bits() != round_stochastically<T>(x, upper).bits();
  }
  return wrong;
}

}  // namespace

TEST_CASE("round_stochastically of fp32 gives what it gives of the same number in fp64") {
  CHECK(unlike_fp64<e4m3_t>() == 0);
  CHECK(unlike_fp64<e5m2_t>() == 0);
  CHECK(unlike_fp64<fp16_t>() == 0);
  CHECK(unlike_fp64<bf16_t>() == 0);
}

TEST_CASE("round_stochastically takes each neighbour with the other's distance") {
  CHECK(wrong_neighbours<e4m3_t>() == 0);
  CHECK(wrong_neighbours<e5m2_t>() == 0);
  CHECK(wrong_neighbours<fp16_t>() == 0);
  CHECK(wrong_neighbours<bf16_t>() == 0);
  float const infinity = std::numeric_limits<float>::infinity();
  CHECK(to_double(round_stochastically<e4m3_t>(1e9f, 0)) == 448);
  CHECK(to_double(round_stochastically<e5m2_t>(-infinity, 0)) == -57344);
  CHECK(std::isnan(to_double(round_stochastically<bf16_t>(std::nanf(""), 0))));
  CHECK(round_stochastically<fp16_t>(-0.0f, 0).bits() == 0x8000);
  CHECK(to_double(round_stochastically<bf16_t>(1e-45f, 0)) == limits<bf16_t>::min_subnormal);
  CHECK(to_double(round_stochastically<bf16_t>(1e-45f, 0xffffffffu)) == 0);
}

/// Of n numbers at a part p of the way, a share p is rounded up: binomial, six standard deviations. A sum of many small
/// steps, which rounding to nearest would lose, comes out.
TEST_CASE_TEMPLATE_DEFINE("stochastic_cast is unbiased and the same on every backend", Exec, share_id) {
  constexpr std::size_t n = 100000;
  ViewOf<Exec, float*> const x("x", n);
  ViewOf<Exec, bf16_t*> const y("y", n);
  for (double part : {0.0, 0.1, 0.5, 0.9}) {
    CAPTURE(part);
    auto const value = static_cast<float>(1 + part * limits<bf16_t>::epsilon);
    fill(x, std::vector<float>(n, value));
    transform(Exec{}, y, fn::stochastic_cast<bf16_t>(11, 2), x);
    auto const rounded = values(y);
    double up = 0;
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      up += to_double(rounded[i]) > 1 ? 1 : 0;
      wrong += rounded[i].bits() !=
               round_stochastically<bf16_t>(value, philox_word(11, 2, static_cast<std::uint64_t>(i))).bits();
    }
    CHECK(wrong == 0);
    CHECK(std::abs(up - part * n) <= 6 * std::sqrt(n * part * (1 - part)) + 1e-3 * part * n);
  }
}

TEST_CASE_TEMPLATE_APPLY(share_id, Spaces);

/// Rows whose words begin anywhere in a group of four, longer and shorter than what is worked on at a time, and a chain
/// in which one functor draws.
TEST_CASE_TEMPLATE_DEFINE("words that elements share are those of their indices", Exec, shared_words_id) {
  for (std::size_t columns : {1u, 3u, 63u, 257u, 515u}) {
    CAPTURE(columns);
    std::size_t const rows = 7;
    ViewOf<Exec, float**> const x("x", rows, columns + 1), kept("kept", rows, columns + 2);
    ViewOf<Exec, e4m3_t**> const y("y", rows, columns + 3);
    auto const of = [&](auto const& view) {
      return Kokkos::subview(view, Kokkos::ALL, std::pair<std::size_t, std::size_t>(0, columns));
    };
    auto const numbers = uniform<float>(rows * columns, 3, -4, 4);
    fill(of(x), numbers);
    transform(Exec{}, of(y), fn::stochastic_cast<e4m3_t>(11, 2), of(x));
    transform(Exec{}, of(kept), compose(fn::square{}, fn::dropout(0.5, 13, 4), fn::square{}), of(x));
    auto const rounded = values(of(y));
    auto const squares = values(of(kept));
    int wrong = 0;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c) {
        std::uint64_t const index = r * columns + c;
        float const number = numbers[index], square = number * number * 2;
        wrong += rounded[index].bits() != round_stochastically<e4m3_t>(number, philox_word(11, 2, index)).bits();
        bool const dropped = philox_word(13, 4, index) < 0x80000000u;
        wrong += squares[index] != (dropped ? 0 : square * square);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE_APPLY(shared_words_id, Spaces);
