// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Long rows, bits that are repeated, and memory that does not grow with the square of the length.
#include <cstring>

#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("attention over 131072 keys stays within its bound", Exec, long_id) {
  for (bool causal : {false, true}) {
    AttentionShape const z{1, 2, 1, 3, 131072, 16, 8};
    Operands<Exec, bf16_t, float> x(z);
    x.attend({.causal = causal});
    x.check([&](int, int i, int j) { return !causal || j <= i + z.keys - z.queries; }, unchanged, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(long_id, Spaces);

namespace {

template <class Exec, class T>
void check_bits(AttentionShape z, AttentionOptions options) {
  Operands<Exec, T> const x(z);
  x.attend(options);
  auto const o = values(x.ov);
  auto const lse = values(x.lse);
  for (int i = 0; i < 3; ++i) {
    poison(x.ov), poison(x.lse);
    x.attend(options);
    CHECK(std::memcmp(values(x.ov).data(), o.data(), o.size() * sizeof(T)) == 0);
    CHECK(std::memcmp(values(x.lse).data(), lse.data(), lse.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention repeats its bits", Exec, bits_id) {
  for (AttentionAlgorithm algorithm : {AttentionAlgorithm::automatic, AttentionAlgorithm::tiled}) {
    check_bits<Exec, bf16_t>({2, 4, 2, 150, 300, 64, 64}, {.causal = true, .algorithm = algorithm});
    check_bits<Exec, float>({2, 4, 2, 70, 200, 32, 24}, {.window_left = 50, .algorithm = algorithm});
    check_bits<Exec, fp16_t>({1, 8, 2, 1, 3000, 64, 64}, {.splits = 4, .algorithm = algorithm});
    check_bits<Exec, bf16_t>({1, 2, 2, 90, 300, 64, 64},
                             {.dropout = {.p = 0.3, .seed = 5, .offset = 1}, .algorithm = algorithm});
  }
}
TEST_CASE_TEMPLATE_APPLY(bits_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("what attention asks for beside its operands grows with the length at most", Exec,
                          linear_id) {
  auto const bytes = [](int queries, int keys, auto tag) {
    using T = decltype(tag);
    using V = Kokkos::View<T****, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;
    using O = Kokkos::View<float****, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;
    static unsigned char somewhere[64];  // nobody reads what is only asked about
    auto* const at = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(somewhere + 63) / 64 * 64);
    return attention_workspace_size(Exec{}, O(reinterpret_cast<float*>(std::uintptr_t(1) << 46), 1, 2, queries, 128),
                                    V(at, 1, 2, queries, 128), V(at, 1, 1, keys, 128), V(at, 1, 1, keys, 128),
                                    {.allow_tf32 = true});
  };
  for (int s : {1024, 16384, 131072}) {
    CAPTURE(s);
    auto const linear = static_cast<std::size_t>(s) * 128 * sizeof(float) + 4096;
    CHECK(bytes(s, s, bf16_t{}) <= linear);
    CHECK(bytes(s, s, e4m3_t{}) <= linear);
    CHECK(bytes(s, s, float{}) <= linear);
    CHECK(bytes(1, s, bf16_t{}) <= linear);
  }
}
TEST_CASE_TEMPLATE_APPLY(linear_id, Spaces);
