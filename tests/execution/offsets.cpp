// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Offsets past 2^31 and 2^32 elements. The memory is allocated and hardly touched, so that a CPU commits little of it.
#include <tessera/attention.hpp>
#include <tessera/cast.hpp>
#include <tessera/gemm.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr std::int64_t far = (std::int64_t(1) << 32) + 4096;  // elements of one byte

template <class Exec>
auto far_memory() {
  return ViewOf<Exec, e4m3_t*>(Kokkos::view_alloc("far", Kokkos::WithoutInitializing), far);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm reaches rows and batches past 2^32 elements", Exec, far_gemm_id) {
  auto const memory = far_memory<Exec>();
  using Strided = Kokkos::View<e4m3_t***, Kokkos::LayoutStride, typename Exec::memory_space>;
  int const batch = 2, m = 5, k = 40, n = 6;
  std::int64_t const row = std::int64_t(1) << 29, plane = std::int64_t(1) << 31;  // the last row starts at 2^32
  Strided const a(memory.data(), Kokkos::LayoutStride(batch, plane, m, row, k, 1));
  std::vector<e4m3_t> ah(batch * m * k);
  for (std::size_t i = 0; i < ah.size(); ++i) ah[i] = e4m3_t(float(int(i * 7 % 9) - 4));
  fill(a, ah);
  ViewOf<Exec, e4m3_t**> b("B", k, n);
  std::vector<e4m3_t> bh(k * n);
  for (std::size_t i = 0; i < bh.size(); ++i) bh[i] = e4m3_t(float(int(i * 5 % 7) - 3));
  fill(b, bh);
  ViewOf<Exec, float***> c("C", batch, m, n);
  for (Algorithm algorithm :
       {Algorithm::naive, Algorithm::coalesced, Algorithm::tiled, Algorithm::coarsened, Algorithm::tensor_core}) {
    poison(c);
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = algorithm});
    auto const out = values(c);
    // Small integers: the fp32 sums are exact. Planes overlap by design (plane = 4 rows): row 4 of plane 0 is row 0 of
    // plane 1.
    auto const ar = values(a);
    for (int p = 0; p < batch; ++p)
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          float sum = 0;
          for (int l = 0; l < k; ++l) sum += float(ar[(p * m + i) * k + l]) * float(bh[l * n + j]);
          CHECK(out[(p * m + i) * n + j] == sum);
        }
  }
}
TEST_CASE_TEMPLATE_APPLY(far_gemm_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast reaches elements past 2^32", Exec, far_cast_id) {
  auto const memory = far_memory<Exec>();
  ViewOf<Exec, float*> in("in", 1000);
  fill(in, uniform<float>(1000, 1));
  auto const out = Kokkos::subview(memory, std::pair<std::int64_t, std::int64_t>(far - 1000, far));
  cast(Exec{}, out, in);
  auto const got = values(out);
  auto const from = values(in);
  for (int i = 0; i < 1000; ++i) CHECK(got[i].bits() == e4m3_t(from[i]).bits());
  using Strided = Kokkos::View<e4m3_t**, Kokkos::LayoutStride, typename Exec::memory_space>;
  Strided const rows(memory.data(), Kokkos::LayoutStride(3, std::int64_t(1) << 31, 10, 1));
  ViewOf<Exec, float**> three("in", 3, 10);
  fill(three, uniform<float>(30, 2));
  cast(Exec{}, rows, three);
  auto const r = values(rows);
  auto const t = values(three);
  for (int i = 0; i < 30; ++i) CHECK(r[i].bits() == e4m3_t(t[i]).bits());
}
TEST_CASE_TEMPLATE_APPLY(far_cast_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention reaches rows past 2^31 elements", Exec, far_attention_id) {
  int const s = 5, d = 16;
  std::int64_t const row = std::int64_t(1) << 29;
  ViewOf<Exec, bf16_t*> memory(Kokkos::view_alloc("far", Kokkos::WithoutInitializing), 4 * row + 64);
  using Strided = Kokkos::View<bf16_t****, Kokkos::LayoutStride, typename Exec::memory_space>;
  Strided const k(memory.data(), Kokkos::LayoutStride(1, 1, 1, 1, s, row, d, 1));
  ViewOf<Exec, bf16_t****> near_k("K", 1, 1, s, d), q("Q", 1, 1, 3, d), v("V", 1, 1, s, d), o("O", 1, 1, 3, d),
      expected("O", 1, 1, 3, d);
  auto const kh = uniform<bf16_t>(s * d, 1);
  fill(k, kh), fill(near_k, kh), fill(q, uniform<bf16_t>(3 * d, 2)), fill(v, uniform<bf16_t>(s * d, 3));
  AttentionOptions const options{.algorithm = AttentionAlgorithm::tiled};
  attention(Exec{}, o, q, k, v, options);
  attention(Exec{}, expected, q, near_k, v, options);
  auto const a = values(o), b = values(expected);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].bits() == b[i].bits());
}
TEST_CASE_TEMPLATE_APPLY(far_attention_id, Spaces);
