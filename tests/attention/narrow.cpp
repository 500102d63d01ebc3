// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// bf16 as CPUs with dot products of words multiply it, and as the others do: each level runs these.
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Queries that fill half a panel of 32, a panel, several tiles of panels, and one more or less; keys and features that
/// fill lines of 32, pairs, and one more or less.
constexpr AttentionShape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},       {1, 1, 1, 16, 31, 31, 33},     {1, 1, 1, 17, 33, 2, 2},
    {1, 2, 1, 33, 128, 64, 63},  {1, 1, 1, 128, 129, 65, 64},   {1, 1, 1, 129, 257, 128, 128},
    {1, 1, 1, 145, 95, 127, 12}, {1, 1, 1, 300, 161, 256, 250}, {1, 32, 2, 270, 150, 16, 20}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("narrow factors: attention at the edges of panels and lines", Exec, shapes_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) {
      check_case<Exec, bf16_t>(z, causal);
      check_case<Exec, float>(z, causal);
    }
}
TEST_CASE_TEMPLATE_APPLY(shapes_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: attention over operands that are contiguous along no feature", Exec,
                          layouts_id) {
  AttentionShape const z{2, 4, 2, 37, 71, 24, 40};
  Operands<Exec, bf16_t> x(z);
  ViewOf<Exec, bf16_t****, Kokkos::LayoutLeft> q("Q", 2, 4, 37, 24), v("V", 2, 2, 71, 40), o("O", 2, 4, 37, 40);
  ViewOf<Exec, bf16_t*****> wide("K", 2, 2, 71, 24, 3);
  auto const k = Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, 1);
  fill(q, x.q);
  fill(k, x.k);
  fill(v, x.v);
  attention(Exec{}, o, q, k, v, x.options());
  fill(x.ov, values(o));
  x.check(everything, unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: attention ignores what lies behind key lengths", Exec, lengths_id) {
  AttentionShape const z{3, 1, 1, 40, 150, 32, 48};
  std::vector<int> const lengths{150, 77, 1};
  Operands<Exec, bf16_t> x(z);
  auto k = x.k, v = x.v;
  for (int b = 0; b < z.batch; ++b)
    for (int j = lengths[b]; j < z.keys; ++j) {
      for (int c = 0; c < z.d; ++c) k[(std::size_t(b) * z.keys + j) * z.d + c] = bf16_t(NAN);
      for (int c = 0; c < z.d_v; ++c) v[(std::size_t(b) * z.keys + j) * z.d_v + c] = bf16_t(INFINITY);
    }
  fill(x.kv, k);
  fill(x.vv, v);
  ViewOf<Exec, int*> lv("lengths", z.batch);
  fill(lv, lengths);
  AttentionOptions options = x.options();
  options.key_lengths = lv;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  x.check([&](int b, int, int j) { return j < lengths[b]; }, unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: a NaN in a query is in its row of attention alone", Exec, nan_id) {
  AttentionShape const z{1, 1, 1, 70, 140, 64, 64};
  Operands<Exec, bf16_t> x(z), clean(z);
  attention(Exec{}, clean.ov, clean.qv, clean.kv, clean.vv, clean.options());
  auto q = x.q;
  q[33 * z.d + 5] = bf16_t(NAN);
  fill(x.qv, q);
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, x.options());
  auto const with = values(x.ov), without = values(clean.ov);
  for (std::size_t i = 0; i < with.size(); ++i) {
    if (i / z.d_v == 33)
      CHECK(std::isnan(to_double(with[i])));
    else
      CHECK(to_double(with[i]) == to_double(without[i]));
  }
}
TEST_CASE_TEMPLATE_APPLY(nan_id, Spaces);
