// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PAIR_REDUCE_HPP
#define TESSERA_ELEMENT_PAIR_REDUCE_HPP

#include <algorithm>

#include <tessera/arg_reduce.hpp>
#include <tessera/element/core_pair_reduce.hpp>
#include <tessera/element/packed_pair_reduce.hpp>
#include <tessera/element/pair_data.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/walk.hpp>

// On a machine with warps each result, or part of one, is the work of a warp whose lanes take every 32nd element, or,
// where results are the neighbours in memory, of one thread. Parts lie in the workspace and are joined by a second
// launch. Whole packs have kernels of their own, and so have cores.
namespace tessera::detail {

template <class Pair>
struct JoinPairs {
  KOKKOS_FORCEINLINE_FUNCTION Pair operator()(Pair const& a, Pair const& b) const { return Pair::joined(a, b); }
};

/// Loops over indices that a kernel decodes, innermost first.
template <int Operands>
struct PairLoops {
  int rank = 0;
  std::int64_t extent[max_dimensions] = {}, stride[Operands][max_dimensions] = {};

  PairLoops() = default;
  explicit PairLoops(Dimensions<Operands> const& d) : rank(d.rank) {
    for (int i = 0; i < rank; ++i) {
      extent[i] = d.extent[i];
      for (int o = 0; o < Operands; ++o) stride[o][i] = d.stride[o][i];
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(int operand, std::int64_t index) const {
    if (rank <= 1) return index * stride[operand][0];
    std::int64_t at = 0;
    for (int d = 0; d + 1 < rank; ++d) {
      std::int64_t const next = index / extent[d];
      at += (index - next * extent[d]) * stride[operand][d];
      index = next;
    }
    return at + index * stride[operand][rank - 1];
  }
};

template <class Exec, class A, class Pair>
struct PairReduce {
  static constexpr int threads = 128;

  PairLoops<2> kept;
  PairLoops<1> reduced;
  void const* in;
  PairOutput out;
  Pair* parts;  // (parts, results), where there are several
  Scalar in_type;
  bool negated, along, joins;  // joins: reads parts instead of elements
  std::int64_t results, elements, part_count;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if (along || joins) {
      Lanes<Exec, Worker::thread> const lanes(team);
      constexpr int workers = Machine<Exec>::threads(threads) / Machine<Exec>::lanes;
      std::int64_t const worker = std::int64_t{team.league_rank()} * workers + team.team_rank();
      if (worker < all())
        run(worker, lanes.lane(), lanes.count(),
            [&](Pair const& x) { return lanes.template join<JoinPairs<Pair>>(x, Pair{}); });
    } else {
      std::int64_t const worker =
          std::int64_t{team.league_rank()} * Machine<Exec>::threads(threads) + thread_of<Exec>(team);
      if (worker < all()) run(worker, 0, 1, [](Pair const& x) { return x; });
    }
  }

  KOKKOS_FUNCTION std::int64_t all() const { return joins ? results : results * part_count; }
  std::int64_t teams() const {
    std::int64_t const a_team =
        along || joins ? Machine<Exec>::threads(threads) / Machine<Exec>::lanes : Machine<Exec>::threads(threads);
    return (all() + a_team - 1) / a_team;
  }

 private:
  template <class Join>
  KOKKOS_FORCEINLINE_FUNCTION void run(std::int64_t worker, int lane, int lanes, Join const& join) const {
    std::int64_t const part = worker / results, result = worker - part * results;
    Pair mine;
    if (joins) {
      for (std::int64_t i = lane; i < part_count; i += lanes) mine = Pair::joined(mine, parts[i * results + result]);
    } else {
      std::int64_t const each = (elements + part_count - 1) / part_count, begin = part * each;
      std::int64_t const end = begin + each < elements ? begin + each : elements;
      RowInputs<A>::visit(in_type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T const* const from = static_cast<T const*>(in) + kept.offset(0, result);
        for (std::int64_t i = begin + lane; i < end; i += lanes) {
          A const x = static_cast<A>(from[reduced.offset(0, i)]);
          if constexpr (std::is_same_v<Pair, ExponentialSum<A>>)
            mine = Pair::joined(mine, {x, A(1)});
          else
            mine = Pair::joined(mine, {negated ? -x : x, i});
        }
      });
    }
    mine = join(mine);
    if (lane != 0) return;
    if (part_count > 1 && !joins)
      parts[part * results + result] = mine;
    else
      out.store(kept.offset(1, result), mine);
  }
};

struct PairReducePlan {
  std::int64_t results, elements, parts;
  bool along;

