// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "epilogue.hpp"

using namespace tessera;
using namespace tessera::test;

// Products of few tiles and a long K, whose sums are formed in parts, and those of one step of K, which a CPU forms its
// own way.
namespace {

using First = std::tuple_element_t<0, Spaces>;
template <class Exec>
constexpr bool on_host = detail::Machine<Exec>::is_host;

template <class Exec, class T>
ViewOf<Exec, T**> random_matrix(int rows, int cols, unsigned seed) {
  ViewOf<Exec, T**> m("m", rows, cols);
  fill(m, uniform<T>(std::size_t(rows) * cols, seed));
  return m;
}

/// A product of few elements, with the workspace it asks for.
template <class Exec, class T>
struct LongProduct {
  static constexpr int m = 37, n = 41, k = 9001;
  ViewOf<Exec, T**> a = random_matrix<Exec, T>(m, k, 1), b = random_matrix<Exec, T>(k, n, 2), c{"c", m, n};
  GemmOptions options;
  ViewOf<Exec, unsigned char*> workspace;
  LongProduct() : workspace("workspace", gemm_workspace_size(Exec{}, 1, a, b, 0, c)) {
    options.workspace_bytes = workspace.size();
    if (workspace.size() > 0) options.workspace = workspace.data();
  }
  GemmPlan plan() const { return gemm_plan(Exec{}, 1, a, b, 0, c, options); }
  std::vector<T> result() const {
    gemm(Exec{}, 1, a, b, 0, c, options);
    return values(c);
  }
};

template <class Exec, class T>
void check_long_products(int k) {
  for (bool const turned : {false, true}) {
    Product p{13, 35, k, 2};
    p.transpose_a = p.c_by_columns = turned;
    p.transpose_b = !turned;
    p.pad = 3, p.begin = 1;
    p.alpha = 0.5;
    p.beta = turned ? -1.5 : 0;
    p.one_b = turned;
    check_product<Exec, T, T>(p, {});
  }
}

/// K in as many parts as it is told, in every layout of C.
template <class Exec, class T, class TC>
void check_splits(int k, GemmOptions options) {
  for (int const splits : {2, 3, 7}) {
    CAPTURE(splits);
    options.splits = splits;
    for (bool const turned : {false, true}) {
      Product p{67, 131, k, turned ? 2 : 1};
      p.transpose_a = p.c_by_columns = turned;
      p.transpose_b = !turned;
      p.pad = turned ? 3 : 16, p.begin = turned ? 1 : 8;
      p.alpha = 1.5;
      p.beta = turned ? -0.5 : 0;
      p.one_b = turned;
      check_product<Exec, T, TC>(p, options);
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a long K in as many parts as the shape suggests", Exec, long_id) {
  check_long_products<Exec, float>(6007);
  check_long_products<Exec, double>(4099);
  check_long_products<Exec, bf16_t>(8200);
  check_long_products<Exec, fp16_t>(4200);
}
TEST_CASE_TEMPLATE_APPLY(long_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("K in parts with every algorithm that has tiles", Exec, splits_id) {
  GemmOptions const coarsened{.algorithm = Algorithm::coarsened}, tensor_core{.algorithm = Algorithm::tensor_core},
      tf32{.algorithm = Algorithm::tensor_core, .allow_tf32 = true};
  check_splits<Exec, float, float>(999, coarsened);
  check_splits<Exec, float, bf16_t>(640, tf32);
  check_splits<Exec, double, double>(333, tensor_core);
  check_splits<Exec, double, double>(500, coarsened);
  check_splits<Exec, bf16_t, float>(1000, coarsened);
  check_splits<Exec, bf16_t, bf16_t>(1032, tensor_core);
  check_splits<Exec, fp16_t, e4m3_t>(704, tensor_core);
}
TEST_CASE_TEMPLATE_APPLY(splits_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("K in parts: an epilogue sees every element once, when it is whole", Exec, epilogue_id) {
  for (int const splits : {2, 9})
    check_epilogue<Exec, float, float>({.algorithm = Algorithm::coarsened, .splits = splits}, 2400);
}
TEST_CASE_TEMPLATE_APPLY(epilogue_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("parts of K have a step at least, and room in the workspace", Exec, rooms_id) {
  LongProduct<Exec, float> x;
  x.options.splits = 1;
  CHECK(x.plan().splits == 1);
  CHECK(x.plan().workspace_bytes == 0);
  x.options.splits = 1000000;
  x.options.workspace_bytes = SIZE_MAX;
  GemmPlan const most = x.plan();
  CHECK(most.splits == (x.k + most.tile_k - 1) / most.tile_k);
  x.options.splits = 3;
  x.options.workspace_bytes = x.plan().workspace_bytes;
  CHECK(x.options.workspace_bytes == 3 * sizeof(float) * x.m * 64);  // rows of whole lines of 128 bytes
  CHECK(to_string(x.plan()).find("K in 3 parts") != std::string::npos);
  x.options.workspace_bytes -= 1;
  poison(x.c);
  std::string const message = error_of([&] { gemm(Exec{}, 1, x.a, x.b, 0, x.c, x.options); }, ErrorCode::workspace);
  CHECK(message.find("options.splits = 3") != std::string::npos);
  CHECK(is_poisoned(x.c));
  check_splits<Exec, float, float>(1, {});
}
TEST_CASE_TEMPLATE_APPLY(rooms_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("parts of K follow from the shape, need a workspace and are planned", Exec, planned_splits) {
  LongProduct<Exec, float> x;
  GemmPlan const with = x.plan();
  CHECK(with.splits > 1);
  if (on_host<Exec>) CHECK(with.splits == 4);
  CHECK(with.workspace_bytes == std::size_t(with.splits) * sizeof(float) * x.m * 64);
  x.options.workspace = nullptr, x.options.workspace_bytes = 0;
  CHECK(x.plan().splits == 1);
  CHECK(x.plan().workspace_bytes == 0);
  CHECK(std::string(x.plan().reason).find("options.workspace") != std::string::npos);
}
TEST_CASE_TEMPLATE_APPLY(planned_splits, Spaces);

TEST_CASE_TEMPLATE_DEFINE("K in parts: the same bits every time", Exec, repeated_id) {
  LongProduct<Exec, float> x;
  auto const first = x.result();
  for (int i = 0; i < 3; ++i) CHECK(x.result() == first);
}
TEST_CASE_TEMPLATE_APPLY(repeated_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("K in parts: the same bits on any number of cores", Exec, same_splits) {
  if (!on_host<Exec> || !on_host<First>) return;
  CHECK(LongProduct<Exec, float>().result() == LongProduct<First, float>().result());
  CHECK(LongProduct<Exec, double>().result() == LongProduct<First, double>().result());
}
TEST_CASE_TEMPLATE_APPLY(same_splits, Spaces);

TEST_CASE("vector units: products of one step of K go straight into C") {
  constexpr int shapes[][3] = {{100, 70, 40}, {65, 130, 64}, {301, 66, 64},
                               {67, 300, 33}, {70, 90, 200}, {133, 65, 256}};
  for (auto const& [m, n, k] : shapes)
    for (int layout = 0; layout < 8; ++layout) {
      Product p{m, n, k, 1 + layout % 2};
      p.transpose_a = (layout & 1) != 0, p.transpose_b = (layout & 2) != 0, p.c_by_columns = (layout & 4) != 0;
      p.pad = layout % 3, p.begin = layout % 2;
      p.beta = layout % 3 == 0 ? 1 : 0;
      check_product<First, float, float>(p, {});
      check_product<First, double, double>(p, {});
    }
}
