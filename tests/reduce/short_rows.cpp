// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that a core or a warp takes many of at once, and rows of whole packs.
#include "bounds.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Rows of a block of `pitch` elements each, of which every `step`-th is one, whatever lies between being NaN.
template <class Exec, class T>
void check_rows(int rows, int n, int step, int pitch, std::vector<Reduction> const& operations) {
  using Strided = Kokkos::LayoutStride;
  CAPTURE(n);
  CAPTURE(step);
  CAPTURE(pitch);
  auto const at = [](int i) { return static_cast<std::size_t>(i); };
  std::size_t const size = at(rows - 1) * at(pitch) + at(n - 1) * at(step) + 1;  // nothing behind the last
  ViewOf<Exec, T*> const memory("memory", size);
  std::vector<T> x(size);
  if constexpr (!std::is_integral_v<T>) x.assign(size, T(std::numeric_limits<float>::quiet_NaN()));
  auto const values_of = uniform<T>(at(rows) * at(n), 5, -3, 3);
  std::vector<std::vector<double>> row(at(rows), std::vector<double>(at(n)));
  for (std::size_t r = 0; r < row.size(); ++r)
    for (std::size_t j = 0; j < row[r].size(); ++j) {
      T const v = values_of[r * row[r].size() + j];
      x[r * at(pitch) + j * at(step)] = v;
      row[r][j] = to_double(v);
    }
  fill(memory, x);
  ViewOf<Exec, T**, Strided> const in(memory.data(), Strided(at(rows), at(pitch), at(n), at(step)));
  ViewOf<Exec, float*> const out("out", at(rows));
  for (Reduction operation : operations) {
    CAPTURE(static_cast<int>(operation));
    poison(out);
    reduce(Exec{}, out, in, operation);
    auto const got = values(out);
    int far = 0;
    for (std::size_t r = 0; r < row.size(); ++r) {
      Reference const want = expected(operation, row[r]);
      far += !(std::abs(static_cast<double>(got[r]) - want.value) <= bound<float, T>(operation, want, at(n), false));
    }
    CHECK(far == 0);
  }
}

}  // namespace

// A core takes 1024 elements of rows of up to 256 at once, rows of up to 16 in pairs or by windows, of more in lanes.
TEST_CASE_TEMPLATE_DEFINE("reduce of short rows: every length, with and without gaps", Exec, reduce_short_rows) {
  for (int n = 1; n <= 70; ++n)
    for (int rows : {1, 2, 1024 / n, 1024 / n + 1, 2100 / n + 3}) check_rows<Exec, float>(rows, n, 1, n, every);
  for (int n : {95, 96, 97, 127, 128, 129, 200, 255, 256, 257, 300, 511, 512, 513, 1000})
    for (int rows : {1, 3, 4, 5, 33, 70}) check_rows<Exec, float>(rows, n, 1, n, every);
  for (int n : {2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 256, 260})
    for (int rows : {1, 5, 131, 1100 / n + 2}) {
      check_rows<Exec, float>(rows, n, 1, n + 1, every);
      check_rows<Exec, float>(rows, n, 2, 2 * n, every);
      check_rows<Exec, bf16_t>(rows, n, 3, 3 * n + 2, every);
      check_rows<Exec, double>(rows, n, 1, n + 5, every);
      check_rows<Exec, std::int8_t>(rows, n, 1, n, {Reduction::sum, Reduction::min, Reduction::amax});
      check_rows<Exec, e4m3_t>(rows, n, 1, n, every);
    }
}
TEST_CASE_TEMPLATE_APPLY(reduce_short_rows, Spaces);

namespace {

template <class Exec, class T>
void check_whole_packs(int rows, int n) {
  ViewOf<Exec, T**> const in("in", rows, n);
  check_reduce<Exec>(ViewOf<Exec, T*>("out", rows), in, 1, every, false, -2, 1);
  check_reduce<Exec>(ViewOf<Exec, float*>("out", rows), in, 1, every, false, -1, 2);
  ViewOf<Exec, float**> const wide("wide", rows, 3);
  check_reduce<Exec>(Kokkos::subview(wide, Kokkos::ALL, 1), in, 1, every);
}

}  // namespace

