// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_PACKED_NORMALIZATION_BACKWARD_HPP

#include <algorithm>

#include <tessera/normalization_backward.hpp>
#include <tessera/rowwise/few_rows_normalization_backward.hpp>
#include <tessera/rowwise/packed_normalization.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/relayed_normalization_backward.hpp>
#include <tessera/rowwise/staged_norm_gradient.hpp>
#include <tessera/rowwise/staying_shapes.hpp>
#include <tessera/rowwise/strip_normalization_backward.hpp>
#include <tessera/unroll.hpp>

// Gradients of the parameters are sums over all rows. Teams that stay for the whole launch, 512 threads of them on a
// multiprocessor, keep those of the rows they meet in registers, 16 columns a thread, and leave them in the workspace
// at the end: 9 MB on 132 multiprocessors whatever the length of the rows. The next rows are on their way into scratch
// meanwhile, where each thread has a place for its own packs of as many rows as fit.
namespace tessera::detail {

inline constexpr int most_stages = 4;  // what is on its way suffices then

/// An operand of which a thread has every so many rows.
struct SteppedOperand : Operand {
  std::int64_t leap = 0;  // elements to the next one, of one matrix

  SteppedOperand() = default;
  SteppedOperand(Operand const& a, std::int64_t rows) : Operand(a), leap(a.row * rows) {}
};

template <class Exec, class T, class Shape>
struct PackedNormBackward {
  using Row = PackedRow<Exec, Shape, T>;
  using Staged = StagedNormGradient<Exec, T, Shape::threads, Shape::packs>;
  using Sums = typename Staged::Sums;
  using Atoms = typename Row::Atoms;
  using Raw = typename Row::Raw;
  using Values = typename Row::Values;
  static constexpr int packs = Shape::packs, width = Row::width;
  static constexpr bool starts_early = true, ragged = Row::ragged;
  /// Of the rows that a team works on side by side, whose sums meet in scratch: floats from one row to the next, so
  /// that two short rows have all banks, and bytes of all.
  static constexpr bool joins = !ragged && Shape::rows_a_team > 1;
  static constexpr int joined_columns = Shape::lanes * packs * width, joined_pitch = joined_columns + 4;
  static constexpr std::size_t joined_bytes = joins ? sizeof(float) * 2 * Shape::rows_a_team * joined_pitch : 0;

  PackedGrid grid;
  SteppedOperand d_in = {}, d_out = {}, in = {}, d_sum = {};
  Operand mean = {}, rstd = {}, weight = {};
  float *d_weights = nullptr, *d_biases = nullptr;  // (teams, columns), either may be absent
  float inverse_length = 0;
  bool centered = false;
  int steps = 0, teams = 1;  // steps: rows, or as many together as a team has room for
  int stages = 1;            // steps that a team has in scratch

