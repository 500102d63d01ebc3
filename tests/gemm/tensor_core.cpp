// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The algorithms that have a pipeline of their own on some machines, for each of its types, at the edges of its tiles.
// Elsewhere another algorithm stands in, and the bounds are the same.
#include <tessera/gemm.hpp>

#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// One element; one step of K and less; one off a tile on every side; several tiles, K no multiple of a pack.
constexpr Product products[] = {{1, 1, 1},    {3, 65, 7},    {64, 64, 64},  {65, 63, 17},
                                {63, 1, 129}, {130, 72, 48}, {67, 129, 65}, {70, 66, 131}};

/// Padding with which rows of C begin at whole packs, however many columns it has.
int to_whole_packs(int columns) { return 8 - columns % 8; }

template <class Exec, class T, class TC>
void check_edges(GemmOptions const& options) {
  for (Product p : products)
    for (auto [ta, tb] :
         {std::pair(false, true), std::pair(false, false), std::pair(true, true), std::pair(true, false)})
      for (auto [padding, begin] : {std::pair(3, 1), std::pair(0, 0), std::pair(16, 8), std::pair(-1, 0)}) {
        int const pad = padding < 0 ? to_whole_packs(p.n) : padding;
        if (padding != 3 && !has_tensor_cores<Exec>())
          break;  // another kernel runs, which the ladder's tests see more of
        p.transpose_a = ta, p.transpose_b = tb, p.pad = pad, p.begin = begin;
        p.alpha = pad == 0 ? 1 : 1.5;
        p.beta = padding == 3 ? 0.5 : 0;
        check_product<Exec, T, TC>(p, options);
      }
}

/// So many matrices that their tiles fill a machine: then tiles are large.
template <class Exec, class T, class TC>
void check_large(GemmOptions const& options) {
  for (auto [ta, tb] : {std::pair(false, true), std::pair(true, false)})
    for (Product p : {Product{129, 127, 35}, Product{128, 136, 72}}) {
      p.batch = has_tensor_cores<Exec>() ? 70 : 2;
      p.transpose_a = ta, p.transpose_b = tb;
      check_product<Exec, T, TC>(p, options);
      p.pad = 5, p.beta = -1, p.one_b = true;
      check_product<Exec, T, TC>(p, options);
      p.pad = to_whole_packs(p.n), p.beta = 0;
      check_product<Exec, T, TC>(p, options);
    }
}

/// Products that each read what the one before has written, with and without waiting for it.
template <class Exec, class T>
void check_chain(int n, GemmOptions const& options) {
  CAPTURE(n);
  Exec const exec;
  ViewOf<Exec, T**> a("A", n, n), x("X", n, n), y("Y", n, n);
  std::size_t const elements = std::size_t(n) * n;
  fill(a, uniform<T>(elements, 1));
  std::vector<T> found[2];
  for (bool const waits : {true, false}) {
    fill(x, uniform<T>(elements, 2));
    for (int i = 0; i < 10; ++i) {
      gemm(exec, 1.0 / n, a, x, 0, y, options);
      if (waits) exec.fence();
      gemm(exec, 1.0 / n, a, y, 0, x, options);
      if (waits) exec.fence();
    }
    exec.fence();
    found[waits ? 0 : 1] = values(x);
  }
  CHECK(found[0] == found[1]);
}

/// Few rows or few columns, in parts of K where that is worth it.
template <class Exec, class T>
void check_few(std::initializer_list<Product> products, GemmOptions const& options) {
  for (Product p : products)
    for (auto [ta, tb] :
         {std::pair(false, true), std::pair(false, false), std::pair(true, true), std::pair(true, false)})
      for (bool const aligned : {true, false}) {
        p.transpose_a = ta, p.transpose_b = tb, p.c_by_columns = ta != aligned;
        p.pad = aligned ? 8 : 3, p.begin = aligned ? 4 : 1;
        p.alpha = aligned ? 1.5 : 1, p.beta = aligned ? 0.5 : 0;
        p.batch = aligned ? 1 : 2;
        check_product<Exec, T, T>(p, options);
      }
}

template <class Exec, class T>
void check_flat(GemmOptions const& options) {
  check_few<Exec, T>({{9, 600, 333}, {11, 257, 31}, {16, 255, 100}, {17, 300, 64}, {600, 10, 333}, {258, 9, 2000}},
                     options);
  if (!has_tensor_cores<Exec>()) return;
  ViewOf<Exec, T**> rows("A", 9, 512), b("B", 512, 30000), row_c("C", 9, 30000);
  ViewOf<Exec, T**> a("A", 30000, 512), columns("B", 512, 9), column_c("C", 30000, 9);
  CHECK(gemm_plan(Exec{}, 1, rows, b, 0, row_c, options).tile_m == 16);
  CHECK(gemm_plan(Exec{}, 1, a, columns, 0, column_c, options).tile_m == 16);
}

