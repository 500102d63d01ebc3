// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_KERNEL_HPP
#define TESSERA_GEMM_KERNEL_HPP

#include <tessera/atoms.hpp>
#include <tessera/gemm/problem.hpp>

namespace tessera::detail {

/// Tiles of `rows` rows over m of them, a multiple of `together`: the last may lie outside.
constexpr int gemm_tile_rows(std::int64_t m, int rows, int together) {
  return static_cast<int>((m + std::int64_t(rows) * together - 1) / (std::int64_t(rows) * together)) * together;
}

/// Elements along an index that share a scale.
inline constexpr int block_extent = 128;
constexpr std::int64_t block_count(std::int64_t extent) { return (extent + block_extent - 1) / block_extent; }

/// A scale for every 128 elements of a row of A, and for every square of 128 x 128 of B.
struct BlockScales {
  MatrixStack a, b;  // (M, K / 128) and (N / 128, K / 128), fp32

  KOKKOS_FORCEINLINE_FUNCTION float row(Plane plane, std::int64_t row, std::int64_t block) const {
    return row < a.rows ? static_cast<float const*>(a.data)[a.offset(plane, row, block)] : 0.f;
  }
  /// Of the block that holds column `col`.
  KOKKOS_FORCEINLINE_FUNCTION float column(Plane plane, std::int64_t col, std::int64_t block) const {
    std::int64_t const at = col / block_extent;
    return at < b.rows ? static_cast<float const*>(b.data)[b.offset(plane, at, block)] : 0.f;
  }
};
struct Unscaled {};

/// acc = the sum over the steps of a tile.
template <class Math, class In, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void gemm_sum(Math& math, int steps, In& in, Accumulator& acc) {
  for (int k = 0; k < steps; ++k) {
    auto const& s = in.acquire();
    math.multiply(s.a, s.b, acc, k > 0);
    math.template wait_all_but<1>(acc);  // the products of the step before are done: give its stage back
    if (k > 0) in.release();
  }
  math.template wait_all_but<0>(acc);
  in.release();
}

/// The same for tensor cores whose own accumulator keeps fewer bits than fp32.
template <class Math, class In, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void gemm_promoted_sum(Math& math, int steps, In& in, Accumulator& acc) {
  Accumulator part(math);
  math.clear(acc);
  for (int k = 0; k < steps; ++k) {
    auto const& s = in.acquire();
    math.turn([&] {
      math.multiply(s.a, s.b, part, false);
      math.template wait_all_but<0>(part);
    });
    in.release();
    math.add(part, acc);
  }
}

/// Tile r of a matrix, (row, column) in tiles: all tiles of a few rows of tiles before the next rows, so that what runs
/// at the same time shares tiles of A and B in cache.
struct TilePlace {
  int row, col;
};
KOKKOS_FORCEINLINE_FUNCTION TilePlace gemm_tile_place(int r, int tile_rows, int tile_cols) {
  constexpr int group_rows = 16;  // 8 loses 3 % at 4096³ bf16 on an H200
  int const per_group = (tile_rows < group_rows ? tile_rows : group_rows) * tile_cols, group = r / per_group,
            in_group = r - group * per_group;
  int const rest = tile_rows - group * group_rows, rows = rest < group_rows ? rest : group_rows, col = in_group / rows;
  return {group * group_rows + in_group - col * rows, col};
}

/// C(M,N) = finish(A(M,K) B(N,K)ᵀ), a tile of C a step of the scheduler. One text for every machine and every type: a
/// tile is (BM, BN), its mainloop goes through K in steps of BK, and the products of one step run while the next is
/// awaited. Where there are too few tiles for the machine, `slices` teams share one along K. Where `multicast` is 2,
/// neighbouring teams work on tiles of one column, one above the other, and may load its B together. With BlockScales,
/// what a block of K gives is multiplied by its scales before it is added.
template <class Atoms, class Epilogue, class Scales = Unscaled>
struct GemmKernel {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, BK = Atoms::BK;
  using Compute = typename Atoms::Compute;

  struct Tile {
    Plane plane;
    std::int64_t row, col;
    int first, steps;  // of K
  };
  struct Stage {
    typename Atoms::template Left<BM, BK> a;   // (BM,BK)
    typename Atoms::template Right<BN, BK> b;  // (BN,BK)
    static constexpr int depth = Atoms::depth;
  };
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Inputs = Streams<Stage>;
  static constexpr bool scaled = std::is_same_v<Scales, BlockScales>;
  using Held = std::conditional_t<scaled, Fragments<Accumulator, Accumulator>, Fragments<Accumulator>>;

  typename Atoms::Source a, b;
  typename Atoms::Target c;
  Finish<Compute, Epilogue> finish;
  int tile_rows, tile_cols, mainloop, slices, multicast;
  std::int64_t planes;
  double flops;
  bool batched_a, batched_b;  // else one matrix serves the whole batch
  Scales scales;

