// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/rotary.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Shape {
  std::size_t b, s, h, d, pairs;
  std::size_t size() const { return b * s * h * d; }
};

template <class Exec>
struct Tables {
  std::vector<float> c, s;
  ViewOf<Exec, float**> cosine, sine;
  Tables(std::size_t positions, std::size_t pairs)
      : cosine("cosine", positions, pairs), sine("sine", positions, pairs) {
    for (std::size_t p = 0; p < positions; ++p)
      for (std::size_t j = 0; j < pairs; ++j) {
        double const angle =
            static_cast<double>(p) * std::pow(1e4, -static_cast<double>(j) / static_cast<double>(pairs));
        c.push_back(static_cast<float>(std::cos(angle)));
        s.push_back(static_cast<float>(std::sin(angle)));
      }
    fill(cosine, c);
    fill(sine, s);
  }
};

/// Two products and a sum in Acc, 3 u of their magnitudes, and the rounding of the result.
template <class Acc, class Exec, class Out, class In>
int far_values(std::vector<Out> const& y, std::vector<In> const& x, Shape const& n, Tables<Exec> const& tables,
               RotaryOptions const& options) {
  double const u = roundoff_of<Acc>, sign = options.backward ? -1 : 1;
  int far = 0;
  for (std::size_t row = 0; row < n.b * n.s * n.h; ++row) {
    std::size_t const position = row / n.h % n.s + static_cast<std::size_t>(options.first_position);
    std::vector<double> expected = row_of(x, row, n.d), sizes(n.d);
    for (std::size_t j = 0; j < n.pairs; ++j) {
      std::size_t const a = options.interleaved ? 2 * j : j, b = options.interleaved ? a + 1 : j + n.pairs;
      double const c = tables.c[position * n.pairs + j], s = sign * tables.s[position * n.pairs + j];
      double const p = expected[a], q = expected[b];
      expected[a] = p * c - q * s;
      expected[b] = q * c + p * s;
      sizes[a] = std::abs(p * c) + std::abs(q * s);
      sizes[b] = std::abs(q * c) + std::abs(p * s);
    }
    for (std::size_t j = 0; j < n.d; ++j)
      far += !is_near(to_double(y[row * n.d + j]), expected[j],
                      3 * u * sizes[j] + limits<Out>::roundoff * std::abs(expected[j]) + limits<Out>::min_subnormal);
  }
  return far;
}

