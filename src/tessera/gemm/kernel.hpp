// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_KERNEL_HPP
#define TESSERA_GEMM_KERNEL_HPP

#include <tessera/atoms.hpp>
#include <tessera/gemm/configs.hpp>
#include <tessera/gemm/problem.hpp>
#include <tessera/gemm/tile_order.hpp>
#include <tessera/portable/pack.hpp>

namespace tessera::detail {

/// Tiles of `size` over an extent, a multiple of `together`: the last may lie outside.
constexpr int gemm_tile_count(std::int64_t extent, int size, int together) {
  return static_cast<int>((extent + std::int64_t(size) * together - 1) / (std::int64_t(size) * together)) * together;
}

/// Elements along an index that share a scale.
inline constexpr int block_extent = 128;
constexpr std::int64_t block_count(std::int64_t extent) { return (extent + block_extent - 1) / block_extent; }

/// A scale for every 128 elements of a row of A, and for every square of 128 x 128 of B.
struct BlockScales {
  MatrixStack a, b;  // (M, K / 128) and (N / 128, K / 128), fp32

  /// Where a block's is. Past the last row or column: that of the last, which is as good for what is not stored.
  KOKKOS_FORCEINLINE_FUNCTION float const* row(Plane plane, std::int64_t row, std::int64_t block) const {
    return static_cast<float const*>(a.data) + a.offset(plane, row < a.rows ? row : a.rows - 1, block);
  }
  /// Of the block that holds column `col`.
  KOKKOS_FORCEINLINE_FUNCTION float const* column(Plane plane, std::int64_t col, std::int64_t block) const {
    std::int64_t const at = col / block_extent;
    return static_cast<float const*>(b.data) + b.offset(plane, at < b.rows ? at : b.rows - 1, block);
  }
};
struct Unscaled {};

/// What a product reads at a step.
template <class Atoms>
struct GemmStage {
  typename Atoms::template Left<Atoms::BM, Atoms::BK> a;   // (BM,BK)
  typename Atoms::template Right<Atoms::BN, Atoms::BK> b;  // (BN,BK)
  static constexpr int depth = Atoms::depth;
};

/// Rows and columns of C that a tile has: those of the configuration or, where the atoms take any tile up to that, as
/// many as the plan says.
struct GemmTileExtent {
  int rows, cols;
};
template <class Atoms>
inline constexpr bool sizes_tiles = requires {
  requires Atoms::sizes_tiles;
};
template <class Atoms, bool = sizes_tiles<Atoms>>
struct GemmTile {
  static constexpr int rows_a_tile = Atoms::BM, cols_a_tile = Atoms::BN;
  explicit GemmTile(GemmTileExtent const&) {}
};
template <class Atoms>
struct GemmTile<Atoms, true> {
  int rows_a_tile, cols_a_tile;
  explicit GemmTile(GemmTileExtent const& e) : rows_a_tile(e.rows), cols_a_tile(e.cols) {}
};

/// acc = the sum over the steps of a tile, of which there may be none where that is said.
template <bool MayBeEmpty = false, class Math, class In, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void gemm_sum(Math& math, int steps, In& in, Accumulator& acc) {
  if constexpr (requires { math.begin(acc); }) math.begin(acc);
  for (int k = 0; k < steps; ++k) {
    auto const& s = in.acquire();
    math.multiply(s.a, s.b, acc, k > 0);
    math.template wait_all_but<1>(acc);  // the products of the step before are done: give its stage back
    if (k > 0) in.release();
  }
  math.template wait_all_but<0>(acc);
  if (!MayBeEmpty || steps > 0) in.release();
}

/// How what a step gives is added to acc, which gemm_promoted_sum() is told: add<Col, Slot>() when the products of the
/// columns from Col on are done, renew<Slot>() when all of them are added. Of the steps of a call of
/// gemm_promoted_steps() every second has slot 0, the others 1. This one scales nothing.
struct AsItIs {
  template <int Col, int Slot, class Math, class Part, class Accumulator>
  KOKKOS_FORCEINLINE_FUNCTION void add(Math& math, Part const& part, Accumulator& acc) const {
    math.template add<Col>(part, acc);
  }
  template <int Slot, class Math>
  KOKKOS_FORCEINLINE_FUNCTION void renew(Math&) {}
};

/// Steps of a sum whose products are added outside of the tensor cores, Atoms::part_columns at a time. Within a call
/// one part is multiplied while the one before is added; between two calls nothing is under way.
template <class Atoms, int Steps, int N, class Math, class In, class Addition, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void gemm_promoted_steps(Math& math, In& in, Addition& addition, Accumulator& acc) {
  constexpr int width = Atoms::part_columns, pieces = N / width, count = Steps * pieces;
  using Part = typename Atoms::template Accumulator<Atoms::BM, width>;
  using Stage = std::remove_cvref_t<decltype(in.acquire())>;
  Part even(math), odd(math);
  Stage const* stage = nullptr;
  auto const finish = [&](auto turn, auto newer) TESSERA_INLINE_LAMBDA {
    constexpr int piece = turn % pieces;
    Part& part = turn % 2 == 0 ? even : odd;
    math.template wait_for<newer>(part);
    if (piece == pieces - 1) in.release();
    addition.template add<piece * width, turn / pieces % 2>(math, part, acc);
    if constexpr (piece == pieces - 1) addition.template renew<turn / pieces % 2>(math);
  };
  unroll<count>([&](auto turn) TESSERA_INLINE_LAMBDA {
    if constexpr (turn % pieces == 0) stage = &in.acquire();
    math.multiply(stage->a, stage->b, turn % 2 == 0 ? even : odd, false, turn % pieces * width);
    if constexpr (turn > 0) finish(Constant<turn - 1>{}, Constant<1>{});
  });
  finish(Constant<count - 1>{}, Constant<0>{});
}

/// The sum on tensor cores whose own accumulator keeps fewer bits than fp32: each step is added in fp32.
template <class Atoms, int N, class Math, class In, class Addition, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void gemm_promoted_sum(Math& math, int steps, In& in, Addition& addition,
                                                   Accumulator& acc) {
  constexpr int width = Atoms::part_columns, together = Atoms::steps_together;
  math.clear(acc);
  int k = 0;
  if constexpr (together > 1) {
    static_assert(together % 2 == 0);
    for (; k + together <= steps; k += together) gemm_promoted_steps<Atoms, together, N>(math, in, addition, acc);
    for (; k + 2 <= steps; k += 2) gemm_promoted_steps<Atoms, 2, N>(math, in, addition, acc);  // both slots
    if (k < steps) gemm_promoted_steps<Atoms, 1, N>(math, in, addition, acc);
  } else {  // there are registers for one part
    typename Atoms::template Accumulator<Atoms::BM, width> part(math);
    for (; k < steps; ++k) {
      auto const& s = in.acquire();
      unroll<N / width>([&](auto piece) {
        math.multiply(s.a, s.b, part, false, piece * width);
        math.template wait_for<0>(part);
        if (piece == N / width - 1) in.release();
        addition.template add<piece * width, 0>(math, part, acc);
        if (piece == N / width - 1) addition.template renew<0>(math);
      });
    }
  }
}

/// Every step, a block of K, times its scales. They are read when those of the step `slots` before have been used.
template <class Atoms, int N>
struct StepScales {
  static constexpr int groups = N / 64;  // of columns with one scale
  static constexpr int slots = [] {      // that steps of a call of gemm_promoted_steps() take turns at
    if constexpr (requires { Atoms::steps_together; })
      return Atoms::steps_together > 1 ? 2 : 1;
    else
      return 1;
  }();
  static_assert(slots <= 2);
  template <class T>
  using Rows = typename Atoms::template RowValues<Atoms::BM, T>;
  using Compute = typename Atoms::Compute;
  struct Slot {
    Rows<Compute> rows;
    Compute columns[groups];
    template <class Math>
    KOKKOS_FORCEINLINE_FUNCTION explicit Slot(Math& math) : rows(math) {}
  };

