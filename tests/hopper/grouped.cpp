// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of rows on the warp-specialised pipeline against the fp64 reference.
#include <tessera/gemm_grouped.hpp>

#include "gemm/product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

template <class T>
std::vector<T> part(std::vector<T> const& x, std::int64_t first, std::int64_t end) {
  return {x.begin() + first, x.begin() + end};
}

/// Adds where it is called, in steps that fp32 sums keep.
struct Place {
  KOKKOS_FUNCTION float operator()(float x, std::int64_t row, std::int64_t col, std::int64_t group) const {
    return x + static_cast<float>(1000 * group + 4 * row + col % 4);
  }
};

/// Each block, and the rows around them, which must be as they were. B[g] is (k, n), or (n, k) where it is transposed.
template <class T, class TC, class Epilogue>
void check_blocks(std::vector<std::int32_t> const& at, int n, int k, bool transpose_b, double beta,
                  Epilogue const& epilogue) {
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(transpose_b);
  CAPTURE(beta);
  int const groups = static_cast<int>(at.size()) - 1, rows = at.back() + 3;
  ViewOf<Exec, T**> const a("A", rows, k);
  ViewOf<Exec, T***> const b("B", groups, transpose_b ? n : k, transpose_b ? k : n);
  ViewOf<Exec, TC**> const c("C", rows, n);
  ViewOf<Exec, std::int32_t*> const offsets("offsets", at.size());
  auto const ah = uniform<T>(a.size(), 1), bh = uniform<T>(b.size(), 2);
  auto const ch = uniform<TC>(c.size(), 3);
  fill(a, ah), fill(b, bh), fill(c, ch), fill(offsets, at);
  gemm_grouped(
      Exec{}, 1.5, a, b, offsets, beta, c,
      {.op_b = transpose_b ? Op::transpose : Op::none, .algorithm = Algorithm::hopper, .allow_fallback = false},
      epilogue);
  auto const out = values(c);
  for (int g = 0; g < groups; ++g) {
    int const m = at[g + 1] - at[g];
    auto const stored = plane_of(bh, g, n * k), bg = transpose_b ? transposed_planes(stored, 1, n, k) : stored;
    auto r = gemm_reference(m, n, k, 1.5, part(ah, std::int64_t(at[g]) * k, std::int64_t(at[g + 1]) * k), bg, beta,
                            part(ch, std::int64_t(at[g]) * n, std::int64_t(at[g + 1]) * n));
    if constexpr (std::is_same_v<Epilogue, Place>)
      for (std::size_t i = 0; i < r.c.size(); ++i) {
        double const place = 1000. * g + 4. * static_cast<double>(i / n) + static_cast<double>(i % n % 4);
        r.c[i] += place;
        r.magnitude[i] += place;
      }
    check_gemm<float>(r, part(out, std::int64_t(at[g]) * n, std::int64_t(at[g + 1]) * n), k);
  }
  long touched = 0;
  for (int i = 0; i < rows; ++i)
    if (i < at.front() || i >= at.back())
      touched += std::memcmp(&out[std::size_t(i) * n], &ch[std::size_t(i) * n], n * sizeof(TC)) != 0;
  CHECK(touched == 0);
}

// Rows before the first block and after the last, empty blocks, ends within tiles; large and small ones on average.
std::vector<std::int32_t> const large = {2, 130, 130, 135, 391, 780}, small = {1, 4, 4, 70, 71, 199, 200, 200, 263};

}  // namespace

TEST_CASE_TEMPLATE("the hopper pipeline multiplies blocks of rows", T, bf16_t, fp16_t) {
  for (auto const& offsets : {large, small})
    for (bool const transpose_b : {false, true}) {
      check_blocks<T, T>(offsets, 304, 72, transpose_b, 0, epilogue::Identity{});
      check_blocks<T, float>(offsets, 136, 200, transpose_b, -0.5, epilogue::Identity{});
    }
}

TEST_CASE("the hopper pipeline tells an epilogue the row in its block and the block") {
  for (auto const& offsets : {large, small}) check_blocks<bf16_t, float>(offsets, 264, 136, true, 0.5, Place{});
}

TEST_CASE("gemm_grouped says what keeps it from the hopper pipeline") {
  GemmOptions const hopper{.algorithm = Algorithm::hopper, .allow_fallback = false};
  ViewOf<Exec, bf16_t**> const a("A", 64, 63), c("C", 64, 64);
  ViewOf<Exec, bf16_t***> const b("B", 1, 63, 64);
  ViewOf<Exec, float**> const wide_a("A", 64, 64), wide_c("C", 64, 64);
  ViewOf<Exec, float***> const wide_b("B", 1, 64, 64);
  ViewOf<Exec, std::int32_t*> const offsets("offsets", 2);
  ViewOf<Exec, GemmGroup<bf16_t, bf16_t, bf16_t>*> const list("list", 1);
  auto const what = [](auto const& f) { return error_of(f, ErrorCode::unsupported); };
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, a, b, offsets, 0, c, hopper); }), "multiples of 16 bytes"));
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, wide_a, wide_b, offsets, 0, wide_c, hopper); }),
                 "of fp16 and of bf16"));
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, list, 0, hopper); }), "not lists"));
}
