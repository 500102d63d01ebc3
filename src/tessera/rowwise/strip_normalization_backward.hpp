// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STRIP_NORMALIZATION_BACKWARD_HPP
#define TESSERA_ROWWISE_STRIP_NORMALIZATION_BACKWARD_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/rowwise/long_norm_gradient.hpp>
#include <tessera/rowwise/staying_shapes.hpp>

// Gradients of norms whose rows are too long for all teams that can share one. A team has a strip of columns of many
// rows. What it finds of each row is left in the workspace; when all have, a second kernel reads the operands again,
// the rows that were read last first, some of which are still in the cache:
//
//     strips of columns     0        1        2    ..
//     rows of group 0    sums     sums     sums       -> parts (rows, strips)
//     rows of group 1    sums     sums     sums
//                       then, the parts of a row being joined by whoever needs it,
//     rows of group 0   d_in     d_in     d_in        -> gradients of the columns (groups, columns)
//     rows of group 1   d_in     d_in     d_in
namespace tessera::detail {

inline constexpr int strip_threads = 512;
inline constexpr int strip_batch = 128;  // rows about which a team knows something at a time
inline constexpr int most_strip_stages = 6;
/// Rows of so many columns have other kernels, whatever they are.
inline constexpr std::int64_t shortest_strips = 4096;
/// Of packs of elements of 16 bits, or else half as many, for which there are registers enough.
constexpr int strip_columns(bool small) { return strip_threads * (small ? staying_columns : staying_columns / 2); }

/// How rows of columns are laid out over teams.
struct StripLayout {
  int strips = 1, groups = 1;
  int rows = 0;  // of a group, of the last one perhaps fewer
};

inline std::int64_t norm_strips(std::int64_t columns, bool small) {
  return (columns + strip_columns(small) - 1) / strip_columns(small);
}
/// Groups of as many rows, so many that there is a multiprocessor for each of their strips, if not too many.
template <class Exec>
StripLayout strip_layout(Exec const& exec, std::int64_t rows, std::int64_t columns, bool small) {
  std::int64_t const strips = norm_strips(columns, small),
                     most = std::clamp<std::int64_t>(Machine<Exec>::concurrency(exec) / strips, 1, rows),
                     each = (rows + most - 1) / most;
  return {static_cast<int>(strips), static_cast<int>((rows + each - 1) / each), static_cast<int>(each)};
}
/// Bytes of the workspace, with so many gradients of columns.
inline std::size_t strip_workspace(StripLayout const& layout, std::int64_t rows, std::int64_t columns, int gradients) {
  return pack_bytes + static_cast<std::size_t>(sizeof(float) * gradients * layout.groups * columns +
                                               sizeof(Pack<float, 2>) * rows * layout.strips);
}
template <class Exec>
std::size_t strip_workspace(Exec const& exec, std::int64_t rows, std::int64_t columns, int gradients) {
  std::size_t most = 0;
  for (bool small : {false, true})
    most = std::max(most, strip_workspace(strip_layout(exec, rows, columns, small), rows, columns, gradients));
  return most;
}

/// A strip's packs of `Width` elements: rows of whole packs are on their way into scratch, as many as it has room for;
/// of others the next one is on its way into registers.
template <class Exec, class T, int Width>
struct StripShape {
  static constexpr bool streams = Width == packed_width<T>;
  static constexpr int packs = strip_columns(Width > 4) / (strip_threads * Width);
  using Staged = StagedNormGradient<Exec, T, streams ? strip_threads : 1, packs, Width>;
};

/// One thread's part of a strip.
template <class Exec, class T, int Width>
struct NormStrip : LongNormGradient<typename StripShape<Exec, T, Width>::Staged> {
  using Staged = typename StripShape<Exec, T, Width>::Staged;
  using Base = LongNormGradient<Staged>;
  using typename Base::Atoms, typename Base::Sums;
  using Raw = typename Staged::Raw;
  static constexpr int width = Width, packs = Staged::packs, warps = strip_threads / 32;
  static constexpr bool starts_early = true, streams = StripShape<Exec, T, Width>::streams;

  StripLayout layout = {};
  int stages = 1;         // rows that there is room for
  Sums* parts = nullptr;  // (rows, strips)

  static constexpr std::size_t stage_bytes(int operands) { return sizeof(Raw) * strip_threads * packs * operands; }

