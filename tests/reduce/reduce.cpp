// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/reduce.hpp>

#include <algorithm>
#include <array>
#include <limits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr Reduction all_operations[] = {Reduction::sum,   Reduction::mean, Reduction::max,           Reduction::amax,
                                        Reduction::norm2, Reduction::min,  Reduction::sum_of_squares};

/// The operation on the elements in fp64, and the sum of what was added up in magnitude, for bounds.
struct Reference {
  double value, magnitude;
};
Reference reference(Reduction operation, std::vector<double> const& x) {
  double sum = 0, magnitude = 0, squares = 0, amax = 0, max = -std::numeric_limits<double>::infinity();
  double min = -max;
  for (double v : x) {
    sum += v;
    magnitude += std::abs(v);
    squares += v * v;
    amax = std::max(amax, std::abs(v));
    max = std::max(max, v);
    min = std::min(min, v);
  }
  double const n = static_cast<double>(x.size());
  switch (operation) {
    case Reduction::sum:
      return {sum, magnitude};
    case Reduction::mean:
      return {sum / n, magnitude / n};
    case Reduction::max:
      return {max, 0};
    case Reduction::amax:
      return {amax, 0};
    case Reduction::min:
      return {min, 0};
    case Reduction::sum_of_squares:
      return {squares, squares};
    case Reduction::norm2:
      break;
  }
  return {std::sqrt(squares), std::sqrt(squares)};
}

template <class T>
double unit() {
  if constexpr (std::is_same_v<T, double>)
    return 0x1p-53;
  else if constexpr (std::is_integral_v<T>)
    return 0;
  else
    return std::ldexp(1.0, -1 - detail::FloatFormat<T>::mantissa_bits);
}

/// Error of a sum of n terms: each goes through at most n / 2048 + 300 (and at most n) rounded additions of half a unit
/// of the accumulator relative to the sum of magnitudes; then one rounding of the result, of half a unit of Out (half
/// an integer), and Out's subnormal spacing.
template <class Out, class In>
double bound(Reduction operation, Reference const& want, std::size_t n, bool fp64) {
  bool const wide = fp64 || std::is_same_v<In, double> || std::is_integral_v<In> || operation == Reduction::norm2 ||
                    operation == Reduction::sum_of_squares;
  double const additions = std::min<double>(static_cast<double>(n), static_cast<double>(n) / 2048 + 300) + 2;
  bool const exact = operation == Reduction::max || operation == Reduction::amax || operation == Reduction::min;
  double const accumulated = exact ? 0 : 1.01 * additions * (wide ? 0x1p-53 : 0x1p-24) * want.magnitude;
  double const integer = std::is_integral_v<Out> ? 0.5 : 0;
  // The reference itself is a sum in fp64.
  double const own = exact ? 0 : static_cast<double>(n) * 0x1p-53 * want.magnitude;
  return accumulated + own + unit<Out>() * (std::abs(want.value) + accumulated) + integer + 0x1p-140;
}

template <class Exec>
ViewOf<Exec, std::byte*> workspace_for(std::size_t bytes) {
  return ViewOf<Exec, std::byte*>("workspace", bytes);
}

/// Elements of `in` that belong to each output, in the order of the outputs.
template <class In, class Values>
std::vector<std::vector<double>> groups(In const& in, Values const& x, bool all, int axis) {
  std::size_t inner = 1, n = 1, outer = 1;
  for (int d = 0; d < static_cast<int>(In::rank()); ++d)
    (all || d == axis ? n : d < axis ? outer : inner) *= in.extent(static_cast<std::size_t>(d));
  std::vector<std::vector<double>> result(outer * inner, std::vector<double>(n));
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < inner; ++i) result[o * inner + i][k] = to_double(x[(o * n + k) * inner + i]);
  return result;
}