  /// This thread's columns, the same in all its rows. Of ragged rows: how many packs they have, and single elements
  /// before these.
  struct Columns {
    int packs = 0, head = 0;
  };
  /// What is copied next, of this thread's row and columns.
  struct Source {
    int step;
    T const *in, *d_out, *d_sum;
  };
  /// What comes next.
  struct Result {
    int step;
    T* d_in;
  };
  /// Of a row, and this thread's single element of it.
  struct Statistics : Staged::Statistics {
    T in = T(0.0f), d_out = T(0.0f);
  };
  struct Slopes : Staged::Slopes {
    float single = 1;
  };
  /// The gradients of this thread's columns.
  struct Gradients : Staged::Gradients {
    float weight = 0, bias = 0;  // of the single one
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    auto* const room =
        static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(sizeof(Raw) * stages * stage_packs(), 16));
    Raw* mine = room + Atoms::thread();
    if constexpr (packs <= 2) mine = Atoms::settled(mine);  // of more there is no register for it
    int const first = team.league_rank();
    Columns const columns = columns_from(first);
    Source source{first, nullptr, nullptr, nullptr};
    find(source, columns);
    for (int i = 0; i < stages; ++i) {
      clear_beyond(columns, mine + i * stage_packs());
      copy(source, columns, mine + i * stage_packs());
    }
    Slopes slopes;
    parameters(columns, slopes);
    Result result{first, nullptr};
    find(result, columns);
    Gradients sums;
    row_by_row(columns, mine, slopes, source, result, sums);
    if constexpr (joins) {
      leave_joined(team, columns, sums, room);
    } else {
      if (d_weights != nullptr) leave(team, columns, d_weights, sums.weights, sums.weight, room);
      if (d_biases != nullptr) leave(team, columns, d_biases, sums.biases, sums.bias, room);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void row_by_row(Columns const& columns, Raw* mine, Slopes const& slopes, Source& source,
                                              Result& result, Gradients& gradients) const {
    Statistics next = statistics(result.step, columns);
    int const of_stage = stage_packs(), end = stages * of_stage;
    int stage = 0;
    TESSERA_ROLLED
    for (int turn = 0; result.step < steps; ++turn) {
      Statistics const now = next;
      int const step = result.step;
      T* const to = inside(result.step) ? result.d_in : nullptr;
      move(result, columns);
      next = statistics(result.step, columns);
      one_row(columns, mine + stage, now, slopes, gradients, to, step, turn);
      copy(source, columns, mine + stage);
      stage += of_stage;
      if (stage == end) stage = 0;
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION int stage_packs() const { return Staged::stage_packs(d_sum.present()); }
  KOKKOS_FORCEINLINE_FUNCTION static Raw& place(Raw* stage, int operand, int k) {
    return Staged::place(stage, operand, k);
  }
  KOKKOS_FORCEINLINE_FUNCTION static int lane() { return Atoms::thread() % Shape::lanes; }
  /// Of the first pack, and of the single element.
  KOKKOS_FORCEINLINE_FUNCTION static int column(Columns const& mine) { return mine.head + lane() * width; }
  KOKKOS_FORCEINLINE_FUNCTION static int single_column(Columns const& mine) {
    return lane() < mine.head ? lane() : lane() + mine.packs * width;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool has(Columns const& mine, int k) const {
    return k * Shape::lanes + lane() < (ragged ? mine.packs : grid.packs);
  }
  KOKKOS_FORCEINLINE_FUNCTION bool has_single(Columns const& mine) const {
    return ragged && lane() + mine.packs * width < grid.columns;
  }
  /// Those of the rows of a thread begin at the same place of a pack.
  KOKKOS_FORCEINLINE_FUNCTION Columns columns_from(int first) const {
    Columns mine;
    if constexpr (ragged) {
      if (!inside(first)) return mine;
      mine.head = (width - PackedRowPlace(grid, row_of(first)).shift(grid.phase, width)) % width;
      if (mine.head > grid.columns) mine.head = grid.columns;
      mine.packs = (grid.columns - mine.head) / width;
    }
    return mine;
  }
  KOKKOS_FORCEINLINE_FUNCTION static int row_of(int step) {  // 2^30 rows at most
    return step * Shape::rows_a_team + Atoms::thread() / Shape::lanes;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool inside(int step) const {
    return Shape::rows_a_team == 1 || row_of(step) < static_cast<int>(grid.rows);
  }

  template <class X>
  KOKKOS_FORCEINLINE_FUNCTION static X* first_of(Operand const& a, PackedRowPlace const& row, int at) {
    return static_cast<X*>(const_cast<void*>(a.data)) + row.offset(a) + at;
  }
  KOKKOS_FORCEINLINE_FUNCTION void find(Source& x, Columns const& mine) const {
    PackedRowPlace const row(grid, row_of(x.step));
    x.in = first_of<T>(in, row, column(mine));
    x.d_out = first_of<T>(d_out, row, column(mine));
    x.d_sum = first_of<T>(d_sum, row, column(mine));
  }
  KOKKOS_FORCEINLINE_FUNCTION void find(Result& x, Columns const& mine) const {
    PackedRowPlace const row(grid, row_of(x.step));
    x.d_in = first_of<T>(d_in, row, column(mine));
  }
  /// To this team's next step, if there is one.
  KOKKOS_FORCEINLINE_FUNCTION void move(Source& x, Columns const& mine) const {
    x.step += teams;
    if (grid.flat) {
      x.in += in.leap;
      x.d_out += d_out.leap;
      x.d_sum += d_sum.leap;
    } else if (x.step < steps) {
      find(x, mine);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void move(Result& x, Columns const& mine) const {
    x.step += teams;
    if (grid.flat) {
      x.d_in += d_in.leap;
    } else if (x.step < steps) {
      find(x, mine);
    }
  }

  /// What no row fills is zero throughout.
  KOKKOS_FORCEINLINE_FUNCTION void clear_beyond(Columns const& mine, Raw* stage) const {
    unroll<packs>([&](auto k) {
      if (has(mine, k)) return;
      for (int which = 0; which < (d_sum.present() ? 3 : 2); ++which)
        for (int j = 0; j < width; ++j) place(stage, which, k)[j] = T(0.0f);
    });
  }
  /// Begins to copy a step, or nothing where there is none.
  KOKKOS_FORCEINLINE_FUNCTION void copy(Source& source, Columns const& mine, Raw* to) const {
    if (source.step < steps) {
      bool const is = inside(source.step);
      unroll<packs>([&](auto k) {
        if (is && has(mine, k)) {
          Atoms::copy_ahead(&place(to, 0, k), source.in + k * Shape::lanes * width, grid.once);
          Atoms::copy_ahead(&place(to, 1, k), source.d_out + k * Shape::lanes * width, grid.once);
          if (d_sum.present()) Atoms::copy_ahead(&place(to, 2, k), source.d_sum + k * Shape::lanes * width, grid.once);
        } else if (!is) {
          for (int j = 0; j < width; ++j) place(to, 0, k)[j] = place(to, 1, k)[j] = T(0.0f);
        }
      });
      move(source, mine);
    }
    Atoms::end_copies();
  }

  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(int step, Columns const& mine) const {
    Statistics of_row;
    if (step >= steps || !inside(step)) return of_row;
    LongRowPlace const place{grid, row_of(step)};
    if (centered) of_row.center = place.value<float>(mean);
    of_row.factor = place.value<float>(rstd);
    if (has_single(mine)) {
      PackedRowPlace const row(grid, row_of(step));
      int const at = single_column(mine);
      of_row.in = *first_of<T>(in, row, at);
      of_row.d_out = *first_of<T>(d_out, row, at);
    }
    return of_row;
  }
  KOKKOS_FORCEINLINE_FUNCTION void parameters(Columns const& mine, Slopes& slopes) const {
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) slopes.pack[k][j] = 1;
      if (!weight.present() || !has(mine, k)) return;
      int const first = k * Shape::lanes * width + column(mine);
      if constexpr (ragged)
        for (int j = 0; j < width; ++j) slopes.pack[k][j] = load_parameter<Atoms, T, 1>(weight, first + j)[0];
      else
        slopes.pack[k] = load_parameter<Atoms, T, width>(weight, first);
    });
    if (weight.present() && has_single(mine))
      slopes.single = load_parameter<Atoms, T, 1>(weight, single_column(mine))[0];
  }

  /// `to`: where the row's result goes, if there is a row.
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Columns const& mine, Raw* stage, Statistics const& now, Slopes const& slopes,
                                           Gradients& gradients, T* to, [[maybe_unused]] int step, int turn) const {
    if (stages == most_stages)  // a constant number takes fewer instructions
      Atoms::wait_for_copies(most_stages - 1);
    else
      Atoms::wait_for_copies(stages - 1);
    constexpr bool keeps = Shape::rows_a_team == 1;  // for more rows there are not registers enough
    Values kept[packs];
    Sums sums = Staged::template sums_of<keeps>(stage, now, slopes, kept);
    if constexpr (ragged) {
      float const g = static_cast<float>(now.d_out) * slopes.single;
      sums.gradient += g;
      sums.product += g * normal_single(now);
    }
    sums = of_team(sums, turn);
    typename Staged::Line const line(centered, inverse_length, now.factor, sums);
    Staged::template write_row<keeps>(stage, now, slopes, gradients, line, kept, d_sum.present(),
                                      [&](auto k, Values const& out) TESSERA_INLINE_LAMBDA {
                                        if (to != nullptr && has(mine, k))
                                          store_pack<width>(to + k * Shape::lanes * width,
                                                            Atoms::template narrowed<T>(out));
                                      });
    if constexpr (ragged) {
      float const x = normal_single(now), dy = static_cast<float>(now.d_out);
      gradients.weight += dy * x;
      gradients.bias += dy;
      float out = x * line.slope + (dy * slopes.single * now.factor + line.offset);
      if (to != nullptr && has_single(mine)) {
        int const at = single_column(mine);
        if (d_sum.present()) out += static_cast<float>(*first_of<T>(d_sum, PackedRowPlace(grid, row_of(step)), at));
        to[at - column(mine)] = T(out);
      }
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION static float normal_single(Statistics const& now) {
    return (static_cast<float>(now.in) - now.center) * now.factor;
  }
  KOKKOS_FORCEINLINE_FUNCTION static Sums of_team(Sums x, int turn) {
    x = {Row::join(x.gradient, Add{}), Row::join(x.product, Add{})};
    if constexpr (Shape::warps > 1) {
      x = Atoms::template share_in_turn<PackedNormBackward, Shape::warps>(x, turn & 1);
      x = {Row::join_parts(x.gradient, Add{}), Row::join_parts(x.product, Add{})};
    }
    return x;
  }

  /// This team's part of a gradient.
  KOKKOS_FORCEINLINE_FUNCTION void leave(TeamMember<Exec> const& team, Columns const& columns, float* all,
                                         Values const (&mine)[packs], [[maybe_unused]] float single,
                                         Raw* scratch) const {
    all += std::int64_t{team.league_rank()} * grid.columns;
    float* const to = all + column(columns);
    if constexpr (ragged) {
      leave_by_columns(team, columns, all, mine, single, reinterpret_cast<float*>(scratch));
    } else {
      unroll<packs>([&](auto k) {
        if (has(columns, k)) store_pack<width>(to + k * Shape::lanes * width, mine[k]);
      });
    }
  }
  /// The same of several rows side by side, whose sums meet in scratch: a thread adds those of a column, in order.
  KOKKOS_FORCEINLINE_FUNCTION void leave_joined(TeamMember<Exec> const& team, Columns const& columns,
                                                Gradients const& mine, Raw* scratch) const {
    constexpr int all = joined_columns, pitch = joined_pitch;
    auto* const sums = reinterpret_cast<float*>(scratch);  // (2, rows, pitch)
    int const thread = Atoms::thread(), row = thread / Shape::lanes;
    team.team_barrier();  // all have read what was there
    unroll<packs>([&](auto k) {
      float* const to = sums + row * pitch + k * Shape::lanes * width + column(columns);
      if (d_weights != nullptr) store_pack<width>(to, mine.weights[k]);
      if (d_biases != nullptr) store_pack<width>(to + Shape::rows_a_team * pitch, mine.biases[k]);
    });
    team.team_barrier();
    TESSERA_ROLLED
    for (int i = thread; i < 2 * all; i += Shape::threads) {
      int const which = i / all, at = i - which * all;
      float* const to = which == 0 ? d_weights : d_biases;
      if (to == nullptr || at >= grid.columns) continue;
      float const* const from = sums + which * Shape::rows_a_team * pitch + at;
      float sum = 0;
      unroll<Shape::rows_a_team>([&](auto r) { sum += from[r * pitch]; });
      to[std::int64_t{team.league_rank()} * grid.columns + at] = sum;
    }
  }
  /// The same where rows that are worked on side by side begin at different places of a pack, one after the other.
  KOKKOS_FORCEINLINE_FUNCTION void leave_by_columns(TeamMember<Exec> const& team, Columns const& columns, float* to,
                                                    Values const (&mine)[packs], float single, float* sums) const {
    int const thread = Atoms::thread();
    team.team_barrier();  // all have read what was there
    for (int i = thread; i < grid.columns; i += Shape::threads) sums[i] = 0;
    for (int row = 0; row < Shape::rows_a_team; ++row) {
      team.team_barrier();
      if (thread / Shape::lanes != row) continue;
      unroll<packs>([&](auto k) {
        if (has(columns, k))
          for (int j = 0; j < width; ++j) sums[column(columns) + k * Shape::lanes * width + j] += mine[k][j];
      });
      if (has_single(columns)) sums[single_column(columns)] += single;
    }
    team.team_barrier();
    for (int i = thread; i < grid.columns; i += Shape::threads) to[i] = sums[i];
  }
};

/// Starts the kernel for rows of T, with what a problem has beside its grid; returns as the next function.
template <class T, class Shape, class Exec>
std::int64_t start_staying_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid,
                                         PackedGrid const& rows) {
  using Kernel = PackedNormBackward<KernelSpace<Exec>, T, Shape>;
  constexpr int width = packed_width<T>, at_once = Shape::teams_at_once;
  auto const steps = static_cast<int>((rows.rows + Shape::rows_a_team - 1) / Shape::rows_a_team);
  Kernel kernel{rows};
  kernel.weight = operand(problem.weight, grid, width, true);
  kernel.inverse_length = static_cast<float>(1.0 / static_cast<double>(grid.columns));
  kernel.centered = problem.centered;
  kernel.steps = steps;
  std::size_t const stage = sizeof(typename Kernel::Raw) * Kernel::Staged::stage_packs(problem.d_sum.present());
  kernel.stages =
      static_cast<int>(std::min<std::size_t>(scratch_of_each(exec, at_once) / stage, std::size_t{most_stages}));
  std::size_t const scratch = std::max(stage * static_cast<std::size_t>(kernel.stages), Kernel::joined_bytes);
  std::int64_t const most = rows.ragged  // whose teams are as large for any T
                                ? packed_norm_backward_teams<true>(exec, rows.rows, grid.columns)
                                : packed_norm_backward_teams<sizeof(T) == 2>(exec, rows.rows, grid.columns);
  kernel.teams = static_cast<int>(std::min(std::int64_t{at_once} * Machine<Exec>::concurrency(exec), most));
  if (rows.ragged && steps > kernel.teams) {
    kernel.teams = teams_that_begin_alike(rows, kernel.teams, Shape::rows_a_team, width);
    if (kernel.teams == 0) return 0;
  }
  auto const stepped = [&](RowArray const& a) {
    return SteppedOperand(operand(a, grid, width, true), std::int64_t{kernel.teams} * Shape::rows_a_team);
  };
  kernel.d_in = stepped(problem.d_in);
  kernel.d_out = stepped(problem.d_out);
  kernel.in = stepped(problem.in);
  kernel.mean = operand(problem.mean, grid, width, true);
  kernel.rstd = operand(problem.rstd, grid, width, true);
  kernel.d_sum = stepped(problem.d_sum);
  NormBackwardSums<float> const sums(problem, kernel.teams);
  kernel.d_weights = sums.weights;
  kernel.d_biases = sums.biases;
  char const* const scheme =
      rows.ragged ? "unaligned rows in scratch, in teams that stay" : "rows in scratch, in teams that stay";
  launch<Shape::threads, at_once>(KernelLabel{problem.label, scheme}, exec, kernel.teams, scratch, kernel);
  return kernel.teams;
}

/// Each team that is started, or group of them, leaves a part; none is where the problem is not one of packed rows.
template <class Exec>
NormBackwardParts start_packed_norm_backward(Exec const& exec, NormBackwardProblem const& problem,
                                             TileGrid const& grid) {
  NormBackwardParts started;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    if (grid.tiles() == 0 || grid.tiles() > std::numeric_limits<std::int32_t>::max() / 2) return started;
    RowInputs<float>::visit_on_host(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      constexpr bool narrow = sizeof(T) == 2;
      int const together = staying_teams<narrow>(grid.columns);
      PackedGrid rows(grid, width);
      rows.pass(problem.d_sum.present() ? 3 : 2, 1);
      bool whole = packed_rows(grid, type) && (is_packed_operand(problem.weight, grid, width, type) ||
                                               is_packed_operand(problem.weight, grid, width, Scalar::fp32));
      for (RowArray const* a : {&problem.in, &problem.d_in, &problem.d_out, &problem.d_sum})
        whole = whole && is_packed_operand(*a, grid, width, type);
      auto const start = [&](auto shape) {
        started = start_staying_norm_backward<T, decltype(shape)>(exec, problem, grid, rows);
      };
      if (whole)
        started = start_few_rows_norm_backward<T>(exec, problem, grid,
                                                  packed_norm_backward_teams<narrow>(exec, rows.rows, grid.columns));
      if (started.count > 0) return;
      bool neighbours = are_neighbouring_parameters<T>(problem.weight);
      for (RowArray const* a : {&problem.in, &problem.d_in, &problem.d_out, &problem.d_sum})
        neighbours = neighbours && (!a->present() || (a->type == type && a->stride[3] == 1));
      if (whole && together == 1) {
        with_staying_shape<T>(staying_lanes<narrow>(grid.columns), start);
      } else if (whole) {
        started = together > 0 ? start_relayed_norm_backward<T>(exec, problem, grid, together)
                               : start_mailed_norm_backward<T>(exec, problem, grid);
        if (started.count == 0) started = start_strip_norm_backward<T, width>(exec, problem, grid);
      } else if (neighbours) {
        if (rows.flat && staying_teams<true>(grid.columns) == 1 &&
            make_ragged<T>(rows, grid, problem.in, problem.d_in, problem.d_out, problem.d_sum))
          with_ragged_staying_shape<T>(grid.columns, start);
        if (started.count == 0 && grid.columns > shortest_strips)
          started = start_strip_norm_backward<T, 1>(exec, problem, grid);
      }
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