  /// A team's rows, and a thread's columns of them.
  struct Place {
    static constexpr int step = strip_threads * Width;
    int strip, group, first_row, rows, pack, left;
    KOKKOS_FORCEINLINE_FUNCTION bool has(int k) const { return k * strip_threads < left; }
    KOKKOS_FORCEINLINE_FUNCTION int column() const { return pack * Width; }
  };
  KOKKOS_FORCEINLINE_FUNCTION Place place(TeamMember<Exec> const& team) const {
    Place p;
    p.group = team.league_rank() / layout.strips;
    p.strip = team.league_rank() - p.group * layout.strips;
    p.first_row = p.group * layout.rows;
    int const left = static_cast<int>(this->grid.rows) - p.first_row;
    p.rows = left < layout.rows ? left : layout.rows;
    p.pack = p.strip * strip_threads * packs + Atoms::thread();
    p.left = this->grid.packs - p.pack;
    return p;
  }
  KOKKOS_FORCEINLINE_FUNCTION LongRowPlace row(Place const& p, int i) const { return {this->grid, p.first_row + i}; }

  /// f(i, stage) for the team's rows in order, or backwards, of which the operands are in a stage, zeros where there is
  /// none. before(i, count), in which threads may meet, comes before some rows from i on.
  template <bool Backwards, int Operands, class Before, class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(Place const& p, void* room, Operand const (&operands)[Operands],
                                            Before const& before, F const& f) const {
    auto const at = [&](int turn) { return Backwards ? p.rows - 1 - turn : turn; };
    auto const begin = [&](int turn) TESSERA_INLINE_LAMBDA {
      int const left = p.rows - turn, count = left < strip_batch ? left : strip_batch;
      if (turn % strip_batch == 0) before(Backwards ? left - count : turn, count);
    };
    if constexpr (streams) {
      constexpr int of_stage = Operands * packs * strip_threads;
      Raw* const mine = static_cast<Raw*>(room) + Atoms::thread();
      begin(0);
      TESSERA_ROLLED
      for (int i = 0; i < stages; ++i) {
        clear_beyond<Operands>(p, mine + i * of_stage);
        copy(p, i < p.rows, at(i), operands, mine + i * of_stage);
      }
      int stage = 0;
      TESSERA_ROLLED
      for (int turn = 0; turn < p.rows; ++turn) {
        if (turn > 0) begin(turn);
        Atoms::wait_for_copies(stages - 1);
        f(at(turn), mine + stage * of_stage);
        copy(p, turn + stages < p.rows, at(turn + stages), operands, mine + stage * of_stage);
        stage = stage + 1 < stages ? stage + 1 : 0;
      }
    } else {
      Raw now[Operands * packs], next[Operands * packs];
      load(p, at(0), operands, next);
      TESSERA_ROLLED
      for (int turn = 0; turn < p.rows; ++turn) {
        begin(turn);
        unroll<Operands * packs>([&](auto k) { now[k] = next[k]; });
        if (turn + 1 < p.rows) load(p, at(turn + 1), operands, next);
        f(at(turn), now);
      }
    }
  }

