// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_ROWS_HPP
#define TESSERA_ELEMENT_REDUCE_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/divisor.hpp>
#include <tessera/element/reduce.hpp>
#include <tessera/launch.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// ReduceKernel for rows of whole packs, each as far behind the one before: with a tenth of its instructions before the
/// first load, since the lanes of a row have eight packs each, and a team little else to do.
template <class Exec, class In, class A>
struct ReduceRowsKernel {
  static constexpr int threads = 256, width = reduce_width<Exec, In>;
  static constexpr bool starts_early = true;

  In const* in;
  ReduceOutput out;
  std::int64_t stride, out_stride, out_of_parts;  // elements between outputs, and between the results of their parts
  int rows, log_lanes;                            // parts of all outputs; the threads that share one, a power of two
  int packs, part_packs;                          // of an output, and of a part
  Divisor parts;                                  // of an output
  StepKind step;

  std::int64_t teams() const { return ((std::int64_t{rows} << log_lanes) + threads - 1) / threads; }
  static constexpr std::size_t scratch_bytes = threads / Machine<Exec>::lanes * sizeof(A);

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>(out_of_parts != 0);  // the kernel that joins parts has its text to fetch
    with_step<In, A>(step, [&]<template <class> class Step>() { run<Step>(team); });
  }

 private:
  template <template <class> class Step>
  KOKKOS_FORCEINLINE_FUNCTION void run(TeamMember<Exec> const& team) const {
    int const lanes = 1 << log_lanes, thread = thread_of<Exec>(team), lane = thread & (lanes - 1);
    int const row = static_cast<int>((std::int64_t{team.league_rank()} * threads + thread) >> log_lanes);
    int const output = row / parts, part = row - output * static_cast<int>(parts), first = part * part_packs;
    LaneAccumulators<Exec, In, Step, A> own;
    if (row < rows) {
      int const left = packs - first, count = left < part_packs ? left : part_packs;
      In const* from = in + output * stride + (std::int64_t{first} + lane) * width;
      int i = lane;
      if constexpr (width <= 8)
        while (i + 7 * lanes < count) batch<8>(own, from, i, lanes);
      while (i + 3 * lanes < count) batch<4>(own, from, i, lanes);
      if (i + lanes < count) batch<2>(own, from, i, lanes);
      if (i < count) batch<1>(own, from, i, lanes);
    }
    A const result =
        own.join(team, thread, lanes, static_cast<A*>(team.team_scratch(0).get_shmem(std::size_t{scratch_bytes})));
    if (row < rows && lane == 0) out.store(output * out_stride + part * out_of_parts, result);
  }

  /// The next N packs of a lane, all on their way before the first is used.
  template <int N, class Lane>
  KOKKOS_FORCEINLINE_FUNCTION static void batch(Lane& own, In const*& from, int& i, int lanes) {
    typename Lane::Bits bits[N];
    unroll<N>([&](auto u) { bits[u] = Lane::load(from + std::int64_t{u * lanes} * width); });
    own.take(bits, [](int) { return true; });
    from += std::int64_t{N * lanes} * width;
    i += N * lanes;
  }
};

}  // namespace tessera::detail

#endif