  GemmKernel(GemmProblem const& p, Epilogue const& epilogue, int slices_a_tile = 1, int teams_together = 1,
             Scales const& block_scales = {})
      : a(Atoms::template source<typename Atoms::template Left<BM, BK>>(p.a)),
        b(Atoms::template source<typename Atoms::template Right<BN, BK>>(p.b, teams_together)),
        c(Atoms::template target<Accumulator>(p.c)),
        finish(p, epilogue),
        tile_rows(gemm_tile_rows(p.m(), BM, teams_together)),
        tile_cols(static_cast<int>((p.n() + BN - 1) / BN)),
        mainloop(static_cast<int>((p.k() + BK - 1) / BK)),
        slices(slices_a_tile),
        multicast(teams_together),
        planes(p.batch()),
        flops(2.0 * static_cast<double>(p.batch() * p.m()) * static_cast<double>(p.n()) * static_cast<double>(p.k())),
        batched_a(p.a.inner > 1),
        batched_b(p.b.inner > 1),
        scales(block_scales) {
    static_assert(Copies<Atoms, typename Atoms::template Left<BM, BK>> && Multiplies<Atoms, BM, BN, BK>);
  }

  KOKKOS_FUNCTION std::int64_t tiles() const { return planes * tile_rows * tile_cols * slices; }
  KOKKOS_FUNCTION Tile tile(int t) const {
    int slice = 0;
    if (slices > 1) {
      slice = t % slices;
      t /= slices;
    }
    int const per_plane = tile_rows * tile_cols, plane = t / per_plane;
    TilePlace const at = gemm_tile_place(t - plane * per_plane, tile_rows, tile_cols);
    int const first = share(slice);
    return {{0, plane}, std::int64_t(at.row) * BM, std::int64_t(at.col) * BN, first, share(slice + 1) - first};
  }
  double operations() const { return flops; }
  /// Where a slice begins; every slice has a step.
  KOKKOS_FUNCTION int share(int slice) const { return slices == 1 ? slice * mainloop : slice * mainloop / slices; }
  /// Teams when `concurrency` of them run at a time: no more than there are tiles. Those that share a tile work on no
  /// other, since what they send each other needs an idle ring.
  std::int64_t teams(int concurrency) const {
    return slices > 1 || tiles() < concurrency ? tiles() : concurrency / multicast * multicast;
  }

  KOKKOS_FUNCTION int steps(Stage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k) const {
    copy(a, Plane{0, batched_a ? t.plane.inner : 0}, t.row, std::int64_t(t.first + k) * BK, stage.a);
    copy(b, Plane{0, batched_b ? t.plane.inner : 0}, t.col, std::int64_t(t.first + k) * BK, stage.b);
  }

  /// The sum of blocks of K, each times its scales, which are read a block ahead.
  template <class Math, class In>
  KOKKOS_FORCEINLINE_FUNCTION void scaled_sum(Math& math, Tile const& t, In& in, Accumulator& acc) const {
    static_assert(block_extent % BK == 0 && BN % 64 == 0 && AddsScaled<Atoms, BM, BN>);
    constexpr int steps_a_block = block_extent / BK, groups = BN / 64;  // of columns with one scale
    using RowScales = typename Atoms::template RowValues<BM>;
    Plane const plane_a{0, batched_a ? t.plane.inner : 0}, plane_b{0, batched_b ? t.plane.inner : 0};
    auto const read_scales = [&](int block, RowScales& of_rows, Compute(&of_columns)[groups]) {
      math.each_row(of_rows, [&](Compute& x, int row) { x = scales.row(plane_a, t.row + row, block); });
      for (int g = 0; g < groups; ++g) of_columns[g] = scales.column(plane_b, t.col + g * 64, block);
    };
    Accumulator part(math);
    RowScales of_rows(math), next_rows(math);
    Compute of_columns[groups], next_columns[groups];
    int const end = (t.first + t.steps + steps_a_block - 1) / steps_a_block;
    read_scales(t.first / steps_a_block, next_rows, next_columns);
    math.clear(acc);
    for (int k = 0; k < t.steps; ++k) {
      int const in_block = (t.first + k) % steps_a_block, block = (t.first + k) / steps_a_block;
      bool const first = in_block == 0 || k == 0, last = in_block == steps_a_block - 1 || k == t.steps - 1;
      if (first) {
        of_rows = next_rows;
        for (int g = 0; g < groups; ++g) of_columns[g] = next_columns[g];
        if (block + 1 < end) read_scales(block + 1, next_rows, next_columns);
      }
      Stage const& s = in.acquire();
      math.turn([&] {
        math.multiply(s.a, s.b, part, !first);
        math.template wait_all_but<0>(part);
      });
      in.release();
      if (last) math.add_scaled(part, of_rows, of_columns, acc);
    }
  }

  template <class Math, class In>
  KOKKOS_FUNCTION void body(Math& math, Tile const& t, In& in) const {
    Accumulator acc(math);
    if constexpr (scaled)
      scaled_sum(math, t, in, acc);
    else if constexpr (requires { requires Atoms::promotes; })
      gemm_promoted_sum(math, t.steps, in, acc);
    else
      gemm_sum(math, t.steps, in, acc);
    if (!math.join(acc)) return;
    finish.template operator()<BM, BN>(math, acc, t.plane, t.row, t.col);
    math.store(acc, c, t.plane, t.row, t.col);
  }
};

}  // namespace tessera::detail

#endif
