// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>

#include "bounds.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

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
        Reference const want = expected(operation, groups[g]);
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
      return 2 * bound<double, bf16_t>(operation, expected(operation, wide), x.size(), false);
    };
    CHECK(r[0] == results[0][0]);
    CHECK(r[1] == results[0][1]);
    CHECK(std::abs(r[2] - results[0][2]) <= apart(Reduction::sum));
    CHECK(std::abs(r[3] - results[0][3]) <= apart(Reduction::norm2));
    CHECK(r[4] == results[0][4]);
    CHECK(r[5] == results[0][5]);
  }
}
