// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_CORE_PAIR_REDUCE_HPP
#define TESSERA_ELEMENT_CORE_PAIR_REDUCE_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/element/pair_data.hpp>
#include <tessera/element/reduce_data.hpp>
#include <tessera/launch.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>
#include <tessera/vector_units.hpp>

// Both directions by a core, in strips of the first-level cache over which loops become SIMD code: along rows, and
// across them, where a strip holds an element of each of its columns. All of it is inlined for certain: what is left
// out of the versions for AVX2 and AVX-512 is compiled for the baseline.
namespace tessera::detail {

inline constexpr int pair_strip = 512, pair_columns = 256;

/// Accumulators of a loop over a strip, which stay in registers: chains that go on at the same time. (Loops of 16 steps
/// g++ unrolls before it could make vectors of them.)
inline constexpr int pair_lanes = 32;

/// All of `value` into one, in halves. `join` selects without a branch, which nobody could foresee.
template <int N, class A, class Join>
KOKKOS_FORCEINLINE_FUNCTION A fold_lanes(A (&value)[N], Join const& join) {
  static_assert(is_power_of_two(N) && N >= 8);
  for (int half = N / 2; half >= 8; half /= 2)
    for (int j = 0; j < half; ++j) value[j] = join(value[j], value[j + half]);
  A const a = join(value[0], value[4]), b = join(value[1], value[5]), c = join(value[2], value[6]),
          d = join(value[3], value[7]);
  return join(join(a, c), join(b, d));
}

/// The first of the largest numbers of a strip whose indices are first + i step.
template <class A>
struct FirstOfStrip {
  using Pair = FirstLargest<A>;
  /// Steps of a part, as wide as the numbers beside which loops select them.
  using Step = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  static constexpr int lanes = pair_lanes, multiple = lanes;  // of elements that a strip is filled up to

  /// `n` counts the -Inf that fill up the lanes.
  KOKKOS_FORCEINLINE_FUNCTION static void take(Pair& mine, A const* x, int n, std::int64_t first, std::int64_t step) {
    Pair found{largest(x, n), first};
    if (Pair::joined(mine, found).index != first) return;  // not even if it were the strip's first element
    found.index += place(x, found.value) * step;
    mine = Pair::joined(mine, found);
  }

  /// Elements of rows [begin, end), in order, of each of n columns.
  template <class Read, class Store>
  KOKKOS_FORCEINLINE_FUNCTION static void columns(std::int64_t begin, std::int64_t end, int n, Read const& read,
                                                  Store const& store) {
    A value[pair_columns], x[pair_columns];
    Step found[pair_columns];
    read(begin, value);
    for (int j = 0; j < n; ++j) found[j] = 0;
    for (std::int64_t row = begin + 1; row < end; ++row) {
      read(row, x);
      Step const step = static_cast<Step>(row - begin);
      for (int j = 0; j < n; ++j) {
        bool const better = takes_first_place(x[j], value[j]);
        value[j] = better ? x[j] : value[j];
        found[j] = better ? step : found[j];
      }
    }
    for (int j = 0; j < n; ++j)
      store(j, begin + found[j], [&](std::int64_t index) TESSERA_INLINE_LAMBDA { return Pair{value[j], index}; });
  }

 private:
  /// A NaN if there is one.
  KOKKOS_FORCEINLINE_FUNCTION static A largest(A const* x, int n) {
    A top[lanes];
    for (int j = 0; j < lanes; ++j) top[j] = x[j];
    for (int i = lanes; i < n; i += lanes)
      for (int j = 0; j < lanes; ++j) top[j] = larger_or_nan(top[j], x[i + j]);
    return fold_lanes(top, [](A a, A b) TESSERA_INLINE_LAMBDA { return chosen((b > a) | (b != b), b, a); });
  }
  /// Of the first element that is `top`, which is there.
  KOKKOS_FORCEINLINE_FUNCTION static int place(A const* x, A top) {
    bool const nan = top != top;
    int i = 0;
    for (;; i += lanes) {
      Step found = 0;
      for (int j = 0; j < lanes; ++j) found |= (x[i + j] == top) | (nan & (x[i + j] != x[i + j]));
      if (found != 0) break;
    }
    while (nan ? x[i] == x[i] : x[i] != top) ++i;
    return i;
  }
};

/// The sum of a strip's exponentials relative to the largest number until then. Infinities count as the largest finite
/// numbers there, so that no difference is NaN unless an element is.
template <class A>
struct ExponentialsOfStrip {
  using Pair = ExponentialSum<A>;
  static constexpr int lanes = pair_lanes, multiple = 2 * lanes;  // of elements that a strip is filled up to
  static constexpr int rows = sizeof(A) == 8 ? 8 : 16;  // of columns, between two times that sums are rescaled
  static constexpr A lowest = -std::numeric_limits<A>::infinity();

