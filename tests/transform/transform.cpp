// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/transform.hpp>

#include <limits>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Extents = std::vector<std::int64_t>;

/// The element of an input, given flat with the last index fastest, that belongs to element `linear` of the output.
std::int64_t broadcast_index(Extents const& out, Extents const& in, std::int64_t linear) {
  std::int64_t at = 0, step = 1;
  for (std::size_t d = out.size(), e = in.size(); d-- > 0;) {
    std::int64_t const i = linear % out[d];
    linear /= out[d];
    if (e == 0) continue;
    --e;
    if (in[e] > 1) at += i * step;
    step *= in[e];
  }
  return at;
}

template <class View>
Extents extents(View const& v) {
  Extents e;
  for (std::size_t d = 0; d < View::rank(); ++d) e.push_back(static_cast<std::int64_t>(v.extent(d)));
  return e;
}

struct AddTwo {
  template <class T, class U>
  KOKKOS_FUNCTION auto operator()(T a, U b) const {
    return a + b;
  }
};

/// What the functor is given for a floating-point element when the operands are of these types.
template <class... Operand, class T>
auto computed(T x) {
  return static_cast<std::conditional_t<(std::is_same_v<Operand, double> || ...), double, float>>(x);
}

/// out = a + b over Views of any shape: one rounding of an exact sum of two rounded inputs in fp32 or fp64, so equal.
template <class Exec, class Out, class A, class B>
void check_sum(Out const& out, A const& a, B const& b) {
  using To = typename Out::non_const_value_type;
  fill(a, uniform<typename A::non_const_value_type>(a.size(), 3, -100, 100));
  fill(b, uniform<typename B::non_const_value_type>(b.size(), 4, -100, 100));
  poison(out);
  auto const x = values(a);
  auto const y = values(b);
  transform(Exec{}, out, AddTwo{}, a, b);
  auto const got = values(out);
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    auto const at = [&](auto const& v) {
      return static_cast<std::size_t>(broadcast_index(extents(out), extents(v), static_cast<std::int64_t>(i)));
    };
    using X = typename std::decay_t<decltype(x)>::value_type;
    using Y = typename std::decay_t<decltype(y)>::value_type;
    To const want = To(computed<To, X, Y>(x[at(a)]) + computed<To, X, Y>(y[at(b)]));
    wrong += std::memcmp(&want, &got[i], sizeof(To)) != 0;
  }
  INFO("of " << got.size() << " elements");
  CHECK(wrong == 0);
}

template <class Exec, class F>
void fused(Exec const& exec, F const& y, F const& x) {
  transform(
      exec, y,
      KOKKOS_LAMBDA(float v) {
        float const s = Kokkos::sin(v), c = Kokkos::cos(v);
        return s * s + c * c;
      },
      x);
}

struct Seven {
  KOKKOS_FUNCTION int operator()() const { return 7; }
};
struct LinearIndex {
  static constexpr bool wants_index = true;
  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t i) const { return i; }
};
struct IndexPlus {
  static constexpr bool wants_index = true;
  KOKKOS_FUNCTION float operator()(std::int64_t i, float x) const { return static_cast<float>(i) + x; }
};
struct Sum8 {
  template <class... T>
  KOKKOS_FUNCTION auto operator()(T... x) const {
    static_assert(sizeof...(T) == 8);
    return (x + ...);
  }
};
struct Same {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x) const {
    return x;
  }
};
struct IsPositive {
  KOKKOS_FUNCTION bool operator()(float x) const { return x > 0; }
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("transform in every combination of layouts", Exec, transform_layouts) {
  int const m = 67, n = 45;
  ViewOf<Exec, float**> const right("r", m, n), right2("r2", m, n);
  ViewOf<Exec, float**, Kokkos::LayoutLeft> const left("l", m, n), left2("l2", m, n);
  ViewOf<Exec, float***> const wide("w", m, n, 3);
  auto const strided = Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, 1);
  check_sum<Exec>(right, right2, left);
  check_sum<Exec>(left, right, left2);
  check_sum<Exec>(right, strided, left);
  check_sum<Exec>(strided, right, left);
  check_sum<Exec>(left, right, strided);
}
TEST_CASE_TEMPLATE_APPLY(transform_layouts, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform broadcasts as NumPy does", Exec, transform_broadcast) {
  int const m = 33, n = 520;
  ViewOf<Exec, float**> const out("out", m, n), full("full", m, n), row("row", 1, n), column("column", m, 1),
      one("one", 1, 1);
  ViewOf<Exec, float*> const bias("bias", n), single("single", 1);
  ViewOf<Exec, float> const scalar("scalar");
  check_sum<Exec>(out, full, bias);
  check_sum<Exec>(out, bias, full);
  check_sum<Exec>(out, full, row);
  check_sum<Exec>(out, full, column);
  check_sum<Exec>(out, row, column);
  check_sum<Exec>(out, full, scalar);
  check_sum<Exec>(out, scalar, one);
  check_sum<Exec>(out, single, full);
  ViewOf<Exec, float****> const deep("deep", 3, 5, 7, 4);
  check_sum<Exec>(deep, ViewOf<Exec, float***>("x", 5, 1, 4), ViewOf<Exec, float****>("y", 3, 1, 7, 1));
  check_sum<Exec>(deep, ViewOf<Exec, float**>("x", 7, 1), ViewOf<Exec, float****>("y", 3, 5, 1, 4));
  // A row for every matrix of a stack, in whole packs and with a rest; and one for each of three loops.
  for (int k : {64, 67}) {
    ViewOf<Exec, bf16_t***> const stack("stack", 3, 37, k);
    check_sum<Exec>(stack, ViewOf<Exec, bf16_t***>("x", 3, 37, k), ViewOf<Exec, float***>("y", 3, 1, k));
    check_sum<Exec>(stack, ViewOf<Exec, bf16_t***>("x", 3, 1, 1), ViewOf<Exec, bf16_t**>("y", 37, k));
    check_sum<Exec>(ViewOf<Exec, bf16_t****>("stacks", 2, 3, 5, k), ViewOf<Exec, bf16_t****>("x", 2, 1, 5, k),
                    ViewOf<Exec, bf16_t***>("y", 3, 1, k));
  }
}
TEST_CASE_TEMPLATE_APPLY(transform_broadcast, Spaces);

