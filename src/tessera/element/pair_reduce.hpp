// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PAIR_REDUCE_HPP
#define TESSERA_ELEMENT_PAIR_REDUCE_HPP

#include <algorithm>

#include <tessera/arg_reduce.hpp>
#include <tessera/elementary.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/walk.hpp>

// Each result, or part of one, is the work of a warp whose lanes take every 32nd element, or, where results are the
// neighbours in memory, of one thread. Parts lie in the workspace and are joined by a second launch.
namespace tessera::detail {

/// The first of the largest numbers, or of the NaNs if there are any. An index of -1: nothing yet.
template <class A>
struct FirstLargest {
  A value = 0;
  std::int64_t index = -1;

  KOKKOS_FORCEINLINE_FUNCTION static FirstLargest joined(FirstLargest const& a, FirstLargest const& b) {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    bool const nan_a = a.value != a.value, nan_b = b.value != b.value;
    bool const equal = a.value == b.value || (nan_a && nan_b);
    if (equal) return a.index < b.index ? a : b;
    return nan_a || (!nan_b && a.value > b.value) ? a : b;
  }
};

/// The sum of exponentials relative to `top`, the largest exponent; that of -Inf alone is 0.
template <class A>
struct ExponentialSum {
  A top = -Kokkos::Experimental::infinity_v<A>, sum = 0;

  KOKKOS_FORCEINLINE_FUNCTION static ExponentialSum joined(ExponentialSum const& a, ExponentialSum const& b) {
    A const top = b.top > a.top ? b.top : a.top;
    return {top, a.weight(top) + b.weight(top)};
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION A weight(A relative_to) const {
    return top == relative_to ? sum : sum * exp_below(top - relative_to);
  }
};

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
  void* out;
  Pair* parts;  // (parts, results), where there are several
  Scalar in_type, out_type;
  bool wide_index, negated, along, joins;  // joins: reads parts instead of elements
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
      store(kept.offset(1, result), mine);
  }

  KOKKOS_FORCEINLINE_FUNCTION void store(std::int64_t at, Pair const& x) const {
    if constexpr (std::is_same_v<Pair, ExponentialSum<A>>) {
      A const lowest = -Kokkos::Experimental::infinity_v<A>;
      A const value = x.top == lowest && x.sum == x.sum ? lowest : x.top + Kokkos::log(x.sum);
      if (out_type == Scalar::fp64)
        static_cast<double*>(out)[at] = static_cast<double>(value);
      else
        static_cast<float*>(out)[at] = static_cast<float>(value);
    } else {
      if (wide_index)
        static_cast<std::int64_t*>(out)[at] = x.index;
      else
        static_cast<std::int32_t*>(out)[at] = static_cast<std::int32_t>(x.index);
    }
  }
};

struct PairReducePlan {
  std::int64_t results, elements, parts;
  bool along;

  /// None of these numbers depends on the machine's size, so that the order does not either.
  PairReducePlan(ReduceProblem const& problem, bool is_core)
      : results(problem.kept.size()), elements(problem.reduced.size()), parts(1) {
    auto const least = [](auto const& d) {
      std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
      for (int i = 0; i < d.rank; ++i) smallest = std::min(smallest, std::abs(d.stride[0][i]));
      return smallest;
    };
    along = results == 1 || least(problem.reduced) <= least(problem.kept);
    if (results == 0) return;
    std::int64_t const wanted = is_core ? 64 : along ? 8192 : 131072, fewest = is_core ? 16384 : along ? 1024 : 64;
    parts = std::max<std::int64_t>(1, std::min(wanted / results, elements / fewest));
  }
};

template <class A, class Pair, class Exec>
void start_pair_reduction(Exec const& exec, PairReduceProblem const& problem) {
  ReduceProblem const& p = problem.operands;
  PairReducePlan const plan(p, Machine<Exec>::lanes == 1);
  using Kernel = PairReduce<KernelSpace<Exec>, A, Pair>;
  Kernel kernel{PairLoops<2>(p.kept),
                PairLoops<1>(p.reduced),
                p.in,
                p.out,
                static_cast<Pair*>(p.workspace),
                p.in_type,
                problem.out_type,
                problem.wide_index,
                problem.operation == PairReduction::argmin,
                plan.along,
                false,
                plan.results,
                plan.elements,
                plan.parts};
  launch<Kernel::threads>(problem.label, exec, kernel.teams(), 0, kernel);
  if (plan.parts == 1) return;
  kernel.joins = true;
  launch<Kernel::threads>(problem.label, exec, kernel.teams(), 0, kernel);
}

template <class A, class Exec>
void start_pair_reduction_in(Exec const& exec, PairReduceProblem const& problem) {
  if (problem.operation == PairReduction::logsumexp)
    start_pair_reduction<A, ExponentialSum<A>>(exec, problem);
  else
    start_pair_reduction<A, FirstLargest<A>>(exec, problem);
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
  PairReducePlan const plan(problem.operands, Machine<Exec>::lanes == 1);
  return plan.parts == 1 ? 0 : static_cast<std::size_t>(plan.parts * plan.results) * 16;
}

}  // namespace tessera::detail

#endif
