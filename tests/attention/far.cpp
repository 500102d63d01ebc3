// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operands whose elements lie further apart than 31 bits count. On a CPU what nobody touches takes no memory.
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("attention reaches elements more than 2^31 apart", Exec, far_id) {
  using Flat = ViewOf<Exec, bf16_t*>;
  using Far = Kokkos::View<bf16_t****, Kokkos::LayoutStride, typename Exec::memory_space>;
  AttentionShape const z{1, 3, 3, 70, 90, 64, 64};
  std::size_t const apart = (std::size_t(1) << 30) + 64;  // heads
  Operands<Exec, bf16_t> const x(z);
  auto const far = [&](Flat const& memory, int rows) {
    return Far(memory.data(), Kokkos::LayoutStride(z.batch, 3 * apart, z.heads, apart, rows, z.d, z.d, 1));
  };
  auto const room = [&](char const* label) {
    return Flat(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), 2 * apart + 90 * 64);
  };
  Flat const first = room("Q or K"), second = room("O or V");
  for (AttentionAlgorithm algorithm :
       {AttentionAlgorithm::automatic, AttentionAlgorithm::tensor_core, AttentionAlgorithm::tiled}) {
    CAPTURE(name(algorithm));
    AttentionOptions options = x.options();
    options.algorithm = algorithm;
    Far const q = far(first, z.queries), o = far(second, z.queries);
    fill(q, x.q);
    poison(o);
    attention(Exec{}, o, q, x.kv, x.vv, options);
    fill(x.ov, values(o));
    x.check(everything, unchanged, x.scale());

    Far const k = far(first, z.keys), v = far(second, z.keys);
    fill(k, x.k), fill(v, x.v);
    poison(x.ov);
    attention(Exec{}, x.ov, x.qv, k, v, options);
    x.check(everything, unchanged, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(far_id, Spaces);
