// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors beside those of a plain implementation in the same precision, which stores scores and weights in the type of
// its operands.
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Errors {
  double largest = 0, squares = 0;
  void add(double error) {
    largest = std::max(largest, std::fabs(error));
    squares += error * error;
  }
};

/// Row by row: scores of sums in fp32 rounded to T, their softmax in fp32 rounded to T, sums of products in fp32
/// rounded to T.
template <class T, class Visible, class Score>
std::vector<T> plain_attention(AttentionShape z, std::vector<T> const& q, std::vector<T> const& k,
                               std::vector<T> const& v, Visible const& visible, Score const& score) {
  std::vector<T> o(std::size_t(z.batch) * z.heads * z.queries * z.d_v);
  std::vector<float> s(z.keys);
  float const scale = 1 / std::sqrt(float(z.d));
  for (std::size_t row = 0; row < o.size() / z.d_v; ++row) {
    int const i = int(row % z.queries), h = int(row / z.queries % z.heads), b = int(row / z.queries / z.heads);
    std::size_t const keys = (std::size_t(b) * z.kv_heads + h / (z.heads / z.kv_heads)) * z.keys;
    float largest = -INFINITY, l = 0;
    for (int j = 0; j < z.keys; ++j) {
      float dot = 0;
      for (int c = 0; c < z.d; ++c) dot += float(q[row * z.d + c]) * float(k[(keys + j) * z.d + c]);
      s[j] = visible(b, i, j) ? float(T(float(score(double(float(T(dot * scale))), b, h, i, j)))) : -INFINITY;
      largest = std::max(largest, s[j]);
    }
    for (float& x : s) l += x = std::exp(x - largest);
    for (int c = 0; c < z.d_v; ++c) {
      float sum = 0;
      for (int j = 0; j < z.keys; ++j) sum += float(T(s[j] / l)) * float(v[(keys + j) * z.d_v + c]);
      o[row * z.d_v + c] = T(sum);
    }
  }
  return o;
}

template <class Exec, class T, class Functor, class Visible, class Score>
void compare(AttentionShape z, AttentionOptions options, Functor const& functor, Visible const& visible,
             Score const& score) {
  Operands<Exec, T> const x(z);
  options.lse = x.lse;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, functor);
  auto const exact = attention_reference(z, x.q, x.k, x.v, x.scale(), visible, score, 0, 0).o;
  auto const plain = plain_attention(z, x.q, x.k, x.v, visible, score);
  auto const ours = values(x.ov);
  Errors of_plain, of_ours;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    of_plain.add(to_double(plain[i]) - exact[i]);
    of_ours.add(to_double(ours[i]) - exact[i]);
  }
  CHECK(of_ours.largest <= 2 * of_plain.largest);
  CHECK(of_ours.squares <= 4 * of_plain.squares);
}

template <class Exec, class T>
void compare_all() {
  AttentionShape const z{1, 2, 1, 100, 260, 64, 64}, wide{1, 2, 1, 70, 150, 128, 128};
  int const offset = z.keys - z.queries;
  compare<Exec, T>(z, {}, score::Identity{}, everything, unchanged);
  compare<Exec, T>(wide, {}, score::Identity{}, everything, unchanged);
  compare<Exec, T>(
      z, {.causal = true}, score::Identity{}, [=](int, int i, int j) { return j <= i + offset; }, unchanged);
  compare<Exec, T>(
      z, {.window_left = 40, .window_right = 3}, score::Identity{},
      [=](int, int i, int j) { return j >= i + offset - 40 && j <= i + offset + 3; }, unchanged);
  compare<Exec, T>(z, {}, score::SoftCap{3.0}, everything,
                   [](double s, int, int, int, int) { return 3.0 * std::tanh(s / 3.0); });
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention errs at most twice as much as a plain implementation", Exec, accuracy_id) {
  SUBCASE("fp32") { compare_all<Exec, float>(); }
  SUBCASE("fp16") { compare_all<Exec, fp16_t>(); }
  SUBCASE("bf16") { compare_all<Exec, bf16_t>(); }
}
TEST_CASE_TEMPLATE_APPLY(accuracy_id, Spaces);