template <class Exec, class Out, class In>
void check_reduce(Out const& out, In const& in, int axis, std::vector<Reduction> const& operations,
                  bool accumulate_fp64 = false, double low = -1, double high = 1) {
  using O = typename Out::non_const_value_type;
  using I = typename In::non_const_value_type;
  fill(in, uniform<I>(in.size(), 9, low, high));
  auto const parts = groups(in, values(in), Out::rank() == 0, axis);
  for (Reduction operation : operations) {
    ReduceOptions options{.axis = axis, .accumulate_fp64 = accumulate_fp64};
    auto const workspace = workspace_for<Exec>(reduce_workspace_size(Exec{}, out, in, operation, options));
    options.workspace = workspace;
    poison(out);
    reduce(Exec{}, out, in, operation, options);
    auto const got = values(out);
    REQUIRE(got.size() == parts.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      Reference const want = reference(operation, parts[i]);
      double result = 0;
      if constexpr (std::is_integral_v<O>)
        result = static_cast<double>(got[i]);
      else
        result = to_double(got[i]);
      double const error = std::abs(result - want.value);
      double const allowed = bound<O, I>(operation, want, parts[i].size(), accumulate_fp64);
      worst = std::max(worst, std::isnan(error) ? 1e30 : error / allowed);
    }
    INFO("operation " << static_cast<int>(operation) << ", axis " << axis << ", " << in.size()
                      << " elements, workspace " << workspace.size() << ", largest error / bound " << worst);
    CHECK(worst <= 1);
  }
}

std::vector<Reduction> const every(std::begin(all_operations), std::end(all_operations));

