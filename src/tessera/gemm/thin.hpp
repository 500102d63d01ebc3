// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_THIN_HPP
#define TESSERA_GEMM_THIN_HPP

#include <algorithm>
#include <bit>
#include <cmath>

#include <tessera/divisor.hpp>
#include <tessera/gemm/bulk_factors.hpp>
#include <tessera/gemm/splits.hpp>

// Products of few rows on a GPU, which take as long as it takes to read the other factor: straight from memory into
// registers, without tiles, most of whose rows would not be there.
namespace tessera::detail {

/// Factors of 32 and 64 bits: narrower ones are multiplied by tensor cores as fast as they come.
template <class T>
inline constexpr bool has_thin_products = std::is_same_v<T, float> || std::is_same_v<T, double>;

/// How the factors of a problem of few rows are read, of which B is the long one.
struct GemmThinAccess {
  bool across;  // B is contiguous across K, not along it
  int width;    // elements of a pack: 16 bytes, or one where packs are not aligned or do not fill rows

  explicit GemmThinAccess(GemmProblem const& p)
      : across(p.b.row_stride == 1 && p.b.col_stride != 1), width(static_cast<int>(pack_bytes / size_of(p.b.type))) {
    bool const fits = across ? has_packs(p.b.transposed()) : has_packs(p.b) && has_packs(p.a);
    if (!fits) width = 1;
  }

 private:
  bool has_packs(MatrixStack const& m) const {
    return m.col_stride == 1 && m.cols % width == 0 && m.row_stride % width == 0 && m.inner_stride % width == 0 &&
           reinterpret_cast<std::uintptr_t>(m.data) % pack_bytes == 0;
  }
};

/// How a product without tiles is shared out: a team's columns of C, what it has of K in a step, parts of K.
struct GemmThinChoice {
  int rows = 0, columns = 0, step = 0, splits = 1;
  double clocks = HUGE_VAL;
  bool fastest = false;  // for certain
};

/// What chooses it for a problem of few rows, by what each takes.
class GemmThinChooser {
 public:
  GemmThinChooser(GemmProblem const& problem, GemmOptions const& gemm_options, int multiprocessors)
      : p(problem),
        options(gemm_options),
        concurrency(multiprocessors),
        access(p),
        rows(static_cast<int>(
            std::bit_ceil(static_cast<unsigned>(std::clamp<std::int64_t>(p.m(), 1, GemmThinSizes::most_rows))))),
        sizes(GemmThinSizes::of(static_cast<int>(size_of(p.b.type)), rows)),
        at_once(access.across ? sizes.across_at_once : sizes.along_at_once) {}

  GemmThinChoice choose() {
    if (p.m() > GemmThinSizes::most_rows || p.k() > 1 << 30) return best;  // K is counted in 31 bits
    if (access.across)
      for (int lanes = 8; lanes <= sizes.threads; lanes *= 2) consider_parts([&](int) { return lanes * access.width; });
    else
      consider_parts([&](int splits) { return columns_along(splits); });
    best.fastest = sizes.fastest(access.across);
    return best;
  }

 private:
  GemmProblem const& p;
  GemmOptions const& options;
  int concurrency;
  GemmThinAccess access;
  int rows;
  GemmThinSizes sizes;
  int at_once;
  GemmThinChoice best;

