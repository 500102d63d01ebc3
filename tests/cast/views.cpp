// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <tessera/cast.hpp>
#include <utility>
#include <vector>

#include "reference/float_formats.hpp"
#include "support/support.hpp"

// Every shape in memory that a cast can meet, and every way to call it wrongly.
namespace {

using namespace tessera;
using namespace tessera::reference;
using tessera::test::contains;
using tessera::test::ViewOf;

/// Casts `in`, filled with seeded values, and compares every element with the reference.
template <class Out, class In>
void check_views(Out const& out, In const& in) {
  using To = typename Out::non_const_value_type;
  using From = typename In::non_const_value_type;
  test::fill(in, test::uniform<From>(in.size(), 7, -600, 600));
  test::poison(out);
  cast(out, in);
  auto const got = test::values(out);
  auto const x = test::values(in);
  long wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += bits_of(got[i]) != nearest_pattern<To>(decode(x[i]), false);
  CHECK(got.size() == in.size());
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE_DEFINE("cast takes Views of rank 0 to 8", Exec, cast_ranks) {
  check_views(ViewOf<Exec, bf16_t>("out"), ViewOf<Exec, float>("in"));
  check_views(ViewOf<Exec, bf16_t*>("out", 1031), ViewOf<Exec, float*>("in", 1031));
  check_views(ViewOf<Exec, bf16_t**>("out", 17, 33), ViewOf<Exec, float**>("in", 17, 33));
  check_views(ViewOf<Exec, bf16_t***>("out", 5, 1, 7), ViewOf<Exec, float***>("in", 5, 1, 7));
  check_views(ViewOf<Exec, bf16_t********>("out", 2, 3, 1, 2, 3, 2, 2, 3),
              ViewOf<Exec, float********>("in", 2, 3, 1, 2, 3, 2, 2, 3));
}
TEST_CASE_TEMPLATE_APPLY(cast_ranks, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast takes every mix of layouts", Exec, cast_layouts) {
  using Left = Kokkos::LayoutLeft;
  check_views(ViewOf<Exec, bf16_t**, Left>("out", 37, 65), ViewOf<Exec, float**>("in", 37, 65));
  check_views(ViewOf<Exec, float**>("out", 37, 65), ViewOf<Exec, fp16_t**, Left>("in", 37, 65));
  check_views(ViewOf<Exec, float***, Left>("out", 9, 5, 13), ViewOf<Exec, fp16_t***, Left>("in", 9, 5, 13));
  check_views(ViewOf<Exec, e4m3_t***>("out", 9, 5, 13), ViewOf<Exec, bf16_t***, Left>("in", 9, 5, 13));
  // A transposed middle: strides that are neither right nor left.
  Kokkos::LayoutStride const layout(6, 40, 5, 1, 8, 5);
  check_views(ViewOf<Exec, fp16_t***, Kokkos::LayoutStride>("out", layout), ViewOf<Exec, double***>("in", 6, 5, 8));
  check_views(ViewOf<Exec, double***>("out", 6, 5, 8), ViewOf<Exec, e5m2_t***, Kokkos::LayoutStride>("in", layout));
}
TEST_CASE_TEMPLATE_APPLY(cast_layouts, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast writes the elements of a part of a View and no other", Exec, cast_parts) {
  ViewOf<Exec, bf16_t**> const all_out("out", 21, 70);
  ViewOf<Exec, float**> const all_in("in", 21, 83);
  test::poison(all_out);
  test::fill(all_in, test::uniform<float>(all_in.size(), 3));
  auto const rows = std::pair(2, 19);
  cast(Kokkos::subview(all_out, rows, std::pair(3, 68)), Kokkos::subview(all_in, rows, std::pair(11, 76)));
  auto const got = test::values(all_out);
  auto const x = test::values(all_in);
  long wrong = 0;
  for (int i = 0; i < 21; ++i) {
    for (int j = 0; j < 70; ++j) {
      bool const inside = i >= 2 && i < 19 && j >= 3 && j < 68;
      auto const wanted = inside ? nearest_pattern<bf16_t>(x[i * 83 + j + 8], false) : std::uint16_t{0xa5a5};
      wrong += got[i * 70 + j].bits() != wanted;
    }
  }
  CHECK(wrong == 0);
}
TEST_CASE_TEMPLATE_APPLY(cast_parts, tessera::test::Spaces);

template <class Exec, class Out, class In>
void check_offsets() {
  constexpr int length = 75;
  ViewOf<Exec, Out*> const out("out", length + 32);
  ViewOf<Exec, In*> const in("in", length + 32);
  for (int to = 0; to < 17; to += 3)
    for (int from = 0; from < 17; from += 2)
      check_views(Kokkos::subview(out, std::pair(to, to + length)),
                  Kokkos::subview(in, std::pair(from, from + length)));
}

TEST_CASE_TEMPLATE_DEFINE("cast takes data at any alignment", Exec, cast_offsets) {
  check_offsets<Exec, fp16_t, float>();
  check_offsets<Exec, float, bf16_t>();
  check_offsets<Exec, e4m3_t, float>();
  check_offsets<Exec, e5m2_t, e4m3_t>();
}
TEST_CASE_TEMPLATE_APPLY(cast_offsets, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast spreads an input of stride 0", Exec, cast_broadcast) {
  ViewOf<Exec, float*> const row("row", 12);
  test::fill(row, test::uniform<float>(12, 5));
  Kokkos::View<float const**, Kokkos::LayoutStride, typename Exec::memory_space,
               Kokkos::MemoryTraits<Kokkos::Unmanaged>> const in(row.data(), Kokkos::LayoutStride(9, 0, 12, 1));
  ViewOf<Exec, fp16_t**> const out("out", 9, 12);
  cast(out, in);
  auto const got = test::values(out);
  auto const x = test::values(row);
  long wrong = 0;
  for (int i = 0; i < 9 * 12; ++i) wrong += got[i].bits() != nearest_pattern<fp16_t>(x[i % 12], false);
  CHECK(wrong == 0);
}
TEST_CASE_TEMPLATE_APPLY(cast_broadcast, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast works in place between types of one size", Exec, cast_in_place) {
  using Memory = typename Exec::memory_space;
  ViewOf<Exec, fp16_t*> const in("in", 3001);
  auto const x = test::uniform<fp16_t>(3001, 11, -1000, 1000);
  test::fill(in, x);
  Kokkos::View<bf16_t*, Memory, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const out(reinterpret_cast<bf16_t*>(in.data()),
                                                                                   in.size());
  cast(Exec{}, out, in);
  auto const got = test::values(out);
  long wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) wrong += got[i].bits() != nearest_pattern<bf16_t>(decode(x[i]), false);
  CHECK(wrong == 0);
}
TEST_CASE_TEMPLATE_APPLY(cast_in_place, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("casting nothing is no error", Exec, cast_empty) {
  cast(ViewOf<Exec, fp16_t*>(), ViewOf<Exec, float*>());
  cast(Exec{}, ViewOf<Exec, fp16_t***>("out", 3, 0, 4), ViewOf<Exec, float***>("in", 3, 0, 4), {true});
  Kokkos::fence();
}
TEST_CASE_TEMPLATE_APPLY(cast_empty, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("cast says what is wrong and leaves the output alone", Exec, cast_errors) {
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Memory = typename Exec::memory_space;
  ViewOf<Exec, fp16_t**> const out("out", 3, 4);
  ViewOf<Exec, float**> const in("in", 3, 5);
  test::poison(out);

  std::string message = test::error_of([&] { cast(Exec{}, out, in); }, ErrorCode::extent);
  CHECK(contains(message, "tessera::cast"));
  CHECK(contains(message, "out (3, 4)"));
  CHECK(contains(message, "in (3, 5)"));

  Kokkos::View<float**, Memory, Unmanaged> const no_in(nullptr, 3, 4);
  message = test::error_of([&] { cast(Exec{}, out, no_in); }, ErrorCode::null_data);
  CHECK(contains(message, "in (3, 4)"));
  Kokkos::View<fp16_t**, Memory, Unmanaged> const no_out(nullptr, 3, 5);
  message = test::error_of([&] { cast(Exec{}, no_out, in); }, ErrorCode::null_data);
  CHECK(contains(message, "out (3, 5)"));

  Kokkos::View<fp16_t**, Kokkos::LayoutStride, Memory, Unmanaged> const repeated(out.data(),
                                                                                 Kokkos::LayoutStride(3, 0, 5, 1));
  message = test::error_of([&] { cast(Exec{}, repeated, in); }, ErrorCode::overlap);
  CHECK(contains(message, "stride 0"));

  // The same memory shifted by a row, and the same memory read as elements of another size.
  auto const low = Kokkos::subview(out, std::pair(0, 2), Kokkos::ALL);
  auto const high = Kokkos::subview(out, std::pair(1, 3), Kokkos::ALL);
  message = test::error_of([&] { cast(Exec{}, high, low); }, ErrorCode::overlap);
  CHECK(contains(message, "overlaps in (2, 4)"));
  Kokkos::View<e4m3_t*, Memory, Unmanaged> const bytes(reinterpret_cast<e4m3_t*>(out.data()), 12);
  Kokkos::View<fp16_t*, Memory, Unmanaged> const halves(out.data(), 12);
  test::error_of([&] { cast(Exec{}, bytes, halves); }, ErrorCode::overlap);
  CHECK(test::is_poisoned(out));
}
TEST_CASE_TEMPLATE_APPLY(cast_errors, tessera::test::Spaces);

}  // namespace
