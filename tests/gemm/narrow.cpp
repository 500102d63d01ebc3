// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Factors of 8 and 16 bits, which a CPU may multiply as they are: in panels of 32 rows, lines of 64 bytes of K and
// steps of 1 KB of it. CTest runs these cases at every instruction set that has micro-kernels.
#include <cstdlib>
#include <cstring>
#include <random>

#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class Exec>
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

/// 8-bit floats on the portable kernels of a GPU, whose tensor cores keep fewer bits of their sums.
template <class Exec, class T>
GemmOptions options() {
  if (on_host<Exec>) return {};
  return {.algorithm = sizeof(T) == 1 ? Algorithm::coarsened : Algorithm::tensor_core};
}

/// One off a panel, half a panel, a line, a step and a tile.
constexpr Product products[] = {{1, 1, 1},   {31, 33, 65},  {32, 32, 64},   {33, 16, 31},
                                {15, 17, 2}, {17, 49, 513}, {64, 31, 1030}, {270, 290, 97}};

template <class Exec, class T, class TC>
void check_layouts() {
  for (Product p : products)
    for (auto [ta, tb] :
         {std::pair(false, true), std::pair(false, false), std::pair(true, true), std::pair(true, false)}) {
      p.transpose_a = ta, p.transpose_b = tb;
      p.pad = ta == tb ? 3 : 0, p.begin = ta == tb ? 1 : 0;  // rows begin at odd addresses
      p.alpha = tb ? 1 : 1.5, p.beta = ta ? 0.5 : 0;
      p.c_by_columns = ta && tb && on_host<Exec>;
      check_product<Exec, T, TC>(p, options<Exec, T>());
    }
}

/// A that a micro-kernel may read where it lies: whole lines along K, between others, in rows of halves of panels. Also
/// of more steps of K than one, with an end that it may not read so, and where it must add to C.
template <class Exec, class T, class TC>
void check_in_place() {
  for (Product p : {Product{16, 31, 64}, {48, 45, 128}, {272, 33, 64}, {80, 290, 1088}, {96, 64, 1030}, {64, 17, 2048}})
    for (bool const turned : {false, true}) {
      p.transpose_b = turned;
      p.pad = p.begin = 64;
      check_product<Exec, T, TC>(p, options<Exec, T>());
      p.alpha = 1.5, p.beta = 1;
      check_product<Exec, T, TC>(p, options<Exec, T>());
    }
}

/// The sums of two numbers, of all kinds but for subnormal ones, rounded on their way to C.
template <class Exec>
void check_rounded_sums() {
  constexpr int m = 32, n = 4111, k = 32;
  std::mt19937 draw(1);
  auto const number = [&] {
    auto const bits = static_cast<std::uint16_t>(draw());
    return bf16_t::from_bits((bits & 0x7f80) == 0 ? bits & 0x8000 : bits);
  };
  std::vector<bf16_t> ones(m * k), pairs(k * n);
  for (int i = 0; i < m; ++i) ones[i * k] = ones[i * k + 1] = bf16_t(1.f);
  for (int j = 0; j < n; ++j) {
    pairs[j] = number();
    // Near the first, so that they often share bits.
    pairs[n + j] =
        j % 3 == 0 ? number() : bf16_t::from_bits(pairs[j].bits() ^ static_cast<std::uint16_t>(draw() % 512));
    if ((pairs[n + j].bits() & 0x7f80) == 0) pairs[n + j] = bf16_t(0.f);
  }
  ViewOf<Exec, bf16_t**> a("A", m, k), b("B", k, n), c("C", m, n);
  fill(a, ones), fill(b, pairs);
  gemm(Exec{}, 1, a, b, 0, c, {.algorithm = Algorithm::coarsened});
  auto const got = values(c);
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float const sum = float(pairs[j]) + float(pairs[n + j]);
      if (std::isnan(sum) || std::isinf(sum) || std::isnormal(sum))
        wrong += got[i * n + j].bits() != bf16_t(sum).bits();
    }
  CHECK(wrong == 0);
}

