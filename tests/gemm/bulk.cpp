// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What prepares a product for the bulk pipeline: portable code, though only Hopper runs the product itself.
#include <tessera/gemm.hpp>

#include <algorithm>
#include <climits>
#include <vector>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;
using detail::BulkAccess;
using detail::GemmProblem;
using detail::MatrixStack;

namespace {

MatrixStack matrix(Scalar type, std::int64_t rows, std::int64_t cols, std::int64_t row_stride, std::int64_t col_stride,
                   std::uintptr_t address = 1024) {
  MatrixStack m;
  m.data = reinterpret_cast<void const*>(address);
  m.type = type;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = row_stride;
  m.col_stride = col_stride;
  return m;
}

/// C = A·Bᵀ without gaps.
GemmProblem product(Scalar type, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {matrix(type, m, k, k, 1), matrix(type, n, k, k, 1), matrix(Scalar::bf16, m, n, n, 1)};
}

std::string choice(GemmProblem const& p, GemmOptions const& options = {}, bool own_epilogue = false) {
  auto const c = detail::choose_gemm_bulk(p, options, 132, own_epilogue);  // multiprocessors of an H200
  return std::to_string(c.rows) + "x" + std::to_string(c.columns) +
         (c.schedule == Schedule::ping_pong
              ? "p"
              : (c.schedule == Schedule::turned ? "t/" : "/") + std::to_string(c.slices)) +
         (c.cluster.teams() > 1 ? " in " + std::to_string(c.cluster.rows) + "x" + std::to_string(c.cluster.cols) : "");
}

/// Repacks a stack of `T` given by its strides, and compares it with the elements one by one.
template <class Exec, class T>
void check_repack(std::int64_t outer, std::int64_t inner, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                  std::int64_t col_stride, bool across, int begin = 1) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(across);
  std::int64_t const plane = (rows - 1) * row_stride + (cols - 1) * col_stride + 3;
  ViewOf<Exec, T*> const memory("memory", outer * inner * plane + begin);
  auto const values_in = uniform<T>(memory.size(), 1);
  fill(memory, values_in);
  MatrixStack from = matrix(scalar_of<T>, rows, cols, row_stride, col_stride);
  from.data = memory.data() + begin;
  from.outer = outer;
  from.inner = inner;
  from.inner_stride = plane;
  from.outer_stride = inner * plane;
  ViewOf<Exec, T*> const packed("packed", detail::repacked_bytes(from, across) / sizeof(T));
  poison(packed, 0xFF);
  MatrixStack const to = detail::repacked(from, across, packed.data());
  CHECK(detail::bulk_copyable(across ? to.transposed() : to));
  detail::repack(Exec{}, from, across, to);
  auto const out = values(packed);
  long wrong = 0;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          T const want = values_in[std::size_t(begin + from.offset({o, i}, r, c))];
          wrong += std::memcmp(&want, &out[std::size_t(to.offset({o, i}, r, c))], sizeof(T)) != 0;
        }
  CHECK(wrong == 0);
  MatrixStack const lines = across ? to.transposed() : to;
  constexpr std::int64_t pack = detail::repack_bytes / sizeof(T);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i)
      for (std::int64_t r = 0; r < lines.rows; ++r)
        for (std::int64_t c = lines.cols; c % pack != 0; ++c)  // what of the last pack hangs over a line's end
          wrong += std::memcmp(&out[std::size_t(lines.offset({o, i}, r, c))], "\0\0\0\0", sizeof(T)) != 0;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("factors are repacked from any address and strides", Exec, repack_id) {
  for (bool const across : {false, true}) {
    check_repack<Exec, bf16_t>(1, 1, 7, 13, 13, 1, across);
    check_repack<Exec, bf16_t>(2, 3, 9, 17, 19, 1, across);
    check_repack<Exec, bf16_t>(1, 2, 33, 5, 1, 35, across);
    check_repack<Exec, e4m3_t>(1, 1, 1, 1, 1, 1, across);
    check_repack<Exec, e4m3_t>(1, 2, 21, 40, 1, 23, across);
    check_repack<Exec, e5m2_t>(1, 1, 20, 31, 93, 3, across);
    check_repack<Exec, float>(2, 1, 6, 11, 11, 1, across);
    check_repack<Exec, float>(1, 3, 10, 4, 1, 10, across);
  }
  // Several elements are loaded at once where addresses and strides are multiples of 8 or 4 bytes.
  check_repack<Exec, bf16_t>(1, 1, 9, 44, 44, 1, false, 4);
  check_repack<Exec, bf16_t>(2, 3, 9, 43, 44, 1, false, 2);
  check_repack<Exec, bf16_t>(1, 1, 44, 9, 1, 44, true, 8);
  check_repack<Exec, e4m3_t>(1, 1, 9, 44, 44, 1, false, 4);
  check_repack<Exec, e4m3_t>(1, 1, 7, 55, 56, 1, false, 8);
  check_repack<Exec, float>(1, 1, 6, 9, 10, 1, false, 2);
}
TEST_CASE_TEMPLATE_APPLY(repack_id, Spaces);

