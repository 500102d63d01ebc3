// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstring>

#include "attention/backward_scales.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;
double const of_weights = 2 * unit_roundoff<bf16_t>();
Starts const query_rows = {0, 130, 131, 131, 387, 700}, key_rows = {2, 258, 300, 333, 461, 790};

template <class T, class TO, class TG = float>
void check_narrow(AttentionShape z, AttentionBackwardOptions const& options) {
  for (bool scaled : {false, true})
    check_scaled<Exec, T, TO, TG>(z, options, score::Identity{}, {}, {.scaled = scaled, .of_weights = of_weights});
}

/// Every number of T of at most 2, subnormal ones too, then random ones.
template <class T>
std::vector<T> small_numbers(std::size_t n, unsigned seed) {
  auto all = uniform<T>(n, seed, -2, 2);
  for (unsigned bits = 0; bits < 256; ++bits) {
    T x;
    auto const pattern = static_cast<unsigned char>(bits);
    std::memcpy(&x, &pattern, 1);
    if (std::fabs(to_double(x)) <= 2) all[bits] = x;
  }
  return all;
}

/// Operands of T, and O and dO, beside which the same numbers are bf16.
template <class T>
struct SameNumbers {
  AttentionShape z;
  ViewOf<Exec, float***> lse;
  ViewOf<Exec, bf16_t****> o, d_o, dq, dk, dv;

  explicit SameNumbers(AttentionShape shape)
      : z(shape),
        lse("LSE", z.batch, z.heads, z.queries),
        o("O", z.batch, z.heads, z.queries, z.d_v),
        d_o("dO", z.batch, z.heads, z.queries, z.d_v),
        dq("dQ", z.batch, z.heads, z.queries, z.d),
        dk("dK", z.batch, z.kv_heads, z.keys, z.d),
        dv("dV", z.batch, z.kv_heads, z.keys, z.d_v) {
    Kokkos::deep_copy(lse, 4.0f);
    fill(o, uniform<bf16_t>(o.size(), 4));
    fill(d_o, uniform<bf16_t>(d_o.size(), 5));
  }
  /// All gradients, with the operands as F. NaN and what is infinite stand in the last key's values.
  template <class F>
  std::vector<bf16_t> gradients() const {
    auto const as = [](std::vector<T> const& from) {
      std::vector<F> to(from.size());
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = F(static_cast<float>(from[i]));
      return to;
    };
    ViewOf<Exec, F****> const q("Q", z.batch, z.heads, z.queries, z.d), k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v);
    auto values_of_v = small_numbers<T>(v.size(), 3);
    values_of_v.back() = T(INFINITY), values_of_v[values_of_v.size() - 2] = T(NAN);
    fill(q, as(small_numbers<T>(q.size(), 1))), fill(k, as(small_numbers<T>(k.size(), 2))), fill(v, as(values_of_v));
    AttentionBackwardOptions options = hopper_backward(true, true);
    std::size_t const bytes = attention_backward_workspace_size(Exec{}, dq, dk, dv, q, k, v, o, lse, d_o, options);
    ViewOf<Exec, char*> const workspace("workspace", bytes + 256);
    poison(workspace);
    options.workspace = workspace.data();
    options.workspace_bytes = bytes;
    poison(dq), poison(dk), poison(dv);
    attention_backward(Exec{}, dq, dk, dv, q, k, v, o, lse, d_o, options);
    CHECK(is_poisoned(Kokkos::subview(workspace, Kokkos::pair(bytes, bytes + 256))));
    auto all = values(dq);
    for (auto const& more : {values(dk), values(dv)}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void check() const {
    CAPTURE(z.d);
    auto const narrow = gradients<T>(), wide = gradients<bf16_t>();
    CHECK(std::memcmp(narrow.data(), wide.data(), narrow.size() * sizeof(bf16_t)) == 0);
    auto const is_nan = [](bf16_t x) { return std::isnan(static_cast<float>(x)); };
    CHECK(std::any_of(narrow.begin(), narrow.end(), is_nan));
    CHECK(!std::all_of(narrow.begin(), narrow.end(), is_nan));
  }
};

}  // namespace

