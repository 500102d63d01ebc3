// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_GROUPED_HPP
#define TESSERA_PERF_GROUPED_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/gemm_grouped.hpp>
#include "support/contest.hpp"
#include "support/data.hpp"
#include "support/session.hpp"

// Products of blocks of rows, each with a B of its own, as the experts of a mixture have them.
namespace tessera::perf {

/// Rows of the blocks: uneven, and none ends with a tile.
inline std::vector<std::int32_t> const& grouped_rows() {
  static std::vector<std::int32_t> const rows = {248, 776, 1272, 1800, 2296, 2824, 3320, 3848};
  return rows;
}

using PerfGroup = GemmGroup<bf16_t, bf16_t, bf16_t>;

template <class Exec>
struct GroupedOperands {
  using Space = typename Exec::memory_space;
  Matrix<Exec, bf16_t> a, c;                              // (M, K), (M, N)
  Kokkos::View<bf16_t***, Kokkos::LayoutRight, Space> b;  // (groups, N, K)
  Kokkos::View<std::int32_t*, Space> offsets;             // (groups + 1)
  Kokkos::View<PerfGroup*, Space> list;                   // the same blocks
};

template <class Exec>
void fill_list(Exec const& exec, GroupedOperands<Exec> const& x) {
  std::int64_t const n = x.c.extent(1), k = x.a.extent(1);
  auto const list = Kokkos::create_mirror_view(x.list);
  std::int64_t row = 0, g = 0;
  for (std::int32_t const rows : grouped_rows()) {
    list(g) = {rows, n, k, x.a.data() + row * k, k, x.b.data() + g * n * k, k, x.c.data() + row * n, n};
    row += rows;
    ++g;
  }
  Kokkos::deep_copy(exec, x.list, list);
  exec.fence();
}

template <class Exec>
GroupedOperands<Exec> grouped_operands(Exec const& exec, std::int64_t n, std::int64_t k) {
  auto const& rows = grouped_rows();
  using Operands = GroupedOperands<Exec>;
  decltype(Operands::offsets) const offsets("offsets", rows.size() + 1);
  auto const host = Kokkos::create_mirror_view(offsets);
  for (std::size_t g = 0; g < rows.size(); ++g) host(g + 1) = host(g) + rows[g];
  std::int64_t const m = host(rows.size());
  Kokkos::deep_copy(exec, offsets, host);
  exec.fence();
  Operands const x{random_view<Matrix<Exec, bf16_t>>(exec, 1, m, k), zero_view<Matrix<Exec, bf16_t>>(exec, m, n),
                   random_view<decltype(Operands::b)>(exec, 2, rows.size(), n, k), offsets,
                   decltype(Operands::list)("list", rows.size())};
  fill_list(exec, x);
  return x;
}

/// Beside one product of the same size with the first B for all rows.
template <class Exec>
Case grouped_case(Session<Exec>& session, std::int64_t n, std::int64_t k) {
  std::int64_t m = 0;
  for (std::int32_t const rows : grouped_rows()) m += rows;
  auto const groups = static_cast<std::int64_t>(grouped_rows().size());
  Case c{"gemm_grouped", "bf16", "NT",
         std::to_string(groups) + "x" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k)};
  c.work = model::gemm_work(m, n, k, sizeof(bf16_t), sizeof(bf16_t), sizeof(bf16_t));
  c.work.bytes += static_cast<double>((groups - 1) * n * k) * sizeof(bf16_t);
  c.arithmetic = model::Type::bf16;
  c.counts_flops = true;
  c.cost_in = "one_product";
  c.implementations = {"tessera", "list", "one_product"};
  c.prepare = [&session, n, k]() -> std::vector<Implementation> {
    Exec const exec = session.exec();
    auto const x = grouped_operands(exec, n, k);
    GemmOptions const options{.op_b = Op::transpose};
    auto const b = Kokkos::subview(x.b, 0, Kokkos::ALL, Kokkos::ALL);
    GemmOptions list_options = options;
    Kokkos::View<char*, typename Exec::memory_space> const workspace(
        "workspace", gemm_grouped_workspace_size(exec, 1, x.list, 0, options));
    list_options.workspace = workspace.data();
    list_options.workspace_bytes = workspace.size();
    return {{"tessera", [=] { gemm_grouped(exec, 1, x.a, x.b, x.offsets, 0, x.c, options); }},
            {"list", [=, keep = workspace] { gemm_grouped(exec, 1, x.list, 0, list_options); }},
            {"one_product", [=] { gemm(exec, 1, x.a, b, 0, x.c, options); }}};
  };
  return c;
}

}  // namespace tessera::perf

#endif
