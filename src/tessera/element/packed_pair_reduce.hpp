// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PACKED_PAIR_REDUCE_HPP
#define TESSERA_ELEMENT_PACKED_PAIR_REDUCE_HPP

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/element/pair_data.hpp>
#include <tessera/element/pair_short_rows.hpp>
#include <tessera/element/reduce_data.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/warp.hpp>

// On a machine with warps, of fp32, fp16 and bf16 in whole packs of 16 bytes. Along the reduced elements a warp has a
// result, or part of one, or of short rows four of them; across them, where results are neighbours, a thread has a pack
// of them, and the threads of a team join what they have of the same. Parts lie in the workspace and are joined by a
// second launch.
namespace tessera::detail {

/// The first of the largest numbers that a lane has seen; where, in elements from where it began.
struct LaneLargest {
  using Pair = FirstLargest<float>;
  template <int Width>
  static constexpr int across_ahead = 4;  // packs on their way
  float value = -Kokkos::Experimental::infinity_v<float>;
  std::int32_t place = -1;

  /// Where there are elements: the first has its place, of which all that is larger takes it, and a NaN.
  KOKKOS_FORCEINLINE_FUNCTION void begin(std::int32_t first) { place = first; }
  KOKKOS_FORCEINLINE_FUNCTION void add(float x, std::int32_t at) {
    bool const better = takes_first_place(x, value);
    value = better ? x : value;
    place = better ? at : place;
  }
  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void add(Pack<float, N> const& x, std::int32_t first) {
    for (int j = 0; j < N; ++j) add(x[j], first + j);
  }
  KOKKOS_FORCEINLINE_FUNCTION Pair pair(std::int64_t begin) const { return {value, place < 0 ? -1 : begin + place}; }
};

/// The sum of exponentials relative to the largest number, or to a finite one beside it: no difference is NaN then
/// unless an element is.
struct LaneExponentials {
  using Pair = ExponentialSum<float>;
  template <int Width>
  static constexpr int across_ahead = Width < 8 ? 4 : 8;  // the sum takes on another reference once for so many
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0;

  KOKKOS_FORCEINLINE_FUNCTION void begin(std::int32_t) {}
  KOKKOS_FORCEINLINE_FUNCTION static float exponential(float x) { return exp2_approximate(x * 1.44269504088896341f); }
  KOKKOS_FORCEINLINE_FUNCTION void raise(float x) {
    float const before = finite_beside(top);
    top = Larger{}(top, x);
    sum *= exponential(before - finite_beside(top));
  }
  KOKKOS_FORCEINLINE_FUNCTION void add(float x, std::int32_t) {
    raise(x);
    sum += exponential(x - finite_beside(top));
  }
  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void add(Pack<float, N> const& x, std::int32_t) {
    float largest = top;
    for (int j = 0; j < N; ++j) largest = Larger{}(largest, x[j]);
    raise(largest);
    float const reference = finite_beside(top);
    for (int j = 0; j < N; ++j) sum += exponential(x[j] - reference);
  }
  KOKKOS_FORCEINLINE_FUNCTION Pair pair(std::int64_t) const { return {top, sum}; }
};

template <class Pair>
struct LaneOfPair;
template <>
struct LaneOfPair<FirstLargest<float>> {
  using type = LaneLargest;
};
template <>
struct LaneOfPair<ExponentialSum<float>> {
  using type = LaneExponentials;
};

/// How packs are read, and how many parts there are. None of these numbers depends on the machine's size, so that the
/// order of the additions does not either.
struct PackedPairPlan {
  static constexpr std::int64_t warps = 4096;  // as many keep the memory busy
  static constexpr int along_ahead = 4;        // packs on their way
  static constexpr int few_lanes = 8;          // that share a result where it has too few packs for a warp
  static constexpr int across_unit = 8;        // rows of a thread across, a multiple of the packs on their way
  static constexpr int across_team = 256;      // threads of a team across

