// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients by the pipeline of asynchronous copies, where there is one. Elsewhere another algorithm stands in, and the
// bounds are the same.
#include "attention/backward.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Few and many keys and queries, tiles that hang over edges, heads that share keys, features that do not fill a tile,
/// queries that see no key where these come last, tiles of keys that teams share.
constexpr AttentionShape shapes[] = {
    {1, 1, 1, 64, 128, 64, 64},  {2, 4, 2, 300, 333, 128, 128}, {1, 6, 1, 130, 257, 64, 64},
    {1, 2, 2, 77, 500, 40, 64},  {1, 2, 1, 257, 129, 96, 112},  {1, 1, 1, 1, 300, 128, 128},
    {1, 2, 2, 190, 70, 128, 72}, {2, 1, 1, 150, 1, 64, 64},     {1, 8, 1, 300, 200, 128, 128},
    {1, 8, 1, 270, 140, 64, 64}, {1, 4, 2, 130, 150, 256, 256}, {2, 2, 1, 77, 100, 136, 192}};

/// By the kernel for devices of little scratch.
template <class Exec, class T, int D>
void check_small(AttentionShape z, bool causal) {
  BackwardOperands<Exec, T> x(z, left_by(tensor_core_backward<Exec>(causal).forward, z));
  AttentionBackwardOptions const options = tensor_core_backward<Exec>(causal);
  auto const p = detail::backward_problem<Exec>(score::Identity{}, x.dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov,
                                                x.x.lse, x.dov, options);
  using Sizes = detail::BackwardAsyncSmall<D>;
  using Kernel = detail::AttentionKeyGradients<detail::BackwardAsyncAtoms<Exec, T, Sizes>>;
  std::int64_t const key_sums = detail::backward_tail<Kernel>(Exec{}, p).sums_of(Kernel::BN * D);
  ViewOf<Exec, char*> const workspace("workspace", detail::BackwardWorkspace(p, sizeof(float), D, key_sums).bytes());
  Kokkos::deep_copy(workspace, '\xff');  // NaN
  detail::run_backward_async<Exec, T, Sizes, false>(Exec{}, p, workspace.data(), score::Identity{}, mask::All{});
  Exec{}.fence();
  x.check();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gradients of attention on tensor cores", Exec, backward_tensor_core_id) {
  for (AttentionShape const& z : shapes)
    for (bool causal : {false, true})
      for (bool deterministic : {false, true}) {
        if (!has_tensor_cores<Exec>() && causal != deterministic) continue;  // half, where others stand in
        CAPTURE(deterministic);
        check_backward<Exec, bf16_t>(z, tensor_core_backward<Exec>(causal, deterministic), causal);
        check_backward<Exec, fp16_t, float>(z, tensor_core_backward<Exec>(causal, deterministic));
      }
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores keep to windows and lengths of keys", Exec,
                          backward_tensor_core_ranges_id) {
  for (bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    AttentionBackwardOptions window = tensor_core_backward<Exec>(true, deterministic);
    window.forward.window_left = 100;
    check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 64, 64}, window);
    check_backward<Exec, bf16_t>({1, 2, 1, 400, 450, 128, 128}, window);
    check_backward<Exec, bf16_t>({1, 2, 1, 230, 250, 200, 256}, window);
    for (bool causal : {false, true}) {
      check_backward_lengths<Exec, bf16_t>({4, 2, 1, 160, 230, 64, 64}, {170, 0, 229, 33},
                                           tensor_core_backward<Exec>(causal, deterministic));
      check_backward_lengths<Exec, fp16_t>({3, 2, 2, 160, 150, 128, 128}, {1, 150, 129},
                                           tensor_core_backward<Exec>(causal, deterministic));
      check_backward_lengths<Exec, fp16_t>({3, 2, 2, 60, 150, 256, 256}, {1, 150, 69},
                                           tensor_core_backward<Exec>(causal, deterministic));
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_ranges_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients on tensor cores with little scratch", Exec, backward_tensor_core_small_id) {
  if constexpr (detail::has_async_pipeline<Exec>)
    if (has_tensor_cores<Exec>())
      for (bool causal : {false, true}) {
        for (AttentionShape const& z : {AttentionShape{2, 4, 2, 300, 333, 64, 64}, {1, 2, 1, 77, 500, 40, 64}}) {
          check_small<Exec, bf16_t, 64>(z, causal);
          check_small<Exec, fp16_t, 64>(z, causal);
        }
        for (AttentionShape const& z : {AttentionShape{2, 4, 2, 300, 333, 128, 128}, {1, 8, 1, 257, 129, 96, 112}}) {
          check_small<Exec, bf16_t, 128>(z, causal);
          check_small<Exec, fp16_t, 128>(z, causal);
        }
      }
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_small_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE(
    "gradients on tensor cores: the plan names them, and those asked to are the same in every run", Exec,
    backward_tensor_core_plan_id) {
  BackwardOperands<Exec, bf16_t, float> x({2, 2, 1, 300, 400, 128, 128}, everything);
  auto const plan_of = [&](bool deterministic) {
    return attention_backward_plan(Exec{}, x.dq, x.dk, x.dv, x.x.qv, x.x.kv, x.x.vv, x.x.ov, x.x.lse, x.dov,
                                   tensor_core_backward<Exec>(false, deterministic));
  };
  auto const plan = plan_of(false), repeatable = plan_of(true);
  CHECK((plan.algorithm == AttentionAlgorithm::tensor_core) == has_tensor_cores<Exec>());
  CHECK((repeatable.algorithm == AttentionAlgorithm::tensor_core) == has_tensor_cores<Exec>());
  if (has_tensor_cores<Exec>()) {
    std::size_t const rows = 2 * 2 * 384 * sizeof(float);  // of each query, in whole tiles of 128
    CHECK(repeatable.workspace_bytes == 2 * rows);         // whose tiles have too few steps to be shared
    CHECK(plan.workspace_bytes >= (2 + 128) * rows);       // and of tiles of keys that teams share
  }
  x.check_repeats(tensor_core_backward<Exec>(false, true));
}
TEST_CASE_TEMPLATE_APPLY(backward_tensor_core_plan_id, Spaces);
