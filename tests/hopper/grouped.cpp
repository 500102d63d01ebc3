// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of rows and lists of products on the warp-specialised pipeline against the fp64 reference.
#include "gemm/group_list.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;

template <class T>
std::vector<T> part(std::vector<T> const& x, std::int64_t first, std::int64_t end) {
  return {x.begin() + first, x.begin() + end};
}

/// Adds where it is called, in steps that fp32 sums keep.
struct Place {
  KOKKOS_FUNCTION float operator()(float x, std::int64_t row, std::int64_t col, std::int64_t group) const {
    return x + static_cast<float>(1000 * group + 4 * row + col % 4);
  }
};

/// Each block, and the rows around them, which must be as they were. B[g] is (k, n), or (n, k) where it is transposed.
template <class T, class TC, class Epilogue>
void check_blocks(std::vector<std::int32_t> const& at, int n, int k, bool transpose_b, double beta,
                  Epilogue const& epilogue) {
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(transpose_b);
  CAPTURE(beta);
  int const groups = static_cast<int>(at.size()) - 1, rows = at.back() + 3;
  ViewOf<Exec, T**> const a("A", rows, k);
  ViewOf<Exec, T***> const b("B", groups, transpose_b ? n : k, transpose_b ? k : n);
  ViewOf<Exec, TC**> const c("C", rows, n);
  ViewOf<Exec, std::int32_t*> const offsets("offsets", at.size());
  auto const ah = uniform<T>(a.size(), 1), bh = uniform<T>(b.size(), 2);
  auto const ch = uniform<TC>(c.size(), 3);
  fill(a, ah), fill(b, bh), fill(c, ch), fill(offsets, at);
  gemm_grouped(
      Exec{}, 1.5, a, b, offsets, beta, c,
      {.op_b = transpose_b ? Op::transpose : Op::none, .algorithm = Algorithm::hopper, .allow_fallback = false},
      epilogue);
  auto const out = values(c);
  for (int g = 0; g < groups; ++g) {
    int const m = at[g + 1] - at[g];
    auto const stored = plane_of(bh, g, n * k), bg = transpose_b ? transposed_planes(stored, 1, n, k) : stored;
    auto r = gemm_reference(m, n, k, 1.5, part(ah, std::int64_t(at[g]) * k, std::int64_t(at[g + 1]) * k), bg, beta,
                            part(ch, std::int64_t(at[g]) * n, std::int64_t(at[g + 1]) * n));
    if constexpr (std::is_same_v<Epilogue, Place>)
      for (std::size_t i = 0; i < r.c.size(); ++i) {
        double const place = 1000. * g + 4. * static_cast<double>(i / n) + static_cast<double>(i % n % 4);
        r.c[i] += place;
        r.magnitude[i] += place;
      }
    check_gemm<float>(r, part(out, std::int64_t(at[g]) * n, std::int64_t(at[g + 1]) * n), k);
  }
  long touched = 0;
  for (int i = 0; i < rows; ++i)
    if (i < at.front() || i >= at.back())
      touched += std::memcmp(&out[std::size_t(i) * n], &ch[std::size_t(i) * n], n * sizeof(TC)) != 0;
  CHECK(touched == 0);
}

// Rows before the first block and after the last, empty blocks, ends within tiles; large and small ones on average.
std::vector<std::int32_t> const large = {2, 130, 130, 135, 391, 780}, small = {1, 4, 4, 70, 71, 199, 200, 200, 263};

}  // namespace

TEST_CASE_TEMPLATE("the hopper pipeline multiplies blocks of rows", T, bf16_t, fp16_t) {
  for (auto const& offsets : {large, small})
    for (bool const transpose_b : {false, true}) {
      check_blocks<T, T>(offsets, 304, 72, transpose_b, 0, epilogue::Identity{});
      check_blocks<T, float>(offsets, 136, 200, transpose_b, -0.5, epilogue::Identity{});
    }
}

TEST_CASE("the hopper pipeline tells an epilogue the row in its block and the block") {
  for (auto const& offsets : {large, small}) check_blocks<bf16_t, float>(offsets, 264, 136, true, 0.5, Place{});
}