template <class Exec, class T>
void check_type(double high) {
  check_reduce<Exec>(ViewOf<Exec, float>("out"), ViewOf<Exec, T*>("in", 40000), 0, every, false, -high, high);
  check_reduce<Exec>(ViewOf<Exec, T*>("out", 60), ViewOf<Exec, T**>("in", 60, 300), 1, every, false, 0, high / 400);
  check_reduce<Exec>(ViewOf<Exec, double*>("out", 300), ViewOf<Exec, T**>("in", 60, 300), 0, every, true, -high, high);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("reduce over all elements at every size", Exec, reduce_sizes) {
  ViewOf<Exec, float> const out("out");
  for (int n : {1, 2, 3, 5, 31, 63, 64, 65, 127, 128, 129, 255, 1023, 1025, 4097, 16385, 32768, 100003})
    check_reduce<Exec>(out, ViewOf<Exec, float*>("in", n), 0, {Reduction::sum, Reduction::amax});
  check_reduce<Exec>(out, ViewOf<Exec, float*>("in", 700001), 0, every);
}
TEST_CASE_TEMPLATE_APPLY(reduce_sizes, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce along every axis of every layout", Exec, reduce_axes) {
  for (int axis = 0; axis < 3; ++axis) {
    auto const e = [&](int d) { return std::array<int, 3>{13, 70, 45}[static_cast<std::size_t>(d)]; };
    int const m = e(axis == 0 ? 1 : 0), n = e(axis == 2 ? 1 : 2);
    ViewOf<Exec, float***> const right("r", 13, 70, 45);
    ViewOf<Exec, float***, Kokkos::LayoutLeft> const left("l", 13, 70, 45);
    ViewOf<Exec, float****> const wide("w", 13, 70, 45, 2);
    auto const strided = Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, 1);
    ViewOf<Exec, float**> const out("out", m, n);
    ViewOf<Exec, double**, Kokkos::LayoutLeft> const out_left("out_left", m, n);
    check_reduce<Exec>(out, right, axis, every);
    check_reduce<Exec>(out_left, right, axis, {Reduction::sum});
    check_reduce<Exec>(out, left, axis, {Reduction::mean, Reduction::max});
    check_reduce<Exec>(out_left, left, axis, {Reduction::norm2});
    check_reduce<Exec>(out, strided, axis, {Reduction::sum, Reduction::amax});
  }
}
TEST_CASE_TEMPLATE_APPLY(reduce_axes, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce along several axes", Exec, reduce_several) {
  constexpr std::size_t extents[4] = {7, 33, 5, 40};
  auto const x = uniform<float>(7 * 33 * 5 * 40, 3);
  auto const check = [&](auto const& in, auto const& out, ReduceAxes const& axes, unsigned mask) {
    fill(in, x);
    for (Reduction operation : all_operations) {
      CAPTURE(mask);
      ReduceOptions options{.axes = axes};
      auto const workspace = workspace_for<Exec>(reduce_workspace_size(Exec{}, out, in, operation, options));
      options.workspace = workspace;
      reduce(Exec{}, out, in, operation, options);
      std::vector<std::vector<double>> groups(out.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::size_t rest = i, index[4];
        for (int d = 3; d >= 0; --d) index[d] = rest % extents[d], rest /= extents[d];
        std::size_t group = 0;
        for (unsigned d = 0; d < 4; ++d)
          if ((mask >> d & 1) == 0) group = group * extents[d] + index[d];
        groups[group].push_back(static_cast<double>(x[i]));
      }
      auto const got = values(out);
      int far = 0;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        Reference const want = reference(operation, groups[g]);
        far += !(std::abs(static_cast<double>(got[g]) - want.value) <=
                 bound<float, float>(operation, want, groups[g].size(), false));
      }
      CHECK(far == 0);
    }
  };
  using Right = ViewOf<Exec, float****>;
  using Left = ViewOf<Exec, float****, Kokkos::LayoutLeft>;
  Right const right("right", 7, 33, 5, 40);
  Left const left("left", 7, 33, 5, 40);
  check(right, ViewOf<Exec, float**>("o", 33, 40), {0, 2}, 0b0101);
  check(right, ViewOf<Exec, float**>("o", 7, 5), {1, -1}, 0b1010);
  check(left, ViewOf<Exec, float**>("o", 5, 40), {1, 0}, 0b0011);
  check(right, ViewOf<Exec, float*>("o", 33), {0, 2, 3}, 0b1101);
  check(left, ViewOf<Exec, float*, Kokkos::LayoutLeft>("o", 40), {0, 1, 2}, 0b0111);
}
TEST_CASE_TEMPLATE_APPLY(reduce_several, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce over all elements of Views that are not one piece", Exec, reduce_strided_all) {
  ViewOf<Exec, float> const out("out");
  ViewOf<Exec, float**> const x("x", 310, 500);
  auto const part = Kokkos::subview(x, std::pair<int, int>(3, 307), std::pair<int, int>(5, 402));
  check_reduce<Exec>(out, part, 0, every);
  ViewOf<Exec, float***, Kokkos::LayoutLeft> const y("y", 31, 50, 47);
  check_reduce<Exec>(out, Kokkos::subview(y, 7, Kokkos::ALL, Kokkos::ALL), 0, every);
  check_reduce<Exec>(out, Kokkos::subview(y, Kokkos::ALL, std::pair<int, int>(1, 9), Kokkos::ALL), 0, {Reduction::sum});
  check_reduce<Exec>(out, ViewOf<Exec, float>("one"), 0, every);
  check_reduce<Exec>(out, ViewOf<Exec, float********>("y8", 2, 3, 4, 3, 2, 5, 3, 2), 0, {Reduction::sum});
}
TEST_CASE_TEMPLATE_APPLY(reduce_strided_all, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce of long columns, short columns, many short rows", Exec, reduce_shapes) {
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 3), ViewOf<Exec, float**>("x", 60001, 3), 0, every);
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 64), ViewOf<Exec, float**>("x", 9001, 64), 0, every);
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 20001), ViewOf<Exec, float**>("x", 2, 20001), 0, {Reduction::sum});
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 20001), ViewOf<Exec, float**>("x", 20001, 3), 1, every);
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 5), ViewOf<Exec, float**>("x", 5, 40003), 1, every);
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 77), ViewOf<Exec, float**>("x", 77, 1), 1, every);
  check_reduce<Exec>(ViewOf<Exec, float*>("o", 77), ViewOf<Exec, float**>("x", 1, 77), 0, every);
  check_reduce<Exec>(ViewOf<Exec, float**>("o", 300, 3), ViewOf<Exec, float***>("x", 300, 5, 3), 1, every);
}
TEST_CASE_TEMPLATE_APPLY(reduce_shapes, Spaces);

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
      Reference const want = reference(operation, row[r]);
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

