// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_ROWS_HPP
#define TESSERA_ATTENTION_BACKWARD_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <climits>
#include <tessera/attention/backward_problem.hpp>
#include <tessera/divisor.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/warp.hpp>

// What the gradients of attention need before and behind the products: memory read once, rows that are whole packs by a
// few neighbouring lanes each, others by a warp.
namespace tessera::detail {

/// Rows of planes, shared out over the warps of teams. Elements of a row are read four at a time where they may.
template <class Exec, class Compute>
struct BackwardRowWalk {
  static constexpr int threads = 256, lanes = Machine<Exec>::lanes, rows_a_team = 8, width = 4;
  std::int64_t rows, inner, outer;  // of a plane, and planes

  std::int64_t teams() const { return (outer * inner * rows + rows_a_team - 1) / rows_a_team; }
  /// f(plane, row, lane)
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void for_each(TeamMember<Exec> const& team, F const& f) const {
    int const thread = thread_of<Exec>(team);
    for (int w = 0; w < (lanes == 1 ? rows_a_team : 1); ++w) {
      std::int64_t const all = std::int64_t(team.league_rank()) * rows_a_team + (lanes == 1 ? w : thread / lanes);
      if (all >= outer * inner * rows) return;
      std::int64_t plane = all / rows;
      std::int64_t const row = all - plane * rows, head = take_remainder(plane, inner);
      f(Plane{plane, head}, row, thread % lanes);
    }
  }
  /// Of what the lanes of a row have, in all of them.
  KOKKOS_FORCEINLINE_FUNCTION static Compute sum_of_lanes([[maybe_unused]] TeamMember<Exec> const& team, int lane,
                                                          Compute sum) {
    for (int distance = 1; distance < lanes; distance *= 2)
      sum += exchange<Exec>(team, lane, sum, distance, static_cast<Compute*>(nullptr));
    return sum;
  }
  /// Whether four neighbours of every row may be read at once.
  static bool packed(MatrixStack const& m) {
    auto const size = static_cast<std::int64_t>(size_of(m.type));
    auto const fits = [&](std::int64_t extent, std::int64_t stride) { return extent <= 1 || stride % width == 0; };
    return reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uintptr_t>(width * size) == 0 &&
           m.cols % width == 0 && (m.cols <= 1 || m.col_stride == 1) && fits(m.rows, m.row_stride) &&
           fits(m.inner, m.inner_stride) && fits(m.outer, m.outer_stride);
  }
};

/// BackwardRows, and clear sums of dQ where there are some.
template <class Exec, class Compute, class Places>
struct PrepareBackward {
  using Walk = BackwardRowWalk<Exec, Compute>;
  Walk walk;
  MatrixStack o, d_o, lse, d_lse;
  Places places;
  BackwardRows<Compute> to;
  float* sums;  // of dQ: as many a row
  std::int64_t sum_cols;
  bool packed;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    walk.for_each(team, [&](Plane plane, std::int64_t row, int lane) {
      std::int64_t const at = to.at(plane, row);
      places.find(plane, row);
      Compute const dot = row < o.rows ? product(team, plane, row, lane) : Compute(0);
      if (sums != nullptr) clear(at, lane);
      if (lane != 0) return;
      write(at, plane, row, dot);
    });
  }

  /// By one lane of those that have the row.
  KOKKOS_FORCEINLINE_FUNCTION void write(std::int64_t at, Plane plane, std::int64_t row, Compute dot) const {
    constexpr Compute none = Kokkos::Experimental::infinity_v<Compute>, log2_e = Compute(1.44269504088896340736);
    Compute x = none, gradient = 0;
    if (row < o.rows) {
      x = static_cast<Compute const*>(lse.data)[lse.offset(plane, row, 0)];
      x = x == -none ? none : x * log2_e;
      if (d_lse.data != nullptr) gradient = static_cast<Compute const*>(d_lse.data)[d_lse.offset(plane, row, 0)];
    }
    to.lse[at] = x;
    to.delta[at] = dot - gradient;
  }