  /// More threads share columns where there would be too few teams.
  int columns_along(int splits) const {
    std::int64_t const packs = p.k() / access.width / splits;
    int sharing = sizes.threads;
    auto const columns = [&] { return sizes.threads / sharing * sizes.columns; };
    while (sharing > sizes.least_sharing && packs * sizes.columns < std::int64_t{sizes.packs_a_thread} * sharing &&
           (sharing > packs || 2 * gemm_tiles(p, rows, columns()) * splits > concurrency))
      sharing /= 2;
    return columns();
  }
  template <class Columns>
  void consider_parts(Columns const& columns) {
    if (options.splits > 0) return consider(columns(options.splits), options.splits);
    consider(columns(1), 1);
    for (int teams = 1, before = 1; teams <= 2 * at_once && options.workspace_bytes > 0; ++teams) {
      std::int64_t const tiles = std::max<std::int64_t>(1, gemm_tiles(p, rows, columns(before))),
                         splits = std::min(std::int64_t{teams} * concurrency / tiles, p.k());
      if (splits <= before || gemm_split_bytes(p, static_cast<int>(splits)) > options.workspace_bytes) continue;
      before = static_cast<int>(splits);
      consider(columns(before), before);
    }
  }
  void consider(int columns, int splits) {
    bool const across = access.across;
    int const step = sizes.threads * access.width * (across ? 1 : sizes.columns) / columns,
              steps = step * (across ? sizes.across_unrolled : sizes.along_unrolled);
    double const loads = std::fmax(1, static_cast<double>(p.k()) / splits / steps),
                 teams = static_cast<double>(gemm_tiles(p, rows, columns)) * splits / concurrency,
                 read = static_cast<double>(p.b.inner * p.b.rows) * static_cast<double>(p.b.cols) *
                        static_cast<double>(size_of(p.b.type));
    using Clocks = GemmThinClocks;
    double const memory = read / (read > GemmBulkClocks::cache_bytes ? Clocks::memory : Clocks::cache),
                 clocks = Clocks::start + memory * (across ? sizes.across : sizes.along) +
                          std::fmax(1, teams / at_once) * (Clocks::team + loads * Clocks::loads) +
                          (splits == 1 ? 0 : Clocks::sums + Clocks::part * splits);
    if (clocks < best.clocks) best = {rows, columns, step, splits, clocks, false};
  }
};

/// C(Rows, N) = finish(A(Rows, K) B(N, K)ᵀ), of which a.rows are there. A thread sums products of whole packs of B:
/// along K for `thread_columns` of its rows, or across it for neighbouring columns of C. Those who share an element of
/// C, lanes, warps or parts of K, add up in the order of K's parts, so that results do not depend on who is first.
template <class Exec, class T, int Rows, int Width, bool Across>
struct GemmThin {
  static constexpr GemmThinSizes sizes = GemmThinSizes::of(sizeof(T), Rows);
  static constexpr int threads = sizes.threads, thread_columns = Across ? Width : sizes.columns;
  static constexpr int unrolled = Across ? sizes.across_unrolled : sizes.along_unrolled * (Width == 1 ? 2 : 1);
  static constexpr int teams_at_once = Across ? sizes.across_at_once : sizes.along_at_once;
  static constexpr int values = Rows * thread_columns;
  static constexpr int thread_bits = std::countr_zero(unsigned{threads}),
                       thread_column_bits = std::countr_zero(unsigned{thread_columns});
  static constexpr bool starts_early = true;
  using Values = Pack<T, Width>;

  MatrixStack a, b;
  Finish<T, epilogue::Identity> finish;
  int team_columns;       // of C
  int column_bits;        // of the number of threads that have all columns of a team
  Divisor tiles, splits;  // teams of a plane of C, planes of C with sums of the same product
  int part, longer;       // packs, or elements, of K in one; the first ones have one more
  std::int64_t planes;

  GemmThin(GemmProblem const& p, GemmPlan const& plan)
      : a(p.a),
        b(p.b),
        finish(p, {}),
        team_columns(plan.tile_n),
        column_bits(std::countr_zero(static_cast<unsigned>(plan.tile_n / thread_columns))),
        tiles(gemm_tile_count(p.n(), plan.tile_n, 1)),
        splits(plan.splits),
        part(static_cast<int>(p.k() / (Across ? 1 : Width) / plan.splits)),
        longer(static_cast<int>(p.k() / (Across ? 1 : Width) % plan.splits)),
        planes(p.batch()) {}

  std::int64_t teams() const { return planes * static_cast<int>(tiles); }
  /// What threads leave that share columns, after the places by which they exchange where they need them.
  static constexpr std::size_t scratch_bytes = (threads + std::size_t{threads} * values) * sizeof(T);

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const plane = team.league_rank() / tiles, factors = plane / splits;
    int const split = plane - factors * static_cast<int>(splits);
    std::int64_t const col = std::int64_t{team.league_rank() - plane * static_cast<int>(tiles)} * team_columns;
    int const begin = split * part + (split < longer ? split : longer), end = begin + part + (split < longer ? 1 : 0);
    T const* const left = static_cast<T const*>(a.data) + (a.inner > 1 ? factors * a.inner_stride : 0);
    T const* const right = static_cast<T const*>(b.data) + (b.inner > 1 ? factors * b.inner_stride : 0);
    auto* const room = static_cast<T*>(team.team_scratch(0).get_shmem_aligned(std::size_t{scratch_bytes}, pack_bytes));
    wait_for_kernels_before<Exec>();
    T sum[values] = {};  // (Rows, thread_columns)
    if constexpr (Across)
      sum_across(team, left, right, col, begin, end, sum, room);
    else
      sum_along(team, left, right, col, begin, end, sum, room);
    team.team_barrier();
    add_up(thread_of<Exec>(team), plane, col, room + threads);
  }