// Short ones a CPU takes several at a time, and those of one of many rows it asks for their magnitudes once.
TEST_CASE_TEMPLATE_DEFINE("transform of rows with inputs that have one for all", Exec, transform_common_rows) {
  for (int rows : {3, 90, 700})
    for (int n : {1, 2, 3, 31, 64, 85, 100, 128, 129, 255, 300}) {
      CAPTURE(rows);
      CAPTURE(n);
      ViewOf<Exec, bf16_t**> const a("a", rows, n), out("out", rows, n);
      ViewOf<Exec, bf16_t*> const bias("bias", n);
      ViewOf<Exec, float**> const wide("wide", rows, n);
      ViewOf<Exec, double*> const wide_bias("wide bias", n);
      check_sum<Exec>(out, a, bias);
      check_sum<Exec>(out, bias, a);
      check_sum<Exec>(wide, a, bias);
      check_sum<Exec>(wide, wide_bias, ViewOf<Exec, float**>("other", rows, n));
    }
}
TEST_CASE_TEMPLATE_APPLY(transform_common_rows, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform at ranks 0 and 8", Exec, transform_ranks) {
  check_sum<Exec>(ViewOf<Exec, float>("o"), ViewOf<Exec, float>("a"), ViewOf<Exec, float>("b"));
  check_sum<Exec>(ViewOf<Exec, float********>("o", 2, 3, 1, 2, 3, 2, 2, 3),
                  ViewOf<Exec, float********, Kokkos::LayoutLeft>("a", 2, 3, 1, 2, 3, 2, 2, 3),
                  ViewOf<Exec, float*******>("b", 3, 1, 1, 3, 2, 1, 3));
}
TEST_CASE_TEMPLATE_APPLY(transform_ranks, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform mixes types", Exec, transform_types) {
  int const m = 19, n = 264;
  ViewOf<Exec, float**> const f("f", m, n);
  ViewOf<Exec, double**> const d("d", m, n);
  ViewOf<Exec, bf16_t**> const b("b", m, n), b2("b2", m, n);
  ViewOf<Exec, fp16_t*> const h("h", n);
  ViewOf<Exec, e4m3_t**> const q("q", m, n);
  check_sum<Exec>(b, b2, h);
  check_sum<Exec>(f, b, h);
  check_sum<Exec>(b, f, q);
  check_sum<Exec>(q, b, h);
  check_sum<Exec>(d, f, b);
  check_sum<Exec>(f, d, h);  // fp64 throughout, then one rounding
}
TEST_CASE_TEMPLATE_APPLY(transform_types, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform at every size and alignment around the packs", Exec, transform_alignment) {
  int const most = 1100;
  ViewOf<Exec, bf16_t*> const a("a", most), out("out", most);
  ViewOf<Exec, float*> const b("b", most);
  for (int n : {1, 2, 3, 4, 7, 8, 9, 31, 63, 255, 256, 257, 1000})
    for (int at : {0, 1, 4, 5}) {
      auto const part = [&](auto const& v, int from) {
        return Kokkos::subview(v, std::pair<int, int>(from, from + n));
      };
      poison(out);
      check_sum<Exec>(part(out, at), part(a, at), part(b, at));  // the same misalignment
      check_sum<Exec>(part(out, at), part(a, 3), part(b, 0));    // different ones
      auto const around = values(out);
      bf16_t const poisoned = bf16_t::from_bits(0xA5A5);
      CHECK((at == 0 || around[static_cast<std::size_t>(at) - 1].bits() == poisoned.bits()));
      CHECK(around[static_cast<std::size_t>(at + n)].bits() == poisoned.bits());
    }
}
TEST_CASE_TEMPLATE_APPLY(transform_alignment, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform over rows with a leading dimension", Exec, transform_leading) {
  ViewOf<Exec, bf16_t**> const a("a", 21, 72), out("out", 21, 72);
  ViewOf<Exec, float**> const b("b", 21, 72);
  for (int n : {5, 64, 67})
    for (int at : {0, 3}) {
      auto const part = [&](auto const& v, int from) {
        return Kokkos::subview(v, Kokkos::ALL, std::pair<int, int>(from, from + n));
      };
      check_sum<Exec>(part(out, at), part(a, at), part(b, at));
      check_sum<Exec>(part(out, at), part(a, 0), part(b, 1));
    }
}
TEST_CASE_TEMPLATE_APPLY(transform_leading, Spaces);