  KOKKOS_FORCEINLINE_FUNCTION static void take(Pair& mine, A* x, int n, std::int64_t, std::int64_t) {
    A top[multiple], sum[lanes];
    for (int j = 0; j < multiple; ++j) top[j] = mine.top;
    for (int i = 0; i < n; i += multiple)
      for (int j = 0; j < multiple; ++j) top[j] = larger_number(top[j], x[i + j]);
    A const before = finite_beside(mine.top);
    mine.top = fold_lanes(top, [](A a, A b) TESSERA_INLINE_LAMBDA { return chosen(b > a, b, a); });
    A const reference = finite_beside(mine.top);
    if (reference != before) mine.sum *= exp_below_in_sum(before - reference);
    if (reference != mine.top)
      for (int i = 0; i < n; ++i) x[i] = at_most_finite(x[i]);
    for (int j = 0; j < lanes; ++j) sum[j] = 0;
    for (int i = 0; i < n; i += lanes)
      for (int j = 0; j < lanes; ++j) sum[j] += exp_below_in_sum(x[i + j] - reference);
    mine.sum += fold_lanes(sum, [](A a, A b) TESSERA_INLINE_LAMBDA { return a + b; });
  }

  template <class Read, class Store>
  KOKKOS_FORCEINLINE_FUNCTION static void columns(std::int64_t begin, std::int64_t end, int n, Read const& read,
                                                  Store const& store) {
    A top[pair_columns], sum[pair_columns], block[rows][pair_columns];
    int const whole = (n + lanes - 1) / lanes * lanes;
    for (int j = 0; j < whole; ++j) top[j] = lowest, sum[j] = 0;
    for (std::int64_t row = begin; row < end; row += rows) {
      int const here = static_cast<int>(end - row < rows ? end - row : rows);
      for (int r = 0; r < here; ++r) {
        read(row + r, block[r]);
        for (int j = n; j < whole; ++j) block[r][j] = lowest;
      }
      for (int first = 0; first < whole; first += lanes) take_rows(block, here, first, top + first, sum + first);
    }
    for (int j = 0; j < n; ++j)
      store(j, begin, [&](std::int64_t) TESSERA_INLINE_LAMBDA { return Pair{top[j], sum[j]}; });
  }

 private:
  /// x where it is larger; NaNs do not count.
  KOKKOS_FORCEINLINE_FUNCTION static A larger_number(A top, A x) { return x > top ? x : top; }
  KOKKOS_FORCEINLINE_FUNCTION static A at_most_finite(A x) {
    constexpr A most = std::numeric_limits<A>::max();
    return x > most ? most : x;
  }
  KOKKOS_FORCEINLINE_FUNCTION static A exponential_of(A x, A reference) {
    return exp_below_in_sum(at_most_finite(x) - reference);
  }

  /// Some rows' elements of `lanes` columns.
  KOKKOS_FORCEINLINE_FUNCTION static void take_rows(A const (&block)[rows][pair_columns], int here, int first, A* top,
                                                    A* sum) {
    A largest[lanes], reference[lanes], added[lanes];
    for (int j = 0; j < lanes; ++j) largest[j] = top[j];
    for (int r = 0; r < here; ++r)
      for (int j = 0; j < lanes; ++j) largest[j] = larger_number(largest[j], block[r][first + j]);
    for (int j = 0; j < lanes; ++j) {
      reference[j] = finite_beside(largest[j]);
      added[j] = sum[j] * exp_below_in_sum(finite_beside(top[j]) - reference[j]);
      top[j] = largest[j];
      sum[j] = 0;
    }
    for (int r = 0; r < here; ++r)
      for (int j = 0; j < lanes; ++j) sum[j] += exponential_of(block[r][first + j], reference[j]);
    for (int j = 0; j < lanes; ++j) sum[j] += added[j];
  }
};

template <class Pair>
struct StripsOfPair;
template <class A>
struct StripsOfPair<FirstLargest<A>> {
  using type = FirstOfStrip<A>;
};
template <class A>
struct StripsOfPair<ExponentialSum<A>> {
  using type = ExponentialsOfStrip<A>;
};

/// Rows that are read as columns, an element of each of a strip of rows at a time: the lanes of one would be few, and
/// joining them most of the work.
inline constexpr std::int64_t pair_short_row = 64;

/// Loops and how cores share the work. None of these numbers depends on the machine's size, so that the order of the
/// additions does not either.
struct CorePairPlan {
  Dimensions<2> kept;     // input, output
  Dimensions<2> reduced;  // input, index
  bool along = true;
  std::int64_t results, elements, groups = 0;
  int rounds = 1;  // results, or strips of them, of a team
  std::int64_t parts = 1, part_steps = 0;