 private:
  /// Of a row of O and one of dO, in all lanes.
  KOKKOS_FORCEINLINE_FUNCTION Compute product([[maybe_unused]] TeamMember<Exec> const& team, Plane plane,
                                              std::int64_t row, int lane) const {
    Compute sum = 0;
    visit_scalar<Compute>(o.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      visit_scalar<Compute>(d_o.type, [&](auto other) {
        using U = typename decltype(other)::type;
        T const* const a = static_cast<T const*>(o.data) + o.offset(plane, row, 0);
        U const* const b = static_cast<U const*>(d_o.data) + d_o.offset(plane, row, 0);
        if (packed) {
          for (std::int64_t c = lane * Walk::width; c < o.cols; c += Walk::lanes * Walk::width) {
            auto const x = load_pack<Walk::width>(a + c);
            auto const y = load_pack<Walk::width>(b + c);
            unroll<Walk::width>([&](auto i) { sum += static_cast<Compute>(x[i]) * static_cast<Compute>(y[i]); });
          }
        } else {
          for (std::int64_t c = lane; c < o.cols; c += Walk::lanes)
            sum += static_cast<Compute>(a[c * o.col_stride]) * static_cast<Compute>(b[c * d_o.col_stride]);
        }
      });
    });
    return Walk::sum_of_lanes(team, lane, sum);
  }
  KOKKOS_FORCEINLINE_FUNCTION void clear(std::int64_t at, int lane) const {
    float* const first = sums + at * sum_cols;
    for (std::int64_t c = lane * Walk::width; c < sum_cols; c += Walk::lanes * Walk::width)
      store_pack<Walk::width>(first + c, Pack<float, Walk::width>{});
  }
};

/// Sums of a tile, of which 64 rows are looked at: all in one place, or
struct WholeSums {
  KOKKOS_FORCEINLINE_FUNCTION static std::int64_t first_row(std::int64_t of_64) { return of_64 * 64; }
  KOKKOS_FORCEINLINE_FUNCTION static constexpr int part_rows() { return 0; }
  KOKKOS_FORCEINLINE_FUNCTION static constexpr int part_count() { return 1; }
};
/// in parts side by side, of all rows of the tile each, to be added up in their order.
struct SumsInParts {
  int parts, tile_rows;
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t first_row(std::int64_t of_64) const {
    return of_64 * 64 + of_64 * 64 / tile_rows * (parts - 1) * tile_rows;
  }
  KOKKOS_FORCEINLINE_FUNCTION int part_rows() const { return tile_rows; }
  KOKKOS_FORCEINLINE_FUNCTION int part_count() const { return parts; }
};

/// Whether sums in an order go on from one tile to the next, so that tiles of any multiple of 16 rows may be looked at.
template <class Order>
inline constexpr bool sums_go_on = requires {
  requires Order::by_blocks;
};

/// Where a thread finds the sums of eight features of rows r and r + 8, in four packs of four: each of two features of
/// both rows,
template <class Order>
struct SumPacks {
  static constexpr int apart = 4;
  KOKKOS_FORCEINLINE_FUNCTION static float of(Pack<float, 4> const (&x)[4], int half, int i) {
    return half == 0 ? x[i / 2][i % 2] : x[i / 2][2 + i % 2];
  }
};
/// or each of every other feature of one row.
template <class Order>
requires requires { Order::number_step; }
struct SumPacks<Order> {
  static constexpr int apart = Order::number_step == 1 ? 4 : Order::number_step;
  KOKKOS_FORCEINLINE_FUNCTION static float of(Pack<float, 4> const (&x)[4], int half, int i) {
    return Order::number_step == 1 ? x[i / 2][half * 2 + i % 2] : x[half * 2 + i % 2][i / 2];
  }
};

/// Gradients from their sums, which lie by tiles of 64 rows and D features in `Order`: a thread has eight features of
/// the two rows whose sums lie side by side.
template <class Exec, class Order, int D, class Places, class Parts = WholeSums>
struct FinishBackward : Parts {
  static constexpr int threads = 256, packs = D / 8, teams_a_tile = 32 * packs / threads;
  MatrixStack to;
  Places places;
  float const* sums;
  std::int64_t tiles, before, count;  // a plane has; those that have no sums, and how many behind them have
  float scale;
  HeadFactors<float> const* factors;  // of each head, of a batch entry or sequence; none: scale
  bool packed;                        // eight neighbours of a row may be stored at once