namespace {

/// With a workspace for the pipeline, at an address of the least alignment that is asked for.
template <class T, class TC, class Epilogue>
void check_list(std::vector<GroupSizes> const& sizes, bool transpose_b, int pad, double alpha, double beta,
                Epilogue const& epilogue) {
  CAPTURE(transpose_b);
  CAPTURE(pad);
  CAPTURE(beta);
  GroupList<Exec, T, T, TC> const list(sizes, false, transpose_b, pad);
  GemmOptions options{
      .op_b = transpose_b ? Op::transpose : Op::none, .algorithm = Algorithm::hopper, .allow_fallback = false};
  std::size_t const bytes = gemm_grouped_workspace_size(Exec{}, alpha, list.groups(), beta, options, epilogue);
  CHECK(bytes >= 256 * sizes.size());
  ViewOf<Exec, char*> const workspace("workspace", bytes + 16);
  options.workspace = workspace.data() + 16;
  options.workspace_bytes = bytes;
  gemm_grouped(Exec{}, alpha, list.groups(), beta, options, epilogue);
  if constexpr (std::is_same_v<Epilogue, Place>)
    list.template check<float>(alpha, beta, [](int row, int col, int group) { return Place{}(0, row, col, group); });
  else
    list.template check<float>(alpha, beta);
}

// Smaller than a tile, larger, none, nothing to multiply, what the copy engine cannot read, many steps.
std::vector<GroupSizes> const lists = {{5, 8, 16},      {131, 264, 72}, {0, 16, 8},    {40, 1, 304},
                                       {12, 0, 8},      {24, 32, 0},    {1, 257, 64},  {300, 520, 200},
                                       {129, 136, 640}, {257, 24, 8},   {70, 140, 21}, {33, 65, 127}};

}  // namespace

TEST_CASE_TEMPLATE("the hopper pipeline multiplies what a list holds", T, bf16_t, fp16_t) {
  for (bool const transpose_b : {false, true})
    for (int const pad : {0, 8, 3}) {
      check_list<T, T>(lists, transpose_b, pad, 1, 0, epilogue::Identity{});
      check_list<T, float>(lists, transpose_b, pad, -0.5, 2, epilogue::Identity{});
    }
}

TEST_CASE("the hopper pipeline tells an epilogue the place in the list") {
  check_list<bf16_t, float>(lists, true, 8, 1.5, 0.5, Place{});
}

TEST_CASE("the hopper pipeline reads the sizes of a list when it runs") {
  GroupList<Exec, bf16_t, bf16_t, float> list({{64, 64, 64}, {200, 136, 72}}, false, true, 0);
  GemmOptions options{.op_b = Op::transpose};
  std::size_t const bytes = gemm_grouped_workspace_size(Exec{}, 1, list.groups(), 0, options);
  ViewOf<Exec, char*> const workspace("workspace", bytes);
  options.workspace = workspace.data();
  options.workspace_bytes = bytes;
  for (int const rows : {200, 70}) {
    list.shorten_last(rows);
    gemm_grouped(Exec{}, 1, list.groups(), 0, options);
    list.check<float>(1, 0);
  }
}

TEST_CASE("gemm_grouped says what keeps it from the hopper pipeline") {
  GemmOptions const hopper{.algorithm = Algorithm::hopper, .allow_fallback = false};
  ViewOf<Exec, bf16_t**> const a("A", 64, 63), c("C", 64, 64);
  ViewOf<Exec, bf16_t***> const b("B", 1, 63, 64);
  ViewOf<Exec, float**> const wide_a("A", 64, 64), wide_c("C", 64, 64);
  ViewOf<Exec, float***> const wide_b("B", 1, 64, 64);
  ViewOf<Exec, std::int32_t*> const offsets("offsets", 2);
  ViewOf<Exec, GemmGroup<bf16_t, bf16_t, bf16_t>*> const list("list", 1);
  auto const what = [](auto const& f) { return error_of(f, ErrorCode::unsupported); };
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, a, b, offsets, 0, c, hopper); }), "multiples of 16 bytes"));
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, wide_a, wide_b, offsets, 0, wide_c, hopper); }),
                 "of fp16 and of bf16"));
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, list, 0, hopper); }), "gemm_grouped_workspace_size()"));
  GemmOptions across = hopper;
  across.op_a = Op::transpose;
  CHECK(contains(what([&] { gemm_grouped(Exec{}, 1, list, 0, across); }), "A of a list along K"));
  CHECK(gemm_grouped_workspace_size(Exec{}, 1, list, 0, across) == 0);
  GemmOptions nowhere = hopper;
  nowhere.workspace_bytes = 1024;
  error_of([&] { gemm_grouped(Exec{}, 1, list, 0, nowhere); }, ErrorCode::workspace);
}