template <class Exec, class Out, class In, class Acc = float>
void check(Shape const& n, RotaryOptions const& options = {}) {
  CAPTURE(n.d);
  CAPTURE(options.interleaved);
  Tables<Exec> const tables(n.s + static_cast<std::size_t>(options.first_position), n.pairs);
  ViewOf<Exec, In****> const in("in", n.b, n.s, n.h, n.d);
  ViewOf<Exec, Out****> const out("out", n.b, n.s, n.h, n.d);
  auto const x = uniform<In>(n.size(), 1, -3, 3);
  fill(in, x);
  poison(out);
  rotary_embedding(Exec{}, out, in, tables.cosine, tables.sine, options);
  CHECK(far_values<Acc>(values(out), x, n, tables, options) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("rotary_embedding agrees with fp64", Exec, values_id) {
  for (bool interleaved : {false, true})
    for (bool backward : {false, true}) {
      RotaryOptions const options{.interleaved = interleaved, .backward = backward, .first_position = backward ? 5 : 0};
      check<Exec, bf16_t, bf16_t>({2, 7, 3, 128, 64}, options);
      check<Exec, fp16_t, fp16_t>({1, 300, 2, 64, 32}, options);
      check<Exec, float, float>({2, 5, 4, 96, 48}, options);
      check<Exec, double, double, double>({2, 5, 1, 16, 8}, options);
      check<Exec, float, bf16_t>({2, 5, 4, 40, 20}, options);
      check<Exec, bf16_t, bf16_t>({2, 5, 4, 128, 20}, options);  // a part of the features
      check<Exec, bf16_t, bf16_t>({1, 3, 2, 6, 3}, options);
      check<Exec, bf16_t, bf16_t>({1, 3, 2, 5, 2}, options);
      check<Exec, float, float>({1, 3, 2, 4, 0}, options);
      check<Exec, bf16_t, float>({1, 3, 2, 700, 300}, options);
      check<Exec, float, fp16_t>({1, 3, 2, 514, 257}, options);
    }
}

TEST_CASE_TEMPLATE_DEFINE("rotary_embedding takes any layout, runs in place, and is turned back", Exec, layouts_id) {
  Shape const n{2, 6, 3, 32, 16};
  Tables<Exec> const tables(n.s, n.pairs);
  auto const x = uniform<bf16_t>(n.size(), 1, -3, 3);
  auto const run = [&](auto const& out, auto const& in) {
    fill(strided(in), x);
    rotary_embedding(Exec{}, out, in, tables.cosine, tables.sine);
    CHECK(far_values<float>(values(strided(out)), x, n, tables, {}) == 0);
  };
  ViewOf<Exec, bf16_t****> const right("right", n.b, n.s, n.h, n.d), heads_first("heads", n.b, n.h, n.s, n.d);
  ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft> const left("left", n.b, n.s, n.h, n.d);
  Kokkos::LayoutStride const swapped(n.b, n.h * n.s * n.d, n.s, n.d, n.h, n.s * n.d, n.d, 1);
  Kokkos::View<bf16_t****, Kokkos::LayoutStride, typename Exec::memory_space> const view(heads_first.data(), swapped);
  run(right, right);
  run(left, right);
  run(right, left);
  run(view, right);
  run(right, view);
  // The sum of squares of each pair stays, so that turning back gives the numbers again, but for two roundings to bf16.
  fill(right, x);
  rotary_embedding(right, right, tables.cosine, tables.sine);
  rotary_embedding(right, right, tables.cosine, tables.sine, {.backward = true});
  auto const back = values(right);
  int far = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    far += std::abs(to_double(back[i]) - to_double(x[i])) > 4 * 3 * 2 * limits<bf16_t>::roundoff;
  CHECK(far == 0);
  ViewOf<Exec, bf16_t****> const nothing("nothing", 2, 0, 3, 32);
  rotary_embedding(Exec{}, nothing, nothing, tables.cosine, tables.sine);
}

TEST_CASE_TEMPLATE_DEFINE("rotary_embedding names what is wrong and writes nothing", Exec, errors_id) {
  ViewOf<Exec, float****> const in("in", 1, 4, 2, 8), out("out", 1, 4, 2, 8), narrow("narrow", 1, 4, 2, 6);
  ViewOf<Exec, float**> const cosine("cosine", 4, 4), sine("sine", 4, 4), wide("wide", 4, 5), few("few", 3, 4);
  poison(out);
  poison(narrow);
  auto text = error_of([&] { rotary_embedding(Exec{}, narrow, in, cosine, sine); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::rotary_embedding"));
  error_of([&] { rotary_embedding(Exec{}, out, in, wide, wide); }, ErrorCode::extent);
  error_of([&] { rotary_embedding(Exec{}, out, in, cosine, few); }, ErrorCode::extent);
  text = error_of([&] { rotary_embedding(Exec{}, out, in, few, few); }, ErrorCode::extent);
  CHECK(contains(text, "positions"));
  error_of([&] { rotary_embedding(Exec{}, out, in, cosine, sine, {.first_position = 1}); }, ErrorCode::extent);
  error_of([&] { rotary_embedding(Exec{}, out, in, cosine, sine, {.first_position = -1}); }, ErrorCode::value);
  Kokkos::View<float****, Kokkos::LayoutRight, typename Exec::memory_space> const null(static_cast<float*>(nullptr), 1,
                                                                                       4, 2, 8);
  error_of([&] { rotary_embedding(Exec{}, out, null, cosine, sine); }, ErrorCode::null_data);
  ViewOf<Exec, float**> const one("one", 4, 1);
  Kokkos::View<float****, Kokkos::LayoutRight, typename Exec::memory_space> const on_table(one.data(), 1, 1, 2, 2);
  ViewOf<Exec, float****> const small("small", 1, 1, 2, 2);
  error_of([&] { rotary_embedding(Exec{}, on_table, small, one, sine); }, ErrorCode::extent);
  error_of([&] { rotary_embedding(Exec{}, on_table, small, one, one); }, ErrorCode::overlap);
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(narrow));
}

TEST_CASE_TEMPLATE_APPLY(values_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
