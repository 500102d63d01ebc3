// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_SLICES_HPP
#define TESSERA_GEMM_SLICES_HPP

#include <algorithm>

#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/machine.hpp>

// A long K on the cores of a CPU: slices of it are products of their own, whose sums lie in the caller's workspace
// until a second kernel adds them.
namespace tessera::detail {

inline std::int64_t gemm_tiles(GemmProblem const& p, std::int64_t bm, std::int64_t bn) {
  return p.batch() * ((p.m() + bm - 1) / bm) * ((p.n() + bn - 1) / bn);
}

/// How many slices K has when there is a workspace. By the shape alone: the result is the same on any number of cores.
template <class Element>
int gemm_slices(GemmProblem const& p) {
  using Sizes = GemmSlices<Element>;
  std::int64_t const tiles = gemm_tiles(p, Sizes::rows, Sizes::cols);
  if (tiles == 0 || tiles > Sizes::few) return 1;
  return static_cast<int>(std::max<std::int64_t>(1, std::min(Sizes::teams / tiles, p.k() / Sizes::least)));
}

/// Their sums: the planes of one product are neighbours.
template <class Compute>
MatrixStack gemm_slice_sums(GemmProblem const& p, int slices) {
  return {p.workspace, scalar_of<Compute>, p.m(), p.n(), p.n(), 1, 1, p.batch() * slices, 0, p.m() * p.n()};
}
template <class Compute>
std::size_t gemm_slice_bytes(GemmProblem const& p, int slices) {
  return slices == 1 ? 0 : static_cast<std::size_t>(p.batch() * slices * p.m() * p.n()) * sizeof(Compute);
}

/// C = finish(the sum over the slices), a tile a step of the scheduler, slices in their order.
template <class Atoms, class Epilogue>
struct GemmSliceSum {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN;
  using Compute = typename Atoms::Compute;
  struct Tile {
    Plane plane;
    std::int64_t row, col;
  };
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;
  using Inputs = Streams<>;
  using Held = Fragments<Accumulator>;

  typename Atoms::Source sums;
  typename Atoms::Target c;
  Finish<Compute, Epilogue> finish;
  int slices, tile_rows, tile_cols;
  std::int64_t planes;

  GemmSliceSum(GemmProblem const& p, int slices_of_k, Epilogue const& epilogue)
      : sums(gemm_slice_sums<Compute>(p, slices_of_k)),
        c(p.c),
        finish(p, epilogue),
        slices(slices_of_k),
        tile_rows(gemm_tile_count(p.m(), BM, 1)),
        tile_cols(gemm_tile_count(p.n(), BN, 1)),
        planes(p.batch()) {}

  std::int64_t tiles() const { return planes * tile_rows * tile_cols; }
  Tile tile(int t) const {
    int const row = t / tile_cols;
    return {{0, row / tile_rows}, std::int64_t(row % tile_rows) * BM, std::int64_t(t % tile_cols) * BN};
  }
  double operations() const { return static_cast<double>(planes * slices * sums.rows * sums.cols); }

  template <class Math>
  void body(Math& math, Tile const& t) const {
    Accumulator acc(math);
    math.sum_of_planes(sums, t.plane.inner * slices, slices, t.row, t.col, acc);
    finish.template operator()<BM, BN>(math, acc, c, t.plane, t.row, t.col);
  }
};

}  // namespace tessera::detail

#endif