TEST_CASE("what the copy engine reads where it lies, and what is repacked") {
  auto const access = [](MatrixStack const& m) {
    BulkAccess const a = detail::bulk_access(m);
    return std::string(a.direct ? "direct" : "repacked") + (a.across ? " across" : "");
  };
  CHECK(access(matrix(Scalar::bf16, 64, 64, 64, 1)) == "direct");
  CHECK(access(matrix(Scalar::bf16, 64, 64, 1, 64)) == "direct across");
  CHECK(access(matrix(Scalar::bf16, 64, 63, 63, 1)) == "repacked");
  CHECK(access(matrix(Scalar::bf16, 63, 64, 1, 63)) == "repacked across");
  CHECK(access(matrix(Scalar::bf16, 64, 64, 64, 1, 1026)) == "repacked");
  CHECK(access(matrix(Scalar::bf16, 64, 64, 128, 2)) == "repacked");
  CHECK(access(matrix(Scalar::bf16, 64, 64, 0, 1)) == "repacked");  // one row for all
  CHECK(access(matrix(Scalar::e4m3, 64, 64, 64, 1)) == "direct");
  CHECK(access(matrix(Scalar::e4m3, 64, 64, 1, 64)) == "repacked");  // to lines along K
  CHECK(access(matrix(Scalar::e4m3, 64, 56, 56, 1)) == "repacked");
  CHECK(access(matrix(Scalar::fp32, 64, 60, 60, 1)) == "direct");
  CHECK(access(matrix(Scalar::fp32, 64, 61, 61, 1)) == "repacked");
  CHECK(detail::bulk_workspace(product(Scalar::bf16, 64, 64, 64)) == 0);
  CHECK(detail::bulk_workspace(product(Scalar::bf16, 10, 20, 63)) ==
        1280 + 2560);  // lines of 128 bytes, each part in 256s
}

TEST_CASE("a C of few rows is turned where it is stored by packs") {
  GemmProblem const p = product(Scalar::bf16, 160, 4096, 14336);
  CHECK(choice(p) == "64x160t/2");
  GemmProblem added = p, wide = p, odd = product(Scalar::bf16, 160, 4097, 14336), across = p;
  added.beta = 1;
  wide.c.type = Scalar::fp32;
  across.a = matrix(Scalar::bf16, 160, 14336, 1, 160);
  for (GemmProblem const& q : {added, wide, odd, across, product(Scalar::e4m3, 160, 4096, 14336)}) {
    CHECK(detail::choose_gemm_bulk(q, {}, 132, false).schedule != Schedule::turned);
    CHECK(choice(q, {.schedule = Schedule::turned}) == "0x0/1");
  }
  CHECK(detail::choose_gemm_bulk(p, {}, 132, true).schedule != Schedule::turned);
  CHECK(choice(p, {.tile_m = 128, .tile_n = 160}) == "128x160p in 1x2");  // of C itself
  CHECK(choice(p, {.tile_m = 128, .tile_n = 160, .schedule = Schedule::turned}) == "128x160t/3");
}

