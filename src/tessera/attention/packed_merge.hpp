// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PACKED_MERGE_HPP
#define TESSERA_ATTENTION_PACKED_MERGE_HPP

#include <cstdint>

#include <tessera/attention_merge.hpp>
#include <tessera/elementary.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// A row of O from partial results in fp32, as those of split keys are: by a warp, in packs. Where a row is comes
/// before the wait for the kernel that makes the parts, and of what follows there is little: a multiprocessor takes
/// some five clocks for every instruction that it runs for the first time.
template <class Exec, class Out, int Packs>
struct PackedMerge {
  using Atoms = WarpAtoms<Exec>;
  using Values = Pack<float, 4>;
  static constexpr int threads = 128, warps = threads / 32, width = Values::size;
  static constexpr int ahead = 16 / Packs;  // parts on their way at a time
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;
  static constexpr bool starts_early = true;

  TileGrid grid;
  Operand out, lse, part, part_lse;
  std::int64_t stride, lse_stride;
  int count;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const lane = Atoms::thread() % 32;
    std::int64_t const row = std::int64_t{team.league_rank()} * warps + Atoms::thread() / 32;
    bool const exists = row < grid.tiles();
    TileIndex const at = tile_index(grid, exists ? row : 0);
    Row const from{static_cast<float const*>(part.data) + part.offset(grid, at),
                   static_cast<float const*>(part_lse.data) + part_lse.value_offset(at), lane,
                   static_cast<int>(grid.columns)};
    Out* const to = static_cast<Out*>(const_cast<void*>(out.data)) + out.offset(grid, at);
    float* const to_lse =
        lse.present() ? static_cast<float*>(const_cast<void*>(lse.data)) + lse.value_offset(at) : nullptr;
    wait_for_kernels_before<Exec>(true);  // attention may follow, whose teams have barriers and maps to make first
    if (exists) merge(from, to, to_lse);
  }

 private:
  struct Row {
    float const *part, *lse;  // of the first part
    int lane, columns;

    KOKKOS_FORCEINLINE_FUNCTION int column(int pack) const { return (pack * 32 + lane) * width; }
  };

  /// Packs beside the row are read from its beginning in vain: without a branch all are on their way at once. So are
  /// parts behind the last.
  KOKKOS_FORCEINLINE_FUNCTION void read(Row const& row, int first, Values (&y)[ahead][Packs]) const {
    unroll<ahead>([&](auto i) {
      float const* const part_row = row.part + (first + i < count ? first + i : count - 1) * stride;
      unroll<Packs>(
          [&](auto k) { y[i][k] = load_pack<4>(part_row + (row.column(k) < row.columns ? row.column(k) : 0)); });
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION void merge(Row const& row, Out* to, float* to_lse) const {
    auto const lse_of = [&](int t) { return t < count ? row.lse[t * lse_stride] : lowest; };
    float const mine = lse_of(row.lane);
    Values y[ahead][Packs], sum[Packs];
    read(row, 0, y);
    float top = Larger{}(lowest, mine);
    for (int t = row.lane + 32; t < count; t += 32) top = Larger{}(top, lse_of(t));
    top = Atoms::template join<32>(top, Larger{});
    if (top == lowest) top = 0;  // nothing but -Inf and NaN: the weights are 0 and NaN
    float total = 0;
    unroll<Packs>([&](auto k) {
      for (int j = 0; j < width; ++j) sum[k][j] = 0;
    });
    for (int begin = 0; begin < count; begin += 32) {
      float const weight = exp_below((begin == 0 ? mine : lse_of(begin + row.lane)) - top);
      total += weight;
      for (int i = 0; i < 32 && begin + i < count; i += ahead) {
        if (begin + i > 0) read(row, begin + i, y);
        unroll<ahead>([&](auto j) {
          float const w = Atoms::of_lane(weight, i + j);
          unroll<Packs>([&](auto k) {
            for (int e = 0; e < width; ++e) sum[k][e] = w == 0 ? sum[k][e] : sum[k][e] + w * y[j][k][e];
          });
        });
      }
    }
    total = Atoms::template join<32>(total, Add{});
    float const factor = total == 0 ? 0.0f : 1.0f / total;
    unroll<Packs>([&](auto k) {
      for (int e = 0; e < width; ++e) sum[k][e] *= factor;
      if (row.column(k) < row.columns) store_pack(to + row.column(k), Atoms::template narrowed<Out>(sum[k]));
    });
    if (to_lse != nullptr && row.lane == 0) *to_lse = total == 0 ? lowest : top + Kokkos::log(total);
  }
};

/// Whether it was one of parts of fp32 in packs, none of the caller's own, and has been started.
template <class Exec>
bool start_packed_merge(Exec const& exec, MergeProblem problem) {
  using Space = KernelSpace<Exec>;
  if (problem.own.present() || problem.part.type != Scalar::fp32 || problem.out.type == Scalar::fp64) return false;
  collapse(problem.out, problem.lse, problem.part, problem.part_lse);
  TileGrid const grid = row_grid(problem.out);
  auto const rows = [&](RowArray const& a) { return operand(a, grid, 4, true); };
  Operand const out = rows(problem.out), part = rows(problem.part);
  bool const packed = out.packed && part.packed && problem.stride % 4 == 0 && grid.columns % 4 == 0;
  if (!packed || grid.columns > 256 || problem.count == 0) return false;
  TypeList<bf16_t, fp16_t, float>::visit_on_host(out.type, [&](auto tag) {
    auto const start = [&](auto packs) {
      using Kernel = PackedMerge<Space, typename decltype(tag)::type, decltype(packs)::value>;
      launch<Kernel::threads>("tessera::merge_attention", exec, (grid.tiles() + Kernel::warps - 1) / Kernel::warps, 0,
                              Kernel{grid, out, rows(problem.lse), part, rows(problem.part_lse), problem.stride,
                                     problem.lse_stride, problem.count});
    };
    grid.columns <= 128 ? start(std::integral_constant<int, 1>{}) : start(std::integral_constant<int, 2>{});
  });
  return true;
}

}  // namespace tessera::detail

#endif
