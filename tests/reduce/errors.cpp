// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/reduce.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("reduce names extents and axes that do not fit", Exec, reduce_extent_errors) {
  ViewOf<Exec, float***> const in("in", 3, 4, 5);
  ViewOf<Exec, float**> const out("out", 3, 5);
  poison(out);
  std::string message = error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.axis = 2}); }, ErrorCode::extent);
  CHECK(contains(message, "tessera::reduce"));
  CHECK(contains(message, "extent 1 of out (3, 5) must be 4, extent 1 of the input (3, 4, 5)"));
  for (int axis : {3, -4}) {
    message = error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.axis = axis}); }, ErrorCode::value);
    CHECK(contains(message, "axis " + std::to_string(axis) + " does not exist in the input (3, 4, 5)"));
  }
  message = error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.axes = {0, -3}}); }, ErrorCode::value);
  CHECK(contains(message, "axis -3 is given twice"));
  message = error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.axes = {0, 1}}); }, ErrorCode::value);
  CHECK(contains(message, "2 axes are reduced, but out (3, 5) has 1 dimensions less"));
  CHECK(is_poisoned(out));
  fill(in, std::vector<float>(60, 1.f));
  reduce(Exec{}, out, in, Reduction::sum, {.axis = -2});
  for (float v : values(out)) CHECK(v == 4);
}
TEST_CASE_TEMPLATE_APPLY(reduce_extent_errors, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce refuses memory that overlaps or is not there", Exec, reduce_memory_errors) {
  ViewOf<Exec, float**> const x("x", 10, 10);
  ViewOf<Exec, float*> const out("out", 10);
  poison(x);
  poison(out);
  ViewOf<Exec, float*> const inside(x.data() + 90, 10);
  CHECK(contains(error_of([&] { reduce(Exec{}, inside, x, Reduction::sum); }, ErrorCode::overlap),
                 "output out (10) overlaps in (10, 10) in memory"));
  using Strided = Kokkos::View<float*, Kokkos::LayoutStride, typename Exec::memory_space>;
  Strided const flat(out.data(), Kokkos::LayoutStride(10, 0));
  CHECK(contains(error_of([&] { reduce(Exec{}, flat, x, Reduction::sum); }, ErrorCode::overlap), "stride 0"));
  ViewOf<Exec, float**> const null(static_cast<float*>(nullptr), 10, 10);
  ViewOf<Exec, float*> const null_out(static_cast<float*>(nullptr), 10);
  CHECK(contains(error_of([&] { reduce(Exec{}, out, null, Reduction::sum); }, ErrorCode::null_data), "in (10, 10)"));
  CHECK(contains(error_of([&] { reduce(Exec{}, null_out, x, Reduction::sum); }, ErrorCode::null_data), "out (10)"));
  CHECK(is_poisoned(x));
  CHECK(is_poisoned(out));
  // A column between the columns that are reduced shares nothing with them.
  auto const left = Kokkos::subview(x, Kokkos::ALL, std::pair<int, int>(0, 9));
  auto const right = Kokkos::subview(x, Kokkos::ALL, 9);
  fill(x, std::vector<float>(100, 1.f));
  reduce(Exec{}, right, left, Reduction::sum);
  for (float v : values(right)) CHECK(v == 9);
}
TEST_CASE_TEMPLATE_APPLY(reduce_memory_errors, Spaces);

TEST_CASE_TEMPLATE_DEFINE("reduce says how much workspace it needs", Exec, reduce_workspace_errors) {
  ViewOf<Exec, float*> const in("in", 1 << 20), small("small", 1000);
  ViewOf<Exec, float> const out("out");
  fill(in, std::vector<float>(in.size(), 1.f));
  poison(out);
  CHECK(reduce_workspace_size(Exec{}, out, small, Reduction::sum) == 0);
  std::size_t const needed = reduce_workspace_size(Exec{}, out, in, Reduction::sum);
  CHECK(needed > 0);
  CHECK(needed <= 2048 * sizeof(float));
  CHECK(reduce_workspace_size(Exec{}, out, in, Reduction::norm2) == 2 * needed);
  CHECK(reduce_workspace_size(Exec{}, out, in, Reduction::sum, {.accumulate_fp64 = true}) == 2 * needed);
  CHECK(reduce_workspace_size(Exec{}, out, in, Reduction::max, {.accumulate_fp64 = true}) == needed);

  ViewOf<Exec, std::byte*> const workspace("workspace", needed + 8);
  auto const part = [&](std::size_t from, std::size_t to) { return Kokkos::subview(workspace, std::pair(from, to)); };
  std::string const message = error_of([&] { reduce(Exec{}, out, in, Reduction::sum); }, ErrorCode::workspace);
  CHECK(contains(message, "needs a workspace of " + std::to_string(needed) + " bytes"));
  error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.workspace = part(0, needed - 1)}); }, ErrorCode::workspace);
  CHECK(contains(error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.workspace = part(1, needed + 1)}); },
                          ErrorCode::workspace),
                 "unaligned"));
  ViewOf<Exec, std::byte*> const over_input(reinterpret_cast<std::byte*>(in.data()), needed);
  CHECK(contains(
      error_of([&] { reduce(Exec{}, out, in, Reduction::sum, {.workspace = over_input}); }, ErrorCode::overlap),
      "workspace"));
  ViewOf<Exec, float> const inside(reinterpret_cast<float*>(workspace.data()));
  error_of([&] { reduce(Exec{}, inside, in, Reduction::sum, {.workspace = workspace}); }, ErrorCode::overlap);
  CHECK(is_poisoned(out));
  reduce(Exec{}, out, in, Reduction::sum, {.workspace = part(0, needed)});
  CHECK(values(out)[0] == 0x1p20f);
}
TEST_CASE_TEMPLATE_APPLY(reduce_workspace_errors, Spaces);