  Dimensions<2> kept;     // input, output
  Dimensions<2> reduced;  // input, index
  std::int64_t results, elements, parts = 1, part_length = 0;
  int width;                            // elements of a pack
  int lanes = 32;                       // along: that share a result
  int beside_shift = 0, lane_rows = 0;  // across: a team has 2^beside_shift packs, a thread so many rows
  bool along = false, across = false;

  /// With `indexed`, indices count the elements with the last axis fastest.
  PackedPairPlan(ReduceProblem const& problem, bool indexed)
      : kept(problem.kept),
        reduced(indexed_loops(problem.reduced, indexed)),
        results(kept.size()),
        elements(problem.reduced.size()),
        width(static_cast<int>(pack_bytes / size_of(problem.in_type))) {
    kept.collapse();
    bool const packs =
        problem.in_type == Scalar::fp32 || problem.in_type == Scalar::bf16 || problem.in_type == Scalar::fp16;
    bool const in_order = reduced.rank <= 1 && kept.rank <= 1 && (!indexed || reduced.stride[1][0] == 1);
    if (!packs || !in_order || results == 0 || elements == 0 ||
        reinterpret_cast<std::uintptr_t>(problem.in) % pack_bytes != 0)
      return;
    along = reduced.stride[0][0] == 1 && elements >= width && (results == 1 || kept.stride[0][0] % width == 0);
    if (elements < 32 * width) lanes = few_lanes;
    across = !along && kept.stride[0][0] == 1 && results % width == 0 && reduced.stride[0][0] % width == 0;
    if (along || across) share_out(indexed);
  }
  /// Rows that a few lanes have in registers.
  bool is_short() const { return along && elements % width == 0 && elements / width <= longest_short_row; }
  bool packed() const { return (along || across) && part_length <= std::numeric_limits<std::int32_t>::max(); }

 private:
  /// Units of a worker, where `wanted` of them shall share a result and none has fewer than `fewest`.
  static std::int64_t share(std::int64_t units, std::int64_t wanted, std::int64_t fewest) {
    return divide_up(units, std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, units / fewest)));
  }
  void share_out(bool indexed) {
    if (is_short()) {
      part_length = elements;
    } else if (along) {
      std::int64_t const unit = std::int64_t{lanes} * width * along_ahead;
      part_length = share(divide_up(elements, unit), warps / results, 1) * unit;
    } else {
      // All at once on 132 multiprocessors, of which each has as many as the registers allow: teams that come later
      // wait for their first loads while others wait for their last.
      std::int64_t const packs = results / width, teams = indexed || width < 8 ? 512 : 384;
      std::int64_t const rows = share(divide_up(elements, across_unit), teams * across_team / packs, 2) * across_unit;
      // Packs side by side as make whole cache lines, and more where that leaves a result twice the threads it needs.
      auto const leaves_idle = [&] { return 2 * divide_up(elements, rows) <= across_team >> beside_shift; };
      while (std::int64_t{1} << beside_shift < std::min<std::int64_t>(packs, across_team) &&
             (beside_shift < 5 || leaves_idle()))
        ++beside_shift;
      lane_rows = static_cast<int>(std::min<std::int64_t>(rows, std::numeric_limits<std::int32_t>::max()));
      part_length = rows * (across_team >> beside_shift);
    }
    parts = divide_up(elements, part_length);
  }
};

template <class Exec, class T, class Pair>
struct PackedPairOperands {
  using Atoms = WarpAtoms<Exec>;
  using Lane = typename LaneOfPair<Pair>::type;
  static constexpr int threads = PackedPairPlan::across_team, width = static_cast<int>(pack_bytes / sizeof(T));
  static constexpr bool starts_early = true;

  T const* in;
  PairOutput out;
  Pair* part_results;   // (parts, results); nullptr where there is one part
  std::uint32_t turns;  // the sign bits of a word where the smallest numbers are looked for, else 0
  std::int64_t results, elements, part_length;
  std::int64_t by, out_by;  // from one row to the next, and from one result