  /// With `indexed`, indices count the elements with the last axis fastest.
  CorePairPlan(ReduceProblem const& problem, bool indexed)
      : kept(problem.kept),
        reduced(indexed_loops(problem.reduced, indexed)),
        results(kept.size()),
        elements(problem.reduced.size()) {
    kept.collapse();
    if (results == 0) return;
    bool in_order = true;  // columns are walked by index
    for (int d = 1; d < reduced.rank; ++d) in_order = in_order && reduced.stride[1][d - 1] <= reduced.stride[1][d];
    along = results == 1 || !in_order || reduced.stride[0][0] <= kept.stride[0][0];
    if (elements == 1 || (in_order && elements <= pair_short_row && results >= pair_columns)) along = false;
    share_out();
  }

 private:
  void share_out() {
    constexpr std::int64_t worth_a_team = 16384, most_teams = 512;
    std::int64_t const row = reduced.extent[0], width = kept.extent[0];
    std::int64_t const slots = along ? results : divide_up(width, pair_columns) * (results / width);
    std::int64_t const steps = !along ? elements : row > 0 ? divide_up(row, pair_strip) * (elements / row) : 0;
    std::int64_t const work =
        std::max<std::int64_t>(1, elements * (along ? 1 : std::min<std::int64_t>(width, pair_columns)));
    rounds = static_cast<int>(std::clamp<std::int64_t>(worth_a_team / work, 1, 4096));
    groups = divide_up(slots, rounds);
    parts =
        std::max<std::int64_t>(1, std::min({results * elements / groups / worth_a_team, most_teams / groups, steps}));
    part_steps = divide_up(steps, parts);
    if (part_steps > 0) parts = divide_up(steps, part_steps);  // none is empty
  }
};

/// Parts of results, or results.
template <class Exec, class A, class Pair>
struct CorePairReduce {
  static constexpr bool vectorises = true;
  using Strips = typename StripsOfPair<Pair>::type;
  // How many strips before it is read one is fetched: processors foresee neither the next page nor the next row.
  static constexpr int strips_fetched = 2, rows_fetched = 4;

  std::byte const* in;
  ReadElements<A> read;
  PairOutput out;
  Pair* part_results;  // (parts, results); nullptr where there is one part
  std::int64_t results, groups, parts, part_steps;
  int rounds;
  bool is_along, rows_follow, negated;  // rows_follow: a row begins where the one before ends
  PackSpace<2, 1> outputs;              // along: input in bytes, output
  PackSpace<2, pair_strip> row;         // along: input in bytes, index
  PackSpace<2, pair_columns> across;    // input in bytes, output
  PackSpace<2, 1> steps;                // across: input in bytes, index

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    std::int64_t const part = team.league_rank() / groups, group = team.league_rank() % groups;
    std::int64_t const count = is_along ? row.packs : steps.packs, begin = part * part_steps;
    std::int64_t const end = begin + part_steps < count ? begin + part_steps : count;
    for (int round = 0; round < rounds; ++round) {
      std::int64_t const slot = group * rounds + round;
      if (slot >= (is_along ? outputs.packs : across.packs)) return;
      if (is_along)
        reduce_row(slot, part, begin, end);
      else
        reduce_columns(slot, part, begin, end);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void reduce_row(std::int64_t output, std::int64_t part, std::int64_t begin,
                                              std::int64_t end) const {
    auto const place = outputs.place(output);
    std::byte const* const from = in + place.offset[0];
    std::int64_t const by = row.stride[0][0], index_by = row.stride[1][0];
    std::size_t const bytes = bytes_of_neighbours(by, pair_strip);
    Pair mine;
    for (std::int64_t pack = begin; pack < end; ++pack) {
      auto const at = row.place(pack);
      if (pack + strips_fetched < end || rows_follow) fetch_ahead(from + at.offset[0] + strips_fetched * bytes, bytes);
      A strip[pair_strip];
      read_signed(from + at.offset[0], by, at.high, strip);
      int n = at.high;
      for (; n % Strips::multiple != 0; ++n) strip[n] = -std::numeric_limits<A>::infinity();
      Strips::take(mine, strip, n, at.offset[1], index_by);
    }
    store(place.offset[1], part, mine);
  }

  KOKKOS_FORCEINLINE_FUNCTION void reduce_columns(std::int64_t pack, std::int64_t part, std::int64_t begin,
                                                  std::int64_t end) const {
    auto const at = across.place(pack);
    std::byte const* const from = in + at.offset[0];
    std::int64_t const by = across.stride[0][0], to_by = across.stride[1][0];
    std::size_t const bytes = bytes_of_neighbours(by, at.high);
    Strips::columns(
        begin, end, at.high,
        [&](std::int64_t step, A* strip) TESSERA_INLINE_LAMBDA {
          std::byte const* const here = from + steps.place(step).offset[0];
          if (step + rows_fetched < end) fetch_ahead(here + rows_fetched * steps.stride[0][0], bytes);
          read_signed(here, by, at.high, strip);
        },
        [&](int j, std::int64_t step, auto const& pair_of)
            TESSERA_INLINE_LAMBDA { store(at.offset[1] + j * to_by, part, pair_of(steps.place(step).offset[1])); });
  }

  KOKKOS_FORCEINLINE_FUNCTION void read_signed(std::byte const* from, std::int64_t by, int n, A* strip) const {
    read(from, by, n, strip);
    if (negated)
      for (int i = 0; i < n; ++i) strip[i] = -strip[i];
  }
  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t at, std::int64_t part, Pair const& x) const {
    if (part_results != nullptr)
      part_results[part * results + at] = x;
    else
      out.store(at, x);
  }
};

/// Results from their parts.
template <class Exec, class Pair>
struct CorePairJoin {
  static constexpr bool vectorises = true;
  static constexpr int results_a_team = 64;
  Pair const* part_results;  // (parts, results)
  PairOutput out;
  PackSpace<2, 1> outputs;  // nothing, output
  std::int64_t parts;

