// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_bias.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;
constexpr BiasShape all_its_own{true, true, true};

}  // namespace

TEST_CASE("the hopper pipeline gives an additive bias its gradient") {
  for (bool causal : {false, true})
    for (bool deterministic : {false, true}) {
      auto const o = hopper_backward(causal, deterministic);
      run_bias<Exec, bf16_t>({2, 4, 2, 150, 203, 64, 64}, all_its_own, o, true);
      run_bias<Exec, bf16_t>({1, 2, 1, 300, 131, 128, 72}, all_its_own, o);  // causal: the first queries see nothing
      run_bias<Exec, bf16_t>({1, 2, 2, 77, 300, 200, 256}, all_its_own, o);
    }
}

TEST_CASE("the hopper pipeline gives a bias its gradient in windows") {
  auto windowed = hopper_backward(true);
  windowed.forward.window_left = 30;
  run_bias<Exec, bf16_t>({1, 2, 1, 300, 400, 64, 64}, all_its_own, windowed);
}

TEST_CASE("a bias that heads share has its gradient from the portable kernel behind the hopper pipeline") {
  run_bias<Exec, bf16_t>({2, 2, 1, 150, 203, 64, 64}, {true, false, true}, hopper_backward(true));
}

TEST_CASE("the hopper pipeline leaves a bias without gradient behind key lengths") {
  AttentionShape const z{4, 2, 1, 150, 300, 64, 64};
  std::vector<int> const lengths{170, 0, 300, 33};
  ViewOf<Exec, int*> const lengths_view("lengths", lengths.size());
  fill(lengths_view, lengths);
  Bias<Exec, bf16_t> const bias(z, all_its_own);
  BackwardOperands<Exec, bf16_t> const x(
      z, [=](int b, int, int j) { return j < lengths[std::size_t(b)]; }, false, bias.rules());
  AttentionBackwardOptions o = hopper_backward(false);
  o.forward.key_lengths = lengths_view;
  ViewOf<Exec, float****> const d_bias("d_bias", z.batch, z.heads, z.queries, z.keys);
  poison(d_bias);
  o.d_bias = d_bias;
  x.run(o, score::additive_bias(bias.values));
  x.check();
  check_bias(x, bias, d_bias);
}
