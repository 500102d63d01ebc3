// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_PACKED_NORMALIZATION_BACKWARD_HPP

#include <algorithm>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/packed_normalization.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

// Gradients of the parameters are sums over all rows. Teams that stay for the whole launch, 512 threads of them on a
// multiprocessor, keep those of the rows they meet in registers, 16 columns a thread, and leave them in the workspace
// at the end: 9 MB on 132 multiprocessors whatever the length of the rows. While they work on a row the next one is on
// its way into registers.
namespace tessera::detail {

/// The workspace: (parts, columns) for each gradient that is wanted.
template <class Acc>
struct NormBackwardSums {
  Acc *weights = nullptr, *biases = nullptr;

  NormBackwardSums(NormBackwardProblem const& problem, std::int64_t parts) {
    auto* next = static_cast<Acc*>(problem.workspace);
    if (problem.d_weight.present()) {
      weights = next;
      next += parts * problem.in.extent[3];
    }
    if (problem.d_bias.present()) biases = next;
  }
};

inline constexpr int staying_columns = 16;  // of a thread
constexpr int staying_threads(int lanes) { return lanes > 32 ? lanes : 256; }

/// `Lanes` threads a row.
template <int Lanes, int Packs>
struct StayingShape : PackedShape<Lanes, staying_threads(Lanes), Packs> {
  static constexpr int teams_at_once = 512 / staying_threads(Lanes);
};

template <class Exec, class T, class Shape>
struct PackedNormBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::Raw;
  using Values = typename Row::Values;
  static constexpr int packs = Shape::packs, width = Row::width;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand d_in, d_out, in, mean, rstd, weight, d_sum;
  float *d_weights, *d_biases;  // (teams, columns), either may be absent
  float inverse_length;
  bool centered;
  int steps, teams;  // steps: rows, or as many together as a team has room for

  /// What is read of a row.
  struct Fetched {
    Raw in[packs], d_out[packs];
    float center, factor;
  };
  struct Sums {
    float gradient, product;
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Values weights[packs] = {}, biases[packs] = {};
    int step = team.league_rank(), turn = 0;
    Fetched now, then;
    fetch(Row(grid, step), now);
    while (true) {
      bool const last = step + teams >= steps;
      if (!last) fetch(Row(grid, step + teams), then);
      one_row(Row(grid, step), now, weights, biases, turn);
      if (last) break;
      step += teams;
      turn ^= 1;
      now = then;
    }
    if (d_weights != nullptr) leave(team, d_weights, weights);
    if (d_biases != nullptr) leave(team, d_biases, biases);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void fetch(Row const& row, Fetched& to) const {
    row.load(in, to.in, T(0.0f));
    row.load(d_out, to.d_out, T(0.0f));
    to.center = to.factor = 0;
    if (!row.inside()) return;
    if (centered) to.center = row.place.template value<float>(mean);
    to.factor = row.place.template value<float>(rstd);
  }