  std::int64_t teams() const { return (outputs.packs + results_a_team - 1) / results_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * results_a_team, left = outputs.packs - first;
    int const n = static_cast<int>(left < results_a_team ? left : results_a_team);
    Pair all[results_a_team];
    for (std::int64_t part = 0; part < parts; ++part)
      for (int j = 0; j < n; ++j) all[j] = Pair::joined(all[j], part_results[part * outputs.packs + first + j]);
    for (int j = 0; j < n; ++j) out.store(outputs.place(first + j).offset[1], all[j]);
  }
};

template <class A, class Pair, class Exec>
void start_core_pair_reduction(Exec const& exec, PairReduceProblem const& problem) {
  using Space = KernelSpace<Exec>;
  ReduceProblem const& p = problem.operands;
  bool const indexed = problem.operation != PairReduction::logsumexp;
  CorePairPlan plan(p, indexed);
  PairOutput const out{p.out, problem.out_type, problem.wide_index};
  CorePairJoin<Space, Pair> join{static_cast<Pair*>(p.workspace), out, PackSpace<2, 1>(plan.kept, 0), plan.parts};
  if (plan.parts > 1) {
    std::int64_t flat = 1;
    for (int d = 0; d < plan.kept.rank; ++d) {
      plan.kept.stride[1][d] = flat;
      flat *= plan.kept.extent[d];
    }
  }
  ReadElements<A> read = nullptr;
  auto size = static_cast<std::int64_t>(size_of(p.in_type));
  RowInputs<A>::visit_on_host(
      p.in_type, [&](auto tag) { read = for_vector_units<read_elements<A, typename decltype(tag)::type>>(); });
  for (int d = 0; d < plan.kept.rank; ++d) plan.kept.stride[0][d] *= size;
  for (int d = 0; d < plan.reduced.rank; ++d) plan.reduced.stride[0][d] *= size;
  bool const rows_follow =
      plan.reduced.rank == 1 && plan.kept.stride[0][0] == plan.reduced.extent[0] * plan.reduced.stride[0][0];
  CorePairReduce<Space, A, Pair> const kernel{static_cast<std::byte const*>(p.in),
                                              read,
                                              out,
                                              plan.parts > 1 ? static_cast<Pair*>(p.workspace) : nullptr,
                                              plan.results,
                                              plan.groups,
                                              plan.parts,
                                              plan.part_steps,
                                              plan.rounds,
                                              plan.along,
                                              rows_follow,
                                              problem.operation == PairReduction::argmin,
                                              PackSpace<2, 1>(plan.kept, 0),
                                              PackSpace<2, pair_strip>(plan.reduced, 0),
                                              PackSpace<2, pair_columns>(plan.kept, 0),
                                              PackSpace<2, 1>(plan.reduced, 0)};
  double const an_element = indexed ? 20 : 50;  // the time of so many operations of products
  launch<32>(KernelLabel{problem.label, plan.along ? "along rows" : "across rows"}, exec, plan.groups * plan.parts, 0,
             kernel, an_element * static_cast<double>(plan.results) * static_cast<double>(plan.elements));
  if (plan.parts > 1)
    launch<32>(KernelLabel{problem.label, "parts"}, exec, join.teams(), 0, join,
               an_element * static_cast<double>(plan.results) * static_cast<double>(plan.parts));
}

}  // namespace tessera::detail

#endif
