// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("transform names inputs that cannot be broadcast", Exec, transform_extent_errors) {
  ViewOf<Exec, float**> const out("out", 4, 6), in("in", 4, 6), wrong("wrong", 3, 6), narrow("narrow", 1, 6);
  ViewOf<Exec, float*> const bias("bias", 5);
  poison(out);
  std::string message = error_of([&] { transform(Exec{}, out, fn::add{}, in, wrong); }, ErrorCode::extent);
  CHECK(contains(message, "tessera::transform"));
  CHECK(contains(message, "extent 0 of input 1 (3, 6) is neither 1 nor extent 0 of out (4, 6)"));
  message = error_of([&] { transform(Exec{}, out, fn::add{}, bias, in); }, ErrorCode::extent);
  CHECK(contains(message, "extent 0 of input 0 (5) is neither 1 nor extent 1 of out (4, 6)"));
  CHECK(is_poisoned(out));
  // The output is never broadcast, not even when it is empty.
  poison(narrow);
  error_of([&] { transform(Exec{}, narrow, fn::negate{}, in); }, ErrorCode::extent);
  CHECK(is_poisoned(narrow));
  ViewOf<Exec, float**> const empty("empty", 0, 6);
  error_of([&] { transform(Exec{}, empty, fn::negate{}, in); }, ErrorCode::extent);
}
TEST_CASE_TEMPLATE_APPLY(transform_extent_errors, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform refuses outputs that overlap", Exec, transform_overlap_errors) {
  ViewOf<Exec, float*> const x("x", 100);
  poison(x);
  auto const part = [&](int from, int to) { return Kokkos::subview(x, std::pair<int, int>(from, to)); };
  std::string const message =
      error_of([&] { transform(Exec{}, part(1, 51), fn::negate{}, part(0, 50)); }, ErrorCode::overlap);
  CHECK(contains(message, "output out (50) overlaps input 0 (50) in memory"));
  // A repeated input inside the output.
  error_of([&] { transform(Exec{}, part(0, 50), fn::add{}, part(0, 50), part(3, 4)); }, ErrorCode::overlap);
  // The same memory seen with other strides: a square matrix and its transpose.
  using Strided = Kokkos::View<float**, Kokkos::LayoutStride, typename Exec::memory_space>;
  Strided const a(x.data(), Kokkos::LayoutStride(10, 10, 10, 1)),
      transposed(x.data(), Kokkos::LayoutStride(10, 1, 10, 10));
  error_of([&] { transform(Exec{}, a, fn::negate{}, transposed); }, ErrorCode::overlap);
  // An output whose rows are all the same memory.
  Strided const flat(x.data(), Kokkos::LayoutStride(10, 0, 10, 1));
  CHECK(contains(error_of([&] { transform(Exec{}, flat, fn::exp{}, ViewOf<Exec, float>("one")); }, ErrorCode::overlap),
                 "stride 0"));
  // Elements of another size in the same memory.
  ViewOf<Exec, bf16_t*> const half(reinterpret_cast<bf16_t*>(x.data()), 100);
  error_of([&] { transform(Exec{}, half, fn::negate{}, x); }, ErrorCode::overlap);
  CHECK(is_poisoned(x));
}
TEST_CASE_TEMPLATE_APPLY(transform_overlap_errors, Spaces);

TEST_CASE_TEMPLATE_DEFINE("transform refuses Views without data", Exec, transform_null_errors) {
  ViewOf<Exec, float*> const x("x", 8);
  ViewOf<Exec, float*> const null(static_cast<float*>(nullptr), 8);
  poison(x);
  CHECK(contains(error_of([&] { transform(Exec{}, null, fn::negate{}, x); }, ErrorCode::null_data),
                 "out (8) has no data"));
  CHECK(contains(error_of([&] { transform(Exec{}, x, fn::add{}, x, null); }, ErrorCode::null_data),
                 "input 1 (8) has no data"));
  CHECK(is_poisoned(x));
}
TEST_CASE_TEMPLATE_APPLY(transform_null_errors, Spaces);

TEST_CASE("arrays that only span the same memory share nothing") {
  std::vector<float> memory(1000);
  using Array = detail::Array<float, 2>;
  auto const array = [&](std::int64_t at, std::int64_t m, std::int64_t n, std::int64_t row, std::int64_t column) {
    return Array{memory.data() + at, {m, n}, {row, column}};
  };
  auto const share = [](Array const& a, Array const& b) {
    bool const one = detail::shares_bytes(a, b);
    CHECK(one == detail::shares_bytes(b, a));
    return one;
  };
  CHECK_FALSE(share(array(0, 10, 4, 10, 1), array(4, 10, 6, 10, 1)));
  CHECK(share(array(0, 10, 5, 10, 1), array(4, 10, 6, 10, 1)));
  CHECK_FALSE(share(array(0, 10, 5, 10, 2), array(1, 10, 5, 10, 2)));  // even and odd columns
  CHECK(share(array(0, 10, 5, 10, 2), array(3, 10, 5, 10, 3)));
  CHECK_FALSE(share(array(0, 5, 10, 20, 1), array(10, 5, 10, 20, 1)));  // even and odd rows
  CHECK_FALSE(share(array(0, 4, 4, 1, 10), array(4, 4, 4, 10, 1)));
  CHECK(share(array(0, 4, 4, 1, 10), array(3, 4, 4, 10, 1)));
  // Against counting, for small irregular strides.
  std::mt19937 engine(5);
  auto const draw = [&](int high) { return static_cast<std::int64_t>(engine() % static_cast<unsigned>(high)); };
  for (int trial = 0; trial < 3000; ++trial) {
    Array const a = array(draw(20), 1 + draw(4), 1 + draw(4), draw(12), draw(6));
    Array const b = array(draw(20), 1 + draw(4), 1 + draw(4), draw(12), draw(6));
    std::vector<int> hit(200, 0);
    for (std::int64_t i = 0; i < a.extent[0]; ++i)
      for (std::int64_t j = 0; j < a.extent[1]; ++j) hit[static_cast<std::size_t>(&a(i, j) - memory.data())] = 1;
    bool want = false;
    for (std::int64_t i = 0; i < b.extent[0]; ++i)
      for (std::int64_t j = 0; j < b.extent[1]; ++j)
        want = want || hit[static_cast<std::size_t>(&b(i, j) - memory.data())] != 0;
    REQUIRE(share(a, b) == want);
  }
}
