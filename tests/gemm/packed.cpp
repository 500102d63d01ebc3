// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

// What a CPU does with large products, at sizes that a test can afford: factors packed before, and short steps of K.
namespace {

using First = std::tuple_element_t<0, Spaces>;

template <class Exec, class Compute>
std::size_t packing_bytes(detail::GemmProblem const& p, [[maybe_unused]] bool narrow) {
  if constexpr (detail::has_narrow_atoms<Exec, Compute>) {
    using Element = detail::GemmNarrowElement<Compute>;
    using Narrow = detail::PackedAtoms<Exec, Compute, Element, detail::GemmNarrow<Element>>;
    if (narrow) return detail::GemmPacking<Narrow>::bytes(p);
  }
  return detail::with_packed_atoms<Exec, Compute, detail::GemmCoarsenedShort<Compute>>(
      [&](auto tag) { return detail::GemmPacking<typename decltype(tag)::type>::bytes(p); });
}

template <class Exec, class T, class TC>
void check_ways(int m, int n, int k, int layout, double beta) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(layout);
  using Compute = detail::GemmCompute<ViewOf<Exec, TC**>>;
  constexpr double alpha = 2;
  bool const turned_a = (layout & 1) != 0, turned_b = (layout & 2) != 0;
  ViewOf<Exec, T**> const a("a", turned_a ? k : m, turned_a ? m : k), b("b", turned_b ? n : k, turned_b ? k : n);
  auto const ah = uniform<T>(std::size_t(m) * k, 1), bh = uniform<T>(std::size_t(k) * n, 2);
  auto const ch = uniform<TC>(std::size_t(m) * n, 3);
  fill(a, turned_a ? transposed_planes(ah, 1, m, k) : ah);
  fill(b, turned_b ? transposed_planes(bh, 1, k, n) : bh);
  GemmOptions options;
  options.op_a = turned_a ? Op::transpose : Op::none;
  options.op_b = turned_b ? Op::transpose : Op::none;
  options.splits = 1;
  auto const check = [&](auto const& change) {
    ViewOf<Exec, TC**> const c("c", m, n);
    fill(c, ch);
    detail::GemmProblem p = detail::gemm_problem(alpha, a, b, beta, c, options);
    GemmPlan plan = detail::plan_gemm<Exec, Compute, epilogue::Identity>(Exec{}, p, options);
    REQUIRE(plan.algorithm == Algorithm::coarsened);
    plan.tile_m = plan.tile_n = 96;  // whole panels of every kind
    change(plan);
    GuardedWorkspace<Exec> const workspace(packing_bytes<Exec, Compute>(p, plan.narrow_factors));
    p.workspace = workspace.data();
    detail::run_gemm<Exec, Compute>(Exec{}, p, plan, epilogue::Identity{});
    CHECK(workspace.margins_untouched());
    if constexpr (std::is_same_v<Compute, std::int32_t>) {
      ViewOf<Exec, TC**> const expected("expected", m, n);  // compared with a reference elsewhere
      fill(expected, ch);
      gemm(Exec{}, alpha, a, b, beta, expected, options);
      CHECK(values(c) == values(expected));
    } else {
      check_gemm<Compute>(gemm_reference(m, n, k, alpha, ah, bh, beta, ch), values(c), k, 0);
    }
  };
  check([](GemmPlan& plan) { plan.packed_factors = true; });
  for (int const step : {128, 256})
    check([&](GemmPlan& plan) { plan.tile_k = plan.narrow_factors ? plan.tile_k : step; });
}

template <class T, class TC = T>
void check_ways() {
  if constexpr (detail::has_packed_atoms<First>) {
    constexpr int shapes[][3] = {{37, 45, 300}, {131, 70, 129}, {13, 200, 515}, {200, 5, 1100}, {97, 129, 257}};
    for (auto const& [m, n, k] : shapes)
      for (int layout = 0; layout < 4; ++layout) check_ways<First, T, TC>(m, n, k, layout, layout == 1 ? -1 : 0);
  }
}

}  // namespace

TEST_CASE("vector units: factors packed before, and steps of K of either length") {
  check_ways<double>();
  check_ways<float>();
  check_ways<bf16_t>();
  check_ways<fp16_t, float>();
  check_ways<e4m3_t, bf16_t>();
  check_ways<std::int8_t, std::int32_t>();
}

TEST_CASE("large products of several cores are planned with factors packed before, given a workspace") {
  if constexpr (detail::has_packed_atoms<First>) {
    detail::MatrixStack m;
    m.type = Scalar::fp64;
    m.rows = m.cols = m.row_stride = 8192;
    m.col_stride = 1;
    detail::GemmProblem const p{m, m, m};
    GemmOptions options;
    auto const plan = [&] { return detail::plan_gemm<First, double, epilogue::Identity>(First{}, p, options); };
    CHECK_FALSE(plan().packed_factors);
    CHECK(plan().workspace_bytes == 0);
    options.workspace_bytes = SIZE_MAX;
    GemmPlan const with = plan();
    CHECK(with.packed_factors == (with.concurrency > 1));
    CHECK((with.workspace_bytes > std::size_t(2) * 8192 * 8192 * sizeof(double)) == with.packed_factors);
    if (!with.packed_factors) return;
    options.workspace_bytes = with.workspace_bytes - 1;
    CHECK_FALSE(plan().packed_factors);
    options.workspace_bytes = with.workspace_bytes;
    CHECK(to_string(plan()).find("packed factors") != std::string::npos);
  }
}