/// One to eight rows or columns, whose products have no tiles: whole packs, others, and a batch that shares a factor.
template <class Exec, class T>
void check_thin() {
  for (int const splits : {0, 5}) {
    GemmOptions options;
    options.splits = splits;
    check_few<Exec, T>({{1, 600, 333},
                        {2, 256, 32},
                        {3, 260, 1024},
                        {4, 3000, 70},
                        {600, 1, 333},
                        {258, 3, 2000},
                        {1, 1, 4000},
                        {1, 4096, 1},
                        {2, 2, 2}},
                       options);
  }
  for (bool const transposed : {true, false}) {
    Product shared{4, 512, 256};
    shared.batch = 3, shared.one_b = true, shared.transpose_b = transposed, shared.beta = 1;
    check_product<Exec, T, T>(shared, {});
  }
  if (!has_tensor_cores<Exec>()) return;
  ViewOf<Exec, T**> row("A", 1, 512), b("B", 512, 30000), row_c("C", 1, 30000);
  ViewOf<Exec, T**> a("A", 30000, 512), column("B", 512, 1), column_c("C", 30000, 1);
  for (GemmPlan const& plan : {gemm_plan(Exec{}, 1, row, b, 0, row_c), gemm_plan(Exec{}, 1, a, column, 0, column_c)}) {
    CHECK(plan.algorithm == Algorithm::coarsened);
    CHECK(plan.tile_m == 1);
    CHECK(plan.stages == 0);
  }
}

