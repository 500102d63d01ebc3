// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients by the pipeline of asynchronous copies, where there is one. Elsewhere another algorithm stands in, and the
// bounds are the same.
#include "attention/backward.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

AttentionBackwardOptions on_tensor_cores(bool causal) {
  AttentionBackwardOptions o;
  o.forward.causal = causal;
  o.algorithm = AttentionAlgorithm::tensor_core;
  return o;
}

/// Few and many keys and queries, tiles that hang over edges, heads that share keys, features that do not fill a tile.
constexpr AttentionShape shapes[] = {{1, 1, 1, 64, 128, 64, 64},   {2, 4, 2, 300, 333, 128, 128},
                                     {1, 6, 1, 130, 257, 64, 64},  {1, 2, 2, 77, 500, 40, 64},
                                     {1, 2, 1, 257, 129, 96, 112}, {1, 1, 1, 1, 300, 128, 128},
                                     {1, 2, 2, 190, 70, 128, 72}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients of attention on tensor cores", Exec, backward_tensor_core_id) {
  for (AttentionShape const& z : shapes)
    for (bool causal : {false, true}) {
      check_backward<Exec, bf16_t>(z, on_tensor_cores(causal), causal);
      check_backward<Exec, fp16_t, float>(z, on_tensor_cores(causal));
    }
  AttentionBackwardOptions window = on_tensor_cores(true);
  window.forward.window_left = 100;
  check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 64, 64}, window);
  check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 128, 128}, window);
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores are the same in every run, and the plan names them", Exec,
                          backward_tensor_core_plan_id) {
  BackwardOperands<Exec, bf16_t, float> x({2, 2, 1, 300, 400, 128, 128}, [](int, int, int) { return true; });
  AttentionBackwardOptions const o = on_tensor_cores(false);
  auto const plan =
      attention_backward_plan(Exec{}, x.dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov, x.x.lse, x.dov, o);
  CHECK((plan.algorithm == AttentionAlgorithm::tensor_core) == has_tensor_cores<Exec>());
  x.check_repeats(o);
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_plan_id, Spaces);
