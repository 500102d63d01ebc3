// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

// What a CPU does with products of few tiles and a long K, and with those of one step of K. Other machines form the
// same products their way.
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

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("vector units: a long K in slices", Exec, slices_of_k) {
  check_long_products<Exec, float>(6007);
  check_long_products<Exec, double>(4099);
  check_long_products<Exec, bf16_t>(8200);
  check_long_products<Exec, fp16_t>(4200);
}
TEST_CASE_TEMPLATE_APPLY(slices_of_k, Spaces);

TEST_CASE_TEMPLATE_DEFINE("slices follow from the shape, need a workspace and are planned", Exec, planned_slices) {
  if (!on_host<Exec>) return;
  LongProduct<Exec, float> x;
  CHECK(x.plan().slices == 4);
  CHECK(x.plan().workspace_bytes == 4 * sizeof(float) * x.m * x.n);
  x.options.workspace_bytes -= 1;
  CHECK(x.plan().slices == 1);
  CHECK(x.plan().workspace_bytes == 0);
  CHECK(std::string(x.plan().reason).find("options.workspace") != std::string::npos);
}
TEST_CASE_TEMPLATE_APPLY(planned_slices, Spaces);

TEST_CASE_TEMPLATE_DEFINE("slices: the same bits on any number of cores", Exec, same_slices) {
  if (!on_host<Exec> || !on_host<First>) return;
  CHECK(LongProduct<Exec, float>().result() == LongProduct<First, float>().result());
  CHECK(LongProduct<Exec, double>().result() == LongProduct<First, double>().result());
}
TEST_CASE_TEMPLATE_APPLY(same_slices, Spaces);

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