  std::int64_t row_step, column_step;
  int left;  // blocks that have not been read
  Rows<float const*> rows_at;
  float const* columns_at[groups];
  Slot slot[2];

  /// For `blocks` of them from `block` on.
  template <class Math>
  KOKKOS_FORCEINLINE_FUNCTION StepScales(Math& math, BlockScales const& scales, Plane a, Plane b, std::int64_t row,
                                         std::int64_t col, int block, int blocks)
      : row_step(scales.a.col_stride),
        column_step(scales.b.col_stride),
        left(blocks),
        rows_at(math),
        slot{Slot(math), Slot(math)} {
    math.each_row(rows_at, [&](float const*& at, int i) TESSERA_INLINE_LAMBDA { at = scales.row(a, row + i, block); });
    for (int g = 0; g < groups; ++g) columns_at[g] = scales.column(b, col + g * 64, block);
    renew<0>(math);
    if constexpr (slots > 1) renew<1>(math);
  }
  template <int Col, int At, class Math, class Part, class Accumulator>
  KOKKOS_FORCEINLINE_FUNCTION void add(Math& math, Part const& part, Accumulator& acc) const {
    math.template add_scaled<Col>(part, slot[At].rows, slot[At].columns, acc);
  }
  /// Behind the last block it is read again.
  template <int At, class Math>
  KOKKOS_FORCEINLINE_FUNCTION void renew(Math& math) {
    static_assert(At < slots);
    Slot& s = slot[At];
    bool const more = --left > 0;
    math.for_rows(
        [&](Compute& x, float const*& at) TESSERA_INLINE_LAMBDA {
          x = *at;
          at += more ? row_step : 0;
        },
        s.rows, rows_at);
    for (int g = 0; g < groups; ++g)
      if (N % block_extent == 0 && g % 2 == 1) {  // of the same block as the group before
        s.columns[g] = s.columns[g - 1];
      } else {
        s.columns[g] = *columns_at[g];
        columns_at[g] += more ? column_step : 0;
      }
  }
};

/// A factor as its tiles are copied, and the bytes that a tile's copies bring where the atoms tell.
template <class Atoms, class Tile>
typename Atoms::Source gemm_source(MatrixStack const& m, int teams_together = 1) {
  if constexpr (requires { Atoms::template clipped_source<Tile>(m); })
    return Atoms::template clipped_source<Tile>(m, teams_together);
  else
    return Atoms::template source<Tile>(m, teams_together);
}
template <class Atoms, class Tile>
int gemm_copied_bytes(MatrixStack const& m, int teams_together = 1) {
  if constexpr (requires { Atoms::template copied_bytes<Tile>(m); })
    return Atoms::template copied_bytes<Tile>(m, teams_together);
  else
    return static_cast<int>(sizeof(Tile));
}

/// The last tiles of both factors, for atoms that copy them without what is not there. To fill it is slow work for a
/// copy engine, and all teams that do so wait for the same lines of the cache.
template <class Atoms>
concept CutsTiles = requires {
  requires Atoms::cuts_tiles;
};
template <class Atoms, bool = CutsTiles<Atoms>>
struct GemmEdges {
  GemmEdges(MatrixStack const&, MatrixStack const&, Cluster const&) {}
};
template <class Atoms>
struct GemmEdges<Atoms, true> {
  typename Atoms::template Edge<typename Atoms::template Left<Atoms::BM, Atoms::BK>> a;
  typename Atoms::template Edge<typename Atoms::template Right<Atoms::BN, Atoms::BK>> b;
  GemmEdges(MatrixStack const& left, MatrixStack const& right, Cluster const& together)
      : a(left, together.cols, together.rows), b(right, together.rows, together.cols) {}
};

/// Whether a factor's tiles are copied faster when none hangs over an edge.
template <class Atoms, class Tile>
bool gemm_follows(typename Atoms::Source const& source) {
  if constexpr (requires { Atoms::template follows<Tile>(source); })
    return Atoms::template follows<Tile>(source);
  else
    return false;
}

/// Where tiles along an extent begin at the latest: the last one where it ends with the matrix, if they may begin
/// anywhere, else `extent`, which holds none back. Elements that it shares with the one before are then stored twice,
/// the same both times.
template <class Atoms, class Tile>
std::int64_t gemm_last_tile(typename Atoms::Source const& source, std::int64_t extent, int size, bool stores_twice) {
  if constexpr (requires { Atoms::template begins_anywhere<Tile>(source); })
    if (stores_twice && extent >= size && Atoms::template begins_anywhere<Tile>(source)) return extent - size;
  return extent;
}

/// C(M,N) = finish(A(M,K) B(N,K)ᵀ), a tile of C a step of the scheduler. One text for every machine and every type: a
/// tile is (BM, BN), its mainloop goes through K in steps of BK, and the products of one step run while the next is
/// awaited. Where there are too few tiles for the machine, `slices` teams share one along K, or K is split and the sums
/// of its parts are planes of C of their own. Or the teams of a cluster work on neighbouring tiles and may load what
/// they both need together. With BlockScales, what a block of K gives is multiplied by its scales before it is added.
template <class Atoms, class Epilogue, class Scales = Unscaled>
struct GemmKernel : GemmTile<Atoms> {
  static constexpr int BM = Atoms::BM, BN = Atoms::BN, BK = Atoms::BK;
  static constexpr bool places_tiles_ahead = true;
  static constexpr bool shares = requires { Atoms::multicast; };  // teams may share a tile or what they load
  static constexpr bool may_begin_anywhere = requires(typename Atoms::Source const& source) {
    Atoms::template begins_anywhere<typename Atoms::template Left<BM, BK>>(source);
  };
  static constexpr bool may_rehearse = !own_epilogue<Epilogue> && requires { requires Atoms::rehearses; };
  using Compute = typename Atoms::Compute;
  using GemmTile<Atoms>::rows_a_tile;
  using GemmTile<Atoms>::cols_a_tile;