 private:
  /// Of the number of threads that share columns.
  KOKKOS_FORCEINLINE_FUNCTION int sharing_bits() const { return thread_bits - column_bits; }

  /// Threads side by side share a group of columns, each with its packs of K.
  KOKKOS_FORCEINLINE_FUNCTION void sum_along(TeamMember<Exec> const& team, T const* left, T const* right,
                                             std::int64_t col, int begin, int end, T (&sum)[values], T* room) const {
    int const thread = thread_of<Exec>(team), bits = sharing_bits(), group = thread >> bits,
              in_group = thread & ((1 << bits) - 1);
    T* const sums = room + threads + group * thread_columns;
    add_along(left, right, col + group * thread_columns, begin + in_group, end, 1 << bits, sum);
    if (bits >= 5) {
      sum_over_lanes(team, thread, sum, room);
      int const lane = thread % 32, value = lane / (32 / values), row = value / thread_columns;
      if (lane % (32 / values) == 0)
        sums[(in_group / 32 * Rows + row) * team_columns + value % thread_columns] = sum[0];
    } else {
      for (int distance = 1 << bits >> 1; distance > 0; distance /= 2) exchange_all(team, thread, distance, sum, room);
      if (in_group == 0) keep(sum, sums);
    }
  }
  /// Neighbouring threads have neighbouring columns, and those behind them the next k.
  KOKKOS_FORCEINLINE_FUNCTION void sum_across(TeamMember<Exec> const& team, T const* left, T const* right,
                                              std::int64_t col, int begin, int end, T (&sum)[values], T* room) const {
    int const thread = thread_of<Exec>(team), lanes = 1 << column_bits, in_row = (thread & (lanes - 1)) * Width;
    if (col + in_row < b.rows)
      add_across(left, right + (col + in_row) * b.row_stride, begin + (thread >> column_bits), end, 1 << sharing_bits(),
                 sum);
    for (int distance = 16; distance >= lanes; distance /= 2) exchange_all(team, thread, distance, sum, room);
    int const slice = lanes < 32 ? thread / 32 : thread >> column_bits;
    if (lanes >= 32 || thread % 32 < lanes) keep(sum, room + threads + slice * Rows * team_columns + in_row);
  }
  KOKKOS_FORCEINLINE_FUNCTION static void exchange_all(TeamMember<Exec> const& team, int thread, int distance,
                                                       T (&sum)[values], T* room) {
    unroll<values>([&](auto i)
                       TESSERA_INLINE_LAMBDA { sum[i] += exchange<Exec>(team, thread, sum[i], distance, room); });
  }
  KOKKOS_FORCEINLINE_FUNCTION void keep(T const (&sum)[values], T* to) const {
    unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
      unroll<thread_columns>([&](auto c)
                                 TESSERA_INLINE_LAMBDA { to[r * team_columns + c] = sum[r * thread_columns + c]; });
    });
  }

  /// Of `thread_columns` rows of B from `col` on, the products of packs `pack`, pack + step ... below `end`.
  KOKKOS_FORCEINLINE_FUNCTION void add_along(T const* left, T const* right, std::int64_t col, int pack, int end,
                                             int step, T (&sum)[values]) const {
    std::int64_t const a_step = step * Width * a.col_stride, b_step = step * Width * b.col_stride;
    T const *x = left + pack * Width * a.col_stride, *y[thread_columns];
    unroll<thread_columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      std::int64_t const at = col + c < b.rows ? col + c : b.rows - 1;  // what is not there is not stored
      y[c] = right + at * b.row_stride + pack * Width * b.col_stride;
    });
    auto const multiply = [&](auto count) TESSERA_INLINE_LAMBDA {
      multiply_along<count>(x, a_step, y, b_step, sum);
      x += count * a_step;
      unroll<thread_columns>([&](auto c) TESSERA_INLINE_LAMBDA { y[c] += count * b_step; });
    };
    TESSERA_ROLLED
    for (; pack + (unrolled - 1) * step < end; pack += unrolled * step) multiply(Constant<unrolled>{});
    if constexpr (unrolled > 1) {
      TESSERA_ROLLED
      for (; pack < end; pack += step) multiply(Constant<1>{});
    }
  }
  template <int Count>
  KOKKOS_FORCEINLINE_FUNCTION void multiply_along(T const* left, std::int64_t a_step,
                                                  T const* const (&right)[thread_columns], std::int64_t b_step,
                                                  T (&sum)[values]) const {
    Values y[Count][thread_columns];
    unroll<Count>([&](auto i) TESSERA_INLINE_LAMBDA {
      unroll<thread_columns>([&](auto c) TESSERA_INLINE_LAMBDA { y[i][c] = load_pack<Width>(right[c] + i * b_step); });
    });
    unroll<Count>([&](auto i) TESSERA_INLINE_LAMBDA {
      Values x[Rows];
      unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA { x[r] = load_pack<Width>(left + row(r) + i * a_step); });
      unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
        unroll<thread_columns>([&](auto c) TESSERA_INLINE_LAMBDA {
          unroll<Width>([&](auto j) TESSERA_INLINE_LAMBDA { sum[r * thread_columns + c] += x[r][j] * y[i][c][j]; });
        });
      });
    });
  }
  /// Where a row of A begins. The last again in place of those that are not there, whose sums are not stored: a
  /// question for each would have every load wait for the products before.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t row(int r) const {
    return (r < a.rows ? r : static_cast<int>(a.rows) - 1) * a.row_stride;
  }

  /// Of `Width` columns of C, the products of k, k + step ... below `end`.
  KOKKOS_FORCEINLINE_FUNCTION void add_across(T const* left, T const* right, int k, int end, int step,
                                              T (&sum)[values]) const {
    std::int64_t const a_step = step * a.col_stride, b_step = step * b.col_stride;
    T const *x = left + k * a.col_stride, *y = right + k * b.col_stride;
    auto const multiply = [&](auto count) TESSERA_INLINE_LAMBDA {
      multiply_across<count>(x, a_step, y, b_step, sum);
      x += count * a_step, y += count * b_step;
    };
    TESSERA_ROLLED
    for (; k + (unrolled - 1) * step < end; k += unrolled * step) multiply(Constant<unrolled>{});
    TESSERA_ROLLED
    for (; k + 3 * step < end; k += 4 * step) multiply(Constant<4>{});
    TESSERA_ROLLED
    for (; k < end; k += step) multiply(Constant<1>{});
  }
  template <int Count>
  KOKKOS_FORCEINLINE_FUNCTION void multiply_across(T const* left, std::int64_t a_step, T const* right,
                                                   std::int64_t b_step, T (&sum)[values]) const {
    Values y[Count];
    unroll<Count>([&](auto i) TESSERA_INLINE_LAMBDA { y[i] = load_pack<Width>(right + i * b_step); });
    unroll<Count>([&](auto i) TESSERA_INLINE_LAMBDA {
      unroll<Rows>([&](auto r) TESSERA_INLINE_LAMBDA {
        T const x = left[row(r) + i * a_step];
        unroll<Width>([&](auto j) TESSERA_INLINE_LAMBDA { sum[r * Width + j] += x * y[i][j]; });
      });
    });
  }

  /// The sum over the lanes of value i is sum[0] of those from 32 / values * i on: at every distance lanes give each
  /// other half of what they have, as long as that is more than one.
  KOKKOS_FORCEINLINE_FUNCTION static void sum_over_lanes(TeamMember<Exec> const& team, int thread, T (&sum)[values],
                                                         T* room) {
    static_assert(is_power_of_two(values) && values <= 32);
    unroll<5>([&](auto turn) TESSERA_INLINE_LAMBDA {
      constexpr int distance = 16 >> turn, left = (values >> turn) / 2;
      if constexpr (left == 0) {
        sum[0] += exchange<Exec>(team, thread, sum[0], distance, room);
      } else {
        bool const upper = (thread & distance) != 0;
        unroll<left>([&](auto i) TESSERA_INLINE_LAMBDA {
          T const sent = upper ? sum[i] : sum[i + left], kept = upper ? sum[i + left] : sum[i];
          sum[i] = kept + exchange<Exec>(team, thread, sent, distance, room);
        });
      }
    });
  }

  /// Stores what the (sharing, Rows, team_columns) sums amount to.
  KOKKOS_FORCEINLINE_FUNCTION void add_up(int thread, int plane, std::int64_t first_col, T const* sums) const {
    int const lanes = Across && column_bits < 5 ? 32 >> column_bits : (Across ? 1 : 32);  // have been added up
    int const sharing = (1 << sharing_bits()) / lanes;
    TESSERA_ROLLED
    for (int e = thread; e < Rows * team_columns; e += threads) {
      int const row = Rows == 1 ? 0 : e >> (column_bits + thread_column_bits);
      std::int64_t const col = first_col + (e - row * team_columns);
      if (row >= a.rows || col >= b.rows) continue;
      T sum = sums[e];
      TESSERA_ROLLED
      for (int s = 1; s < sharing; ++s) sum += sums[s * Rows * team_columns + e];
      Plane const of{0, plane};
      write(finish.c, finish.c.offset(of, row, col), finish.element(sum, of, row, col));
    }
  }
};

