// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Tells what it was asked for by its result, and finds a head's part of that once.
struct Prepared {
  template <class T>
  struct OfHead {
    T own;
    KOKKOS_FUNCTION T operator()(T s, int i, int j) const { return s * own + T(i % 3) - T(j % 5); }
  };
  template <class T>
  KOKKOS_FUNCTION OfHead<T> prepare(int b, int h) const {
    return {T(1) / T(1 + b + h)};
  }
};

/// Reads what belongs to a query and key, which must be there.
template <class V>
struct Reads {
  V of_query, of_key;
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int, int i, int j) const {
    return s + T(of_query(i)) * T(of_key(j));
  }
};

constexpr AttentionShape shapes[] = {{2, 4, 2, 131, 300, 16, 24}, {1, 2, 1, 300, 260, 64, 8}, {1, 3, 3, 1, 500, 16, 8}};

template <class Exec, class T, class Score, class Expected>
void run_score(AttentionShape z, bool causal, Score const& functor, Expected const& expected, double scale = 0) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(causal);
  Operands<Exec, T> x(z);
  AttentionOptions options = x.options();
  options.causal = causal;
  if (scale > 0) options.scale = scale;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, functor);
  x.check([&](int, int i, int j) { return !causal || j <= i + z.keys - z.queries; }, expected,
          scale > 0 ? scale : x.scale());
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("biases by distance", Exec, relative_id) {
  for (AttentionShape z : shapes)
    for (int most : {0, 7, 1000}) {
      bool const causal = most != 7;
      CAPTURE(most);
      auto const table_h = uniform<float>(std::size_t(z.heads) * (2 * most + 1), 11, -3, 3);
      ViewOf<Exec, float**> const table("table", z.heads, 2 * most + 1);
      fill(table, table_h);
      int const offset = z.keys - z.queries;
      auto const expected = [&](int heads) {
        return [=, &table_h](double s, int, int h, int i, int j) {
          int const place = std::clamp(j - i - offset, -most, most) + most;
          return s + table_h[std::size_t(heads == 1 ? 0 : h) * (2 * most + 1) + place];
        };
      };
      run_score<Exec, float>(z, causal, score::relative_bias(table, offset), expected(z.heads));
      auto const shared = Kokkos::subview(table, std::make_pair(0, 1), Kokkos::ALL);
      run_score<Exec, bf16_t>(z, causal, score::relative_bias(shared, offset), expected(1));
    }
  ViewOf<Exec, float**> const even("table", 1, 6);
  CHECK(contains(error_of([&] { score::relative_bias(even); }, ErrorCode::extent), "6 distances"));
}
TEST_CASE_TEMPLATE_APPLY(relative_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("soft caps far above, about and far below the scores", Exec, caps_id) {
  // For float an error of limit 2^-20 is below the bound on scores, which holds (d + 3) 2^-24 of the sum of |q k|.
  for (AttentionShape z : shapes)
    for (double limit : {0.5, 4.0, 30.0}) {
      CAPTURE(limit);
      auto const expected = [=](double s, int, int, int, int) { return limit * std::tanh(s / limit); };
      run_score<Exec, float>(z, true, score::SoftCap{limit}, expected, 1.0);
      run_score<Exec, bf16_t>(z, false, score::SoftCap{limit}, expected, 0.3);
      if constexpr (detail::Machine<Exec>::is_host)
        run_score<Exec, double>(z, true, score::SoftCap{limit}, expected, 1.0);
    }
}
TEST_CASE_TEMPLATE_APPLY(caps_id, Spaces);

TEST_CASE("a soft cap errs by 2^-20 of its limit at most") {
  double const limit = 50;
  auto const f = score::SoftCap{limit}.prepare<float>(0, 0);
  double worst = 0;
  for (int n = -400000; n <= 400000; ++n) {
    float const x = static_cast<float>(n) * 1e-3f;
    double const exact = limit * std::tanh(0.5 * double(x) / limit);
    worst = std::max(worst, std::fabs(f(x * 0.5f, 0, 0) - exact));
    worst = std::max(worst, std::fabs(f.whole(0.5f, 1.0f).minus(x, 0) - exact));
    auto const small = [&](auto const& near, float unit) {
      if (near.covers(std::fabs(x))) worst = std::max(worst, std::fabs(near.minus(x, 0) / unit - exact));
    };
    small(f.near<0>(0.5f, 1.0f), 1), small(f.near<1>(0.5f, 1.0f), 1), small(f.near<1>(0.5f, 4.0f), 4);
  }
  CHECK(worst <= limit * 0x1p-20);
  auto const covers = [&](float x) {
    return (f.near<0>(0.5f, 1.0f).covers(x) ? 2 : 0) + f.near<1>(0.5f, 1.0f).covers(x);
  };
  CHECK(covers(14.9f) == 3);
  CHECK(covers(15.1f) == 1);
  CHECK(covers(49.9f) == 1);
  CHECK(covers(50.1f) == 0);
  CHECK(covers(INFINITY) == 0);
}

TEST_CASE_TEMPLATE_DEFINE("ALiBi and additive biases over whole tiles and edges", Exec, biases_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) {
      int const offset = z.keys - z.queries;
      auto const slopes_h = uniform<float>(z.heads, 3, 0.01, 0.5);
      ViewOf<Exec, float*> const slopes("slopes", z.heads);
      fill(slopes, slopes_h);
      run_score<Exec, float>(z, causal, score::alibi(slopes, offset), [&](double s, int, int h, int i, int j) {
        return s + double(slopes_h[h]) * (j - i - offset);
      });
      auto const bias_h = uniform<bf16_t>(std::size_t(z.heads) * z.queries * z.keys, 9, -2, 2);
      ViewOf<Exec, bf16_t****> const bias("bias", 1, z.heads, z.queries, z.keys);
      fill(bias, bias_h);
      auto const expected = [&](double s, int, int h, int i, int j) {
        return s + to_double(bias_h[(std::size_t(h) * z.queries + i) * z.keys + j]);
      };
      run_score<Exec, float>(z, causal, score::additive_bias(bias), expected);
      run_score<Exec, bf16_t>(z, causal, score::additive_bias(bias), expected);
      // Rows of an odd number of elements, and elements that do not lie side by side.
      ViewOf<Exec, bf16_t*****> const wide("bias", 1, z.heads, z.queries, z.keys, 3);
      auto const apart = Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, 1);
      Kokkos::deep_copy(apart, bias);
      run_score<Exec, bf16_t>(z, causal, score::additive_bias(apart), expected);
    }
}
TEST_CASE_TEMPLATE_APPLY(biases_id, Spaces);