  KOKKOS_FUNCTION std::int64_t teams() const { return count * teams_a_tile; }
  KOKKOS_FORCEINLINE_FUNCTION float factor(Plane plane, std::int64_t row) const {
    return factors == nullptr ? scale : factors[places.entry(plane, row) * to.inner + plane.inner].result;
  }
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const { finish(team, team.league_rank()); }
  KOKKOS_FUNCTION void finish(TeamMember<Exec> const& team, int rank) const {
    std::int64_t const own = rank / teams_a_tile, tile = before + own;
    std::int64_t batch = tile / tiles, first = (tile - batch * tiles) * 64;
    std::int64_t const head = take_remainder(batch, to.inner);
    Plane plane{batch, head};
    float const factor = this->factor(plane, first);
    places.find(plane, first);
    int const pack = rank % teams_a_tile * threads + thread_of<Exec>(team), col = pack % packs * 8, pair = pack / packs,
              row = pair / 8 * 16 + pair % 8;
    if (first + row >= to.rows || col >= to.cols) return;
    Pack<float, 4> x[4];
    add_parts(own, Order::at(row, col), x);
    visit_scalar<float>(to.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const data = static_cast<T*>(const_cast<void*>(to.data));
      for (int half = 0; half < 2 && first + row + half * 8 < to.rows; ++half) {
        T* const line = data + to.offset(plane, first + row + half * 8, col);
        Pack<T, 8> y;
        unroll<8>([&](auto i) { y[i] = T(SumPacks<Order>::of(x, half, i) * factor); });
        if (packed)
          store_pack<8>(line, y);
        else
          for (int i = 0; i < 8 && col + i < to.cols; ++i) line[i * to.col_stride] = y[i];
      }
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void add_parts(std::int64_t tile, int at, Pack<float, 4> (&x)[4]) const {
    float const* const from = sums + this->first_row(tile) * D + at;
    unroll<4>([&](auto i) { x[i] = load_pack<4>(from + i * SumPacks<Order>::apart); });
    for (int part = 1; part < this->part_count(); ++part) {
      float const* const more = from + std::int64_t(part) * this->part_rows() * D;
      unroll<4>([&](auto i) {
        Pack<float, 4> const y = load_pack<4>(more + i * SumPacks<Order>::apart);
        unroll<4>([&](auto k) { x[i][k] += y[k]; });
      });
    }
  }
};

/// dQ, and dK and dV of the tiles that several teams shared, one behind the other.
template <class Queries, class Keys>
struct FinishShared {
  static_assert(Queries::threads == Keys::threads);
  static constexpr int threads = Queries::threads;
  Queries dq;
  Keys dk, dv;

  std::int64_t teams() const { return dq.teams() + dk.teams() + dv.teams(); }
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    int const of_queries = static_cast<int>(dq.teams()), of_keys = static_cast<int>(dk.teams()),
              rank = team.league_rank();
    if (rank < of_queries)
      dq.finish(team, rank);
    else
      (rank < of_queries + of_keys ? dk : dv).finish(team, (rank - of_queries) % of_keys);
  }
};
/// Sums of shared tiles before the first is added.
struct ClearSums {
  static constexpr int width = 4;
  float* sums;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { store_pack<width>(sums + i * width, Pack<float, width>{}); }
};

/// A part of a row of T whose elements lie in whole packs: `Lanes` neighbours share it, two packs each.
template <class Exec, class T, int Lanes>
struct PackedBackwardRow {
  static constexpr int threads = 256, rows_a_team = threads / Lanes, packs = 2;
  static constexpr int width = static_cast<int>(pack_bytes / sizeof(T));
  using Atoms = WarpAtoms<Exec>;
  int lane, row;
  Plane plane;
  bool exists;