/// A and B with strides of which none is 1, of different types.
template <class Exec, class TA, class TB>
void check_scattered(int m, int n, int k) {
  CAPTURE(k);
  ViewOf<Exec, TA**> a("A", m * 2, k * 3);
  ViewOf<Exec, TB**> b("B", k * 2, n * 3);
  ViewOf<Exec, float**> c("C", m, n);
  auto const ah = uniform<TA>(a.size(), 1);
  auto const bh = uniform<TB>(b.size(), 2);
  fill(a, ah), fill(b, bh);
  using Strided = Kokkos::LayoutStride;
  Kokkos::View<TA**, Strided, typename Exec::memory_space> const as(a.data(), Strided(m, 2 * k * 3, k, 3));
  Kokkos::View<TB**, Strided, typename Exec::memory_space> const bs(b.data(), Strided(k, 2 * n * 3, n, 3));
  gemm(Exec{}, 1, as, bs, 0, c, {.algorithm = Algorithm::coarsened});
  std::vector<TA> ac;
  std::vector<TB> bc;
  for (int i = 0; i < m; ++i)
    for (int p = 0; p < k; ++p) ac.push_back(ah[std::size_t(i) * 2 * k * 3 + p * 3]);
  for (int p = 0; p < k; ++p)
    for (int j = 0; j < n; ++j) bc.push_back(bh[std::size_t(p) * 2 * n * 3 + j * 3]);
  check_gemm<float>(gemm_reference(m, n, k, 1, ac, bc, 0, values(c)), values(c), k);
}

/// C = 1 B: what became of the elements on their way in and out.
template <class Exec, class TC, class T>
std::vector<TC> carried(std::vector<T> const& x) {
  ViewOf<Exec, float**> one("A", 1, 1);
  ViewOf<Exec, T**> b("B", 1, x.size());
  ViewOf<Exec, TC**> c("C", 1, x.size());
  fill(one, std::vector<float>{1.f}), fill(b, x);
  gemm(Exec{}, 1, one, b, 0, c, {.algorithm = Algorithm::coarsened});
  return values(c);
}