 private:
  /// f(which, the place of the thread's first pack of row i).
  template <int Operands, class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_operand(Place const& p, int i, Operand const (&operands)[Operands],
                                                F const& f) const {
    std::int64_t offsets[Operands];
    row(p, i).offsets(operands, offsets);
    unroll<Operands>(
        [&](auto which) { f(which, static_cast<T const*>(operands[which].data) + offsets[which] + p.column()); });
  }
  template <int Operands>
  KOKKOS_FORCEINLINE_FUNCTION void clear_beyond(Place const& p, Raw* stage) const {
    unroll<packs>([&](auto k) {
      if (p.has(k)) return;
      for (int which = 0; which < Operands; ++which)
        for (int j = 0; j < width; ++j) stage[(which * packs + k) * strip_threads][j] = T(0.0f);
    });
  }
  /// Begins to copy row i, if there `is` one.
  template <int Operands>
  KOKKOS_FORCEINLINE_FUNCTION void copy(Place const& p, bool is, int i, Operand const (&operands)[Operands],
                                        Raw* stage) const {
    if (is)
      each_operand(p, i, operands, [&](auto which, T const* from) TESSERA_INLINE_LAMBDA {
        unroll<packs>([&](auto k) {
          if (p.has(k)) Atoms::copy_ahead(&stage[(which * packs + k) * strip_threads], from + k * Place::step);
        });
      });
    Atoms::end_copies();
  }
  template <int Operands>
  KOKKOS_FORCEINLINE_FUNCTION void load(Place const& p, int i, Operand const (&operands)[Operands],
                                        Raw (&to)[Operands * packs]) const {
    unroll<Operands * packs>([&](auto k) { to[k] = __builtin_bit_cast(Raw, PackBits<T, width>::filled(T(0.0f))); });
    each_operand(p, i, operands, [&](auto which, T const* from) TESSERA_INLINE_LAMBDA {
      unroll<packs>([&](auto k) {
        constexpr int at = decltype(which)::value * packs + decltype(k)::value;
        if (p.has(k)) to[at] = load_pack<width>(from + k * Place::step);
      });
    });
  }
};

/// Leaves the parts of rows.
template <class Exec, class T, int Width>
struct NormStripSums : NormStrip<Exec, T, Width> {
  using Strip = NormStrip<Exec, T, Width>;
  using Strip::packs, Strip::warps;
  using typename Strip::Staged, typename Strip::Raw, typename Strip::Sums, typename Strip::Atoms, typename Strip::Place;
  using Statistics = typename Staged::Statistics;
  static constexpr int operands = 2;

  struct Kept {
    Sums of_warps[strip_batch][warps];
    Statistics of_rows[strip_batch];
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto* const kept = static_cast<Kept*>(
        team.team_scratch(0).get_shmem_aligned(sizeof(Kept) + this->stages * Strip::stage_bytes(operands), 16));
    wait_for_kernels_before<Exec>();
    Place const p = this->place(team);
    typename Staged::Slopes slopes;
    this->load_slopes(p, slopes);
    int const thread = Atoms::thread();
    int first = 0, count = 0;  // rows at hand
    auto const leave_them = [&] {
      team.team_barrier();
      if (thread < count) leave(p, first + thread, kept->of_warps[thread]);
    };
    this->template each_row<false>(
        p, kept + 1, {this->in, this->d_out},
        [&](int i, int some) TESSERA_INLINE_LAMBDA {
          leave_them();
          first = i;
          count = some;
          if (thread < count) kept->of_rows[thread] = this->statistics(this->row(p, first + thread));
          team.team_barrier();
        },
        [&](int i, Raw* stage) TESSERA_INLINE_LAMBDA {
          typename Staged::Values unused[packs];
          Sums const sums =
              Strip::joined(Staged::template sums_of<false>(stage, kept->of_rows[i - first], slopes, unused));
          if (thread % 32 == 0) kept->of_warps[i - first][thread / 32] = sums;
        });
    leave_them();
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void leave(Place const& p, int row, Sums const (&of_warps)[warps]) const {
    Sums all{0, 0};
    for (Sums const& each : of_warps) {
      all.gradient += each.gradient;
      all.product += each.product;
    }
    this->parts[std::int64_t{p.first_row + row} * this->layout.strips + p.strip] = all;
  }
};

/// Joins them and writes d_in; with `Adds` there is a d_sum.
template <class Exec, class T, int Width, bool Adds>
struct NormStripGradients : NormStrip<Exec, T, Width> {
  using Strip = NormStrip<Exec, T, Width>;
  using typename Strip::Staged, typename Strip::Raw, typename Strip::Sums, typename Strip::Atoms, typename Strip::Place;
  using Statistics = typename Staged::Statistics;
  using Values = typename Staged::Values;
  using Strip::packs, Strip::width, Strip::warps;
  static constexpr int operands = Adds ? 3 : 2;

