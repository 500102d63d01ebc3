// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

AttentionBackwardOptions forced(bool causal, std::optional<std::int64_t> left = {}) {
  AttentionBackwardOptions o;
  o.forward.causal = causal;
  o.forward.window_left = left;
  o.algorithm = AttentionAlgorithm::hopper;
  o.allow_fallback = false;
  return o;
}

}  // namespace

TEST_CASE("the hopper pipeline forms gradients of attention") {
  for (bool causal : {false, true}) {
    check_backward<Exec, bf16_t>({1, 1, 1, 64, 128, 128, 128}, forced(causal));
    check_backward<Exec, bf16_t>({1, 2, 2, 128, 128, 64, 64}, forced(causal));
    check_backward<Exec, bf16_t>({2, 4, 2, 300, 333, 128, 128}, forced(causal), true);
    check_backward<Exec, bf16_t>({1, 6, 1, 130, 257, 64, 64}, forced(causal));
    check_backward<Exec, fp16_t>({1, 2, 1, 257, 129, 96, 112}, forced(causal));
    check_backward<Exec, fp16_t>({1, 2, 2, 77, 500, 40, 64}, forced(causal), true);
    check_backward<Exec, bf16_t, float>({1, 2, 2, 190, 70, 128, 72}, forced(causal));
  }
}

TEST_CASE("the hopper pipeline forms gradients of windows") {
  for (int left : {0, 100})
    for (bool causal : {false, true}) check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 64, 64}, forced(causal, left));
}

TEST_CASE("the hopper pipeline leaves keys behind a length without gradient, whatever they are") {
  std::vector<int> const lengths{70, 0, 129, 200};
  AttentionShape const z{4, 2, 1, 150, 200, 64, 128};
  ViewOf<Exec, int*> lengths_view("lengths", lengths.size());
  fill(lengths_view, lengths);
  BackwardOperands<Exec, bf16_t> x(z, [&](int b, int i, int j) {
    return j < lengths[std::size_t(b)] && j <= i + lengths[std::size_t(b)] - z.queries;
  });
  auto k = x.x.k, v = x.x.v;
  for (int b = 0; b < z.batch; ++b)
    for (int j = lengths[std::size_t(b)]; j < z.keys; ++j) {
      for (int c = 0; c < z.d; ++c) k[(std::size_t(b) * z.keys + j) * z.d + c] = bf16_t(NAN);
      for (int c = 0; c < z.d_v; ++c) v[(std::size_t(b) * z.keys + j) * z.d_v + c] = bf16_t(INFINITY);
    }
  fill(x.x.kv, k);
  fill(x.x.vv, v);
  AttentionBackwardOptions o = forced(true);
  o.forward.key_lengths = lengths_view;
  x.run(o);
  x.check();
}