  KOKKOS_FORCEINLINE_FUNCTION Pack<float, width> turned(Pack<T, width> const& raw) const {
    constexpr int words = static_cast<int>(pack_bytes / sizeof(std::uint32_t));
    auto bits = __builtin_bit_cast(Pack<std::uint32_t, words>, raw);
    unroll<words>([&](auto w) { bits[w] ^= turns; });
    using Raw = Pack<T, width>;
    return Atoms::widened(__builtin_bit_cast(Raw, bits));
  }
  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t part, std::int64_t at, Pair const& x) const {
    if (part_results != nullptr)
      part_results[part * results + at] = x;
    else
      out.store(at * out_by, x);
  }
};

template <class Exec, class T, class Pair, int Lanes>
struct PackedPairAlong : PackedPairOperands<Exec, T, Pair> {
  using Base = PackedPairOperands<Exec, T, Pair>;
  using Base::elements, Base::part_length, Base::results, Base::threads, Base::turned, Base::width;
  using typename Base::Atoms, typename Base::Lane;
  static constexpr int workers_a_team = threads / Lanes;

  std::int64_t workers;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const thread = Atoms::thread();
    std::int64_t worker = std::int64_t{team.league_rank()} * workers_a_team + thread / Lanes;
    bool const own = worker < workers && thread % Lanes == 0;
    if (worker >= workers) worker = workers - 1;  // with the other lanes of its warp
    // A division takes longer than a short row.
    std::int64_t const part = worker < results ? 0 : worker / results, at = worker - part * results;
    std::int64_t const begin = part * part_length, left = elements - begin;
    auto const count = static_cast<std::int32_t>(left < part_length ? left : part_length);
    wait_for_kernels_before<Exec>();
    Pair const result = one_result(this->in + at * this->by + begin, begin, thread % Lanes, count);
    if (own) this->store(part, at, result);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Pair one_result(T const* from, std::int64_t begin, int lane, std::int32_t count) const {
    constexpr int ahead = PackedPairPlan::along_ahead, step = Lanes * width;
    constexpr int chains = 2;  // each waits for itself
    Lane mine[chains];
    std::int32_t i = lane * width;
    if (i < count) mine[0].begin(i);
    if (i + (ahead - 1) * step + width <= count) mine[1].begin(i + step);
    for (; i + (ahead - 1) * step + width <= count; i += ahead * step) {
      Pack<T, width> raw[ahead];
      unroll<ahead>([&](auto k) { raw[k] = load_pack<width>(from + i + k * step); });
      unroll<ahead>([&](auto k) { mine[k % chains].add(turned(raw[k]), i + k * step); });
    }
    for (; i + width <= count; i += step) mine[0].add(turned(load_pack<width>(from + i)), i);
    for (int j = 0; j < width && i + j < count; ++j) {
      auto const x = static_cast<float>(from[i + j]);
      mine[0].add(this->turns == 0 ? x : -x, i + j);
    }
    auto const join = [](Pair const& a, Pair const& b) { return Pair::joined(a, b); };
    return Atoms::template join<Lanes>(join(mine[0].pair(begin), mine[1].pair(begin)), join);
  }
};

/// A team has 2^beside_shift neighbouring packs of results and, of each, so many threads as that leaves, each with rows
/// that follow those of the one before.
template <class Exec, class T, class Pair>
struct PackedPairAcross : PackedPairOperands<Exec, T, Pair> {
  using Base = PackedPairOperands<Exec, T, Pair>;
  using Base::elements, Base::part_length, Base::results, Base::threads, Base::turned, Base::width;
  using typename Base::Atoms, typename Base::Lane;
  static constexpr int ahead = Lane::template across_ahead<width>, teams_at_once = ahead < 8 ? 4 : 3;
  static_assert(PackedPairPlan::across_unit % ahead == 0);
  static constexpr int pitch = threads + 4;  // without conflicts of banks by rows and by columns

