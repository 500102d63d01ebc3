// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every operation runs without a fence and without an allocation, is seen by Kokkos Tools under its label, and starts
// the kernels that its plan has listed.
#include <tessera/arg_reduce.hpp>
#include <tessera/attention.hpp>
#include <tessera/attention_merge.hpp>
#include <tessera/cast.hpp>
#include <tessera/cross_entropy.hpp>
#include <tessera/functors.hpp>
#include <tessera/gemm.hpp>
#include <tessera/launch_plan.hpp>
#include <tessera/mx.hpp>
#include <tessera/normalization.hpp>
#include <tessera/normalization_backward.hpp>
#include <tessera/quantize.hpp>
#include <tessera/reduce.hpp>
#include <tessera/rotary.hpp>
#include <tessera/softmax.hpp>
#include <tessera/softmax_backward.hpp>
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Counts {
  int fences = 0, allocations = 0;
  std::vector<std::string> kernels;
};
Counts counts;

namespace tools = Kokkos::Tools::Experimental;

void count_kernel(char const* label, std::uint32_t, std::uint64_t*) { counts.kernels.push_back(label); }

/// Counts what happens between construction and destruction. Kernels apart: Kokkos itself fences around every kernel
/// for a tool that listens to them.
struct Counting {
  tools::EventSet before = tools::get_callbacks();
  explicit Counting(bool kernels) {
    counts = {};
    if (kernels) {
      tools::set_begin_parallel_for_callback(count_kernel);
      tools::set_begin_parallel_reduce_callback(count_kernel);
    } else {
      tools::set_begin_fence_callback([](char const*, std::uint32_t, std::uint64_t*) { ++counts.fences; });
      tools::set_allocate_data_callback(
          [](Kokkos::Profiling::SpaceHandle, char const*, void const*, std::uint64_t) { ++counts.allocations; });
    }
  }
  ~Counting() { tools::set_callbacks(before); }
};

/// Not the first call is counted: that one may grow scratch that Kokkos keeps for the execution space.
template <class F>
void check_counts(char const* label, F const& f) {
  CAPTURE(label);
  f();
  Kokkos::fence();
  {
    Counting const counting(false);
    f();
  }
  CHECK(counts.fences == 0);
  CHECK(counts.allocations == 0);
  Kokkos::fence();
  {
    Counting const counting(true);
    f();
  }
  Kokkos::fence();
  std::vector<std::string> const started = counts.kernels;
  REQUIRE(started.size() >= 1);
  CHECK_MESSAGE(contains(started.back(), label), started.back());
  LaunchPlan plan;
  {
    Counting const counting(true);
    plan = launch_plan(f);
  }
  CHECK_MESSAGE(counts.kernels.empty(), "a plan starts no kernel");
  REQUIRE(plan.kernels.size() == started.size());
  for (std::size_t i = 0; i < started.size(); ++i) {
    CHECK(plan.kernels[i].label == started[i]);
    CHECK(plan.kernels[i].teams + plan.kernels[i].indices > 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("operations neither fence nor allocate", Exec, counts_id) {
  Exec const e;
  ViewOf<Exec, float**> a("A", 64, 64), b("B", 64, 64), c("C", 64, 64);
  ViewOf<Exec, bf16_t**> h("H", 64, 64);
  ViewOf<Exec, float****> q("Q", 1, 2, 40, 32), k("K", 1, 2, 40, 32), v("V", 1, 2, 40, 32), o("O", 1, 2, 40, 32);
  ViewOf<Exec, float*> weight("weight", 64), sums("sums", 64);
  ViewOf<Exec, e4m3_t**> narrow("narrow", 64, 64);
  ViewOf<Exec, float**> scales("scales", 64, 1);
  for (Algorithm algorithm : {Algorithm::automatic, Algorithm::naive, Algorithm::coalesced, Algorithm::tiled,
                              Algorithm::coarsened, Algorithm::tensor_core})
    check_counts("tessera::gemm", [&] { gemm(e, 1, a, b, 0, c, {.algorithm = algorithm}); });
  check_counts("tessera::attention", [&] { attention(e, o, q, k, v); });
  ViewOf<Exec, float***> lse("LSE", 1, 2, 40), other_lse("LSE", 1, 2, 40);
  ViewOf<Exec, float****> other("O", 1, 2, 40, 32);
  ViewOf<Exec, char*> workspace("workspace", attention_workspace_size(e, o, q, k, v, {.splits = 2}));
  check_counts("tessera::merge_attention", [&] {
    attention(e, o, q, k, v, {.splits = 2, .workspace = workspace.data(), .workspace_bytes = workspace.size()});
  });
  check_counts("tessera::merge_attention", [&] { merge_attention(e, o, lse, other, other_lse); });
  check_counts("tessera::cast", [&] { cast(e, h, a); });
  check_counts("tessera::transform", [&] { transform(e, c, fn::add{}, a, b); });
  check_counts("tessera::reduce", [&] { reduce(e, sums, a, Reduction::sum, {.axis = 1}); });
  check_counts("tessera::softmax", [&] { softmax(e, c, a); });
  check_counts("tessera::log_softmax", [&] { log_softmax(e, c, a); });
  check_counts("tessera::layer_norm", [&] { layer_norm(e, c, a, weight, weight); });
  check_counts("tessera::rms_norm", [&] { rms_norm(e, c, a, weight); });
  ViewOf<Exec, std::byte*> of_norm("workspace", norm_backward_workspace_size(e, a));
  ViewOf<Exec, float*> d_weight("d_weight", 64), d_bias("d_bias", 64);
  NormBackwardOptions<> const with_workspace{.workspace = of_norm};
  check_counts("tessera::softmax_backward", [&] { softmax_backward(e, c, b, a); });
  check_counts("tessera::log_softmax_backward", [&] { log_softmax_backward(e, c, b, a); });
  check_counts("tessera::layer_norm_backward",
               [&] { layer_norm_backward(e, c, d_weight, d_bias, b, a, sums, sums, weight, with_workspace); });
  check_counts("tessera::rms_norm_backward",
               [&] { rms_norm_backward(e, c, d_weight, b, a, sums, weight, with_workspace); });
  ViewOf<Exec, std::int64_t*> labels("labels", 64), counted("counts", 2);
  using Labels = ViewOf<Exec, std::int64_t*>;
  CrossEntropyOptions<ViewOf<Exec, float**>, None, None, Labels> const of_loss{
      .d_logits = c, .counts = counted, .mean = true};
  check_counts("tessera::cross_entropy", [&] { cross_entropy(e, sums, a, labels, of_loss); });
  ViewOf<Exec, float**> cosine("cosine", 2, 16);
  check_counts("tessera::rotary_embedding", [&] { rotary_embedding(e, o, q, cosine, cosine); });
  check_counts("tessera::argmax", [&] { argmax(e, labels, a); });
  ViewOf<Exec, e8m0_t**> powers("powers", 64, 2);
  check_counts("tessera::mx_quantize", [&] { mx_quantize(e, narrow, powers, a); });
  check_counts("tessera::mx_dequantize", [&] { mx_dequantize(e, c, narrow, powers); });
  check_counts("tessera::quantize", [&] { quantize(e, narrow, scales, a, {.granularity = Granularity::tile_1x128}); });
  check_counts("tessera::dequantize",
               [&] { dequantize(e, c, narrow, scales, {.granularity = Granularity::tile_1x128}); });
}
TEST_CASE_TEMPLATE_APPLY(counts_id, Spaces);
