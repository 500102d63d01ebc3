// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/functors.hpp>
#include <tessera/transform.hpp>

#include <cmath>
#include <limits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class Exec, class F>
std::vector<float> evaluate(F const& f, std::vector<float> const& x) {
  ViewOf<Exec, float*> const in("in", x.size()), out("out", x.size());
  fill(in, x);
  transform(Exec{}, out, f, in);
  return values(out);
}

/// Four units in the last place of what fp64 gives.
void check(std::vector<float> const& got, std::vector<float> const& x, double (*reference)(double)) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    INFO("x[" << i << "] = " << x[i]);
    double const want = reference(x[i]);
    if (std::isfinite(x[i]))
      CHECK(std::abs(got[i] - want) <= 4 * 0x1p-23 * std::abs(want) + 0x1p-149);
    else
      CHECK(std::isnan(got[i]));
  }
}

/// x sin x
struct Wave {
  template <class T>
  KOKKOS_FUNCTION auto operator()(T x) const {
    return x * fn::sin{}(x);
  }
  template <class T>
  KOKKOS_FUNCTION static bool moderate(T x) {
    return fn::sin::moderate(x);
  }
  struct Moderate {
    KOKKOS_FUNCTION float operator()(float x) const { return x * fn::moderate::sin{}(x); }
  };
  static constexpr Moderate for_moderate() { return {}; }
};

}  // namespace

// Loops over nothing else, which a CPU does in vectors: those of usual numbers, those that all are large, and mixed
// ones. 1003 is no whole number of them.
TEST_CASE_TEMPLATE_DEFINE("sine and cosine of usual, of large and of mixed numbers", Exec, sines_id) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = uniform<float>(1003, 3, -29000, 29000);
  auto const check_both = [&] {
    check(evaluate<Exec>(fn::sin{}, x), x, std::sin);
    check(evaluate<Exec>(fn::cos{}, x), x, std::cos);
  };
  SUBCASE("usual") { check_both(); }
  SUBCASE("large") {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0f, static_cast<int>(i % 110) + 3);
    check_both();
  }
  SUBCASE("mixed") {
    std::vector<float> const ends{30000.f, -30001.f, 3.4e38f, 1e-45f, -1e-40f, inf, -inf, nan, 29999.998f, 3.14159274f};
    for (std::size_t i = 0; i < ends.size(); ++i) x[i * 97 + 5] = ends[i];
    check_both();
  }
  SUBCASE("a number gives the same anywhere") {
    std::vector<float> others = x;
    for (std::size_t i = 0; i < x.size(); i += 9) others[i] = 1e6f;
    auto const check_anywhere = [&](auto const& f) {
      std::vector<float> const alone = evaluate<Exec>(f, x), among = evaluate<Exec>(f, others);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % 9 == 0) continue;
        CHECK(among[i] == alone[i]);
        CHECK(evaluate<Exec>(f, {x[i]})[0] == alone[i]);
      }
    };
    check_anywhere(fn::sin{});
    check_anywhere(fn::cos{});
    check_anywhere(compose(fn::scale{0.5}, fn::sin{}, fn::square{}));
    check_anywhere(Wave{});
  }
  SUBCASE("zeros keep their signs") {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 0 ? 0.f : -0.f;
    std::vector<float> const s = evaluate<Exec>(fn::sin{}, x), c = evaluate<Exec>(fn::cos{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(s[i] == 0);
      if (detail::Machine<Exec>::is_host) CHECK(std::signbit(s[i]) == std::signbit(x[i]));
      CHECK(c[i] == 1);
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(sines_id, Spaces);

TEST_CASE("what is moderate is asked of every stage of a chain whose magnitudes are known") {
  CHECK(moderate(fn::sin{}, -29999.0f));
  CHECK(!moderate(fn::cos{}, 30000.0f));
  CHECK(!moderate(fn::cos{}, std::numeric_limits<float>::quiet_NaN()));
  CHECK(moderate(fn::gelu{}, 1e30f));
  auto const sum = compose(fn::add{}, fn::sin{});
  CHECK(moderate(sum, 10000.0f, 10000.0f));
  CHECK(!moderate(sum, 20000.0f, 10000.0f));
  CHECK(std::is_same_v<decltype(for_moderate(sum)), decltype(compose(fn::add{}, fn::moderate::sin{}))>);
  // A difference may be larger than that of its arguments' magnitudes, and so a sine's result than it would be known.
  CHECK(!detail::has_moderate_v<decltype(compose(fn::subtract{}, fn::sin{}))>);
  CHECK(std::is_same_v<decltype(for_moderate(compose(fn::cos{}, fn::sin{}))),
                       decltype(compose(fn::moderate::cos{}, fn::sin{}))>);
  CHECK(!detail::has_moderate_v<fn::gelu>);
}
