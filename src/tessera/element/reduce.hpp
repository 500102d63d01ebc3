// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_HPP
#define TESSERA_ELEMENT_REDUCE_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/element/core_reduce.hpp>
#include <tessera/element/reduce_data.hpp>
#include <tessera/element/reduce_problem.hpp>
#include <tessera/launch.hpp>
#include <tessera/unroll.hpp>

// Two directions. ReduceAlong: the reduced elements are the neighbours in memory (a row), packs lie along them and
// several threads share an output. ReduceAcross: the outputs are the neighbours (columns), a pack holds one element of
// each of its outputs. Which thread adds what in which order follows from the shape alone. One kernel per pair of types
// has both and chooses at run time: kernels cost more to compile than loops.
namespace tessera::detail {

/// What a lane accumulates: an element of each place in its packs, which are added in pairs: chains of half as many
/// additions.
template <class Exec, class In, template <class> class Step, class A>
struct LaneAccumulators {
  static constexpr int width = reduce_width<Exec, In>;
  using Bits = PackBits<In, width>;

  A value[width];  // (width)

  KOKKOS_FORCEINLINE_FUNCTION LaneAccumulators() {
    unroll<width>([&](auto j) { value[j] = Step<A>::identity; });
  }
  KOKKOS_FORCEINLINE_FUNCTION static Bits load(In const* from) { return *reinterpret_cast<Bits const*>(from); }

  /// Element j of every pack that exists to value[j].
  template <int N, class Exists>
  KOKKOS_FORCEINLINE_FUNCTION void take(Bits const (&bits)[N], Exists const& exists) {
    unroll<N / 2>([&](auto half) {
      constexpr int u = 2 * decltype(half)::value;
      auto const x = widen_pack<float>(bits[u].pack()), y = widen_pack<float>(bits[u + 1].pack());
      unroll<width>([&](auto j) {
        A const a = exists(u) ? static_cast<A>(x[j]) : Step<A>::nothing;
        A const b = exists(u + 1) ? static_cast<A>(y[j]) : Step<A>::nothing;
        value[j] = Step<A>::combine(value[j], Step<A>::take(Step<A>::first(a), b));
      });
    });
    if constexpr (N == 1) {
      auto const x = widen_pack<float>(bits[0].pack());
      unroll<width>([&](auto j) { value[j] = Step<A>::take(value[j], static_cast<A>(x[j])); });
    }
  }

  /// All of a lane, then those of the `lanes` of an output into its first: within warps, then over their number.
  KOKKOS_FORCEINLINE_FUNCTION A join(TeamMember<Exec> const& team, int thread, int lanes, A* room) {
    fold_halves<width / 2>();
    A mine = value[0];
    constexpr int warp = Machine<Exec>::lanes;
    for (int distance = (lanes < warp ? lanes : warp) / 2; distance > 0; distance /= 2)
      mine = Step<A>::combine(mine, exchange<Exec>(team, thread, mine, distance, room));
    if (lanes <= warp) return mine;
    if (thread % warp == 0) room[thread / warp] = mine;
    team.team_barrier();
    for (int w = 1; w < lanes / warp; ++w)
      if (thread % lanes == 0) mine = Step<A>::combine(mine, room[thread / warp + w]);
    return mine;
  }

 private:
  template <int Half>
  KOKKOS_FORCEINLINE_FUNCTION void fold_halves() {
    if constexpr (Half > 0) {
      unroll<Half>([&](auto j) { value[j] = Step<A>::combine(value[j], value[j + Half]); });
      fold_halves<Half / 2>();
    }
  }
};

/// Both directions by the lanes of a team. A lane has the loads of several packs under way.
template <class Exec, class In, template <class> class Step, class A>
class LanesReduce {
  using Data = ReduceData<Exec, In, A>;
  static constexpr int width = Data::width;
  static constexpr int threads = ReduceShape::threads;
  static constexpr int in_flight = width <= 8 ? 8 : 4;
  using Lane = LaneAccumulators<Exec, In, Step, A>;
  using Bits = typename Lane::Bits;

