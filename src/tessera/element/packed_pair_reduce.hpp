// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PACKED_PAIR_REDUCE_HPP
#define TESSERA_ELEMENT_PACKED_PAIR_REDUCE_HPP

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/element/pair_data.hpp>
#include <tessera/element/reduce_data.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/warp.hpp>

// On a machine with warps, of fp32, fp16 and bf16 in whole packs of 16 bytes. Along the reduced elements a warp has a
// result, or part of one; across them, where results are neighbours, a thread has a pack of them. Parts lie in the
// workspace and are joined by a second launch.
namespace tessera::detail {

/// The first of the largest numbers that a lane has seen; where, in elements from where it began.
struct LaneLargest {
  using Pair = FirstLargest<float>;
  float value = 0;
  std::int32_t place = -1;

  KOKKOS_FORCEINLINE_FUNCTION void add(float x, std::int32_t at) {
    bool const better = takes_first_place(x, value) | (place < 0);
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
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0;

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
  static constexpr std::int64_t warps = 4096, threads = 65536;  // as many keep the memory busy
  static constexpr int along_ahead = 4, across_ahead = 8;       // packs on their way

  Dimensions<2> kept;     // input, output
  Dimensions<2> reduced;  // input, index
  std::int64_t results, elements, parts = 1, part_length = 0;
  int width;  // elements of a pack
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
    along = reduced.stride[0][0] == 1 && elements >= 32 * width && (results == 1 || kept.stride[0][0] % width == 0);
    across = !along && kept.stride[0][0] == 1 && results % width == 0 && reduced.stride[0][0] % width == 0;
    if (along || across) share_out();
  }
  bool packed() const { return (along || across) && part_length <= std::numeric_limits<std::int32_t>::max(); }

 private:
  void share_out() {
    auto const divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    std::int64_t const unit = along ? std::int64_t{32} * width * along_ahead : across_ahead;
    std::int64_t const wanted = along ? warps / results : threads * width / results;
    std::int64_t const units = divide_up(elements, unit), fewest = along ? 1 : 2;
    part_length =
        divide_up(units, std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, units / fewest))) * unit;
    parts = divide_up(elements, part_length);
  }
};

template <class Exec, class T, class Pair, bool Along>
struct PackedPairReduce {
  using Atoms = WarpAtoms<Exec>;
  using Lane = typename LaneOfPair<Pair>::type;
  static constexpr int threads = 256, width = static_cast<int>(pack_bytes / sizeof(T));
  static constexpr int workers_a_team = Along ? threads / 32 : threads;
  static constexpr bool starts_early = true;

  T const* in;
  PairOutput out;
  Pair* part_results;  // (parts, results); nullptr where there is one part
  float sign;          // -1: the smallest numbers are looked for
  std::int64_t results, elements, part_length, workers;
  std::int64_t by, out_by;  // from one row to the next, and from one result

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    int const thread = Atoms::thread();
    std::int64_t const worker = std::int64_t{team.league_rank()} * workers_a_team + thread / (threads / workers_a_team);
    if (worker >= workers) return;
    std::int64_t const a_part = Along ? results : results / width, part = worker / a_part, at = worker - part * a_part;
    std::int64_t const begin = part * part_length, left = elements - begin;
    auto const count = static_cast<std::int32_t>(left < part_length ? left : part_length);
    wait_for_kernels_before<Exec>();
    if constexpr (Along)
      one_result(in + at * by + begin, begin, part, at, thread % 32, count);
    else
      one_pack(in + begin * by + at * width, begin, part, at * width, count);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Pack<float, width> turned(Pack<T, width> const& raw) const {
    Pack<float, width> x = Atoms::widened(raw);
    for (int j = 0; j < width; ++j) x[j] *= sign;
    return x;
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_result(T const* from, std::int64_t begin, std::int64_t part, std::int64_t at,
                                              int lane, std::int32_t count) const {
    constexpr int ahead = PackedPairPlan::along_ahead, step = 32 * width;
    constexpr int chains = 2;  // each waits for itself
    Lane mine[chains];
    std::int32_t i = lane * width;
    for (; i + (ahead - 1) * step + width <= count; i += ahead * step) {
      Pack<T, width> raw[ahead];
      unroll<ahead>([&](auto k) { raw[k] = load_pack<width>(from + i + k * step); });
      unroll<ahead>([&](auto k) { mine[k % chains].add(turned(raw[k]), i + k * step); });
    }
    for (; i + width <= count; i += step) mine[0].add(turned(load_pack<width>(from + i)), i);
    for (int j = 0; j < width && i + j < count; ++j) mine[0].add(static_cast<float>(from[i + j]) * sign, i + j);
    auto const join = [](Pair const& a, Pair const& b) { return Pair::joined(a, b); };
    Pair const all = Atoms::template join<32>(join(mine[0].pair(begin), mine[1].pair(begin)), join);
    if (lane == 0) store(part, at, all);
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_pack(T const* from, std::int64_t begin, std::int64_t part, std::int64_t at,
                                            std::int32_t rows) const {
    constexpr int ahead = PackedPairPlan::across_ahead;
    Lane mine[width];
    std::int32_t row = 0;
    for (; row + ahead <= rows; row += ahead) {
      Pack<T, width> raw[ahead];
      unroll<ahead>([&](auto k) { raw[k] = load_pack<width>(from + (row + k) * by); });
      Pack<float, ahead> columns[width];
      unroll<ahead>([&](auto k) {
        Pack<float, width> const x = turned(raw[k]);
        unroll<width>([&](auto j) { columns[j][k] = x[j]; });
      });
      unroll<width>([&](auto j) { mine[j].add(columns[j], row); });
    }
    for (; row < rows; ++row) {
      Pack<float, width> const x = turned(load_pack<width>(from + row * by));
      unroll<width>([&](auto j) { mine[j].add(x[j], row); });
    }
    unroll<width>([&](auto j) { store(part, at + j, mine[j].pair(begin)); });
  }

  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t part, std::int64_t at, Pair const& x) const {
    if (part_results != nullptr)
      part_results[part * results + at] = x;
    else
      out.store(at * out_by, x);
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
  std::int64_t const out_by = plan.kept.stride[1][0],
                     workers = (plan.along ? plan.results : plan.results / plan.width) * plan.parts;
  TypeList<float, bf16_t, fp16_t>::visit_on_host(p.in_type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto const start = [&](auto along) {
      using Kernel = PackedPairReduce<Space, T, Pair, decltype(along)::value>;
      launch<Kernel::threads>(
          problem.label, exec, (workers + Kernel::workers_a_team - 1) / Kernel::workers_a_team, 0,
          Kernel{static_cast<T const*>(p.in), out, part_results,
                 problem.operation == PairReduction::argmin ? -1.0f : 1.0f, plan.results, plan.elements,
                 plan.part_length, workers, (plan.along ? plan.kept : plan.reduced).stride[0][0], out_by});
    };
    plan.along ? start(std::true_type{}) : start(std::false_type{});
  });
  if (plan.parts == 1) return true;
  PackedPairJoin<Space, Pair> const join{part_results, out, plan.results, plan.parts, out_by};
  launch<PackedPairJoin<Space, Pair>::threads>(problem.label, exec, join.teams(), join.scratch, join);
  return true;
}

}  // namespace tessera::detail

#endif