  struct Scratch {
    Lane of_threads[width][pitch];
  };

  int beside_shift, lane_rows;
  Divisor groups;  // of packs, whose teams are neighbours

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto& scratch = *static_cast<Scratch*>(team.team_shmem().get_shmem_aligned(sizeof(Scratch), 16));
    int const thread = Atoms::thread(), lane = thread >> beside_shift, own = thread & ((1 << beside_shift) - 1);
    int const part = team.league_rank() / groups, group = team.league_rank() - part * static_cast<int>(groups);
    std::int64_t const begin = part * part_length, first_pack = std::int64_t{group} << beside_shift;
    wait_for_kernels_before<Exec>();
    if ((first_pack + own) * width < results) {
      std::int64_t const row = begin + std::int64_t{lane} * lane_rows, left = elements - row;
      auto const rows = static_cast<std::int32_t>(left < 0 ? 0 : left < lane_rows ? left : lane_rows);
      take(scratch, this->in + row * this->by + (first_pack + own) * width, thread, lane * lane_rows, rows);
    }
    team.team_barrier();
    for (int column = thread; column < width << beside_shift; column += threads) {
      std::int64_t const at = first_pack * width + column;
      if (at >= results) return;
      Lane const* const of_column = scratch.of_threads[column % width] + column / width;
      Pair all = of_column[0].pair(begin);
      for (int i = 1 << beside_shift; i < threads; i += 1 << beside_shift)
        all = Pair::joined(all, of_column[i].pair(begin));
      this->store(part, at, all);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void take(Scratch& scratch, T const* from, int thread, std::int32_t first,
                                        std::int32_t rows) const {
    Lane mine[width];
    if (rows > 0) unroll<width>([&](auto j) { mine[j].begin(first); });
    std::int32_t row = 0;
    for (; row + ahead <= rows; row += ahead) {
      Pack<T, width> raw[ahead];
      unroll<ahead>([&](auto k) { raw[k] = load_pack<width>(from + (row + k) * this->by); });
      Pack<float, ahead> columns[width];
      unroll<ahead>([&](auto k) {
        Pack<float, width> const x = turned(raw[k]);
        unroll<width>([&](auto j) { columns[j][k] = x[j]; });
      });
      unroll<width>([&](auto j) { mine[j].add(columns[j], first + row); });
    }
    for (; row < rows; ++row) {
      Pack<float, width> const x = turned(load_pack<width>(from + row * this->by));
      unroll<width>([&](auto j) { mine[j].add(x[j], first + row); });
    }
    unroll<width>([&](auto j) { scratch.of_threads[j][thread] = mine[j]; });
  }
};

/// Results from their parts. A team has one result or, where there are many, as many as a warp has lanes, whose parts
/// the warps share.
template <class Exec, class Pair>
struct PackedPairJoin {
  using Atoms = WarpAtoms<Exec>;
  static constexpr int threads = 256, warps = threads / 32, ahead = 4;
  static constexpr bool starts_early = true;

  Pair const* part_results;  // (parts, results)
  PairOutput out;
  std::int64_t results, parts, out_by;
  static constexpr std::size_t scratch = threads * sizeof(Pair);

