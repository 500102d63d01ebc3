// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/arg_reduce.hpp>
#include <tessera/limits.hpp>

#include <limits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The elements of each result, in the order of the last index first, which is that of the indices.
std::vector<std::vector<double>> groups_of(std::vector<double> const& x, std::vector<std::size_t> const& extents,
                                           unsigned reduced, std::size_t results) {
  std::vector<std::vector<double>> groups(results);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::size_t rest = i, group = 0;
    std::vector<std::size_t> index(extents.size());
    for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) index[d] = rest % extents[d];
    for (std::size_t d = 0; d < extents.size(); ++d)
      if ((reduced >> d & 1) == 0) group = group * extents[d] + index[d];
    groups[group].push_back(x[i]);
  }
  return groups;
}

std::int64_t first_of(std::vector<double> const& x, double sign) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < x.size() && !std::isnan(x[best]); ++i)
    if (std::isnan(x[i]) || sign * x[i] > sign * x[best]) best = i;
  return static_cast<std::int64_t>(best);
}

/// Exponentials err by 2 (|x - max| + 4) u, on the average with their weights, sums of n of them, by 32 or 16 and in
/// some parts, by (n / 16 + 300) u at most, with a rounding each time the largest changes counted in; the logarithm by
/// a unit.
bool is_log_sum(double actual, std::vector<double> const& x, double u) {
  double top = -infinity, sum = 0, exponents = 0;
  for (double v : x) top = std::isnan(v) || v > top ? v : top;
  if (std::isnan(top)) return std::isnan(actual);
  if (std::isinf(top)) return actual == top;
  for (double v : x) {
    sum += std::exp(v - top);
    if (v > -infinity) exponents += std::exp(v - top) * std::abs(v - top);
  }
  exponents /= sum;
  double const n = static_cast<double>(x.size()), want = top + std::log(sum);
  return std::abs(actual - want) <=
         u * (2 * (exponents + 4) + 2 * std::min(n, n / 16 + 300) + 4 * (std::abs(want) + std::abs(top)));
}