constexpr GemmOptions tensor_core{.algorithm = Algorithm::tensor_core};
constexpr GemmOptions tf32{.algorithm = Algorithm::tensor_core, .allow_tf32 = true};
constexpr GemmOptions coarsened{.algorithm = Algorithm::coarsened};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("tensor_core multiplies fp64 in every layout, from any address", Exec, fp64_id) {
  check_edges<Exec, double, double>(tensor_core);
  check_large<Exec, double, double>(tensor_core);
}
TEST_CASE_TEMPLATE_APPLY(fp64_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core multiplies bf16 in every layout, from any address", Exec, bf16_id) {
  check_edges<Exec, bf16_t, bf16_t>(tensor_core);
  check_large<Exec, bf16_t, bf16_t>(tensor_core);
}
TEST_CASE_TEMPLATE_APPLY(bf16_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core multiplies fp16 in every layout, from any address", Exec, fp16_id) {
  check_edges<Exec, fp16_t, float>(tensor_core);
  check_large<Exec, fp16_t, fp16_t>(tensor_core);
}
TEST_CASE_TEMPLATE_APPLY(fp16_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core rounds fp32 factors to tf32 where that is allowed", Exec, tf32_id) {
  check_edges<Exec, float, float>(tf32);
  check_large<Exec, float, float>(tf32);
  // A number of 11 bits and one beside it that tf32 does not have: to nearest, ties away from zero.
  ViewOf<Exec, float**> a("A", 4, 4), b("B", 4, 4), c("C", 4, 4);
  std::vector<float> ah(16), ones(16);
  for (int i = 0; i < 4; ++i) ones[i * 5] = 1;
  float const step = std::ldexp(1.f, -10);
  ah = {1 + step, 1 + step * 0.5f, 1 + step * 0.49f, 1 + step * 1.5f, NAN, INFINITY, -INFINITY, -0.f};
  ah.resize(16);
  fill(a, ah), fill(b, ones);
  gemm(Exec{}, 1, a, b, 0, c, tf32);
  auto const out = values(c);
  for (int i = 0; i < 4; ++i) CHECK(std::fabs(out[i] - ah[i]) <= step / 2);
  for (int i = 4; i < 8; ++i) CHECK(std::isnan(out[i]));
  fill(b, ones);
}
TEST_CASE_TEMPLATE_APPLY(tf32_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("coarsened multiplies fp32 as it is in every layout, from any address", Exec, fp32_id) {
  check_edges<Exec, float, float>(coarsened);
  check_large<Exec, float, float>(coarsened);
}
TEST_CASE_TEMPLATE_APPLY(fp32_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core and coarsened multiply few rows or columns in flat tiles", Exec, flat_id) {
  check_flat<Exec, double>(tensor_core);
  check_flat<Exec, float>(coarsened);
}
TEST_CASE_TEMPLATE_APPLY(flat_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("fp32 and fp64 with a small C are multiplied in the least tiles", Exec, least_id) {
  for (GemmOptions const& options : {coarsened, tensor_core}) {
    bool const single = options.algorithm == Algorithm::coarsened;
    std::initializer_list<Product> const products{
        {32, 64, 32}, {64, 128, 96}, {45, 90, 61}, {100, 100, 7}, {33, 200, 130}};
    single ? check_few<Exec, float>(products, options) : check_few<Exec, double>(products, options);
  }
  if (!has_tensor_cores<Exec>()) return;
  ViewOf<Exec, double**> a("A", 256, 256), b("B", 256, 256), c("C", 256, 256);
  CHECK(gemm_plan(Exec{}, 1, a, b, 0, c).tile_m == 32);
  ViewOf<Exec, float**> af("A", 128, 128), bf("B", 128, 128), cf("C", 128, 128);
  CHECK(gemm_plan(Exec{}, 1, af, bf, 0, cf).tile_m == 32);
}
TEST_CASE_TEMPLATE_APPLY(least_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("fp32 and fp64 of up to eight rows or columns are multiplied without tiles", Exec, thin_id) {
  check_thin<Exec, double>();
  check_thin<Exec, float>();
}
TEST_CASE_TEMPLATE_APPLY(thin_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("products that start early read what the ones before have written", Exec, chain_id) {
  for (int const n : {33, 96, 300}) {
    check_chain<Exec, double>(n, tensor_core);
    check_chain<Exec, float>(n, coarsened);
  }
}
TEST_CASE_TEMPLATE_APPLY(chain_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core and coarsened store every type, with any strides", Exec, stores_id) {
  for (Product p : {Product{70, 133, 40}, Product{64, 132, 64}})
    for (int const pad : {0, 4, 3}) {
      p.pad = pad;
      p.beta = pad == 4 ? 0.5 : 0;
      check_product<Exec, bf16_t, float>(p, tensor_core);
      check_product<Exec, bf16_t, fp16_t>(p, tensor_core);
      check_product<Exec, fp16_t, bf16_t>(p, tensor_core);
      check_product<Exec, fp16_t, e4m3_t>(p, tensor_core);
      check_product<Exec, bf16_t, e5m2_t>(p, tensor_core);
      check_product<Exec, float, bf16_t>(p, tf32);
      check_product<Exec, float, fp16_t>(p, coarsened);
      check_product<Exec, float, e4m3_t>(p, coarsened);
      p.c_by_columns = true;
      check_product<Exec, double, double>(p, tensor_core);
      check_product<Exec, bf16_t, bf16_t>(p, tensor_core);
      check_product<Exec, float, float>(p, coarsened);
      p.c_by_columns = false;
    }
}
TEST_CASE_TEMPLATE_APPLY(stores_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("the plan says which types run on tensor cores", Exec, types_id) {
  if (!has_tensor_cores<Exec>()) return;
  auto const plan = [](auto a, auto b, GemmOptions const& options) {
    using C = std::conditional_t<std::is_same_v<decltype(a), double>, double, float>;
    ViewOf<Exec, decltype(a)**> av("A", 64, 64);
    ViewOf<Exec, decltype(b)**> bv("B", 64, 64);
    ViewOf<Exec, C**> cv("C", 64, 64);
    return gemm_plan(Exec{}, 1, av, bv, 0, cv, options);
  };
  CHECK(plan(1.0, 1.0, {}).algorithm == Algorithm::tensor_core);  // the fastest there is for fp64
  for (GemmPlan const& p : {plan(1.0, 1.0, tensor_core), plan(bf16_t(), bf16_t(), tensor_core),
                            plan(fp16_t(), fp16_t(), tensor_core), plan(1.f, 1.f, tf32)})
    CHECK(p.algorithm == Algorithm::tensor_core);
  CHECK(plan(1.f, 1.f, coarsened).stages > 1);
  GemmPlan const exact = plan(1.f, 1.f, tensor_core), mixed = plan(bf16_t(), 1.f, tensor_core);
  CHECK(exact.algorithm == Algorithm::coarsened);
  CHECK_MESSAGE(contains(exact.reason, "allow_tf32"), exact.reason);
  CHECK(mixed.algorithm == Algorithm::coarsened);
  CHECK_MESSAGE(contains(mixed.reason, "each with itself"), mixed.reason);

  ViewOf<Exec, bf16_t**> odd("A", 64, 63), odd_b("B", 64, 63);
  ViewOf<Exec, float**> c("C", 64, 64);
  GemmOptions options = tensor_core;
  options.op_b = Op::transpose;
  CHECK(contains(gemm_plan(Exec{}, 1, odd, odd_b, 0, c, options).reason, "options.workspace"));
  options.workspace_bytes = gemm_workspace_size(Exec{}, 1, odd, odd_b, 0, c, options);
  CHECK(options.workspace_bytes >= 2 * 64 * 64 * sizeof(bf16_t));
  options.allow_fallback = false;
  options.workspace_bytes = 0;
  error_of([&] { gemm(Exec{}, 1, odd, odd_b, 0, c, options); }, ErrorCode::unsupported);
}
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);
