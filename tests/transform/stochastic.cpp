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

}  // namespace

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