  struct Tile {
    Plane plane;  // of C
    std::int64_t row, col;
    int left, right;   // the planes of A and B
    int first, steps;  // of K
  };
  using Stage = GemmStage<Atoms>;
  using Accumulator = typename Atoms::template Accumulator<BM, BN>;  // (BM,BN)
  using Inputs = Streams<Stage>;
  static constexpr bool scaled = std::is_same_v<Scales, BlockScales>;
  using Held = std::conditional_t<scaled, Fragments<Accumulator, Accumulator>, Fragments<Accumulator>>;

  typename Atoms::Source a, b;
  typename Atoms::Target c;
  Finish<Compute, Epilogue> finish;
  int tile_rows, tile_cols, mainloop, slices;
  Cluster cluster;
  Divisor a_plane, a_tile;  // clusters' tiles in a plane, teams in one
  Divisor splits;           // planes of C with sums of the same product
  int a_split, longer;      // steps of K in one; the first ones have one more
  TileOrder order;
  std::int64_t planes;
  double flops;
  std::int64_t last_row, last_col;  // where tiles begin at the latest
  bool whole_tiles;                 // none hangs over an edge of C, and atoms that care may know it
  bool batched_a, batched_b;        // else one matrix serves the whole batch
  int stage_bytes;                  // that copies bring
  GemmEdges<Atoms> edges;
  Scales scales;