TEST_CASE_TEMPLATE_DEFINE("reduce of every type", Exec, reduce_types) {
  check_type<Exec, double>(1);
  check_type<Exec, fp16_t>(100);
  check_type<Exec, bf16_t>(100);
  check_type<Exec, e4m3_t>(100);
  check_type<Exec, e5m2_t>(100);
  check_type<Exec, std::int8_t>(100);
  check_type<Exec, std::int32_t>(1e6);
}
TEST_CASE_TEMPLATE_APPLY(reduce_types, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce of no elements", Exec, reduce_empty) {
  float const inf = std::numeric_limits<float>::infinity();
  ViewOf<Exec, float**> const in("in", 3, 0);
  ViewOf<Exec, float*> const out("out", 3);
  ViewOf<Exec, float> const all("all");
  auto const each = [&](Reduction operation) {
    poison(out);
    poison(all);
    reduce(Exec{}, out, in, operation);
    reduce(Exec{}, all, in, operation);
    auto v = values(out);
    v.push_back(values(all)[0]);
    return v;
  };
  CHECK(each(Reduction::sum) == std::vector<float>(4, 0));
  CHECK(each(Reduction::amax) == std::vector<float>(4, 0));
  CHECK(each(Reduction::norm2) == std::vector<float>(4, 0));
  CHECK(each(Reduction::max) == std::vector<float>(4, -inf));
  CHECK(each(Reduction::min) == std::vector<float>(4, inf));
  CHECK(each(Reduction::sum_of_squares) == std::vector<float>(4, 0));
  for (float v : each(Reduction::mean)) CHECK(std::isnan(v));
  // Nothing to write.
  reduce(Exec{}, ViewOf<Exec, float*>("none", 0), in, Reduction::sum, {.axis = 0});
  reduce(Exec{}, ViewOf<Exec, float*>("none", 0), ViewOf<Exec, float**>("x", 0, 3), Reduction::sum, {.axis = -1});
}
TEST_CASE_TEMPLATE_APPLY(reduce_empty, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce keeps NaN, infinities and subnormals", Exec, reduce_special) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  ViewOf<Exec, float> const out("out");
  for (std::size_t n : {5u, 700u, 40000u})
    for (std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      ViewOf<Exec, float*> const in("in", n);
      auto const of = [&](Reduction operation, float special) {
        std::vector<float> x(n, -0.25f);
        x[at] = special;
        fill(in, x);
        auto const workspace = workspace_for<Exec>(reduce_workspace_size(Exec{}, out, in, operation));
        reduce(Exec{}, out, in, operation, {.workspace = workspace});
        return values(out)[0];
      };
      for (Reduction operation : all_operations) CHECK(std::isnan(of(operation, nan)));
      CHECK(of(Reduction::sum, inf) == inf);
      CHECK(of(Reduction::sum, -inf) == -inf);
      CHECK(of(Reduction::max, inf) == inf);
      CHECK(of(Reduction::max, -inf) == -0.25f);
      CHECK(of(Reduction::amax, -inf) == inf);
      CHECK(of(Reduction::min, -inf) == -inf);
      CHECK(std::isnan(of(Reduction::min, std::nanf(""))));
      CHECK(of(Reduction::norm2, -inf) == inf);
      CHECK(of(Reduction::max, 0x1p-149f) == 0x1p-149f);
    }
  // Squares beyond fp32's range on both sides: 2^100 sqrt(4) and 2^-140 sqrt(4).
  ViewOf<Exec, float*> const four("four", 4);
  for (float x : {0x1p100f, 0x1p-140f}) {
    fill(four, std::vector<float>(4, x));
    reduce(Exec{}, out, four, Reduction::norm2);
    CHECK(values(out)[0] == 2 * x);
    reduce(Exec{}, out, four, Reduction::sum);
    CHECK(values(out)[0] == 4 * x);
  }
}
TEST_CASE_TEMPLATE_APPLY(reduce_special, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce gives the same bits again, wherever the data lies", Exec, reduce_repeat) {
  int const m = 40, n = 10007;
  ViewOf<Exec, float*> const memory("memory", m * n + 1);
  std::vector<float> const x = uniform<float>(static_cast<std::size_t>(m * n), 31);
  for (int axis : {-1, 0, 1}) {
    std::vector<float> first;
    for (int run = 0; run < 4; ++run) {
      ViewOf<Exec, float**> const in(memory.data() + run % 2, m, n);
      fill(in, x);
      std::vector<float> got;
      auto const of = [&](auto const& out) {
        ReduceOptions options{.axis = axis};
        auto const workspace = workspace_for<Exec>(reduce_workspace_size(Exec{}, out, in, Reduction::sum, options));
        options.workspace = workspace;
        reduce(Exec{}, out, in, Reduction::sum, options);
        return values(out);
      };
      if (axis < 0)
        got = of(ViewOf<Exec, float>("out"));
      else
        got = of(ViewOf<Exec, float*>("out", axis == 0 ? n : m));
      if (run == 0) first = got;
      CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(reduce_repeat, Spaces);

TEST_CASE_TEMPLATE_DEFINE("parts of columns give the same bits wherever data and workspace lie", Exec, reduce_parts) {
  int const m = 9001, n = 44;
  ViewOf<Exec, float*> const memory("memory", m * n + 1), out("out", n);
  std::vector<float> const x = uniform<float>(static_cast<std::size_t>(m * n), 31);
  std::vector<float> first;
  for (int run = 0; run < 4; ++run) {
    Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> const in(memory.data() + run % 2, m, n);
    fill(in, x);
    ReduceOptions options{.axis = 0};
    std::size_t const needed = reduce_workspace_size(Exec{}, out, in, Reduction::sum, options), begin = run < 2 ? 0 : 8;
    auto const workspace = workspace_for<Exec>(needed + begin);
    options.workspace = Kokkos::subview(workspace, std::pair{begin, begin + needed});
    reduce(Exec{}, out, in, Reduction::sum, options);
    auto const got = values(out);
    if (run == 0) first = got;
    CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
  }
}
TEST_CASE_TEMPLATE_APPLY(reduce_parts, Spaces);

TEST_CASE("backends agree: exactly on extrema and integers, within twice the bound on sums") {
  std::vector<bf16_t> const x = uniform<bf16_t>(200000, 17);
  std::vector<std::int32_t> integers(x.size());
  std::mt19937 engine(3);
  for (auto& v : integers) v = static_cast<std::int32_t>(engine() % 20001) - 10000;
  std::vector<double> wide;
  for (bf16_t v : x) wide.push_back(to_double(v));
  std::vector<std::vector<double>> results;
  for_each_space([&](auto exec) {
    using Exec = decltype(exec);
    ViewOf<Exec, bf16_t*> const in("in", x.size());
    ViewOf<Exec, std::int32_t*> const whole("whole", x.size());
    ViewOf<Exec, double> const out("out");
    ViewOf<Exec, std::byte*> const workspace("workspace", 1 << 20);
    fill(in, x);
    fill(whole, integers);
    std::vector<double> r;
    for (Reduction operation : {Reduction::max, Reduction::amax, Reduction::sum, Reduction::norm2}) {
      reduce(exec, out, in, operation, {.workspace = workspace});
      r.push_back(values(out)[0]);
    }
    reduce(exec, out, whole, Reduction::sum, {.workspace = workspace});
    r.push_back(values(out)[0]);
    reduce(exec, out, in, Reduction::min, {.workspace = workspace});
    r.push_back(values(out)[0]);
    results.push_back(r);
  });
  for (auto const& r : results) {
    auto const apart = [&](Reduction operation) {
      return 2 * bound<double, bf16_t>(operation, reference(operation, wide), x.size(), false);
    };
    CHECK(r[0] == results[0][0]);
    CHECK(r[1] == results[0][1]);
    CHECK(std::abs(r[2] - results[0][2]) <= apart(Reduction::sum));
    CHECK(std::abs(r[3] - results[0][3]) <= apart(Reduction::norm2));
    CHECK(r[4] == results[0][4]);
    CHECK(r[5] == results[0][5]);
  }
}
