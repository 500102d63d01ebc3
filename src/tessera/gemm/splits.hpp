// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_SPLITS_HPP
#define TESSERA_GEMM_SPLITS_HPP

#include <algorithm>
#include <string>

#include <tessera/error.hpp>
#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm/repack.hpp>
#include <tessera/gemm_plan.hpp>
#include <tessera/launch.hpp>
#include <tessera/machine.hpp>

// A long K where C has few tiles: parts of it are products of their own, whose sums lie in the caller's workspace until
// a second kernel adds them in order.
namespace tessera::detail {

inline std::int64_t gemm_tiles(GemmProblem const& p, std::int64_t bm, std::int64_t bn) {
  return p.batch() * ((p.m() + bm - 1) / bm) * ((p.n() + bn - 1) / bn);
}

/// What products of such factors are summed in.
inline Scalar gemm_sum_type(GemmProblem const& p) {
  return p.a.type == Scalar::int8 ? Scalar::int32 : (p.a.type == Scalar::fp64 ? Scalar::fp64 : Scalar::fp32);
}

/// The sums: planes of one product are neighbours, their rows begin at whole lines of the cache.
inline MatrixStack gemm_split_sums(GemmProblem const& p, int splits, void* at) {
  MatrixStack sums = p.c;
  sums.type = gemm_sum_type(p);
  sums.inner *= splits;
  return repacked(sums, false, at);
}
inline std::size_t gemm_split_bytes(GemmProblem const& p, int splits) {
  return splits == 1 ? 0 : repacked_bytes(gemm_split_sums(p, splits, nullptr), false);
}

/// Splits K of so many steps into as many parts as the caller asks for or as are `wanted`: the latter not where their
/// sums do not fit into what the plan has left of the workspace.
inline void split_gemm(GemmPlan& plan, GemmProblem const& p, GemmOptions const& options, std::int64_t steps,
                       std::int64_t wanted) {
  std::int64_t const asked = options.splits > 0 ? options.splits : wanted;
  auto const splits = static_cast<int>(std::max<std::int64_t>(1, std::min(asked, steps)));
  std::size_t const bytes = plan.workspace_bytes + gemm_split_bytes(p, splits);
  if (splits == 1 || bytes <= options.workspace_bytes) {
    plan.splits = splits;
    plan.workspace_bytes = bytes;
  } else if (options.splits > 0) {
    throw Error(ErrorCode::workspace, "tessera::gemm: options.splits = " + std::to_string(options.splits) + " needs " +
                                          std::to_string(bytes) + " bytes of workspace, options.workspace has " +
                                          std::to_string(options.workspace_bytes));
  }
}

/// What it takes to store and to add them, in clocks of a GPU.
inline double gemm_split_clocks(GemmProblem const& p, int splits) {
  if (splits == 1) return 0;
  double const bytes = static_cast<double>(p.batch() * p.m()) * static_cast<double>(p.n()) *
                       static_cast<double>(size_of(gemm_sum_type(p)));
  return GemmSplitClocks::start + splits * GemmSplitClocks::part + bytes * (splits + 1) * GemmSplitClocks::byte;
}

/// How many parts K has on the cores of a CPU. By the shape alone: the result is the same on any number of cores.
template <class Element>
std::int64_t gemm_splits_of_panels(GemmProblem const& p) {
  using Sizes = GemmSplits<Element>;
  std::int64_t const tiles = gemm_tiles(p, Sizes::rows, Sizes::cols);
  return tiles == 0 || tiles > Sizes::few ? 1 : std::min(Sizes::teams / tiles, p.k() / Sizes::least);
}

/// C = finish(the sum over the parts of K), a tile a step of the scheduler.
template <class Atoms, class Epilogue>
struct GemmSplitSum {
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
  int splits, tile_rows, tile_cols;
  std::int64_t planes;

  GemmSplitSum(GemmProblem const& p, MatrixStack const& from, int splits_of_k, Epilogue const& epilogue)
      : sums(from),
        c(p.c),
        finish(p, epilogue),
        splits(splits_of_k),
        tile_rows(gemm_tile_count(p.m(), BM, 1)),
        tile_cols(gemm_tile_count(p.n(), BN, 1)),
        planes(p.batch()) {}

  std::int64_t tiles() const { return planes * tile_rows * tile_cols; }
  Tile tile(int t) const {
    int const row = t / tile_cols;
    return {{0, row / tile_rows}, std::int64_t(row % tile_rows) * BM, std::int64_t(t % tile_cols) * BN};
  }
  double operations() const { return static_cast<double>(planes * splits * sums.rows * sums.cols); }