 public:
  KOKKOS_FORCEINLINE_FUNCTION LanesReduce(Data const& d, TeamMember<Exec> const& t)
      : data(d), shape(d.shape), team(t), thread(thread_of<Exec>(t)) {
    int const before = team.league_rank() / shape.by_groups;
    part = before;
    group = team.league_rank() - before * static_cast<int>(shape.groups);
  }
  KOKKOS_FORCEINLINE_FUNCTION void run() {
    if (data.is_along)
      along();
    else
      across();
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void along() {
    int const slot = thread / shape.by_lanes, lane = thread - slot * shape.lanes;
    std::int64_t const output = std::int64_t{group} * shape.outputs + slot;
    bool const mine = slot < shape.outputs && output < data.outputs.packs;
    std::int64_t to = 0;
    if (mine) {
      auto const& row = data.row;
      auto const place = data.outputs.place(output);
      to = place.offset[1] + part * shape.output_of_parts;
      In const* const from = data.in + place.offset[0];
      std::int64_t const whole = data.vector && row.rank == 1 ? row.inner / width : 0;
      take_all(lane, row.packs, whole, from, width, row.stride[0][0], [&](std::int64_t pack, int& count) {
        auto const at = row.place(pack);
        count = at.high;
        return from + at.offset[0];
      });
    }
    A const result = own.join(team, thread, shape.lanes, data.shared(team));
    if (mine && lane == 0) data.out.store(to, result);
  }

  KOKKOS_FORCEINLINE_FUNCTION void across() {
    int const lane = thread / shape.by_outputs;
    std::int64_t const first = std::int64_t{group} * shape.outputs, pack = first + thread - lane * shape.outputs;
    if (lane < shape.lanes && pack < data.across.packs) {
      auto const place = data.across.place(pack);
      In const* const from = data.in + place.offset[0];
      take_all(lane, data.steps, data.vector && place.full() ? data.steps : 0, from, data.stride,
               data.across.stride[0][0], [&](std::int64_t step, int& count) {
                 count = place.high;
                 return from + step * data.stride;
               });
    }
    A* const room = data.shared(team);
    unroll<width>([&](auto j) { room[thread + j * Data::across_pitch] = own.value[j]; });
    team.team_barrier();
    int const left = joined_lanes(room);
    for (int column = thread; column < shape.outputs * width; column += threads) {
      int const pack_of_team = column / width, j = column % width;
      if (first + pack_of_team >= data.across.packs) return;
      auto const place = data.across.place(first + pack_of_team);
      if (j >= place.high) continue;
      A all = room[pack_of_team + j * Data::across_pitch];
      for (int l = 1; l < left; ++l)
        all = Step<A>::combine(all, room[pack_of_team + l * shape.outputs + j * Data::across_pitch]);
      data.out.store(place.offset[1] + j * data.across.stride[1][0] + part * shape.output_of_parts, all);
    }
  }

  /// Of few columns several threads join what the lanes of each have, which then leave as many: that number.
  KOKKOS_FORCEINLINE_FUNCTION int joined_lanes(A* room) {
    int const columns = shape.outputs * width, spare = threads / columns,
              sharing = spare < shape.lanes ? spare : shape.lanes;
    if (sharing <= 1 || shape.lanes <= 8) return shape.lanes;  // so few are joined sooner than threads meet again
    int const l = thread / columns, column = thread - l * columns;
    if (l < sharing) {
      A* const of_column = room + column / width + column % width * Data::across_pitch;
      A all = of_column[l * shape.outputs];
      for (int other = l + sharing; other < shape.lanes; other += sharing)
        all = Step<A>::combine(all, of_column[other * shape.outputs]);
      of_column[l * shape.outputs] = all;
    }
    team.team_barrier();
    return sharing;
  }

  /// This lane's packs of its part of `all`. The first `whole` of all lie in vectors, `by` elements from each other;
  /// any is found by `locate`, with `count` elements `step` from each other. Whichever way, their order is the same.
  template <class Locate>
  KOKKOS_FORCEINLINE_FUNCTION void take_all(int lane, std::int64_t all, std::int64_t whole, In const* from,
                                            std::int64_t by, std::int64_t step, Locate const& locate) {
    std::int64_t const begin = part * shape.part_steps;
    auto const in_part = [&](std::int64_t n) {  // a part has fewer than 2^31
      std::int64_t const rest = n - begin;
      return static_cast<int>(rest < 0 ? 0 : rest < shape.part_steps ? rest : shape.part_steps);
    };
    int const end = in_part(all), vectors = in_part(whole), next = shape.lanes, batch = in_flight * next;
    int i = lane;
    In const* at = from + (begin + lane) * by;
    for (; i + batch - next < vectors; i += batch, at += batch * by) {
      Bits bits[in_flight];
      unroll<in_flight>([&](auto u) { bits[u] = Lane::load(at + u * (next * by)); });
      own.take(bits, [](int) { return true; });
    }
    if (i < end && vectors == end) {
      Bits bits[in_flight];
      unroll<in_flight>([&](auto u) {
        bits[u] = Bits{};
        if (i + u * next < end) bits[u] = Lane::load(at + u * (next * by));
      });
      own.take(bits, [&](int u) { return i + u * next < end; });
      i += batch;
    }
    TESSERA_ROLLED
    for (; i < end; i += 2 * next)
      take_apart(i, end, step, [&](int k, int& count) { return locate(begin + k, count); });
  }

  /// Two packs as below, wherever they lie.
  template <class Locate>
  KOKKOS_FORCEINLINE_FUNCTION void take_apart(int i, int end, std::int64_t step, Locate const& locate) {
    A both[width];
    unroll<width>([&](auto j) { both[j] = Step<A>::identity; });
    TESSERA_ROLLED
    for (int k = i; k < end && k <= i + shape.lanes; k += shape.lanes) {
      int count = 0;
      In const* const from = locate(k, count);
      unroll<width>([&](auto j) {
        if (j < count) both[j] = Step<A>::take(both[j], static_cast<A>(from[j * step]));
      });
    }
    unroll<width>([&](auto j) { own.value[j] = Step<A>::combine(own.value[j], both[j]); });
  }

  Data const& data;
  ReduceShape const& shape;
  TeamMember<Exec> const& team;
  int thread, group;
  std::int64_t part;
  Lane own;
};

/// Calls f.template operator()<Step>() for the step of that kind, among those that are ever taken: fp32 never adds
/// squares, and fp64 compares only what is fp64 or an integer. See Reduction's accumulation types.
template <class In, class A, class F>
KOKKOS_FORCEINLINE_FUNCTION void with_step(StepKind step, F const& f) {
  constexpr bool compares =
      std::is_same_v<A, float> || std::is_same_v<In, double> || std::integral<In> || std::is_same_v<In, std::byte>;
  switch (step) {
    case StepKind::sum:
      return f.template operator()<Sum>();
    case StepKind::largest:
      if constexpr (compares) f.template operator()<Largest>();
      return;
    case StepKind::largest_magnitude:
      if constexpr (compares) f.template operator()<LargestMagnitude>();
      return;
    case StepKind::largest_negative:
      if constexpr (compares) f.template operator()<LargestNegative>();
      return;
    case StepKind::sum_of_squares:
      if constexpr (std::is_same_v<A, double>) f.template operator()<SumOfSquares>();
      return;
  }
}

template <class Exec, class In, class A>
struct ReduceKernel {
  static constexpr bool vectorises = true;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;
  ReduceData<Exec, In, A> data;
  StepKind step;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (starts_early) wait_for_kernels_before<Exec>();
    if constexpr (Machine<Exec>::lanes > 1)
      with_step<In, A>(step, [&]<template <class> class Step>() { LanesReduce<Exec, In, Step, A>(data, team).run(); });
    else
      with_step<In, A>(step, [&]<template <class> class Step>() TESSERA_INLINE_LAMBDA {
        if (data.is_along)
          ReduceAlong<Exec, In, Step, A>{data}.run(team);
        else
          ReduceAcross<Exec, In, Step, A>{data}.run(team);
      });
  }
};

}  // namespace tessera::detail

#endif
