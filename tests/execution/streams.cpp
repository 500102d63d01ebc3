// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations run on the instance they are given: several at once, and inside a captured graph.
#include <tessera/attention.hpp>
#include <tessera/attention_merge.hpp>
#include <tessera/cast.hpp>
#include <tessera/functors.hpp>
#include <tessera/gemm.hpp>
#include <tessera/normalization.hpp>
#include <tessera/reduce.hpp>
#include <tessera/softmax.hpp>
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// A layer in small: each operation reads what the one before wrote.
template <class Exec>
struct Chain {
  static constexpr int n = 64;
  ViewOf<Exec, float**> x{"x", 64, 64}, w{"w", 64, 64}, h{"h", 64, 64}, y{"y", 64, 64};
  ViewOf<Exec, bf16_t**> narrow{"narrow", 64, 64};
  ViewOf<Exec, float*> weight{"weight", 64}, sums{"sums", 64};
  ViewOf<Exec, float****> q{"q", 1, 2, 32, 64}, o{"o", 1, 2, 32, 64}, part{"part", 1, 2, 32, 64};
  ViewOf<Exec, float***> lse{"lse", 1, 2, 32}, part_lse{"lse", 1, 2, 32};
  ViewOf<Exec, char*> workspace{"workspace", 2 * 2 * 32 * 65 * sizeof(float)};

  Chain() {
    fill(x, uniform<float>(n * n, 1)), fill(w, uniform<float>(n * n, 2)), fill(weight, uniform<float>(n, 3));
    fill(q, uniform<float>(q.size(), 4));
  }
  void run(Exec const& e) const {
    gemm(e, 1, x, w, 0, h);
    rms_norm(e, y, h, weight);
    softmax(e, h, y);
    transform(e, y, fn::multiply{}, h, x);
    cast(e, narrow, y);
    gemm(e, 1, narrow, w, 0, h);
    reduce(e, sums, h, Reduction::sum, {.axis = 1});
    attention(e, o, q, q, q, {.causal = true, .lse = lse});
    attention(e, part, q, q, q,
              {.lse = part_lse, .splits = 2, .workspace = workspace.data(), .workspace_bytes = workspace.size()});
    merge_attention(e, o, lse, part, part_lse);
  }
  std::vector<float> results() const {
    auto r = values(sums);
    auto const more = values(o);
    r.insert(r.end(), more.begin(), more.end());
    return r;
  }
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("instances of one space run side by side, with the same bits", Exec, instances_id) {
  Chain<Exec> first, second;
  first.run(Exec{});
  Kokkos::fence();
  auto const expected = first.results();
  auto const instances = Kokkos::Experimental::partition_space(Exec{}, 1, 1);
  Chain<Exec> third;
  for (int i = 0; i < 3; ++i) {
    second.run(instances[0]);
    third.run(instances[1]);
  }
  for (auto const& instance : instances) instance.fence();
  CHECK(second.results() == expected);
  CHECK(third.results() == expected);
}
TEST_CASE_TEMPLATE_APPLY(instances_id, Spaces);

#if defined(KOKKOS_ENABLE_CUDA)
TEST_CASE("every operation can be captured in a CUDA graph") {
  using Exec = Kokkos::Cuda;
  cudaStream_t stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  {
    Exec const e(stream);
    Chain<Exec> chain, captured;
    chain.run(e);  // the first call raises shared-memory limits and loads modules
    e.fence();
    auto const expected = chain.results();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    captured.run(e);
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    std::size_t nodes = 0;
    REQUIRE(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
    CHECK(nodes >= 8);
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; ++i) REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
    e.fence();
    CHECK(captured.results() == expected);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}
#endif