// A team of a GPU has 256 packs of 16 bytes where there are many: it lies in one row where that is a multiple of them,
// which 4096 elements are and 4104 are not.
TEST_CASE_TEMPLATE_DEFINE("transform over rows of whole teams", Exec, transform_whole_rows) {
  for (int rows : {5, runs_on_host<Exec> ? 6 : 300})
    for (int n : {4096, 4104}) {
      CAPTURE(rows);
      CAPTURE(n);
      ViewOf<Exec, bf16_t**> const a("a", rows, n + 64), out("out", rows, n + 64);
      ViewOf<Exec, float**> const b("b", rows, n), sum("sum", rows, n), indexed("indexed", rows, n + 64);
      ViewOf<Exec, float*> const bias("bias", n);
      auto const part = [&](auto const& v) { return Kokkos::subview(v, Kokkos::ALL, std::pair<int, int>(0, n)); };
      check_sum<Exec>(part(out), part(a), b);
      check_sum<Exec>(part(out), bias, part(a));
      check_sum<Exec>(sum, b, bias);
      check_sum<Exec>(sum, b, ViewOf<Exec, float**>("other", rows, n));
      fill(bias, std::vector<float>(static_cast<std::size_t>(n), 0.5f));
      transform(Exec{}, part(indexed), IndexPlus{}, bias);
      auto const got = values(part(indexed));
      int wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != static_cast<float>(i) + 0.5f;
      CHECK(wrong == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(transform_whole_rows, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform with no input, eight inputs and a lambda", Exec, transform_arity) {
  ViewOf<Exec, std::int32_t**> const filled("filled", 9, 11);
  transform(Exec{}, filled, Seven{});
  for (int v : values(filled)) CHECK(v == 7);

  ViewOf<Exec, float*> const x("x", 301), y("y", 301);
  std::vector<float> const data = uniform<float>(301, 8, -4, 4);
  fill(x, data);
  transform(Exec{}, y, Sum8{}, x, x, x, x, x, x, x, x);
  std::vector<float> const eight = values(y);
  // Seven roundings of at most half a unit of 8 |x|.
  for (std::size_t i = 0; i < data.size(); ++i)
    CHECK(std::abs(eight[i] - 8. * data[i]) <= 7 * 0x1p-24 * 8 * std::abs(data[i]));

  fused(Exec{}, y, x);
  for (float v : values(y)) CHECK(std::abs(v - 1.0) <= 8 * 0x1p-23);  // two functions of 2 ulp, squared and added
  transform(y, Same{}, x);                                            // the default instance
  CHECK(values(y) == data);
}
TEST_CASE_TEMPLATE_APPLY(transform_arity, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform gives the linear index, last index first, in any layout", Exec, transform_index) {
  ViewOf<Exec, std::int32_t***> const right("right", 5, 6, 7);
  ViewOf<Exec, std::int32_t***, Kokkos::LayoutLeft> const left("left", 5, 6, 7);
  transform(Exec{}, right, LinearIndex{});
  transform(Exec{}, left, LinearIndex{});
  auto const a = values(right), b = values(left);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i] == static_cast<int>(i));
    CHECK(b[i] == static_cast<int>(i));
  }
  ViewOf<Exec, float**> const out("out", 70, 40);
  ViewOf<Exec, float*> const bias("bias", 40);
  fill(bias, std::vector<float>(40, 0.5f));
  transform(Exec{}, out, IndexPlus{}, bias);
  auto const c = values(out);
  for (std::size_t i = 0; i < c.size(); ++i) CHECK(c[i] == static_cast<float>(i) + 0.5f);
}
TEST_CASE_TEMPLATE_APPLY(transform_index, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform rounds once and saturates integers", Exec, transform_conversion) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const x{0.5f,   1.5f, 2.5f, -0.5f, -1.5f,   127.4f, 127.5f, 300.f,
                             -300.f, inf,  -inf, nan,   -128.5f, 2e10f,  -2e10f, 0x1p-149f};
  ViewOf<Exec, float*> const in("in", x.size());
  ViewOf<Exec, std::int8_t*> const bytes("bytes", x.size());
  ViewOf<Exec, std::int32_t*> const words("words", x.size());
  ViewOf<Exec, bool*> const flags("flags", x.size());
  fill(in, x);
  transform(Exec{}, bytes, Same{}, in);
  transform(Exec{}, words, Same{}, in);
  transform(Exec{}, flags, IsPositive{}, in);
  CHECK(values(bytes) ==
        std::vector<std::int8_t>{0, 2, 2, 0, -2, 127, 127, 127, -128, 127, -128, 0, -128, 127, -128, 0});
  CHECK(values(words) == std::vector<std::int32_t>{0, 2, 2, 0, -2, 127, 128, 300, -300, INT32_MAX, INT32_MIN, 0, -128,
                                                   INT32_MAX, INT32_MIN, 0});
  transform(Exec{}, words, Same{}, flags);
  auto const positive = values(words);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(positive[i] == (x[i] > 0 ? 1 : 0));
  ViewOf<Exec, std::int32_t*> const large("large", 3);
  ViewOf<Exec, std::int8_t*> const small("small", 3);
  fill(large, std::vector<std::int32_t>{1000, -1000, -7});
  transform(Exec{}, small, Same{}, large);
  CHECK(values(small) == std::vector<std::int8_t>{127, -128, -7});
}
TEST_CASE_TEMPLATE_APPLY(transform_conversion, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform keeps subnormals, infinities and NaN", Exec, transform_special) {
  std::vector<fp16_t> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    all.push_back(fp16_t::from_bits(static_cast<std::uint16_t>(bits)));
  ViewOf<Exec, fp16_t*> const x("x", all.size()), y("y", all.size());
  fill(x, all);
  transform(Exec{}, y, Same{}, x);
  auto const got = values(y);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) wrong += isnan(all[i]) ? !isnan(got[i]) : got[i].bits() != all[i].bits();
  CHECK(wrong == 0);
}
TEST_CASE_TEMPLATE_APPLY(transform_special, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform in place, and on interleaved parts of one matrix", Exec, transform_in_place) {
  int const m = 30, n = 500;
  ViewOf<Exec, float**> const x("x", m, n), gate_up("gate_up", m, 2 * n);
  std::vector<float> const a = uniform<float>(static_cast<std::size_t>(m * n), 21);
  fill(x, a);
  transform(Exec{}, x, AddTwo{}, x, x);
  auto const doubled = values(x);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(doubled[i] == 2 * a[i]);

  std::vector<float> const b = uniform<float>(static_cast<std::size_t>(m * 2 * n), 22);
  fill(gate_up, b);
  auto const left = Kokkos::subview(gate_up, Kokkos::ALL, std::pair<int, int>(0, n));
  auto const right = Kokkos::subview(gate_up, Kokkos::ALL, std::pair<int, int>(n, 2 * n));
  transform(Exec{}, left, AddTwo{}, left, right);
  auto const sums = values(gate_up);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      auto const at = static_cast<std::size_t>(i * 2 * n + j), other = at + static_cast<std::size_t>(n);
      REQUIRE(sums[at] == b[at] + b[other]);
      REQUIRE(sums[other] == b[other]);
    }
}
TEST_CASE_TEMPLATE_APPLY(transform_in_place, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform of nothing does nothing", Exec, transform_empty) {
  ViewOf<Exec, float**> const out("out", 0, 5), in("in", 0, 5), row("row", 1, 5);
  transform(Exec{}, out, AddTwo{}, in, row);
  ViewOf<Exec, float*> const none;
  transform(Exec{}, none, Same{}, none);
}
TEST_CASE_TEMPLATE_APPLY(transform_empty, Spaces);
