// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of attention: attention_bwd/BACKEND/TYPE/VARIANT/B1Hq16Hkv16Sq4096Sk4096D128/IMPLEMENTATION
// Variants: full, causal, and the same with sums of dQ in a fixed order: full_deterministic, causal_deterministic.
// FLOP/s count 2.5 times the forward's operations.
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/attention_backward.hpp>
#include "support/attention_shape.hpp"
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

template <class Exec, class T>
Implementation backward_on(Exec const& exec, model::AttentionShape const& s, bool causal, bool deterministic) {
  auto const of_queries = [&](int seed) {
    return random_view<Tensor4<Exec, T>>(exec, seed, s.batch, s.query_heads, s.query_length, s.head_size);
  };
  auto const of_keys = [&](int seed) {
    return random_view<Tensor4<Exec, T>>(exec, seed, s.batch, s.kv_heads, s.kv_length, s.head_size);
  };
  auto const q = of_queries(1), d_o = of_queries(4), o = of_queries(5), dq = of_queries(6);
  auto const k = of_keys(2), v = of_keys(3), dk = of_keys(7), dv = of_keys(8);
  Kokkos::View<float***, Kokkos::LayoutRight, typename Exec::memory_space> const lse("LSE", s.batch, s.query_heads,
                                                                                     s.query_length);
  AttentionBackwardOptions options;
  options.forward.causal = causal;
  options.deterministic = deterministic;
  AttentionOptions forward{.causal = causal};
  forward.lse = lse;
  attention(exec, o, q, k, v, forward);
  Vector<Exec, char> const workspace(
      "workspace", attention_backward_workspace_size(exec, dq, dk, dv, q, k, v, o, lse, d_o, options));
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  return {"tessera",
          [=] {
            static_cast<void>(workspace);
            attention_backward(exec, dq, dk, dv, q, k, v, o, lse, d_o, options);
          },
          tessera::to_string(attention_backward_plan(exec, dq, dk, dv, q, k, v, o, lse, d_o, options))};
}

template <class Exec, class T>
Case backward_case(Session<Exec>& session, std::string const& type, std::string const& variant,
                   std::string const& size) {
  model::AttentionShape const shape = parse_shape(size);
  bool const causal = variant.rfind("causal", 0) == 0, deterministic = variant.ends_with("_deterministic");
  if (variant != std::string(causal ? "causal" : "full") + (deterministic ? "_deterministic" : ""))
    throw std::invalid_argument("--variant=" + variant + ": full, causal, full_deterministic, causal_deterministic");
  Case c{"attention_bwd", type, variant, to_string(shape)};
  c.work = model::attention_backward_work(shape, causal, sizeof(T));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  c.implementations = {"tessera"};
  c.prepare = [&session, shape, causal, deterministic] {
    return std::vector<Implementation>{backward_on<Exec, T>(session.exec(), shape, causal, deterministic)};
  };
  return c;
}

struct AttentionBackward {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    for (std::string const& type : session.types({"fp32", "bf16"}, {"bf16"}))
      for (std::string const& variant : session.variants({"full", "causal"}))
        for (std::string const& size :
             session.sizes({"Hq4Sq512D64", "Hq8Hkv2Sq512D128"}, published_attention_sizes({64, 128, 256})))
          with_type<float, bf16_t, fp16_t>(
              type, [&]<class T>() { session.add(backward_case<Exec, T>(session, type, variant, size)); });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "Gradients of attention; --size=B1Hq32Hkv8Sq4096Sk4096D128 --variant=full,causal,full_deterministic",
      tessera::perf::AttentionBackward{});
}