/// f(the kernel's type, as a tag) of a plan.
template <class Exec, class T, class F>
void visit_gemm_thin(GemmThinAccess const& access, int rows, F const& f) {
  auto const of_rows = [&](auto width, auto across) {
    if (rows == 1) return f(ScalarTag<GemmThin<Exec, T, 1, width, across>>{});
    if (rows == 2) return f(ScalarTag<GemmThin<Exec, T, 2, width, across>>{});
    if (rows == 4) return f(ScalarTag<GemmThin<Exec, T, 4, width, across>>{});
    f(ScalarTag<GemmThin<Exec, T, 8, width, across>>{});
  };
  auto const of_width = [&](auto across) {
    if (access.width == 1) return of_rows(Constant<1>{}, across);
    of_rows(Constant<static_cast<int>(pack_bytes / sizeof(T))>{}, across);
  };
  if (access.across)
    of_width(Constant<1>{});
  else
    of_width(Constant<0>{});
}

/// The plan of a choice, for a problem of few rows.
template <class T, class Exec>
GemmPlan plan_gemm_thin(Exec const& exec, GemmProblem const& p, GemmOptions const& options,
                        GemmThinChoice const& choice, char const* reason) {
  GemmPlan plan;
  plan.algorithm = Algorithm::coarsened;
  plan.tile_m = choice.rows;
  plan.tile_n = choice.columns;
  plan.tile_k = choice.step;
  plan.team_threads = GemmThinSizes::threads;
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.clocks = choice.clocks;
  plan.reason = reason;
  split_gemm(plan, p, options, (p.k() + choice.step - 1) / choice.step, choice.splits);
  plan.tiles = gemm_tiles(p, choice.rows, choice.columns) * plan.splits;
  visit_gemm_thin<Exec, T>(GemmThinAccess(p), choice.rows,
                           [&](auto tag) { plan.scratch_bytes = decltype(tag)::type::scratch_bytes; });
  return plan;
}

/// Runs what the plan says. Apart, so that the library holds it, in a source of its own.
template <class Exec, class T>
void run_gemm_thin([[maybe_unused]] Exec const& exec, [[maybe_unused]] GemmProblem const& problem,
                   [[maybe_unused]] GemmPlan const& plan) {
  if constexpr (has_async_pipeline<Exec>) {
    GemmProblem const p = planned_problem<epilogue::Identity>(problem, plan);
    visit_gemm_thin<Exec, T>(GemmThinAccess(p), plan.tile_m, [&](auto tag) {
      using Kernel = typename decltype(tag)::type;
      Kernel const kernel(p, plan);
      launch<Kernel::threads, Kernel::teams_at_once>("tessera::gemm", exec, kernel.teams(), Kernel::scratch_bytes,
                                                     kernel);
    });
  }
}

}  // namespace tessera::detail

#endif