// On a GPU 4 to 32 lanes share such a row, with two to eight packs each.
TEST_CASE_TEMPLATE_DEFINE("reduce of rows of whole packs", Exec, reduce_whole_packs) {
  for (int n : {8, 56, 64, 72, 128, 136, 256, 512, 520, 1000, 1024, 1032, 2048, 2056})
    for (int rows : {1, 5, 67, 261}) {
      check_whole_packs<Exec, float>(rows, n);
      check_whole_packs<Exec, fp16_t>(rows, n);
      check_whole_packs<Exec, bf16_t>(rows, n);
    }
}
TEST_CASE_TEMPLATE_APPLY(reduce_whole_packs, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce of short rows in two loops, and into gaps", Exec, reduce_rows_of_rows) {
  ViewOf<Exec, float***> const x("x", 9, 50, 24);
  auto const part = Kokkos::subview(x, Kokkos::ALL, std::pair<int, int>(3, 47), Kokkos::ALL);
  ViewOf<Exec, float***> const wide("wide", 9, 44, 3);
  check_reduce<Exec>(Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, 1), part, 2, every);
  check_reduce<Exec>(ViewOf<Exec, float**, Kokkos::LayoutLeft>("left", 9, 44), part, 2, every);
  auto const narrow = Kokkos::subview(x, Kokkos::ALL, std::pair<int, int>(3, 47), std::pair<int, int>(2, 13));
  check_reduce<Exec>(Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, 2), narrow, 2, every);
}
TEST_CASE_TEMPLATE_APPLY(reduce_rows_of_rows, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce of short rows keeps what is special to its row", Exec, reduce_special_rows) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (int n : {2, 3, 8, 13, 17, 40, 64, 300})
    for (int pitch : {n, n + 1}) {
      CAPTURE(n);
      CAPTURE(pitch);
      int const rows = 40;
      ViewOf<Exec, float**> const memory("memory", rows, pitch);
      auto const in = Kokkos::subview(memory, Kokkos::ALL, std::pair<int, int>(0, n));
      ViewOf<Exec, float*> const out("out", rows);
      // Row r holds the special number at r % n, unless r % 3 == 0, and -1/4 elsewhere.
      auto const right = [&](Reduction operation, float special, float usual, float with) {
        std::vector<float> x(static_cast<std::size_t>(rows * pitch), -0.25f);
        for (int r = 0; r < rows; ++r)
          if (r % 3 != 0) x[static_cast<std::size_t>(r * pitch + r % n)] = special;
        fill(memory, x);
        reduce(Exec{}, out, in, operation);
        auto const got = values(out);
        bool good = true;
        for (int r = 0; r < rows; ++r) {
          float const v = got[static_cast<std::size_t>(r)], want = r % 3 != 0 ? with : usual;
          good = good && (std::isnan(want) ? std::isnan(v) : v == want);
        }
        return good;
      };
      for (Reduction operation : {Reduction::max, Reduction::min}) CHECK(right(operation, nan, -0.25f, nan));
      CHECK(right(Reduction::amax, nan, 0.25f, nan));
      CHECK(right(Reduction::sum, nan, -0.25f * static_cast<float>(n), nan));
      CHECK(right(Reduction::mean, inf, -0.25f, inf));
      CHECK(right(Reduction::max, -inf, -0.25f, -0.25f));
      CHECK(right(Reduction::min, inf, -0.25f, -0.25f));
      CHECK(right(Reduction::amax, -inf, 0.25f, inf));
      CHECK(right(Reduction::max, 0x1p-149f, -0.25f, 0x1p-149f));
    }
}
TEST_CASE_TEMPLATE_APPLY(reduce_special_rows, Spaces);

namespace {

/// Rows of a number and a zero: what is stored is the number, rounded once.
template <class Exec, class T>
void check_one_rounding() {
  std::vector<double> x;
  for (double base : {1.0, 0x1p-9, 0x1p-14, 0x1p-24, 0x1p-126, 0x1p-133, 0x1p-149, 0x1p15, 448.0, 65504.0, 0x1.fep127,
                      0x1p128, 0x1p1000, 0x1p-1000})
    for (int bits : {2, 3, 7, 8, 10, 11, 23, 24})  // halfway for one format or another
      for (double rest : {0.0, 0x1p-40, -0x1p-40, 0x1p-52, -0x1p-52})
        for (double sign : {1.0, -1.0}) x.push_back(sign * base * (1 + std::ldexp(1.0, -bits) + rest));
  for (double special : {0.0, std::numeric_limits<double>::infinity()}) x.push_back(special), x.push_back(-special);
  x.push_back(std::numeric_limits<double>::quiet_NaN());
  std::vector<double> rows;
  for (double v : x) rows.push_back(v), rows.push_back(std::copysign(0.0, v));
  ViewOf<Exec, double**> const in("in", x.size(), 2);
  ViewOf<Exec, T*> const out("out", x.size());
  fill(in, rows);
  reduce(Exec{}, out, in, Reduction::sum);
  auto const got = values(out);
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const want = to_double(T(x[i])), v = to_double(got[i]);
    wrong += !(std::isnan(want) ? std::isnan(v) : v == want);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("reduce rounds sums of fp64 once", Exec, reduce_one_rounding) {
  check_one_rounding<Exec, bf16_t>();
  check_one_rounding<Exec, fp16_t>();
  check_one_rounding<Exec, e4m3_t>();
  check_one_rounding<Exec, e5m2_t>();
}
TEST_CASE_TEMPLATE_APPLY(reduce_one_rounding, Spaces);