  /// xhat and g of pack k.
  KOKKOS_FORCEINLINE_FUNCTION void values(Row const& row, Fetched const& from, int k, Values& x, Values& g) const {
    x = Row::Atoms::widened(from.in[k]);
    g = Row::Atoms::widened(from.d_out[k]);
    for (int j = 0; j < width; ++j) x[j] = (x[j] - from.center) * from.factor;
    if (row.has(k)) scale_pack<typename Row::Atoms, T>(weight, Operand{}, row.pack(k) * width, g);
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Fetched& now, Values (&weights)[packs],
                                           Values (&biases)[packs], int turn) const {
    Sums sums{0, 0};
    unroll<packs>([&](auto k) {
      if (!row.has(k)) return;
      Values x, g;
      values(row, now, k, x, g);
      for (int j = 0; j < width; ++j) {
        sums.gradient += g[j];
        sums.product += g[j] * x[j];
      }
    });
    sums = whole(sums, turn);
    float const mean_gradient = centered ? sums.gradient * inverse_length : 0.0f,
                mean_product = sums.product * inverse_length;
    unroll<packs>([&](auto k) {
      Row::Atoms::renew(now.in[k]);  // what was computed before the exchange takes no registers during it
      Row::Atoms::renew(now.d_out[k]);
    });
    T* const first = static_cast<T*>(const_cast<void*>(d_in.data)) + row.place.offset(d_in);
    unroll<packs>([&](auto k) {
      if (!row.has(k)) return;
      Values x, g;
      values(row, now, k, x, g);
      for (int j = 0; j < width; ++j) g[j] = now.factor * (g[j] - mean_gradient - x[j] * mean_product);
      if (d_sum.present()) {
        T const* const from = static_cast<T const*>(d_sum.data) + row.place.offset(d_sum);
        Values const other = Row::Atoms::widened(load_pack<width>(from + row.pack(k) * width));
        for (int j = 0; j < width; ++j) g[j] += other[j];
      }
      store_pack<width>(first + row.pack(k) * width, Row::Atoms::template narrowed<T>(g));
      Values const dy = Row::Atoms::widened(now.d_out[k]);
      for (int j = 0; j < width; ++j) {
        weights[k][j] += dy[j] * x[j];
        biases[k][j] += dy[j];
      }
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION static Sums whole(Sums x, int turn) {
    x = {Row::join(x.gradient, Add{}), Row::join(x.product, Add{})};
    if constexpr (Shape::warps > 1) {
      x = Row::Atoms::template share_in_turn<PackedNormBackward, Shape::warps>(x, turn);
      x = {Row::join_parts(x.gradient, Add{}), Row::join_parts(x.product, Add{})};
    }
    return x;
  }

  /// This team's part of a gradient, over the rows that it has worked on side by side.
  KOKKOS_FORCEINLINE_FUNCTION void leave(TeamMember<Exec> const& team, float* all, Values const (&mine)[packs]) const {
    float* const to = all + std::int64_t{team.league_rank()} * grid.packs * width;
    int const thread = Row::Atoms::thread(), lane = thread % Shape::lanes;
    if constexpr (Shape::rows_a_team == 1) {
      unroll<packs>([&](auto k) {
        int const pack = k * Shape::lanes + lane;
        if (pack < grid.packs) store_pack<width>(to + pack * width, mine[k]);
      });
    } else {
      auto* const room = static_cast<Values*>(team.team_scratch(0).get_shmem(static_cast<int>(scratch())));
      unroll<packs>([&](auto k) { room[k * Shape::threads + thread] = mine[k]; });
      team.team_barrier();
      if (thread < Shape::lanes)
        unroll<packs>([&](auto k) {
          Values sum = room[k * Shape::threads + thread];
          TESSERA_ROLLED
          for (int i = 1; i < Shape::rows_a_team; ++i) {
            Values const other = room[k * Shape::threads + i * Shape::lanes + thread];
            for (int j = 0; j < width; ++j) sum[j] += other[j];
          }
          int const pack = k * Shape::lanes + lane;
          if (pack < grid.packs) store_pack<width>(to + pack * width, sum);
        });
      team.team_barrier();  // the next gradient goes through the same room
    }
  }

 public:
  KOKKOS_FUNCTION static constexpr std::size_t scratch() {
    return Shape::rows_a_team == 1 ? 0 : Shape::threads * packs * sizeof(Values);
  }
};

/// Threads that share a row of so many columns; 0 where it is longer than a team keeps.
inline int staying_lanes(std::int64_t columns) {
  for (int lanes : {4, 32, 64, 128, 256, 512})
    if (columns <= staying_columns * lanes) return lanes;
  return 0;
}

/// f(Shape{}) for rows of T that so many threads share.
template <class T, class F>
void with_staying_shape(int lanes, F const& f) {
  constexpr int packs = staying_columns / packed_width<T>;
  switch (lanes) {
    case 4:
      return f(StayingShape<4, packs>{});
    case 32:
      return f(StayingShape<32, packs>{});
    case 64:
      return f(StayingShape<64, packs>{});
    case 128:
      return f(StayingShape<128, packs>{});
    case 256:
      return f(StayingShape<256, packs>{});
    case 512:
      return f(StayingShape<512, packs>{});
  }
}

/// How many teams have sums to leave, at most.
template <class Exec>
std::int64_t packed_norm_backward_teams(Exec const& exec, std::int64_t rows, std::int64_t columns) {
  int const lanes = staying_lanes(columns);
  if (lanes == 0) return 0;
  std::int64_t const threads = staying_threads(lanes), rows_a_team = threads / lanes;
  return std::min((rows + rows_a_team - 1) / rows_a_team, 512 / threads * Machine<Exec>::concurrency(exec));
}

/// The number of teams started, each of which leaves a row of sums; 0 where the problem is not one of packed rows.
template <class Exec>
std::int64_t start_packed_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid) {
  std::int64_t started = 0;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    if (!packed_rows(grid, type) || grid.tiles() == 0 || grid.tiles() > std::numeric_limits<std::int32_t>::max() / 2)
      return 0;
    RowInputs<float>::visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      for (RowArray const* a : {&problem.in, &problem.d_in, &problem.d_out, &problem.d_sum})
        if (!is_packed_operand(*a, grid, width, type)) return;
      if (!is_packed_operand(problem.weight, grid, width, type) &&
          !is_packed_operand(problem.weight, grid, width, Scalar::fp32))
        return;
      PackedGrid const rows(grid, width);
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      Operand const d_in = packed(problem.d_in), d_out = packed(problem.d_out), in = packed(problem.in),
                    mean = packed(problem.mean), rstd = packed(problem.rstd), weight = packed(problem.weight),
                    d_sum = packed(problem.d_sum);
      auto const inverse_length = static_cast<float>(1.0 / static_cast<double>(grid.columns));
      with_staying_shape<T>(staying_lanes(grid.columns), [&](auto shape) {
        using Shape = decltype(shape);
        using Kernel = PackedNormBackward<KernelSpace<Exec>, T, Shape>;
        auto const steps = static_cast<int>((rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team);
        int const teams = std::min(steps, Shape::teams_at_once * Machine<Exec>::concurrency(exec));
        NormBackwardSums<float> const sums(problem, teams);
        launch<Shape::threads, Shape::teams_at_once>(
            problem.label, exec, teams, Kernel::scratch(),
            Kernel{rows, d_in, d_out, in, mean, rstd, weight, d_sum, sums.weights, sums.biases, inverse_length,
                   problem.centered, steps, teams});
        started = teams;
      });
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
