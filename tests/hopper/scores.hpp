// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_HOPPER_SCORES_HPP
#define TESSERA_TESTS_HOPPER_SCORES_HPP

#include <tessera/attention.hpp>

#include "reference/attention.hpp"

namespace tessera::test {

/// Random operands of bf16 on the device, and what the warp-specialised pipeline makes of them.
struct HopperAttention {
  using Exec = Kokkos::Cuda;
  AttentionShape z;
  std::vector<bf16_t> qh, kh, vh;
  ViewOf<Exec, bf16_t****> q, k, v, o;
  ViewOf<Exec, float***> lse;

  explicit HopperAttention(AttentionShape shape)
      : z(shape),
        q("Q", z.batch, z.heads, z.queries, z.d),
        k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v),
        o("O", z.batch, z.heads, z.queries, z.d_v),
        lse("LSE", z.batch, z.heads, z.queries) {
    qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2);
    vh = uniform<bf16_t>(v.size(), 3);
    fill(q, qh), fill(k, kh), fill(v, vh);
  }
  template <class Score>
  void run(AttentionOptions options, Score const& functor) const {
    options.lse = lse;
    options.algorithm = AttentionAlgorithm::hopper;
    options.allow_fallback = false;
    poison(o), poison(lse);
    ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, o, q, k, v, options, functor));
    options.workspace = workspace.size() > 0 ? workspace.data() : nullptr;
    options.workspace_bytes = workspace.size();
    attention(Exec{}, o, q, k, v, options, functor);
    Exec{}.fence();
  }
  template <class Expected>
  AttentionReference reference(bool causal, Expected const& expected) const {
    return attention_reference(
        z, qh, kh, vh, 1 / std::sqrt(double(z.d)),
        [=, this](int, int i, int j) { return !causal || j <= i + z.keys - z.queries; }, expected,
        8 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
  }
};

/// A score on that pipeline against expected(s, b, h, i, j), for one shape with and without the causal mask.
template <class Score, class Expected>
void check_score_on_hopper(AttentionShape z, Score const& functor, Expected const& expected) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  HopperAttention const x(z);
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    x.run({.causal = causal}, functor);
    auto const r = x.reference(causal, expected);
    check_attention(r, values(x.o));
    check_lse(r, values(x.lse));
  }
}

inline constexpr AttentionShape scored_shapes[] = {{1, 4, 2, 300, 520, 128, 128},
                                                   {2, 4, 4, 257, 257, 64, 64},
                                                   {1, 4, 1, 130, 333, 256, 256},
                                                   {2, 4, 2, 5, 300, 128, 120}};
/// Long tiles of keys.
inline constexpr AttentionShape long_scored_shape = {1, 4, 4, 130, 4200, 128, 128};

}  // namespace tessera::test

#endif