  /// What is known of a row.
  struct Known {
    typename Staged::Line line;
    Statistics statistics;
  };
  using Kept = Known[strip_batch];

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto* const kept = static_cast<Kept*>(
        team.team_scratch(0).get_shmem_aligned(sizeof(Kept) + this->stages * Strip::stage_bytes(operands), 16));
    Place const p = this->place(team);
    typename Staged::Slopes slopes;
    this->load_slopes(p, slopes);
    typename Staged::Gradients gradients;
    wait_for_kernels_before<Exec>();
    int first = 0;  // of the rows at hand
    auto const find_some = [&](int i, int count) TESSERA_INLINE_LAMBDA {
      team.team_barrier();
      first = i;
      find(p, i, count, *kept);
      team.team_barrier();
    };
    auto const write = [&](int i, Raw* stage) TESSERA_INLINE_LAMBDA {
      Known const of_row = (*kept)[i - first];
      T* const to =
          static_cast<T*>(const_cast<void*>(this->d_in.data)) + this->row(p, i).offset(this->d_in) + p.column();
      Values unused[packs];
      Staged::template write_row<false>(stage, of_row.statistics, slopes, gradients, of_row.line, unused, Adds,
                                        [&](auto k, Values const& out) TESSERA_INLINE_LAMBDA {
                                          if (p.has(k))
                                            store_pack<width>(to + k * Place::step, Atoms::template narrowed<T>(out));
                                        });
    };
    if constexpr (Adds)
      this->template each_row<true>(p, kept + 1, {this->in, this->d_out, this->d_sum}, find_some, write);
    else
      this->template each_row<true>(p, kept + 1, {this->in, this->d_out}, find_some, write);
    this->leave(p, p.group, gradients);
  }

 private:
  /// Of some rows, a warp each.
  KOKKOS_FORCEINLINE_FUNCTION void find(Place const& p, int first, int count, Kept& known) const {
    int const thread = Atoms::thread(), strips = this->layout.strips;
    TESSERA_ROLLED
    for (int i = thread / 32; i < count; i += warps) {
      Sums all{0, 0};
      Sums const* const of_row = this->parts + std::int64_t{p.first_row + first + i} * strips;
      for (int strip = thread % 32; strip < strips; strip += 32) {
        all.gradient += of_row[strip].gradient;
        all.product += of_row[strip].product;
      }
      all = Strip::joined(all);
      Statistics const own = this->statistics(this->row(p, first + i));
      if (thread % 32 == 0)
        known[i] = {typename Staged::Line(this->centered, this->inverse_length, own.factor, all), own};
    }
  }
};

template <class Exec, class Kernel>
void start_strips(char const* label, Exec const& exec, Kernel kernel) {
  std::size_t const stage = Kernel::stage_bytes(Kernel::operands), kept = sizeof(typename Kernel::Kept);
  kernel.stages =
      Kernel::streams
          ? static_cast<int>(std::min<std::size_t>((scratch_of_each(exec, 1) - kept) / stage, most_strip_stages))
          : 0;
  launch<strip_threads, 1>(KernelLabel{label, "strips of rows, in two passes"}, exec,
                           std::int64_t{kernel.layout.groups} * kernel.layout.strips,
                           kept + stage * static_cast<std::size_t>(kernel.stages), kernel);
}

/// Starts both for rows of T in packs of `Width`, whose elements are neighbours; returns how many groups of rows have
/// gradients of columns to leave, or 0 where the workspace is too small, which it may be where none are wanted.
template <class T, int Width, class Exec>
std::int64_t start_strip_norm_backward(Exec const& exec, NormBackwardProblem const& problem, TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  constexpr std::int64_t most =
      std::numeric_limits<std::int32_t>::max();  // columns, with what is behind the last strip
  if (grid.tiles() > most / 4 || grid.columns > most / 2) return 0;
  NormStrip<Space, T, Width> strip{{problem, grid}};
  std::int64_t const rows = strip.grid.rows;
  strip.layout = strip_layout(exec, rows, grid.columns, Width > 4);
  int const gradients = (problem.d_weight.present() ? 1 : 0) + (problem.d_bias.present() ? 1 : 0);
  if (problem.workspace_bytes < strip_workspace(strip.layout, rows, grid.columns, gradients)) return 0;
  NormBackwardSums<float> const sums(problem, strip.layout.groups);
  strip.d_weights = sums.weights;
  strip.d_biases = sums.biases;
  strip.parts = static_cast<typename NormStrip<Space, T, Width>::Sums*>(sums.behind);
  start_strips(problem.label, exec, NormStripSums<Space, T, Width>{strip});
  if (problem.d_sum.present())
    start_strips(problem.label, exec, NormStripGradients<Space, T, Width, true>{strip});
  else
    start_strips(problem.label, exec, NormStripGradients<Space, T, Width, false>{strip});
  return strip.layout.groups;
}

}  // namespace tessera::detail

#endif