  KOKKOS_FORCEINLINE_FUNCTION PackedBackwardRow(int team, std::int64_t all_rows, Divisor const& rows,
                                                Divisor const& inner)
      : lane(Atoms::thread() % Lanes) {
    std::int64_t const all = std::int64_t(team) * rows_a_team + Atoms::thread() / Lanes;
    exists = all < all_rows;
    bool const small = all_rows <= INT_MAX;
    std::int64_t const head = rows.quotient(exists ? all : 0, small), batch = inner.quotient(head, small);
    row = static_cast<int>((exists ? all : 0) - head * rows.by);
    plane = {batch, head - batch * inner.by};
  }
  KOKKOS_FORCEINLINE_FUNCTION int col(int k) const { return (k * Lanes + lane) * width; }
};

/// PrepareBackward of rows of O and dO of T.
template <class Exec, class T, int Lanes, class Places>
struct PackedPrepareBackward {
  using Row = PackedBackwardRow<Exec, T, Lanes>;
  PrepareBackward<Exec, float, Places> rest;
  std::int64_t all;  // rows
  Divisor rows, inner;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const own(team.league_rank(), all, rows, inner);
    std::int64_t const at = rest.to.at(own.plane, own.row);
    Plane plane = own.plane;
    std::int64_t row = own.row;
    rest.places.find(plane, row);
    bool const inside = own.exists && row < rest.o.rows;
    Pack<T, Row::width> a[Row::packs], b[Row::packs];
    T const* const o = static_cast<T const*>(rest.o.data) + rest.o.offset(plane, row, 0);
    T const* const d_o = static_cast<T const*>(rest.d_o.data) + rest.d_o.offset(plane, row, 0);
    unroll<Row::packs>([&](auto k) {
      bool const has = inside && own.col(k) < rest.o.cols;
      for (int i = 0; i < Row::width; ++i) a[k][i] = b[k][i] = T(0.0f);
      if (has) a[k] = load_pack<Row::width>(o + own.col(k));
      if (has) b[k] = load_pack<Row::width>(d_o + own.col(k));
    });
    if (own.exists) {
      float* const sums = rest.sums + at * rest.sum_cols;
      for (int c = own.lane * 4; c < rest.sum_cols; c += Lanes * 4) store_pack<4>(sums + c, Pack<float, 4>{});
    }
    float sum = 0;
    unroll<Row::packs>([&](auto k) {
      auto const x = Row::Atoms::widened(a[k]), y = Row::Atoms::widened(b[k]);
      unroll<Row::width>([&](auto i) { sum += x[i] * y[i]; });
    });
    sum = Row::Atoms::template join<Lanes>(sum, [](float x, float y) { return x + y; });
    if (own.lane == 0 && own.exists) rest.write(at, plane, row, sum);
  }
};

/// Whether every row of a matrix begins at a multiple of 16 bytes and is whole packs, 64 at most.
inline bool backward_rows_packed(MatrixStack const& m) {
  auto const size = static_cast<std::int64_t>(size_of(m.type)), width = static_cast<std::int64_t>(pack_bytes) / size;
  auto const fits = [&](std::int64_t extent, std::int64_t stride) { return extent <= 1 || stride % width == 0; };
  return reinterpret_cast<std::uintptr_t>(m.data) % pack_bytes == 0 && m.cols > 0 && m.cols % width == 0 &&
         m.cols <= 64 * width && m.rows <= INT_MAX && (m.cols == 1 || m.col_stride == 1) &&
         fits(m.rows, m.row_stride) && fits(m.inner, m.inner_stride) && fits(m.outer, m.outer_stride) && size <= 4;
}

/// f(tag of the type, lanes a row) for such rows.
template <class F>
void visit_packed_backward(MatrixStack const& m, F const& f) {
  std::int64_t const packs =
      m.cols * static_cast<std::int64_t>(size_of(m.type)) / static_cast<std::int64_t>(pack_bytes);
  auto const with_type = [&](auto tag) {
    if (packs <= 8)
      f(tag, Constant<4>{});
    else if (packs <= 16)
      f(tag, Constant<8>{});
    else if (packs <= 32)
      f(tag, Constant<16>{});
    else
      f(tag, Constant<32>{});
  };
  if (m.type == Scalar::bf16)
    with_type(ScalarTag<bf16_t>{});
  else if (m.type == Scalar::fp16)
    with_type(ScalarTag<fp16_t>{});
  else if (m.type == Scalar::fp32)
    with_type(ScalarTag<float>{});
}

}  // namespace tessera::detail

#endif
