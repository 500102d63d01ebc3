// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_HOPPER_MASKS_HPP
#define TESSERA_TESTS_HOPPER_MASKS_HPP

#include <tessera/attention.hpp>

#include "reference/attention.hpp"

namespace tessera::test {

inline constexpr AttentionShape masked_shape{1, 2, 1, 700, 1100, 128, 128};

/// A mask on the warp-specialised pipeline, asked by itself and through its table, against seen(b, h, i, j).
template <class Mask, class Seen>
void check_mask_on_hopper(Mask const& m, Seen const& seen) {
  using Exec = Kokkos::Cuda;
  AttentionShape const z = masked_shape;
  auto const visible = [&](bool causal) {
    return [=](int, int i, int j) { return !causal || j <= i + z.keys - z.queries; };
  };
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    ViewOf<Exec, bf16_t****> const q("Q", 1, z.heads, z.queries, z.d), k("K", 1, z.kv_heads, z.keys, z.d),
        v("V", 1, z.kv_heads, z.keys, z.d), o("O", 1, z.heads, z.queries, z.d);
    auto const qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2);
    auto const vh = uniform<bf16_t>(v.size(), 3);
    fill(q, qh), fill(k, kh), fill(v, vh);
    AttentionOptions const options{.causal = causal, .algorithm = AttentionAlgorithm::hopper, .allow_fallback = false};
    auto const r = attention_reference(
        z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible(causal),
        [&](double s, int b, int h, int i, int j) { return seen(b, h, i, j) ? s : -INFINITY; },
        4 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
    poison(o);
    attention(Exec{}, o, q, k, v, options, score::Identity{}, m);
    check_attention(r, values(o));
    AttentionPlan const plan = attention_plan(Exec{}, o, q, k, v, options, score::Identity{}, m);
    mask::TableShape const shape{z.queries, z.keys, 1, z.heads};
    ViewOf<Exec, int*> const storage("table", mask::table_size(plan, shape));
    poison(o);
    attention(Exec{}, o, q, k, v, options, score::Identity{}, mask::table(Exec{}, m, plan, shape, storage));
    check_attention(r, values(o));
  }
}

}  // namespace tessera::test

#endif
