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

/// Exponentials err by 2 (|x - max| + 4) u, sums of n of them in 32 lanes and some parts by (n / 32 + 300) u at most,
/// with a rounding each time the largest changes counted in; the logarithm by a unit.
bool is_log_sum(double actual, std::vector<double> const& x, double u) {
  double top = -infinity, sum = 0, exponents = 0;
  for (double v : x) top = std::isnan(v) || v > top ? v : top;
  if (std::isnan(top)) return std::isnan(actual);
  if (std::isinf(top)) return actual == top;
  for (double v : x) {
    sum += std::exp(v - top);
    if (v > -infinity) exponents = std::max(exponents, std::exp(v - top) * std::abs(v - top));
  }
  double const n = static_cast<double>(x.size()), want = top + std::log(sum);
  return std::abs(actual - want) <=
         u * (2 * (exponents + 4) + 2 * std::min(n, n / 32 + 300) + 4 * (std::abs(want) + std::abs(top)));
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
TEST_CASE_TEMPLATE_APPLY(arg_errors, Spaces);