  GemmKernel(GemmProblem const& p, Epilogue const& epilogue, int slices_a_tile = 1, Cluster const& together = {},
             Scales const& block_scales = {}, GemmTileExtent const& extent = {BM, BN}, int splits_of_k = 1)
      : GemmTile<Atoms>(extent),
        a(gemm_source<Atoms, typename Atoms::template Left<BM, BK>>(p.a, together.cols)),
        b(gemm_source<Atoms, typename Atoms::template Right<BN, BK>>(p.b, together.rows)),
        c(Atoms::template target<Accumulator>(p.c)),
        finish(p, epilogue),
        tile_rows(gemm_tile_count(p.m(), rows_a_tile, together.rows)),
        tile_cols(gemm_tile_count(p.n(), cols_a_tile, together.cols)),
        mainloop(static_cast<int>((p.k() + BK - 1) / BK)),
        slices(slices_a_tile),
        cluster(together),
        a_plane(tile_rows * tile_cols / together.teams()),
        a_tile(slices_a_tile * together.teams()),
        splits(splits_of_k),
        a_split(mainloop / splits_of_k),
        longer(mainloop % splits_of_k),
        order(tile_rows / together.rows, tile_cols / together.cols, together.rows),
        planes(p.batch()),
        flops(2.0 * static_cast<double>(p.batch() / splits_of_k * p.m()) * static_cast<double>(p.n()) *
              static_cast<double>(p.k())),
        last_row(gemm_last_tile<Atoms, typename Atoms::template Left<BM, BK>>(a, p.m(), BM, stores_twice(p))),
        last_col(gemm_last_tile<Atoms, typename Atoms::template Right<BN, BK>>(b, p.n(), BN, stores_twice(p))),
        whole_tiles((p.m() % BM == 0 || last_row < p.m()) && (p.n() % BN == 0 || last_col < p.n()) &&
                    gemm_follows<Atoms, typename Atoms::template Left<BM, BK>>(a) &&
                    gemm_follows<Atoms, typename Atoms::template Right<BN, BK>>(b)),
        batched_a(p.a.inner > 1),
        batched_b(p.b.inner > 1),
        stage_bytes(gemm_copied_bytes<Atoms, typename Atoms::template Left<BM, BK>>(p.a, together.cols) +
                    gemm_copied_bytes<Atoms, typename Atoms::template Right<BN, BK>>(p.b, together.rows)),
        edges(p.a, p.b, together),
        scales(block_scales) {
    static_assert(Copies<Atoms, typename Atoms::template Left<BM, BK>> && Multiplies<Atoms, BM, BN, BK>);
    if constexpr (may_begin_anywhere)
      if (last_col < p.n()) Atoms::begin_anywhere(c);
  }

