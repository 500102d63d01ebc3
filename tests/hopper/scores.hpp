// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_HOPPER_SCORES_HPP
#define TESSERA_TESTS_HOPPER_SCORES_HPP

#include <tessera/attention.hpp>

#include "reference/attention.hpp"

namespace tessera::test {

/// Random operands on the device, and what the warp-specialised pipeline makes of them.
template <class T>
struct HopperAttentionOf {
  using Exec = Kokkos::Cuda;
  AttentionShape z;
  std::vector<T> qh, kh, vh;
  ViewOf<Exec, T****> q, k, v, o;
  ViewOf<Exec, float***> lse;

  explicit HopperAttentionOf(AttentionShape shape)
      : z(shape),
        q("Q", z.batch, z.heads, z.queries, z.d),
        k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v),
        o("O", z.batch, z.heads, z.queries, z.d_v),
        lse("LSE", z.batch, z.heads, z.queries) {
    qh = uniform<T>(q.size(), 1, -2, 2), kh = uniform<T>(k.size(), 2, -2, 2);
    vh = uniform<T>(v.size(), 3);
    fill(q, qh), fill(k, kh), fill(v, vh);
  }
  /// All scores at some negative number.
  void make_scores_negative(double q_mean, double k_mean) {
    qh = uniform<T>(q.size(), 1, q_mean - 0.2, q_mean + 0.2), kh = uniform<T>(k.size(), 2, -k_mean - 0.2, 0.2 - k_mean);
    fill(q, qh), fill(k, kh);
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
        8 * unit_roundoff<float>(), 2 * unit_roundoff<T>());
  }
};
using HopperAttention = HopperAttentionOf<bf16_t>;

/// What that pipeline makes of operands and a score against expected(s, b, h, i, j).
template <class T, class Score, class Expected>
void check_score_of(HopperAttentionOf<T> const& x, AttentionOptions const& options, Score const& functor,
                    Expected const& expected) {
  CAPTURE(options.causal);
  x.run(options, functor);
  auto const r = x.reference(options.causal, expected);
  check_attention(r, values(x.o));
  check_lse(r, values(x.lse));
}

/// A score on that pipeline against expected(s, b, h, i, j), for one shape with and without the causal mask.
template <class Score, class Expected>
void check_score_on_hopper(AttentionShape z, Score const& functor, Expected const& expected) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  HopperAttention const x(z);
  for (bool causal : {false, true}) check_score_of(x, {.causal = causal}, functor, expected);
}

inline constexpr AttentionShape scored_shapes[] = {{1, 4, 2, 300, 520, 128, 128},
                                                   {2, 4, 4, 257, 257, 64, 64},
                                                   {1, 4, 1, 130, 333, 256, 256},
                                                   {2, 4, 2, 5, 300, 128, 120}};
/// Long tiles of keys.
inline constexpr AttentionShape long_scored_shape = {1, 4, 4, 130, 4200, 128, 128};

}  // namespace tessera::test

#endif