TEST_CASE("the hopper pipeline forms gradients of 8-bit operands, with scales of heads and without") {
  for (bool causal : {false, true})
    for (bool deterministic : {false, true}) {
      auto const o = hopper_backward(causal, deterministic);
      check_narrow<e4m3_t, bf16_t>({2, 4, 2, 150, 203, 64, 64}, o);
      check_narrow<e4m3_t, bf16_t, bf16_t>({1, 6, 2, 130, 97, 128, 72}, o);
      check_narrow<e5m2_t, e4m3_t>({1, 2, 2, 77, 150, 40, 24}, o);
      if (!deterministic) check_narrow<e4m3_t, bf16_t>({1, 4, 2, 77, 130, 136, 200}, o);
      check_narrow<bf16_t, bf16_t>({1, 2, 1, 70, 190, 128, 128}, o);
    }
  auto windowed = hopper_backward(true);
  windowed.forward.window_left = 30;
  check_narrow<e5m2_t, bf16_t>({1, 2, 1, 300, 400, 128, 128}, windowed);
}

TEST_CASE("the hopper pipeline forms gradients of packed sequences of 8 bits") {
  auto const check = [](int d, AttentionBackwardOptions const& options, bool scaled) {
    check_scaled<Exec, e4m3_t, bf16_t>({1, 2, 1, 700, 800, d, 64}, options, score::Identity{}, {},
                                       {scaled, of_weights, query_rows, key_rows});
  };
  for (bool deterministic : {false, true}) {
    for (int d : {64, 128}) check(d, hopper_backward(true, deterministic), true);
    check(64, hopper_backward(false, deterministic), true);
    check(128, hopper_backward(true, deterministic), false);
  }
  check(200, hopper_backward(true), true);
}

TEST_CASE("8-bit operands give the bits that the same numbers give as bf16") {
  for (int d : {64, 128, 256}) {
    SameNumbers<e4m3_t>({2, 2, 1, 70, 150, d, d}).check();
    SameNumbers<e5m2_t>({2, 2, 1, 70, 150, d, d}).check();
  }
}

TEST_CASE("the plan of gradients says what becomes of 8-bit operands, and what keeps them from the hopper pipeline") {
  ViewOf<Exec, e4m3_t****> const q("Q", 1, 2, 70, 64);
  ViewOf<Exec, bf16_t****> const o("O", 1, 2, 70, 64), dq("dQ", 1, 2, 70, 64), dk("dK", 1, 2, 70, 64),
      dv("dV", 1, 2, 70, 64), d_o("dO", 1, 2, 70, 64), wide("Q", 1, 2, 70, 64);
  ViewOf<Exec, float****> const of_floats("dO", 1, 2, 70, 64);
  ViewOf<Exec, fp16_t****> const half("half", 1, 2, 70, 64);
  ViewOf<Exec, float***> const lse("LSE", 1, 2, 70);
  auto const plan = [&](auto const& x, auto const& arrived, AttentionBackwardOptions const& options = {}) {
    return attention_backward_plan(Exec{}, dq, dk, dv, x, x, x, o, lse, arrived, options);
  };
  auto const narrow = plan(q, d_o);
  CHECK(narrow.algorithm == AttentionAlgorithm::hopper);
  CHECK(contains(narrow.reason, "8-bit operands widened to bf16"));
  CHECK(narrow.workspace_bytes == plan(wide, d_o).workspace_bytes + 3 * q.size() * sizeof(bf16_t));
  CHECK(plan(q, of_floats).algorithm == AttentionAlgorithm::tiled);
  CHECK(contains(plan(q, of_floats).reason, "one type"));
  ViewOf<Exec, float**> const scales("scales", 1, 1);
  AttentionBackwardOptions scaled;
  scaled.forward.q_scale = scales;
  CHECK(plan(q, d_o, scaled).algorithm == AttentionAlgorithm::hopper);
  CHECK(contains(plan(half, half, scaled).reason, "scales of heads of bf16"));
  scaled.forward.dropout = {.p = 0.5};
  CHECK(contains(plan(q, d_o, scaled).reason, "without dropout"));
  scaled.algorithm = AttentionAlgorithm::hopper;
  scaled.allow_fallback = false;
  CHECK_THROWS_WITH_AS(static_cast<void>(plan(q, d_o, scaled)), doctest::Contains("without dropout"), Error);
}