  /// Whether no two teams should be on one multiprocessor, of which there are so many.
  bool apart(int concurrency) const requires may_begin_anywhere {
    return gemm_teams_apart<Atoms>(tiles(), concurrency);
  }
  /// Whether an element of C may be stored by two teams.
  static bool stores_twice(GemmProblem const& p) { return !own_epilogue<Epilogue> && p.beta == 0; }

  KOKKOS_FUNCTION std::int64_t tiles() const { return planes * tile_rows * tile_cols * slices; }
  KOKKOS_FUNCTION Tile tile(int t) const {
    int const whole = shares ? t / a_tile : t, plane = whole / a_plane, factors = plane / splits;
    int const split = plane - factors * static_cast<int>(splits);
    TilePlace at = order(whole - plane * static_cast<int>(a_plane));
    int first = split * a_split + (split < longer ? split : longer), steps = a_split + (split < longer ? 1 : 0);
    if constexpr (shares) {
      int const team = t - whole * static_cast<int>(a_tile);
      if (slices > 1) {
        int const begin = team * steps / a_tile, end = (team + 1) * steps / a_tile;
        first += begin, steps = end - begin;
      } else {
        at.row = at.row * cluster.rows + cluster.row(team);
        at.col = at.col * cluster.cols + cluster.col(team);
      }
    }
    std::int64_t row = std::int64_t(at.row) * rows_a_tile, col = std::int64_t(at.col) * cols_a_tile;
    if constexpr (may_begin_anywhere) {
      row = row < last_row ? row : last_row;
      col = col < last_col ? col : last_col;
    }
    return {{0, plane}, row, col, batched_a ? factors : 0, batched_b ? factors : 0, first, steps};
  }
  double operations() const { return flops; }
  /// Whether a tile without steps may go through the body, of which what the copy engine stores is then held back.
  KOKKOS_FUNCTION bool rehearses() const requires may_rehearse {
    return c.staged && finish.beta == Compute(0) && slices == 1;
  }
  /// Teams when `concurrency` of them run at a time: no more than there are tiles. Those that share a tile work on no
  /// other, since what they send each other needs an idle ring.
  std::int64_t teams(int concurrency) const {
    return slices > 1 || tiles() < concurrency ? tiles() : concurrency / cluster.teams() * cluster.teams();
  }