template <class Exec, class T>
void check_widening() {
  std::vector<T> all(std::size_t(1) << (8 * sizeof(T)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = T::from_bits(static_cast<typename T::bits_type>(i));
  auto const got = carried<Exec, float>(all);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    float const x = float(all[i]);
    wrong += std::isnan(x) ? !std::isnan(got[i]) : got[i] != x;
  }
  CHECK(wrong == 0);
}

/// Every upper half of an fp32 with lower halves around a tie, of bf16 and, by way of the upper ones, of fp16.
template <class Exec, class T>
void check_rounding() {
  for (std::uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> x(1 << 16);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = Kokkos::bit_cast<float>(static_cast<std::uint32_t>(i) << 16 | low);
    auto const got = carried<Exec, T>(x);
    int wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (x[i] != 0) wrong += got[i].bits() != T(x[i]).bits();
    CHECK(wrong == 0);
  }
}

/// The name that the plan gives, up to TESSERA_MAX_ISA or by TESSERA_WORD_KERNELS.
template <class Exec, class T>
std::string instructions() {
  ViewOf<Exec, T**> a("A", 4, 4);
  ViewOf<Exec, std::conditional_t<std::is_same_v<T, std::int8_t>, std::int32_t, float>**> c("C", 4, 4);
  return gemm_plan(Exec{}, 1, a, a, 0, c).instructions;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("narrow factors: bf16 in every layout, from any address", Exec, bf16_layouts_id) {
  check_layouts<Exec, bf16_t, bf16_t>();
  check_layouts<Exec, bf16_t, float>();
}
TEST_CASE_TEMPLATE_APPLY(bf16_layouts_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: read where they lie", Exec, in_place_id) {
  check_in_place<Exec, bf16_t, bf16_t>();
  check_in_place<Exec, bf16_t, float>();
}
TEST_CASE_TEMPLATE_APPLY(in_place_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: sums are rounded as the storage type is", Exec, rounded_sums_id) {
  if (on_host<Exec>) check_rounded_sums<Exec>();
}
TEST_CASE_TEMPLATE_APPLY(rounded_sums_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: fp16 and 8-bit floats in every layout", Exec, other_layouts_id) {
  check_layouts<Exec, fp16_t, float>();
  check_layouts<Exec, e4m3_t, bf16_t>();
  check_layouts<Exec, e5m2_t, float>();
}
TEST_CASE_TEMPLATE_APPLY(other_layouts_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: mixed types that are contiguous along no index", Exec, scattered_id) {
  for (int k : {1, 31, 200}) {
    check_scattered<Exec, bf16_t, bf16_t>(35, 40, k);
    check_scattered<Exec, e4m3_t, e5m2_t>(35, 40, k);
    check_scattered<Exec, bf16_t, e4m3_t>(3, 33, k);
    check_scattered<Exec, float, bf16_t>(33, 3, k);
  }
}
TEST_CASE_TEMPLATE_APPLY(scattered_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: widened and rounded as the storage types are", Exec, conversions_id) {
  check_widening<Exec, fp16_t>();
  check_widening<Exec, bf16_t>();
  check_widening<Exec, e4m3_t>();
  check_widening<Exec, e5m2_t>();
  check_rounding<Exec, fp16_t>();
  check_rounding<Exec, bf16_t>();
}
TEST_CASE_TEMPLATE_APPLY(conversions_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: integers are exact, over several steps of K too", Exec, integers_id) {
  for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(33, 31, 65), std::tuple(70, 40, 1100),
                         std::tuple(17, 290, 2100), std::tuple(48, 70, 1088), std::tuple(272, 40, 128)})
    for (bool columns : {false, true}) {
      int const extent = k;  // lambdas of C++20 capture no structured bindings in every compiler
      CAPTURE(extent);
      ViewOf<Exec, std::int8_t**> a("A", columns ? k : m, columns ? m : k), b("B", columns ? n : k, columns ? k : n);
      ViewOf<Exec, std::int32_t**> c("C", m, n);
      auto ah = uniform<std::int8_t>(a.size(), 1, -129, 128), bh = uniform<std::int8_t>(b.size(), 2, -129, 128);
      for (std::size_t i = 0; i < ah.size(); i += 2) ah[i] = -128;  // the largest products there are
      for (std::size_t i = 0; i < bh.size(); i += 3) bh[i] = -128;
      fill(a, ah), fill(b, bh);
      Op const op = columns ? Op::transpose : Op::none;
      gemm(Exec{}, 1, a, b, 0, c, {.op_a = op, .op_b = op});
      auto const got = values(c);
      int wrong = 0;
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          std::int32_t sum = 0;
          for (int p = 0; p < k; ++p)
            sum += std::int32_t(ah[columns ? std::size_t(p) * m + i : std::size_t(i) * k + p]) *
                   bh[columns ? std::size_t(j) * k + p : std::size_t(p) * n + j];
          wrong += got[std::size_t(i) * n + j] != sum;
        }
      CHECK(wrong == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(integers_id, Spaces);

// Elements that no product needs are NaN, and rows of NaN or Inf reach their own row or column of C only.
TEST_CASE_TEMPLATE_DEFINE("narrow factors: NaN and Inf stay where they belong", Exec, special_id) {
  int const m = 45, n = 39, k = 70;
  ViewOf<Exec, bf16_t**> a("A", m, k), b("B", k, n), c("C", m, n);
  std::vector<bf16_t> ah(a.size(), bf16_t(1.f)), bh(b.size(), bf16_t(1.f));
  ah[2 * k + 69] = bf16_t(NAN);
  ah[5 * k + 3] = bf16_t(INFINITY);
  ah[6 * k + 3] = bf16_t(INFINITY), ah[6 * k + 4] = bf16_t(-INFINITY);
  bh[69 * n + 38] = bf16_t(-INFINITY);
  fill(a, ah), fill(b, bh);
  gemm(Exec{}, 1, a, b, 0, c);
  auto const out = values(c);
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float const x = float(out[std::size_t(i) * n + j]);
      bool const last = j == n - 1;
      if (i == 2 || i == 6 || (i == 5 && last))
        wrong += !std::isnan(x);
      else
        wrong += x != (i == 5 ? INFINITY : (last ? -INFINITY : float(k)));
    }
  CHECK(wrong == 0);
}
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);