  KOKKOS_FORCEINLINE_FUNCTION bool many() const { return results >= 32; }
  std::int64_t teams() const { return many() ? (results + 31) / 32 : results; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto const join = [](Pair const& a, Pair const& b) { return Pair::joined(a, b); };
    int const thread = Atoms::thread(), lane = thread % 32, warp = thread / 32;
    wait_for_kernels_before<Exec>();
    if (many()) {
      std::int64_t const at = std::int64_t{team.league_rank()} * 32 + lane;
      auto* const of_warps =
          static_cast<Pair*>(team.team_shmem().get_shmem_aligned(std::size_t{scratch}, 16));  // (warps, 32)
      if (at < results) of_warps[thread] = read(at, warp, warps);
      team.team_barrier();
      if (warp > 0 || at >= results) return;
      Pair all = of_warps[lane];
      for (int w = 1; w < warps; ++w) all = join(all, of_warps[w * 32 + lane]);
      out.store(at * out_by, all);
    } else {
      std::int64_t const at = team.league_rank();
      Pair all = Atoms::template join<32>(read(at, thread, threads), join);
      all = Atoms::template join<warps>(Atoms::template share<PackedPairJoin, warps>(all), join);
      if (thread == 0) out.store(at * out_by, all);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Pair read(std::int64_t at, std::int64_t first, std::int64_t step) const {
    Pair all;
    for (std::int64_t part = first; part < parts; part += ahead * step) {
      Pair some[ahead];
      unroll<ahead>([&](auto k) {
        std::int64_t const p = part + k * step;
        some[k] = p < parts ? part_results[p * results + at] : Pair{};
      });
      unroll<ahead>([&](auto k) { all = Pair::joined(all, some[k]); });
    }
    return all;
  }
};

/// Whether it was one of packs, and has been started.
template <class Pair, class Exec>
bool start_packed_pair_reduction(Exec const& exec, PairReduceProblem const& problem) {
  using Space = KernelSpace<Exec>;
  ReduceProblem const& p = problem.operands;
  PackedPairPlan const plan(p, problem.operation != PairReduction::logsumexp);
  if (!plan.packed()) return false;
  PairOutput const out{p.out, problem.out_type, problem.wide_index};
  auto* const part_results = plan.parts > 1 ? static_cast<Pair*>(p.workspace) : nullptr;
  std::int64_t const out_by = plan.kept.stride[1][0];
  TypeList<float, bf16_t, fp16_t>::visit_on_host(p.in_type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    PackedPairOperands<Space, T, Pair> const operands{static_cast<T const*>(p.in),
                                                      out,
                                                      part_results,
                                                      problem.operation != PairReduction::argmin ? 0
                                                      : sizeof(T) == 4                           ? 0x80000000
                                                                                                 : 0x80008000,
                                                      plan.results,
                                                      plan.elements,
                                                      plan.part_length,
                                                      (plan.along ? plan.kept : plan.reduced).stride[0][0],
                                                      out_by};
    if (plan.is_short() &&
        start_pair_short_rows<T, Pair>(problem.label, exec, operands.in, out, plan.results, plan.elements / plan.width,
                                       operands.by, out_by, problem.operation == PairReduction::argmin ? -1.0f : 1.0f))
      return;
    auto const run_along = [&](auto lanes) {
      using Kernel = PackedPairAlong<Space, T, Pair, decltype(lanes)::value>;
      std::int64_t const workers = plan.results * plan.parts;
      launch<Kernel::threads>(KernelLabel{problem.label, "along rows of whole packs"}, exec,
                              divide_up(workers, Kernel::workers_a_team), 0, Kernel{operands, workers});
    };
    if (plan.along && plan.lanes == 32) {
      run_along(std::integral_constant<int, 32>{});
    } else if (plan.along) {
      run_along(std::integral_constant<int, PackedPairPlan::few_lanes>{});
    } else {
      using Kernel = PackedPairAcross<Space, T, Pair>;
      std::int64_t const groups = divide_up(plan.results / plan.width, std::int64_t{1} << plan.beside_shift);
      launch<Kernel::threads, Kernel::teams_at_once>(
          KernelLabel{problem.label, "across rows of whole packs"}, exec, groups * plan.parts,
          sizeof(typename Kernel::Scratch), Kernel{operands, plan.beside_shift, plan.lane_rows, Divisor(groups)});
    }
  });
  if (plan.parts == 1) return true;
  PackedPairJoin<Space, Pair> const join{part_results, out, plan.results, plan.parts, out_by};
  launch<PackedPairJoin<Space, Pair>::threads>(KernelLabel{problem.label, "parts"}, exec, join.teams(), join.scratch,
                                               join);
  return true;
}

}  // namespace tessera::detail

#endif
