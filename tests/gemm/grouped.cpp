// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "group_list.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

// Smaller than a tile, larger, none at all, and no products to form.
std::vector<GroupSizes> const mixed = {{5, 7, 3},  {131, 140, 70}, {0, 9, 4},   {33, 1, 300},
                                       {12, 0, 8}, {20, 30, 0},    {1, 257, 64}};

template <class Exec, class TA, class TB, class TC, class Compute>
void check_list(double alpha, double beta) {
  for (bool const transpose_a : {false, true})
    for (bool const transpose_b : {false, true})
      for (int const pad : {0, 3}) {
        GroupList<Exec, TA, TB, TC> const list(mixed, transpose_a, transpose_b, pad);
        gemm_grouped(Exec{}, alpha, list.groups(), beta,
                     {.op_a = transpose_a ? Op::transpose : Op::none, .op_b = transpose_b ? Op::transpose : Op::none});
        list.template check<Compute>(alpha, beta);
      }
}

/// Adds where it is called.
struct Place {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col, std::int64_t group) const {
    return x + T(10000 * group + 100 * row + col);
  }
};

template <class Exec>
ViewOf<Exec, std::int32_t*> offsets_of(std::vector<std::int32_t> const& x) {
  ViewOf<Exec, std::int32_t*> v("offsets", x.size());
  fill(v, x);
  return v;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped multiplies what a list holds", Exec, list_id) {
  check_list<Exec, float, float, float, float>(1, 0);
  check_list<Exec, double, double, double, double>(-0.5, 2);
  check_list<Exec, bf16_t, e4m3_t, fp16_t, float>(0.25, 1);
}
TEST_CASE_TEMPLATE_APPLY(list_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped of integers is exact", Exec, int_list_id) {
  GroupList<Exec, std::int8_t, std::int8_t, std::int32_t> const list(mixed, false, true, 1);
  gemm_grouped(Exec{}, 3, list.groups(), -2, {.op_b = Op::transpose});
  list.template check<std::int32_t>(3, -2);
  error_of([&] { gemm_grouped(Exec{}, 0.5, list.groups(), 0, {.op_b = Op::transpose}); }, ErrorCode::value);
  error_of([&] { gemm_grouped(Exec{}, 1, list.groups(), 3e9, {.op_b = Op::transpose}); }, ErrorCode::value);
  list.template check<std::int32_t>(3, -2);
}
TEST_CASE_TEMPLATE_APPLY(int_list_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped with alpha = 0 reads no factor, with beta = 0 no C", Exec, zeros_id) {
  GroupList<Exec, float, float, float> const list(mixed, false, false, 0);
  ViewOf<Exec, GemmGroup<float, float, float>*> const none("groups", 0);
  gemm_grouped(Exec{}, 1, none, 0);
  fill(list.c(), std::vector<float>(list.c().size(), NAN));
  gemm_grouped(Exec{}, 0, list.groups(), 0);
  for (float const x : values(list.c())) CHECK(x == 0);
}
TEST_CASE_TEMPLATE_APPLY(zeros_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped multiplies blocks of rows", Exec, rows_id) {
  // Two rows before the first block, none in the third, three after the last.
  std::vector<std::int32_t> const at = {2, 7, 140, 140, 141, 170};
  int const groups = 5, rows = 173, n = 65, k = 33;
  for (bool const transpose_b : {false, true}) {
    ViewOf<Exec, bf16_t**> const a("A", rows, k);
    ViewOf<Exec, bf16_t***> const b("B", groups, transpose_b ? n : k, transpose_b ? k : n);
    ViewOf<Exec, float**> const c("C", rows, n);
    auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2);
    auto const ch = uniform<float>(c.size(), 3);
    fill(a, ah), fill(b, transpose_b ? transposed_planes(bh, groups, k, n) : bh), fill(c, ch);
    gemm_grouped(Exec{}, 2, a, b, offsets_of<Exec>(at), -1, c, {.op_b = transpose_b ? Op::transpose : Op::none},
                 Place{});
    auto const out = values(c);
    for (int g = 0; g < groups; ++g) {
      int const m = at[g + 1] - at[g];
      auto const part = [&](auto const& x, int width) {
        return std::remove_cvref_t<decltype(x)>(x.begin() + at[g] * width, x.begin() + at[g + 1] * width);
      };
      auto r = gemm_reference(m, n, k, 2, part(ah, k), plane_of(bh, g, k * n), -1, part(ch, n));
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double const place = 10000 * g + 100 * i + j;
          r.c[i * n + j] += place;
          r.magnitude[i * n + j] += place;
        }
      check_gemm<float>(r, part(out, n), k);
    }
    for (int i = 0; i < rows; ++i)
      if (i < at.front() || i >= at.back())
        for (int j = 0; j < n; ++j) CHECK(out[i * n + j] == ch[i * n + j]);
  }
}
TEST_CASE_TEMPLATE_APPLY(rows_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped keeps to C whatever the offsets say", Exec, offsets_id) {
  int const rows = 40, n = 8, k = 8;
  ViewOf<Exec, float**> const a("A", rows, k), wide("C", rows + 2, n);
  ViewOf<Exec, float***> const b("B", 3, k, n);
  fill(a, std::vector<float>(a.size(), 1.f)), fill(b, std::vector<float>(b.size(), 1.f));
  poison(wide);
  auto const c = Kokkos::subview(wide, std::pair(1, rows + 1), Kokkos::ALL);
  gemm_grouped(Exec{}, 1, a, b, offsets_of<Exec>({-7, 30, 20, 1000}), 0, c);
  for (float const x : values(c)) CHECK(x == k);
  CHECK(is_poisoned(Kokkos::subview(wide, std::pair(0, 1), Kokkos::ALL)));
  CHECK(is_poisoned(Kokkos::subview(wide, std::pair(rows + 1, rows + 2), Kokkos::ALL)));
}
TEST_CASE_TEMPLATE_APPLY(offsets_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped names what does not fit and writes nothing", Exec, grouped_errors_id) {
  Exec const e;
  using Matrix = ViewOf<Exec, float**>;
  using Stack = ViewOf<Exec, float***>;
  Matrix const a("A", 10, 4), c("C", 10, 5);
  Stack const b("B", 2, 4, 5);
  auto const offsets = offsets_of<Exec>({0, 3, 10});
  poison(c);
  auto const extent = [&](auto f, char const* part) {
    std::string const what = error_of(f, ErrorCode::extent);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK_MESSAGE(contains(what, "tessera::gemm_grouped"), what);
  };
  extent([&] { gemm_grouped(e, 1, a, Stack("B", 2, 5, 5), offsets, 0, c); }, "inner extents");
  extent([&] { gemm_grouped(e, 1, Matrix("A", 9, 4), b, offsets, 0, c); }, "A (9, 4)");
  extent([&] { gemm_grouped(e, 1, a, Stack("B", 2, 4, 6), offsets, 0, c); }, "columns of op(B)");
  extent([&] { gemm_grouped(e, 1, a, Stack("B", 3, 4, 5), offsets, 0, c); }, "offsets (3)");
  Matrix const square("A", 4, 4);
  error_of([&] { gemm_grouped(e, 1, square, Stack("B", 2, 4, 4), offsets, 0, square); }, ErrorCode::overlap);
  error_of([&] { gemm_grouped(e, 1, a, b, offsets, 0, c, {.algorithm = Algorithm::naive, .allow_fallback = false}); },
           ErrorCode::unsupported);
  using Raw = Kokkos::View<GemmGroup<float, float, float>*, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;
  error_of([&] { gemm_grouped(e, 1, Raw(nullptr, 3), 0); }, ErrorCode::null_data);
  CHECK(is_poisoned(c));
}
TEST_CASE_TEMPLATE_APPLY(grouped_errors_id, Spaces);
