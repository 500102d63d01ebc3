// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Operands with the sequence before the heads, every other feature of wider rows.
template <class Exec>
struct Strided {
  using Wide = ViewOf<Exec, float****>;
  AttentionShape z;
  std::vector<Wide> memory;  // of the Views that are given out
  explicit Strided(AttentionShape shape) : z(shape) {}

  static auto every_other(Wide const& wide) {
    return Kokkos::View<float****, Kokkos::LayoutStride, typename Exec::memory_space>(
        wide.data(), Kokkos::LayoutStride(wide.extent(0), wide.stride(0), wide.extent(1), wide.stride(1),
                                          wide.extent(2), wide.stride(2), wide.extent(3) / 2, 2));
  }
  auto of(char const* name, int heads, int rows, int features) {
    memory.emplace_back(std::string(name), std::size_t(z.batch), std::size_t(rows), std::size_t(heads),
                        std::size_t(2 * features));
    return every_other(memory.back());
  }
  /// From (batch, head, row, feature).
  template <class V>
  static void take(V const& to, ViewOf<Exec, float****> const& from) {
    Kokkos::parallel_for(
        Kokkos::MDRangePolicy<Exec, Kokkos::Rank<4>>({0, 0, 0, 0},
                                                     {to.extent(0), to.extent(1), to.extent(2), to.extent(3)}),
        KOKKOS_LAMBDA(int b, int i, int h, int c) { to(b, i, h, c) = from(b, h, i, c); });
    Kokkos::fence();
  }
  template <class V>
  static void give(ViewOf<Exec, float****> const& to, V const& from) {
    Kokkos::parallel_for(
        Kokkos::MDRangePolicy<Exec, Kokkos::Rank<4>>({0, 0, 0, 0},
                                                     {to.extent(0), to.extent(1), to.extent(2), to.extent(3)}),
        KOKKOS_LAMBDA(int b, int h, int i, int c) { to(b, h, i, c) = from(b, i, h, c); });
    Kokkos::fence();
  }
};

template <class Exec>
void check_strides() {
  AttentionShape const z{2, 4, 2, 37, 45, 24, 40};
  BackwardOperands<Exec, float> const x(z, [&](int, int i, int j) { return j <= i + z.keys - z.queries; });
  Strided<Exec> s(z);
  auto const q = s.of("Q", z.heads, z.queries, z.d), k = s.of("K", z.kv_heads, z.keys, z.d),
             v = s.of("V", z.kv_heads, z.keys, z.d_v), o = s.of("O", z.heads, z.queries, z.d_v),
             d_o = s.of("dO", z.heads, z.queries, z.d_v), dq = s.of("dQ", z.heads, z.queries, z.d),
             dk = s.of("dK", z.kv_heads, z.keys, z.d), dv = s.of("dV", z.kv_heads, z.keys, z.d_v);
  s.take(q, x.x.qv), s.take(k, x.x.kv), s.take(v, x.x.vv), s.take(o, x.x.ov), s.take(d_o, x.dov);
  AttentionBackwardOptions options = causal();
  options.forward.layout = AttentionLayout::bshd;
  ViewOf<Exec, char*> const workspace(
      "workspace", attention_backward_workspace_size(Exec{}, dq, dk, dv, q, k, v, o, x.x.lse, d_o, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(Exec{}, dq, dk, dv, q, k, v, o, x.x.lse, d_o, options);
  s.give(x.dq, dq), s.give(x.dk, dk), s.give(x.dv, dv);
  x.check();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward takes any strides, the sequence before the heads", Exec,
                          backward_strides_id) {
  check_strides<Exec>();
}
TEST_CASE_TEMPLATE_APPLY(backward_strides_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward without queries or keys gives zeros", Exec, backward_empty_id) {
  for (AttentionShape const z : {AttentionShape{2, 2, 1, 0, 7, 8, 8}, AttentionShape{2, 2, 1, 7, 0, 8, 8},
                                 AttentionShape{0, 2, 1, 7, 9, 8, 8}}) {
    auto const check = [&]<class T>(T) {
      BackwardOperands<Exec, T> const x(z, everything);
      x.run({});
      for (auto const& gradient : {values(x.dq), values(x.dk), values(x.dv)})
        for (T const g : gradient) CHECK(to_double(g) == 0);
    };
    check(float{});
    check(bf16_t{});
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_empty_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward gives the same bits again where it says so", Exec, backward_again_id) {
  AttentionBackwardOptions options = causal();
  options.deterministic = true;
  BackwardOperands<Exec, bf16_t> const x({2, 4, 2, 140, 150, 64, 64}, everything);
  x.run(options);
  auto const dq = values(x.dq), dk = values(x.dk), dv = values(x.dv);
  for (int run = 0; run < 3; ++run) {
    poison(x.dq), poison(x.dk), poison(x.dv);
    x.run(options);
    auto const same = [](auto const& a, auto const& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    CHECK(same(dq, values(x.dq)));
    CHECK(same(dk, values(x.dk)));
    CHECK(same(dv, values(x.dv)));
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_again_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention_backward of large logits is finite, of NaN stays in its rows", Exec,
                          backward_extremes_id) {
  AttentionShape const z{1, 2, 2, 40, 50, 16, 16};
  AttentionBackwardOptions large;
  large.forward.scale = 100.0;
  BackwardOperands<Exec, float> x(z, everything);
  AttentionOptions forward{.scale = 100.0};
  forward.lse = x.x.lse;
  attention(Exec{}, x.x.ov, x.x.qv, x.x.kv, x.x.vv, forward);
  x.run(large);
  for (auto const& gradient : {values(x.dq), values(x.dk), values(x.dv)})
    for (float const g : gradient) CHECK(std::isfinite(g));

  // One NaN in a query's dO: its row of dQ, and what it adds to its own head's keys.
  BackwardOperands<Exec, float> y(z, everything);
  y.d_o[std::size_t(7) * z.d_v + 3] = NAN;  // of query 7 of head 0
  fill(y.dov, y.d_o);
  y.run({});
  auto const dq = values(y.dq), dk = values(y.dk), dv = values(y.dv);
  for (int row = 0; row < 2 * z.queries; ++row)
    for (int c = 0; c < z.d; ++c) CHECK(std::isnan(dq[std::size_t(row) * z.d + c]) == (row == 7));
  for (std::size_t i = 0; i < dk.size() / 2; ++i) CHECK(std::isfinite(dk[dk.size() / 2 + i]));
  for (std::size_t i = 0; i < dv.size() / 2; ++i) CHECK(std::isfinite(dv[dv.size() / 2 + i]));
}
TEST_CASE_TEMPLATE_APPLY(backward_extremes_id, Spaces);
