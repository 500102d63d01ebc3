// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <tessera/rowwise/normalization_backward.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr auto start_packed = [](auto const& problem, detail::TileGrid const& grid) {
  return detail::start_packed_norm_backward(Warps{}, problem, grid);
};

/// Starts the kernel of rows that teams on all multiprocessors of a GPU share by mail, so many of which wait: here by
/// few teams, which reach each other's scratch.
template <class T, bool Adds>
auto start_mailed(int teams, int groups, int ahead) {
  return [=](auto const& problem, detail::TileGrid const& grid) {
    using Kernel = detail::RelayedNormBackward<Warps, T, detail::MailedGradientRows<Warps, T, Adds>>;
    return detail::start_relayed_norm_backward<Kernel>(Warps{}, problem, grid, [&](Kernel const& kernel, int) {
      detail::RelayLayout layout{.teams = teams, .groups = groups, .ahead = ahead};
      layout.part = detail::part_of_team(kernel.grid.packs, teams);
      REQUIRE(layout.part <= Kernel::Rows::most_packs);
      layout.stages = layout.ahead + Kernel::Rows::on_their_way;
      return layout;
    });
  };
}

template <class T, class W = float, class Start = decltype(start_packed)>
void check_norm(std::size_t rows, std::size_t n, bool adds = true, Start const& start = start_packed) {
  CAPTURE(rows);
  CAPTURE(n);
  CAPTURE(adds);
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_sum("d_sum", rows, n), d_in("d_in", rows, n),
      expected("expected", rows, n);
  HostView<float*> const mean("mean", rows), rstd("rstd", rows), dw("dw", n), db("db", n),
      expected_dw("expected_dw", n), expected_db("expected_db", n);
  HostView<W*> const weight("weight", n);
  fill(in, uniform<T>(rows * n, 1, -3, 3));
  fill(d_out, uniform<T>(rows * n, 2));
  fill(d_sum, uniform<T>(rows * n, 3));
  fill(mean, uniform<float>(rows, 4));
  fill(rstd, uniform<float>(rows, 5, 0.5, 2));
  fill(weight, uniform<W>(n, 6));
  for (bool centered : {false, true}) {
    Kokkos::View<std::byte*, Kokkos::HostSpace> const workspace("workspace", 64 << 20);
    auto const problem_of = [&](auto const& options) {
      if (centered)
        layer_norm_backward(Host{}, expected, expected_dw, expected_db, d_out, in, mean, rstd, weight, options);
      else
        rms_norm_backward(Host{}, expected, expected_dw, d_out, in, rstd, weight, options);
      return centered
                 ? detail::norm_backward_problem<Host>("", true, d_in, dw, db, d_out, in, mean, rstd, weight, options)
                 : detail::norm_backward_problem<Host>("", false, d_in, dw, none, d_out, in, none, rstd, weight,
                                                       options);
    };
    auto problem = adds ? problem_of(NormBackwardOptions<HostView<T**>>{.d_sum = d_sum, .workspace = workspace})
                        : problem_of(NormBackwardOptions<>{.workspace = workspace});
    problem.workspace = workspace.data();
    problem.workspace_bytes = workspace.size();
    poison(d_in);
    poison(dw);
    poison(db);
    detail::collapse(problem.in, problem.d_in, problem.d_out, problem.mean, problem.rstd, problem.weight,
                     problem.d_sum);
    detail::NormBackwardParts const parts = start(problem, detail::row_grid(problem.in));
    REQUIRE(parts.count > 0);
    if (std::is_same_v<Start, decltype(start_packed)> && n <= 131072 && n % detail::packed_width<T> == 0)
      CHECK(parts.count <= detail::packed_norm_backward_teams<sizeof(T) == 2>(Warps{}, static_cast<std::int64_t>(rows),
                                                                              static_cast<std::int64_t>(n)));
    detail::finish_norm_backward<float>(Warps{}, problem, detail::NormBackwardSums<float>(problem, parts.count), parts);
    CHECK(apart(values(d_in), values(expected), tolerance<T>) == 0);
    CHECK(apart(values(dw), values(expected_dw), 1e-4) == 0);
    if (centered) CHECK(apart(values(db), values(expected_db), 1e-4) == 0);
  }
}

}  // namespace

TEST_CASE("packed rows on warps: gradients of norms") {
  check_norm<bf16_t>(7, 12296);  // shared by two teams, by four
  check_norm<float>(5, 32764);
  check_norm<bf16_t>(45, 12296, false);  // more rows than are relayed at a time
  check_norm<float>(23, 16384, false);
  check_norm<fp16_t>(1, 24000, false);  // by three
  check_norm<bf16_t>(5, 131080);        // more than they share, in strips
  check_norm<float>(150, 8191, false);  // of single elements, by teams that stay
  check_norm<float>(5, 8195);
  check_norm<fp16_t>(3, 9001);
  check_norm<float>(5, 9001);  // and in strips
  check_norm<bf16_t>(5, 10241);
  for (std::size_t n : {8u, 64u, 72u, 512u, 520u, 1032u, 2056u, 4096u, 5120u, 8192u, 10240u}) {
    check_norm<bf16_t>(13, n);
    check_norm<bf16_t>(2, n);
  }
  check_norm<bf16_t>(1000, 64);
  check_norm<float>(301, 44);
  for (std::size_t n : {520u, 1000u, 1024u}) {  // a warp each, all at once
    check_norm<bf16_t, bf16_t>(13, n);
    check_norm<float>(48, n);
    check_norm<float>(1, n);
  }
  for (std::size_t n : {260u, 1028u, 8192u}) check_norm<float>(11, n);
  for (std::size_t n : {7u, 63u, 200u, 1001u}) check_norm<bf16_t>(100, n);  // not of whole packs
  check_norm<bf16_t>(5, 4095);
  check_norm<float>(37, 777);
}

TEST_CASE("packed rows on warps: gradients of norms of rows that wait in scratch and in registers") {
  check_norm<bf16_t>(21, 8 * 2000, true, start_mailed<bf16_t, true>(2, 1, 3));  // more rows than are relayed at a time
  check_norm<bf16_t>(9, 8 * 1700, false, start_mailed<bf16_t, false>(2, 2, 5));
  check_norm<float>(9, 4 * 2020, true, start_mailed<float, true>(2, 2, 2));
  check_norm<float>(19, 4 * 2020, true, start_mailed<float, true>(2, 1, 3));
  check_norm<float>(19, 4 * 2020, false, start_mailed<float, false>(2, 1, 1));
  check_norm<float>(9, 4 * 3030, false, start_mailed<float, false>(3, 2, 2));
  check_norm<fp16_t>(3, 8 * 700, true, start_mailed<fp16_t, true>(3, 2, 3));  // threads without a pack
  check_norm<float>(5, 4 * 700, false, start_mailed<float, false>(3, 2, 2));
}

#endif