  KOKKOS_FUNCTION int steps(Stage const*, Tile const& t) const { return t.steps; }
  template <class Copy>
  KOKKOS_FUNCTION void announce(Copy const& copy) const {
    copy.announce(a);
    copy.announce(b);
    if constexpr (CutsTiles<Atoms>) {
      if (edges.a.hangs) copy.announce(edges.a.part);
      if (edges.b.hangs) copy.announce(edges.b.part);
    }
  }
  /// Whether tiles hang over edges, and where a tile's copies then come from, if from anywhere, and how much they
  /// bring.
  KOKKOS_FUNCTION bool cuts() const requires CutsTiles<Atoms> { return edges.a.any || edges.b.any; }
  struct Cut {
    typename Atoms::Source const *a, *b;
    int bytes;
  };
  template <class Copy>
  KOKKOS_FUNCTION Cut cut(Copy const& copy, Tile const& t) const {
    return {copy.from(a, edges.a, t.row), copy.from(b, edges.b, t.col), edges.a.bytes(t.row) + edges.b.bytes(t.col)};
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k, Cut const& from) const {
    std::int64_t const at = std::int64_t(t.first + k) * BK;
    if (from.a != nullptr) copy(*from.a, Plane{0, t.left}, t.row, at, stage.a);
    if (from.b != nullptr) copy(*from.b, Plane{0, t.right}, t.col, at, stage.b);
  }
  template <class Copy>
  KOKKOS_FUNCTION void load(Copy const& copy, Stage& stage, Tile const& t, int k) const {
    std::int64_t const at = std::int64_t(t.first + k) * BK;
    Plane const left{0, t.left}, right{0, t.right};
    if constexpr (sizes_tiles<Atoms>) {
      copy(a, left, t.row, at, stage.a, t.row + rows_a_tile);
      copy(b, right, t.col, at, stage.b, t.col + cols_a_tile);
    } else {
      copy(a, left, t.row, at, stage.a);
      copy(b, right, t.col, at, stage.b);
    }
  }

  /// The sum of blocks of K, each times its scales, on a machine that keeps fp32 sums over several steps.
  template <class Math, class In>
  KOKKOS_FORCEINLINE_FUNCTION void scaled_sum(Math& math, Tile const& t, In& in, StepScales<Atoms, BN>& scale,
                                              Accumulator& acc) const {
    constexpr int steps_a_block = block_extent / BK;
    Accumulator part(math);
    math.clear(acc);
    for (int k = 0; k < t.steps; ++k) {
      int const in_block = (t.first + k) % steps_a_block;
      bool const first = in_block == 0 || k == 0, last = in_block == steps_a_block - 1 || k == t.steps - 1;
      Stage const& s = in.acquire();
      math.multiply(s.a, s.b, part, !first);
      math.template wait_all_but<0>(part);
      in.release();
      if (!last) continue;
      scale.template add<0, 0>(math, part, acc);
      scale.template renew<0>(math);
    }
  }

  template <class Math, class In>
  KOKKOS_FORCEINLINE_FUNCTION void body(Math& math, Tile const& t, In& in) const {
    if constexpr (sizes_tiles<Atoms> && !scaled)
      if (t.steps == 1 && finish.adds_or_overwrites() && math.multiplies_into(c, finish.beta != Compute(0))) {
        auto const& s = in.acquire();
        math.multiply_into(s.a, s.b, c, t.plane, t.row, t.col, finish.beta != Compute(0));
        return in.release();
      }
    finish.template fetch<Accumulator>(math, c, t.plane, t.row, t.col);
    Accumulator acc(math);
    constexpr bool promotes = requires { requires Atoms::promotes; };
    if constexpr (scaled) {
      static_assert(block_extent % BK == 0 && BN % 64 == 0 && AddsScaled<Atoms, BM, BN>);
      constexpr int steps_a_block = block_extent / BK;
      StepScales<Atoms, BN> scale(math, scales, {0, t.left}, {0, t.right}, t.row, t.col, t.first / steps_a_block,
                                  (t.first + t.steps - 1) / steps_a_block - t.first / steps_a_block + 1);
      if constexpr (promotes)
        gemm_promoted_sum<Atoms, BN>(math, t.steps, in, scale, acc);
      else
        scaled_sum(math, t, in, scale, acc);
    } else if constexpr (promotes) {
      AsItIs as_it_is;
      gemm_promoted_sum<Atoms, BN>(math, t.steps, in, as_it_is, acc);
    } else {
      gemm_sum<may_rehearse>(math, t.steps, in, acc);
    }
    if (!math.join(acc)) return;
    finish.template operator()<BM, BN>(math, acc, c, t.plane, t.row, t.col);
  }
};

}  // namespace tessera::detail

#endif