template <class Exec, class T, class Index, class View>
void check(View const& in, std::vector<std::size_t> const& extents, auto const& out, auto const& sums,
           ReduceAxes const& axes, unsigned mask, std::vector<T> const& x) {
  CAPTURE(mask);
  fill(in, x);
  std::vector<double> wide;
  for (T v : x) wide.push_back(to_double(v));
  auto const groups = groups_of(wide, extents, mask, out.size());
  ReduceOptions options{.axes = axes};
  ViewOf<Exec, std::byte*> const workspace("workspace", pair_reduce_workspace_size(Exec{}, out, in, options));
  options.workspace = workspace;
  int wrong = 0;
  argmax(Exec{}, out, in, options);
  auto const largest = values(out);
  argmin(Exec{}, out, in, options);
  auto const smallest = values(out);
  logsumexp(Exec{}, sums, in, options);
  auto const logs = values(sums);
  double const u = std::is_same_v<T, double> ? limits<double>::roundoff : limits<float>::roundoff;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    wrong += largest[g] != static_cast<Index>(first_of(groups[g], 1));
    wrong += smallest[g] != static_cast<Index>(first_of(groups[g], -1));
    wrong += !is_log_sum(static_cast<double>(logs[g]), groups[g], u);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("argmax, argmin and logsumexp along axes of every layout and type", Exec, arg_axes) {
  auto const run = [&]<class T>(T) {
    std::vector<std::size_t> const extents{7, 33, 5, 40};
    auto x = uniform<T>(7 * 33 * 5 * 40, 3, -9, 9);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = x[i / 2];  // the same numbers often
    ViewOf<Exec, T****> const right("right", 7, 33, 5, 40);
    ViewOf<Exec, T****, Kokkos::LayoutLeft> const left("left", 7, 33, 5, 40);
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    using Short = std::int32_t;
    using Long = std::int64_t;
    check<Exec, T, Short>(right, extents, ViewOf<Exec, Short***>("o", 7, 33, 5), ViewOf<Exec, Sum***>("s", 7, 33, 5),
                          {-1}, 8, x);
    check<Exec, T, Long>(right, extents, ViewOf<Exec, Long***>("o", 33, 5, 40), ViewOf<Exec, Sum***>("s", 33, 5, 40),
                         {0}, 1, x);
    check<Exec, T, Long>(left, extents, ViewOf<Exec, Long***>("o", 7, 5, 40), ViewOf<Exec, Sum***>("s", 7, 5, 40), {1},
                         2, x);
    check<Exec, T, Short>(left, extents, ViewOf<Exec, Short**>("o", 33, 40), ViewOf<Exec, Sum**>("s", 33, 40), {0, 2},
                          5, x);
    check<Exec, T, Long>(right, extents, ViewOf<Exec, Long>("o"), ViewOf<Exec, Sum>("s"), {}, 15, x);
    check<Exec, T, Short>(left, extents, ViewOf<Exec, Short>("o"), ViewOf<Exec, Sum>("s"), {}, 15, x);
  };
  run(float{});
  run(double{});
  run(bf16_t{});
  run(fp16_t{});
}

TEST_CASE_TEMPLATE_DEFINE("argmax and logsumexp of long rows, NaN, Inf and nothing", Exec, arg_special) {
  for (std::size_t n : {1u, 31u, 700u, 300000u})
    for (double special : {0.5, 100.0, infinity, -infinity, std::nan("")})
      for (std::size_t at : {std::size_t{0}, n / 3, n - 1}) {
        CAPTURE(n);
        CAPTURE(special);
        auto x = uniform<float>(n, 1, -1, 1);
        x[at] = static_cast<float>(special);
        check<Exec, float, std::int64_t>(ViewOf<Exec, float*>("in", n), {n}, ViewOf<Exec, std::int64_t>("o"),
                                         ViewOf<Exec, float>("s"), {}, 1, x);
      }
  check<Exec, float, std::int32_t>(ViewOf<Exec, float**>("in", 2, 40), {2, 40}, ViewOf<Exec, std::int32_t*>("o", 2),
                                   ViewOf<Exec, float*>("s", 2), {1}, 2,
                                   std::vector<float>(80, -std::numeric_limits<float>::infinity()));
  ViewOf<Exec, float**> const empty("empty", 3, 0);
  ViewOf<Exec, float*> const three("three", 3);
  logsumexp(Exec{}, three, empty);
  CHECK(values(three) == std::vector<float>(3, -std::numeric_limits<float>::infinity()));
}

namespace {

/// n numbers of one of the kinds that need care.
template <class T>
std::vector<T> careful(std::size_t n, std::size_t kind) {
  constexpr double lowest = -3.3e38;  // fp16: -Inf
  auto x = uniform<T>(n, static_cast<unsigned>(17 * kind + n), -9, 9);
  auto const all = [&](double value) { std::fill(x.begin(), x.end(), T(value)); };
  switch (kind % 7) {
    case 0:  // the largest and the smallest, several times
      for (std::size_t i : {n / 3, n / 2, n - 1}) x[i] = T(10.0);
      for (std::size_t i : {n / 4, 3 * n / 4}) x[i] = T(-10.0);
      break;
    case 1:  // NaN behind Inf
      x[n / 3] = T(infinity);
      x[2 * n / 3] = x[n - 1] = T(std::nan(""));
      break;
    case 2:
      all(-infinity);
      break;
    case 3:  // both infinities, several times
      for (std::size_t i = 0; i < n; i += 3) x[i] = T(-infinity);
      x[n / 2] = x[n - 1] = T(infinity);
      break;
    case 4:  // the lowest number, behind -Inf
      all(-infinity);
      x[n - 1] = T(lowest);
      break;
    case 5:  // all exponentials but one vanish
      for (std::size_t i = 0; i < n; i += 2) x[i] = T(lowest);
      x[3 * n / 4] = T(-lowest);
      break;
    default:  // zeros of both signs, then one NaN
      all(0);
      for (std::size_t i = 0; i < n; i += 2) x[i] = T(-0.0);
      if (n > 600) x[600] = T(std::nan(""));
  }
  return x;
}

/// Memory of `n` numbers and a View of a part of them.
template <class Exec, class T, class DataType>
struct Strided {
  ViewOf<Exec, T*> memory;
  Kokkos::View<DataType, Kokkos::LayoutStride, typename Exec::memory_space> view;
  Strided(std::size_t n, Kokkos::LayoutStride const& layout) : memory("memory", n), view(memory.data(), layout) {}
};

/// `groups` groups of n numbers along axis 1, or 0, of a matrix with these strides.
template <class Exec, class T>
void check_careful(std::size_t groups, std::size_t n, int axis, std::size_t stride_0, std::size_t stride_1) {
  CAPTURE(groups);
  CAPTURE(n);
  CAPTURE(axis);
  std::size_t const rows = axis == 1 ? groups : n, columns = axis == 1 ? n : groups;
  std::vector<T> x(groups * n);
  for (std::size_t g = 0; g < groups; ++g) {
    auto const group = careful<T>(n, g);
    for (std::size_t i = 0; i < n; ++i) x[axis == 1 ? g * n + i : i * groups + g] = group[i];
  }
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Strided<Exec, T, T**> const in((rows - 1) * stride_0 + (columns - 1) * stride_1 + 1,
                                 Kokkos::LayoutStride(rows, stride_0, columns, stride_1));
  check<Exec, T, std::int32_t>(in.view, {rows, columns}, ViewOf<Exec, std::int32_t*>("o", groups),
                               ViewOf<Exec, Sum*>("s", groups), {axis}, 1u << axis, x);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("argmax and logsumexp of strips: ties, NaN and infinities anywhere", Exec, arg_strips) {
  auto const run = [&]<class T>(T) {
    for (std::size_t n : {1u, 2u, 31u, 33u, 64u, 96u, 200u, 511u, 512u, 513u, 1000u, 1700u, 2048u}) {
      check_careful<Exec, T>(15, n, 1, n, 1);
      check_careful<Exec, T>(8, n, 1, 3 * n + 5, 3);
      check_careful<Exec, T>(7, n, 1, 1, 9);
      if (n <= 64) check_careful<Exec, T>(290, n, 1, n + 1, 1);
      check_careful<Exec, T>(7, n, 0, 9, 1);
      check_careful<Exec, T>(290, n, 0, 290, 1);
    }
    check_careful<Exec, T>(14, 70001, 1, 70001, 1);
    check_careful<Exec, T>(520, 1030, 0, 523, 1);
    check_careful<Exec, T>(9, 5003, 1, 5008, 1);  // whole packs
    check_careful<Exec, T>(290, 61, 1, 64, 1);    // rows of a few of them
    check_careful<Exec, T>(37, 203, 1, 208, 1);
    check_careful<Exec, T>(1024, 700, 0, 1032, 1);
    check_careful<Exec, T>(40, 9001, 0, 40, 1);
  };
  run(float{});
  run(double{});
  run(bf16_t{});
  run(fp16_t{});
}

TEST_CASE_TEMPLATE_DEFINE("argmax and logsumexp over axes in any order of strides", Exec, arg_orders) {
  using Long = std::int64_t;
  for (std::size_t kind = 0; kind < 7; ++kind) {
    auto const x = careful<float>(9 * 20 * 300, kind);
    // Reduced loops that do not continue one another, the outer one outside in memory, or inside.
    for (bool outside : {true, false}) {
      std::size_t const outer = outside ? 20 * 310 + 7 : 310, inner = outside ? 310 : 9 * 310 + 7;
      Strided<Exec, float, float***> const in(20 * 9 * 310 + 9 * 7 + 20 * 7,
                                              Kokkos::LayoutStride(9, outer, 20, inner, 300, 1));
      check<Exec, float, Long>(in.view, {9, 20, 300}, ViewOf<Exec, Long*>("o", 300), ViewOf<Exec, float*>("s", 300),
                               {0, 1}, 3, x);
    }
    Strided<Exec, float, float**> const turned(60 * 900, Kokkos::LayoutStride(60, 1, 900, 60));
    check<Exec, float, Long>(turned.view, {60, 900}, ViewOf<Exec, Long>("o"), ViewOf<Exec, float>("s"), {}, 3, x);
  }
}

TEST_CASE_TEMPLATE_DEFINE("logsumexp has the same bits on any number of cores", Exec, arg_cores) {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
    using Other = Kokkos::DefaultHostExecutionSpace;
    Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const in("in", 1100, 700);
    fill(in, uniform<float>(in.size(), 11, -9, 9));
    Kokkos::View<float*, Kokkos::HostSpace> const here("here", 700), there("there", 700);
    Kokkos::View<std::byte*, Kokkos::HostSpace> const workspace(
        "workspace", pair_reduce_workspace_size(Exec{}, here, in, {.axis = 0}));
    logsumexp(Exec{}, here, in, {.axis = 0, .workspace = workspace});
    logsumexp(Other{}, there, in, {.axis = 0, .workspace = workspace});
    CHECK(values(here) == values(there));
  }
}

TEST_CASE_TEMPLATE_DEFINE("argmax names what is wrong and writes nothing", Exec, arg_errors) {
  ViewOf<Exec, float**> const in("in", 3, 5), empty("empty", 3, 0), large("large", 2, 100000);
  ViewOf<Exec, std::int32_t*> const out("out", 3), two("two", 2);
  poison(out);
  poison(two);
  auto text = error_of([&] { argmax(Exec{}, two, in); }, ErrorCode::extent);
  text = error_of([&] { argmax(Exec{}, out, empty); }, ErrorCode::value);
  CHECK(contains(text, "tessera::argmax"));
  error_of([&] { argmin(Exec{}, out, in, {.axis = 2}); }, ErrorCode::value);
  text = error_of([&] { argmax(Exec{}, two, large); }, ErrorCode::workspace);
  CHECK(contains(text, "0 were passed"));
  Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> const null(static_cast<float*>(nullptr), 3,
                                                                                     5);
  error_of([&] { argmax(Exec{}, out, null); }, ErrorCode::null_data);
  CHECK(is_poisoned(out));
  CHECK(is_poisoned(two));
}

TEST_CASE_TEMPLATE_APPLY(arg_axes, Spaces);
TEST_CASE_TEMPLATE_APPLY(arg_special, Spaces);
TEST_CASE_TEMPLATE_APPLY(arg_strips, Spaces);
TEST_CASE_TEMPLATE_APPLY(arg_orders, Spaces);
TEST_CASE_TEMPLATE_APPLY(arg_cores, Spaces);
TEST_CASE_TEMPLATE_APPLY(arg_errors, Spaces);