  /// None of these numbers depends on the machine's size, so that the order does not either.
  explicit PairReducePlan(ReduceProblem const& problem)
      : results(problem.kept.size()), elements(problem.reduced.size()), parts(1) {
    auto const least = [](auto const& d) {
      std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
      for (int i = 0; i < d.rank; ++i) smallest = std::min(smallest, std::abs(d.stride[0][i]));
      return smallest;
    };
    along = results == 1 || least(problem.reduced) <= least(problem.kept);
    if (results == 0) return;
    std::int64_t const wanted = along ? 8192 : 131072, fewest = along ? 1024 : 64;
    parts = std::max<std::int64_t>(1, std::min(wanted / results, elements / fewest));
  }
};

template <class A, class Pair, class Exec>
void start_pair_reduction(Exec const& exec, PairReduceProblem const& problem) {
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available && std::is_same_v<A, float>)
    if (start_packed_pair_reduction<Pair>(exec, problem)) return;
  ReduceProblem const& p = problem.operands;
  PairReducePlan const plan(p);
  using Kernel = PairReduce<KernelSpace<Exec>, A, Pair>;
  Kernel kernel{PairLoops<2>(p.kept),
                PairLoops<1>(p.reduced),
                p.in,
                {p.out, problem.out_type, problem.wide_index},
                static_cast<Pair*>(p.workspace),
                p.in_type,
                problem.operation == PairReduction::argmin,
                plan.along,
                false,
                plan.results,
                plan.elements,
                plan.parts};
  launch<Kernel::threads>(
      KernelLabel{problem.label, plan.along ? "along rows, element by element" : "across rows, element by element"},
      exec, kernel.teams(), 0, kernel);
  if (plan.parts == 1) return;
  kernel.joins = true;
  launch<Kernel::threads>(KernelLabel{problem.label, "parts"}, exec, kernel.teams(), 0, kernel);
}

template <class A, class Exec>
void start_pair_reduction_in(Exec const& exec, PairReduceProblem const& problem) {
  auto const start = [&]<class Pair>() {
    if constexpr (Machine<Exec>::lanes == 1)
      start_core_pair_reduction<A, Pair>(exec, problem);
    else
      start_pair_reduction<A, Pair>(exec, problem);
  };
  if (problem.operation == PairReduction::logsumexp)
    start.template operator()<ExponentialSum<A>>();
  else
    start.template operator()<FirstLargest<A>>();
}

template <class Exec>
void run_pair_reduction(Exec const& exec, PairReduceProblem const& problem) {
  bool const wide = problem.operands.in_type == Scalar::fp64 ||
                    (problem.operation == PairReduction::logsumexp && problem.out_type == Scalar::fp64);
  if (wide)
    start_pair_reduction_in<double>(exec, problem);
  else
    start_pair_reduction_in<float>(exec, problem);
}

template <class Exec>
std::size_t pair_reduction_workspace(PairReduceProblem const& problem) {
  ReduceProblem const& p = problem.operands;
  if constexpr (Machine<Exec>::lanes == 1)
    return most_bytes_of_parts<CorePairPlan>(p);
  else
    return std::max(bytes_of_parts(PairReducePlan(p)), most_bytes_of_parts<PackedPairPlan>(p));
}

}  // namespace tessera::detail

#endif