// The dot products of bf16 of a CPU take subnormal factors and sums for zero; all others keep them (docs/numerics.md).
TEST_CASE_TEMPLATE_DEFINE("narrow factors: subnormal numbers", Exec, subnormal_id) {
  ViewOf<Exec, bf16_t**> a("A", 1, 2), b("B", 2, 1);
  ViewOf<Exec, float**> c("C", 1, 1);
  float const tiny = std::ldexp(1.f, -130), least = std::ldexp(1.f, -126);
  std::string const by = instructions<Exec, bf16_t>();
  bool const flushes = by == "avx512_bf16" || by == "amx" || by == "amx_stand_in";
  auto const product = [&](float a0, float a1, float b0, float b1) {
    fill(a, std::vector<bf16_t>{bf16_t(a0), bf16_t(a1)});
    fill(b, std::vector<bf16_t>{bf16_t(b0), bf16_t(b1)});
    gemm(Exec{}, 1, a, b, 0, c, {.algorithm = Algorithm::coarsened});
    return values(c)[0];
  };
  CHECK(product(tiny, 0, 1024, 0) == (flushes ? 0.f : 1024 * tiny));
  CHECK(product(least, 0, 0.25f, 0) == (flushes ? 0.f : least / 4));
  CHECK(product(1, tiny, 1, 1) == 1.f);
  CHECK(product(least, least, 1, 1) == 2 * least);
  // fp8 has none that bf16 has not as normal numbers.
  ViewOf<Exec, e5m2_t**> x("X", 1, 1), y("Y", 1, 1);
  fill(x, std::vector<e5m2_t>{e5m2_t::from_bits(1)}), fill(y, std::vector<e5m2_t>{e5m2_t::from_bits(1)});
  gemm(Exec{}, 1, x, y, 0, c, {.algorithm = Algorithm::coarsened});
  CHECK(values(c)[0] == std::ldexp(1.f, -32));
}
TEST_CASE_TEMPLATE_APPLY(subnormal_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("narrow factors: plans name the instruction set, within the cap", Exec, instructions_id) {
  ViewOf<Exec, bf16_t**> a("A", 64, 64);
  GemmPlan const plan = gemm_plan(Exec{}, 1, a, a, 0, ViewOf<Exec, float**>("C", 64, 64));
  if (!on_host<Exec>) {
    CHECK(std::string(plan.instructions).empty());
    CHECK(!plan.narrow_factors);
    return;
  }
  CHECK(contains(to_string(plan), std::string(" by ") + plan.instructions));
  std::string const levels[] = {"baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"};
  auto const level = [&](std::string const& name) {
    return std::find(std::begin(levels), std::end(levels), name) - std::begin(levels);
  };
  char const* const cap = std::getenv("TESSERA_MAX_ISA");
  auto const check_cap = [&](std::string const& name) {
    CHECK(level(name) < std::ssize(levels));
    if (cap != nullptr) CHECK(level(name) <= level(cap));
  };
  check_cap(instructions<Exec, float>());
  char const* const words = std::getenv("TESSERA_WORD_KERNELS");
  bool const stands_in = words != nullptr && std::string(words) == "amx_stand_in";
  for (std::string const& name : {instructions<Exec, bf16_t>(), instructions<Exec, std::int8_t>()})
    if (stands_in)
      CHECK(name == words);
    else
      check_cap(name);
  CHECK(plan.narrow_factors == (stands_in || level(plan.instructions) >= level("avx512_bf16")));
}
TEST_CASE_TEMPLATE_APPLY(instructions_id, Spaces);