  template <class Math>
  void body(Math& math, Tile const& t) const {
    Accumulator acc(math);
    math.sum_of_planes(sums, t.plane.inner * splits, splits, t.row, t.col, acc);
    finish.template operator()<BM, BN>(math, acc, c, t.plane, t.row, t.col);
  }
};

/// The same on wide teams, neighbours in a row a thread. Where there are few, threads of several groups share the
/// parts.
template <class Exec, class Compute, class Epilogue>
struct GemmSplitTeams {
  static constexpr int threads = 128, teams_at_once = 8, most_groups = 16, in_flight = 4;
  static constexpr int width = 16 / static_cast<int>(sizeof(Compute));
  static constexpr bool starts_early = true;
  using Values = Pack<Compute, width>;

  MatrixStack sums;
  Finish<Compute, Epilogue> finish;
  int splits, groups, a_group;  // parts, groups that share them, and threads of one
  std::int64_t packs_a_row, packs;

  GemmSplitTeams(Exec const& exec, GemmProblem const& p, MatrixStack const& from, int splits_of_k,
                 Epilogue const& epilogue)
      : sums(from),
        finish(p, epilogue),
        splits(splits_of_k),
        groups(1),
        packs_a_row((p.n() + width - 1) / width),
        packs(p.batch() * p.m() * packs_a_row) {
    std::int64_t const at_once = std::int64_t{teams_at_once} * threads * Machine<Exec>::concurrency(exec);
    while (groups < most_groups && 4 * groups <= splits && 2 * packs * groups <= at_once) groups *= 2;
    a_group = threads / groups;
  }
  std::int64_t teams() const { return (packs + a_group - 1) / a_group; }
  KOKKOS_FUNCTION std::size_t scratch() const { return groups == 1 ? 0 : threads * sizeof(Values); }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    // What comes next may be a product, whose teams would start one by one where these end and not side by side, as
    // they read: 64 x 128 tiles of 128x4096x16384 44 -> 50 us.
    wait_for_kernels_before<Exec>();
    int const thread = thread_of<Exec>(team), group = thread / a_group, in_group = thread - group * a_group;
    std::int64_t rest = std::int64_t{team.league_rank()} * a_group + in_group;
    bool const inside = rest < packs;
    std::int64_t const col = take_remainder(rest, packs_a_row) * width, row = take_remainder(rest, sums.rows);
    Values sum = {};
    if (inside)
      add_parts(static_cast<Compute const*>(sums.data) + sums.offset({0, rest * splits}, row, col), group, sum);
    if (groups > 1) {
      auto* const room = static_cast<Values*>(team.team_scratch(0).get_shmem_aligned(scratch(), sizeof(Values)));
      room[thread] = sum;
      team.team_barrier();
      if (group > 0) return;
      for (int g = 1; g < groups; ++g) add(sum, room[g * a_group + in_group]);
    }
    if (inside) store(sum, {0, rest}, row, col);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION static void add(Values& sum, Values const& x) {
    unroll<width>([&](auto j) TESSERA_INLINE_LAMBDA { sum[j] += x[j]; });
  }
  /// A group's parts, several of which are on their way at a time.
  KOKKOS_FORCEINLINE_FUNCTION void add_parts(Compute const* at, int part, Values& sum) const {
    std::int64_t const step = groups * sums.inner_stride;
    at += part * sums.inner_stride;
    for (; part < splits; part += in_flight * groups, at += in_flight * step) {
      Values read[in_flight];
      unroll<in_flight>([&](auto i) TESSERA_INLINE_LAMBDA {
        read[i] = part + i * groups < splits ? load_pack<width>(at + i * step) : Values{};
      });
      unroll<in_flight>([&](auto i) TESSERA_INLINE_LAMBDA { add(sum, read[i]); });
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void store(Values const& sum, Plane plane, std::int64_t row, std::int64_t col) const {
    std::int64_t const left = sums.cols - col, at = finish.c.offset(plane, row, col);
    unroll<width>([&](auto j) TESSERA_INLINE_LAMBDA {
      if (j < left) write(finish.c, at + j * finish.c.col_stride, finish.element(sum[j], plane, row, col + j));
    });
  }
};

template <class Exec, class Compute, class Epilogue>
void add_gemm_splits(Exec const& exec, GemmProblem const& p, MatrixStack const& sums, int splits,
                     Epilogue const& epilogue) {
  if constexpr (Machine<Exec>::is_host) {
    using Atoms = RegisterAtoms<Exec, Compute, GemmSplitSumSizes<Compute>>;
    run_tiles<Atoms>("tessera::gemm", exec, GemmSplitSum<Atoms, Epilogue>(p, sums, splits, epilogue));
  } else {
    using Teams = GemmSplitTeams<Exec, Compute, Epilogue>;
    Teams const kernel(exec, p, sums, splits, epilogue);
    launch<Teams::threads, Teams::teams_at_once>("tessera::gemm", exec, kernel.teams(), kernel.scratch(), kernel);
  }
}

}  // namespace tessera::detail

#endif