TEST_CASE("the tile of a product on the bulk pipeline suits its shape") {
  CHECK(choice(product(Scalar::bf16, 8192, 8192, 8192)) == "128x192p in 2x1");  // in ping-pong
  CHECK(choice(product(Scalar::bf16, 4096, 4096, 4096)) == "128x256/1 in 2x1");
  CHECK(choice(product(Scalar::bf16, 2048, 2048, 2048)) == "128x128p in 1x2");
  CHECK(choice(product(Scalar::bf16, 1536, 1536, 1536)) == "128x144t/1");  // one wave: nothing to store under
  CHECK(choice(product(Scalar::bf16, 2048, 1536, 1024)) == "192x128/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 1792, 1792, 1792)) == "128x112p in 1x2");  // the columns that fill whole waves
  CHECK(choice(product(Scalar::bf16, 2560, 2560, 2560)) == "128x144p in 1x2");
  CHECK(choice(product(Scalar::bf16, 2304, 2304, 2304)) == "128x176p in 1x2");
  CHECK(choice(product(Scalar::bf16, 2615, 1200, 7960)) ==
        "128x128p in 4x2");  // lines that are slow to come are shared by more teams
  CHECK(choice(product(Scalar::bf16, 584, 480, 2440)) == "64x64t/1 in 4x2");
  GemmProblem added_to = product(Scalar::bf16, 2304, 2304, 2304), narrow = added_to;
  added_to.beta = 1;
  narrow.c.type = Scalar::e4m3;
  CHECK(choice(added_to) == "128x112p in 1x2");  // what has come before it is added is a larger part of it
  CHECK(choice(narrow) == "128x192p in 1x2");    // 176 columns are no whole packs of lines
  CHECK(choice(narrow, {.tile_n = 176}) == "128x176p in 1x2");
  CHECK(choice(product(Scalar::bf16, 1024, 1024, 1024)) == "64x128t/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 4097, 1280, 5120)) == "128x160p in 1x2");  // two waves, both full
  CHECK(choice(product(Scalar::bf16, 512, 1024, 1024)) == "64x64t/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 512, 512, 512)) == "64x64t/1");
  CHECK(choice(product(Scalar::bf16, 128, 4096, 4096)) == "64x64t/1 in 1x2");
  CHECK(choice(product(Scalar::fp32, 512, 512, 512)) == "64x128/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 256, 8192, 8192)) == "128x128/1");
  CHECK(choice(product(Scalar::bf16, 128, 128, 8192)) == "64x64t/8");  // few tiles, long sums
  CHECK(choice(product(Scalar::bf16, 1, 1, 1)) == "64x64t/1");
  CHECK(choice(product(Scalar::bf16, 1, 8192, 8192)) == "64x64t/1");  // the one row is copied, and no more
  CHECK(choice(product(Scalar::bf16, 4096, 8192, 28672)) == "128x256/1 in 2x1");
  CHECK(choice(product(Scalar::bf16, 4366, 72, 5584)) == "128x96/3");

  GemmProblem batch = product(Scalar::bf16, 1024, 1024, 1024);
  batch.a.inner = batch.b.inner = batch.c.inner = 64;
  batch.a.inner_stride = batch.b.inner_stride = batch.c.inner_stride = 1024 * 1024;
  CHECK(choice(batch) == "128x128p in 2x1");
  GemmProblem scaled = product(Scalar::e4m3, 8192, 8192, 8192);
  scaled.block_scaled = true;
  CHECK(choice(scaled) == "128x128/1 in 2x1");

  // What is promoted takes registers: of 256 columns one half after the other.
  CHECK(choice(product(Scalar::e4m3, 8192, 8192, 8192)) == "128x128/1");
  CHECK(choice(product(Scalar::e4m3, 8192, 8192, 8192), {.fast_accumulation = true}) == "128x192p in 2x1");
  CHECK(choice(product(Scalar::e4m3, 4096, 4096, 4096), {.fast_accumulation = true}) == "128x256/1 in 2x1");

  CHECK(choice(product(Scalar::bf16, 8192, 8192, 8192), {.tile_m = 64}) == "64x128/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 4096, 4096, 4096), {.schedule = Schedule::ping_pong}) == "128x128p in 1x2");
  CHECK(choice(product(Scalar::bf16, 1024, 1024, 1024), {.schedule = Schedule::cooperative}) == "64x128/1 in 1x2");
  CHECK(choice(product(Scalar::bf16, 512, 512, 512), {.slices = 2, .schedule = Schedule::ping_pong}) == "0x0/1");
  CHECK(choice(product(Scalar::bf16, 512, 512, 512), {.slices = 2}) == "64x64t/2");
  CHECK(choice(product(Scalar::bf16, 512, 512, 64), {.slices = 2}) == "0x0/1");  // one step cannot be shared
  CHECK(choice(product(Scalar::bf16, 512, 512, 512), {.tile_m = 32}) == "0x0/1");
  GemmProblem across = product(Scalar::bf16, 512, 512, 512);
  across.b = matrix(Scalar::bf16, 512, 512, 1, 512);
  CHECK(choice(across, {.tile_n = 192}) == "128x192p in 1x2");
  CHECK(choice(across, {.tile_n = 160}) == "0x0/1");

  // Fewer kernels for who compiles them.
  CHECK(choice(product(Scalar::bf16, 8192, 8192, 8192), {}, true) == "128x192p in 2x1");
  CHECK(choice(product(Scalar::bf16, 4096, 4096, 4096), {}, true) == "128x128p in 1x2");
  CHECK(choice(product(Scalar::bf16, 64, 8192, 8192), {}, true) == "64x128/1");
  CHECK(choice(product(Scalar::e4m3, 8192, 8192, 8192), {}, true) == "128x256/1");
}

TEST_CASE("a choice that is remembered is the one that was made for such a product") {
  std::vector<std::pair<GemmProblem, GemmOptions>> questions;
  for (std::int64_t const n : {128, 512, 1000, 1001, 4096})
    for (Scalar const type : {Scalar::bf16, Scalar::e4m3}) {
      GemmProblem p = product(type, n, n, n), added = p, elsewhere = p;
      added.beta = 0.5;
      elsewhere.b = matrix(type, n, n, n + 16, 1, 1024 + 32);
      for (GemmProblem const& q : {p, added, elsewhere, product(type, n, 2 * n, n), product(type, n, n, 3 * n)})
        for (std::size_t const workspace : {0, 1 << 28}) questions.push_back({q, {.workspace_bytes = workspace}});
      questions.push_back({p, {.fast_accumulation = true}});
      questions.push_back({p, {.tile_m = 64}});
    }
  for (int round = 0; round < 2; ++round)
    for (auto const& [p, options] : questions)
      for (int const teams : {132, 50})
        CHECK(detail::remembered_gemm_bulk(p, options, teams, false) ==
              detail::choose_gemm_bulk(p, options, teams, false));
  // Neither where the factors lie beyond a line nor what C is scaled by is part of the question.
  GemmProblem p = product(Scalar::bf16, 512, 512, 512), q = p;
  q.a.data = reinterpret_cast<void const*>(std::uintptr_t{1024 + 4096});
  q.alpha = 3;
  CHECK(detail::GemmBulkQuestion(p, {}, 132, false) == detail::GemmBulkQuestion(q, {}, 132, false));
  q.a.data = reinterpret_cast<void const*>(std::uintptr_t{1024 + 16});
  CHECK_FALSE(detail::GemmBulkQuestion(p, {}, 132, false) == detail::GemmBulkQuestion(q, {}, 132, false));
}

TEST_CASE("a divisor divides as the machine does, and every tile comes once") {
  for (int d : {1, 2, 3, 7, 16, 132, 1000, 65535, 1 << 20, INT_MAX}) {
    detail::Divisor const divisor(d);
    for (int n : {0, 1, d - 1, d, INT_MAX / d * d - 1, INT_MAX / d * d, INT_MAX - 1, INT_MAX}) {
      CHECK(n / divisor == n / d);
      CHECK(divisor.quotient(n, false) == n / d);
    }
    int wrong = 0;
    for (int n = 0; n < 5000; ++n) wrong += n / divisor != n / d;
    CHECK(wrong == 0);
  }
  for (int rows : {1, 5, 16, 17, 40, 48})
    for (int cols : {1, 7, 33}) {
      std::vector<int> all(rows * cols), by_columns(rows * cols), by_pairs(rows * cols);
      detail::TileOrder const order(rows, cols), in_pairs(rows, cols, 2);
      detail::TileOrderBy<int> const same(rows, cols);
      detail::TileOrderOfColumns const of_columns(cols);
      for (int r = 0; r < rows * cols; ++r) {
        detail::TilePlace const one = order(r), by_int = same(r), other = of_columns(r, rows), pair = in_pairs(r);
        CHECK((one.row == by_int.row && one.col == by_int.col));
        ++all.at(one.row * cols + one.col);
        ++by_columns.at(other.row * cols + other.col);
        ++by_pairs.at(pair.row * cols + pair.col);
      }
      CHECK(all == std::vector<int>(all.size(), 1));
      CHECK(by_columns == all);
      CHECK(by_pairs == all);
    }
}