/// A bias that falls with the distance takes away all weight of most keys, but not of one whose products are large
/// enough: for the first head's slope still, for the second's just not, for the others' it outweighs near ones.
TEST_CASE_TEMPLATE_DEFINE("ALiBi leaves out keys that it has taken all weight of, and no others", Exec, lost_id) {
  AttentionShape const z{1, 4, 2, 70, 900, 16, 24};
  int const offset = z.keys - z.queries;
  std::vector<float> const slopes_h = {1.0f, 0.2f, 0.1f, 0.05f};
  ViewOf<Exec, float*> const slopes("slopes", z.heads);
  fill(slopes, slopes_h);
  auto const check = [&]<class T>(T) {
    Operands<Exec, T> x(z);
    x.q = uniform<T>(x.q.size(), 1, 0.5, 1.5);
    auto const set_key = [&](int key, float value) {
      for (int h = 0; h < z.kv_heads; ++h)
        for (int c = 0; c < z.d; ++c) x.k[(std::size_t(h) * z.keys + key) * z.d + c] = T(value);
      fill(x.qv, x.q), fill(x.kv, x.k);
    };
    set_key(3, 22);
    auto options = x.options();
    options.causal = true;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::alibi(slopes, offset));
    x.check([&](int, int i, int j) { return j <= i + offset; },
            [&](double s, int, int h, int i, int j) { return s + double(slopes_h[std::size_t(h)]) * (j - i - offset); },
            x.scale());
    set_key(3, NAN);  // of a key without weight too
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::alibi(slopes, offset));
    int numbers = 0;
    for (auto o : values(x.ov)) numbers += !std::isnan(to_double(o));
    CHECK(numbers == 0);
  };
  check(float{});
  check(bf16_t{});
}
TEST_CASE_TEMPLATE_APPLY(lost_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("score functors of callers, prepared or not", Exec, own_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) {
      run_score<Exec, float>(z, causal, Prepared{},
                             [](double s, int b, int h, int i, int j) { return s / (1 + b + h) + i % 3 - j % 5; });
      auto const a_h = uniform<float>(z.queries, 4), b_h = uniform<float>(z.keys, 5);
      ViewOf<Exec, float*> const a("a", z.queries), b("b", z.keys);
      fill(a, a_h), fill(b, b_h);
      run_score<Exec, float>(z, causal, Reads<ViewOf<Exec, float*>>{a, b},
                             [&](double s, int, int, int i, int j) { return s + double(a_h[i]) * double(b_h[j]); });
    }
}
TEST_CASE_TEMPLATE_APPLY(own_id, Spaces);
