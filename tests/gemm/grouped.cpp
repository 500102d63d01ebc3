// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/gemm_grouped.hpp>

#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Sizes {
  int m, n, k;
};
// Smaller than a tile, larger, none at all, and no products to form.
std::vector<Sizes> const mixed = {{5, 7, 3},  {131, 140, 70}, {0, 9, 4},   {33, 1, 300},
                                  {12, 0, 8}, {20, 30, 0},    {1, 257, 64}};

/// A list of products in the memory of Exec, each of whose matrices has rows `pad` elements longer than they need be.
template <class Exec, class TA, class TB, class TC>
class List {
  using Group = GemmGroup<TA, TB, TC>;

 public:
  List(std::vector<Sizes> const& sizes, bool transpose_a, bool transpose_b, int pad)
      : sizes_(sizes), pad_(pad), transpose_a_(transpose_a), transpose_b_(transpose_b) {
    std::size_t in_a = 0, in_b = 0, in_c = 0;
    for (Sizes const& s : sizes) {
      in_a += std::size_t(transpose_a ? s.k : s.m) * pitch_a(s);
      in_b += std::size_t(transpose_b ? s.n : s.k) * pitch_b(s);
      in_c += std::size_t(s.m) * pitch_c(s);
    }
    a_ = ViewOf<Exec, TA*>("A", in_a);
    b_ = ViewOf<Exec, TB*>("B", in_b);
    c_ = ViewOf<Exec, TC*>("C", in_c);
    fill(a_, ah_ = uniform<TA>(in_a, 1, -4, 4));
    fill(b_, bh_ = uniform<TB>(in_b, 2, -4, 4));
    fill(c_, ch_ = uniform<TC>(in_c, 3, -4, 4));
    std::vector<Group> list;
    for_each([&](Sizes const& s, std::size_t at_a, std::size_t at_b, std::size_t at_c) {
      list.push_back(
          {s.m, s.n, s.k, a_.data() + at_a, pitch_a(s), b_.data() + at_b, pitch_b(s), c_.data() + at_c, pitch_c(s)});
    });
    groups_ = ViewOf<Exec, Group*>("groups", list.size());
    fill_groups(list);
  }

  auto const& groups() const { return groups_; }
  ViewOf<Exec, TC*> const& c() const { return c_; }

  /// Every C against the reference, and what lies between their rows as it was.
  template <class Compute>
  void check(double alpha, double beta) const {
    auto const out = values(c_);
    for_each([&](Sizes const& s, std::size_t at_a, std::size_t at_b, std::size_t at_c) {
      CAPTURE(s.m);
      CAPTURE(s.n);
      CAPTURE(s.k);
      auto const a = matrix(ah_, at_a, s.m, s.k, pitch_a(s), transpose_a_);
      auto const b = matrix(bh_, at_b, s.k, s.n, pitch_b(s), transpose_b_);
      auto const before = matrix(ch_, at_c, s.m, s.n, pitch_c(s), false);
      auto const after = matrix(out, at_c, s.m, s.n, pitch_c(s), false);
      GemmReference const r = gemm_reference(s.m, s.n, s.k, alpha, a, b, beta, before);
      if constexpr (std::is_integral_v<TC>) {
        long wrong = 0;
        for (std::size_t i = 0; i < after.size(); ++i) wrong += double(after[i]) != r.c[i];
        CHECK(wrong == 0);
      } else {
        check_gemm<Compute>(r, after, s.k);
      }
      long touched = 0;
      for (int i = 0; i < s.m; ++i)
        for (int j = s.n; j < pitch_c(s); ++j)
          touched += std::memcmp(&out[at_c + i * pitch_c(s) + j], &ch_[at_c + i * pitch_c(s) + j], sizeof(TC)) != 0;
      CHECK(touched == 0);
    });
  }

 private:
  std::int64_t pitch_a(Sizes const& s) const { return (transpose_a_ ? s.m : s.k) + pad_; }
  std::int64_t pitch_b(Sizes const& s) const { return (transpose_b_ ? s.k : s.n) + pad_; }
  std::int64_t pitch_c(Sizes const& s) const { return s.n + pad_; }

  template <class F>
  void for_each(F const& f) const {
    std::size_t at_a = 0, at_b = 0, at_c = 0;
    for (Sizes const& s : sizes_) {
      f(s, at_a, at_b, at_c);
      at_a += std::size_t(transpose_a_ ? s.k : s.m) * pitch_a(s);
      at_b += std::size_t(transpose_b_ ? s.n : s.k) * pitch_b(s);
      at_c += std::size_t(s.m) * pitch_c(s);
    }
  }
  template <class T>
  static std::vector<T> matrix(std::vector<T> const& from, std::size_t at, int rows, int cols, std::int64_t pitch,
                               bool transposed) {
    std::vector<T> x(std::size_t(rows) * cols);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        x[std::size_t(i) * cols + j] = from[at + (transposed ? j * pitch + i : i * pitch + j)];
    return x;
  }
  void fill_groups(std::vector<Group> const& list) {
    Kokkos::View<Group const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const host(list.data(), list.size());
    Kokkos::deep_copy(groups_, host);
  }

  std::vector<Sizes> sizes_;
  int pad_;
  bool transpose_a_, transpose_b_;
  ViewOf<Exec, TA*> a_;
  ViewOf<Exec, TB*> b_;
  ViewOf<Exec, TC*> c_;
  ViewOf<Exec, Group*> groups_;
  std::vector<TA> ah_;
  std::vector<TB> bh_;
  std::vector<TC> ch_;
};

template <class Exec, class TA, class TB, class TC, class Compute>
void check_list(double alpha, double beta) {
  for (bool const transpose_a : {false, true})
    for (bool const transpose_b : {false, true})
      for (int const pad : {0, 3}) {
        List<Exec, TA, TB, TC> const list(mixed, transpose_a, transpose_b, pad);
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
  List<Exec, std::int8_t, std::int8_t, std::int32_t> const list(mixed, false, true, 1);
  gemm_grouped(Exec{}, 3, list.groups(), -2, {.op_b = Op::transpose});
  list.template check<std::int32_t>(3, -2);
  error_of([&] { gemm_grouped(Exec{}, 0.5, list.groups(), 0, {.op_b = Op::transpose}); }, ErrorCode::value);
  error_of([&] { gemm_grouped(Exec{}, 1, list.groups(), 3e9, {.op_b = Op::transpose}); }, ErrorCode::value);
  list.template check<std::int32_t>(3, -2);
}
TEST_CASE_TEMPLATE_APPLY(int_list_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gemm_grouped with alpha = 0 reads no factor, with beta = 0 no C", Exec, zeros_id) {
  List<Exec, float, float, float> const list(mixed, false, false, 0);
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
