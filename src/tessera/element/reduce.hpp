// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_HPP
#define TESSERA_ELEMENT_REDUCE_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/element/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/element/reduce_problem.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>

// Two directions. ReduceAlong: the reduced elements are the neighbours in memory (a row), packs lie along them and
// several threads share an output. ReduceAcross: the outputs are the neighbours (columns), a pack holds one element of
// each of its outputs. Which thread adds what in which order follows from the shape alone. One kernel per pair of types
// has both and chooses at run time: kernels cost more to compile than loops.
namespace tessera::detail {

// ---- what is accumulated

template <class T>
struct Sum {
  static constexpr T identity = 0;
  KOKKOS_INLINE_FUNCTION static T take(T sum, T x) { return sum + x; }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return a + b; }
};
template <class T>
struct Largest {
  static constexpr T identity = -std::numeric_limits<T>::infinity();
  KOKKOS_INLINE_FUNCTION static T take(T largest, T x) { return x > largest || x != x ? x : largest; }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return take(a, b); }
};
template <class T>
struct LargestMagnitude {
  static constexpr T identity = 0;
  KOKKOS_INLINE_FUNCTION static T take(T largest, T x) { return Largest<T>::take(largest, x < 0 ? -x : x); }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return Largest<T>::take(a, b); }
};
template <class T>
struct SumOfSquares {
  static constexpr T identity = 0;
  KOKKOS_INLINE_FUNCTION static T take(T sum, T x) { return sum + x * x; }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return a + b; }
};

/// What is done with an accumulated value before it is stored.
enum class Closing { none, divide, root };

/// Stores results of any element type; the type is a run-time value to keep the number of kernels small.
struct ReduceOutput {
  void* data;
  Scalar type;
  Closing closing;
  double count;

  /// Stores value[i] at at + i * stride for i in [0, n). Not inlined on a CPU: all kernels share it.
  template <class A>
  [[gnu::noinline]] KOKKOS_FUNCTION void store_many(std::int64_t at, std::int64_t stride, A const* value, int n) const {
    for (int i = 0; i < n; ++i) store(at + i * stride, value[i]);
  }

  template <class A>
  KOKKOS_FUNCTION void store(std::int64_t at, A value) const {
    if (closing == Closing::divide) value = value / static_cast<A>(count);
    if (closing == Closing::root) value = Kokkos::sqrt(value);
    switch (type) {
      case Scalar::fp64:
        return put<double>(at, value);
      case Scalar::fp32:
        return put<float>(at, value);
      case Scalar::fp16:
        return put<fp16_t>(at, value);
      case Scalar::bf16:
        return put<bf16_t>(at, value);
      case Scalar::e4m3:
        return put<e4m3_t>(at, value);
      case Scalar::e5m2:
        return put<e5m2_t>(at, value);
      case Scalar::int8:
        return put<std::int8_t>(at, value);
      case Scalar::int32:
        return put<std::int32_t>(at, value);
    }
  }

 private:
  template <class T, class A>
  KOKKOS_INLINE_FUNCTION void put(std::int64_t at, A value) const {
    static_cast<T*>(data)[at] = round_to<T>(value);
  }
};

/// What a kernel accumulates, as a run-time value.
enum class StepKind { sum, largest, largest_magnitude, sum_of_squares };

/// How a team's threads and the teams share the work.
struct ReduceShape {
  static constexpr int threads = 256;
  int lanes = 1;                     // threads that share an output, a power of two
  int outputs = 1;                   // outputs (or packs of them) of a team at a time; lanes * outputs <= threads
  int rounds = 1;                    // times a team does so
  std::int64_t groups = 0;           // teams that cover all the outputs
  std::int64_t parts = 1;            // teams that share a group's reduction
  std::int64_t part_steps = 0;       // packs or elements of the reduction in a part
  std::int64_t output_of_parts = 0;  // distance between the results of two parts
};

/// f(thread) on every thread of the team.
template <class Exec, class F>
KOKKOS_INLINE_FUNCTION void each_thread(TeamMember<Exec> const& team, F const& f) {
  constexpr int lanes = Machine<Exec>::lanes;
  if constexpr (lanes == 1) {
    f(team.team_rank());
  } else {
    int const first = team.team_rank() * lanes;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int lane) { f(first + lane); });
  }
}

/// Elements of a pack: a vector access, or what keeps the vector units of a core busy.
template <class Exec, class In>
inline constexpr int reduce_width = Machine<Exec>::lanes == 1 ? 64 : common_pack_size<In>();

/// What a kernel's input pointer points to. On a CPU bytes, read by a function for the element type into strips of the
/// accumulator's type: the kernels are then compiled once and not for each type, and their strides count bytes.
template <class Exec, class In>
using ReduceElement = std::conditional_t<Machine<Exec>::lanes == 1, std::byte, In>;
template <class A>
using ReadElements = void (*)(std::byte const* from, std::int64_t by, int n, A* to);

template <class A, class In>
void read_elements(std::byte const* from, std::int64_t by, int n, A* to) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(In));
  read_strip(reinterpret_cast<In const*>(from), by / size, n, to);
}

/// What a kernel works on.
template <class Exec, class In, class A>
struct ReduceData {
  static constexpr int width = reduce_width<Exec, In>;

  In const* in;
  ReduceOutput out;
  ReduceShape shape;
  bool is_along, vector;       // vector: every row consists of aligned packs
  PackSpace<2, 1> outputs;     // along: the outputs
  PackSpace<1, width> row;     // along: the reduced elements in packs
  PackSpace<2, width> across;  // across: the outputs in packs
  std::int64_t steps, stride;  // across: the reduced elements
  ReadElements<A> read;        // on a CPU

  /// What a team shares: (threads) values along rows, (width, threads) across them; nothing on a core.
  KOKKOS_FUNCTION std::size_t scratch() const {
    return Machine<Exec>::lanes == 1 ? 0 : ReduceShape::threads * (is_along ? 1 : width) * sizeof(A);
  }
  KOKKOS_INLINE_FUNCTION A* shared(TeamMember<Exec> const& team) const {
    return static_cast<A*>(team.team_scratch(0).get_shmem(static_cast<int>(scratch())));
  }
};

/// Width accumulators of one thread: registers where a thread is a lane, a strip of the first-level cache that loops
/// vectorise over where it is a core.
template <class Exec, class In, template <class> class Step, class A>
struct Accumulators {
  static constexpr bool is_core = Machine<Exec>::lanes == 1;
  static constexpr int width = reduce_width<Exec, In>;
  static constexpr int in_flight = 4;

  A value[width];  // (width)

  KOKKOS_INLINE_FUNCTION Accumulators() {
    for (int j = 0; j < width; ++j) value[j] = Step<A>::identity;
  }
  KOKKOS_INLINE_FUNCTION void take_pack(Pack<In, width> const& x) {
    unroll<width>([&](auto j) { value[j] = Step<A>::take(value[j], static_cast<A>(x[j])); });
  }
  /// Elements [low, high) of a pack that starts at `from`.
  KOKKOS_INLINE_FUNCTION void take(ReduceData<Exec, In, A> const& data, In const* from, std::int64_t by, int low,
                                   int high) {
    if constexpr (is_core) {
      A strip[width];  // (width)
      data.read(from + low * by, by, high - low, strip);
      for (int j = low; j < high; ++j) value[j] = Step<A>::take(value[j], strip[j - low]);
    } else if (data.vector && high - low == width) {
      take_pack(load_pack<width>(from));
    } else {
      unroll<width>([&](auto j) {
        if (j >= low && j < high) value[j] = Step<A>::take(value[j], static_cast<A>(from[j * by]));
      });
    }
  }
  /// Whole aligned packs at from + i by for i = first, first + step, ... while i < end, several in flight; returns the
  /// first i not taken.
  KOKKOS_INLINE_FUNCTION std::int64_t take_many(In const* from, std::int64_t by, std::int64_t first, std::int64_t step,
                                                std::int64_t end) {
    std::int64_t i = first;
    if constexpr (!is_core) {
      for (; i + (in_flight - 1) * step < end; i += in_flight * step) {
        Pack<In, width> x[in_flight];
        unroll<in_flight>([&](auto u) { x[u] = load_pack<width>(from + (i + u * step) * by); });
        unroll<in_flight>([&](auto u) { take_pack(x[u]); });
      }
    }
    return i;
  }
  /// All into one, in halves.
  KOKKOS_INLINE_FUNCTION A fold() {
    static_assert(is_power_of_two(width));
    if constexpr (is_core) {
      for (int half = width / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) value[j] = Step<A>::combine(value[j], value[j + half]);
    } else {
      fold_registers<width / 2>();
    }
    return value[0];
  }

 private:
  template <int Half>
  KOKKOS_INLINE_FUNCTION void fold_registers() {
    if constexpr (Half > 0) {
      unroll<Half>([&](auto j) { value[j] = Step<A>::combine(value[j], value[j + Half]); });
      fold_registers<Half / 2>();
    }
  }
};

/// Reductions along rows.
template <class Exec, class In, template <class> class Step, class A>
struct ReduceAlong {
  using Data = ReduceData<Exec, In, A>;
  static constexpr int width = Data::width;
  static constexpr bool is_core = Machine<Exec>::lanes == 1;
  Data const& data;

  KOKKOS_FUNCTION void run(TeamMember<Exec> const& team) const {
    ReduceShape const& shape = data.shape;
    std::int64_t const part = team.league_rank() / shape.groups, group = team.league_rank() % shape.groups;
    [[maybe_unused]] A* const shared = is_core ? nullptr : data.shared(team);
    for (int round = 0; round < shape.rounds; ++round) {
      std::int64_t const first = (group * shape.rounds + round) * shape.outputs;
      each_thread<Exec>(team, [&](int thread) {
        int const slot = thread / shape.lanes;
        bool const mine = slot < shape.outputs && first + slot < data.outputs.packs;
        A const value = mine ? reduce_row(first + slot, part, thread % shape.lanes) : Step<A>::identity;
        if constexpr (is_core) {
          if (mine) finish(first + slot, part, value);
        } else {
          shared[thread] = value;
        }
      });
      if constexpr (!is_core) join(team, shared, first, part);
    }
  }

  KOKKOS_INLINE_FUNCTION void join(TeamMember<Exec> const& team, A* shared, std::int64_t first,
                                   std::int64_t part) const {
    int const lanes = data.shape.lanes;
    for (int half = lanes / 2; half > 0; half /= 2) {
      team.team_barrier();
      each_thread<Exec>(team, [&](int thread) {
        if (thread % lanes < half) shared[thread] = Step<A>::combine(shared[thread], shared[thread + half]);
      });
    }
    each_thread<Exec>(team, [&](int thread) {
      int const slot = thread / lanes;
      if (thread % lanes == 0 && slot < data.shape.outputs && first + slot < data.outputs.packs)
        finish(first + slot, part, shared[thread]);
    });
    team.team_barrier();
  }

  KOKKOS_INLINE_FUNCTION void finish(std::int64_t output, std::int64_t part, A value) const {
    std::int64_t const at = data.outputs.place(output).offset[1] + part * data.shape.output_of_parts;
    if constexpr (is_core)
      data.out.store_many(at, 0, &value, 1);
    else
      data.out.store(at, value);
  }

  KOKKOS_INLINE_FUNCTION A reduce_row(std::int64_t output, std::int64_t part, int lane) const {
    auto const& row = data.row;
    In const* const from = data.in + data.outputs.place(output).offset[0];
    if (row.packs == 1) return short_row(from);
    Accumulators<Exec, In, Step, A> values;
    std::int64_t const begin = part * data.shape.part_steps;
    std::int64_t const end = begin + data.shape.part_steps < row.packs ? begin + data.shape.part_steps : row.packs;
    std::int64_t pack = begin + lane;
    if (data.vector && row.rank == 1) {
      std::int64_t const whole = row.inner / width;
      pack = values.take_many(from, width, pack, data.shape.lanes, end < whole ? end : whole);
    }
    for (; pack < end; pack += data.shape.lanes) {
      auto const at = row.place(pack);
      values.take(data, from + at.offset[0], row.stride[0][0], at.low, at.high);
    }
    return values.fold();
  }

  /// A row of at most a pack has one lane, which needs no accumulators.
  KOKKOS_INLINE_FUNCTION A short_row(In const* from) const {
    A value = Step<A>::identity;
    if constexpr (is_core) {
      int const n = static_cast<int>(data.row.inner);
      A strip[width];  // (width)
      data.read(from, data.row.stride[0][0], n, strip);
      for (int j = 0; j < n; ++j) value = Step<A>::take(value, strip[j]);
    } else {
      for (std::int64_t j = 0; j < data.row.inner; ++j)
        value = Step<A>::take(value, static_cast<A>(from[j * data.row.stride[0][0]]));
    }
    return value;
  }
};

/// Reductions of columns.
template <class Exec, class In, template <class> class Step, class A>
struct ReduceAcross {
  using Data = ReduceData<Exec, In, A>;
  static constexpr int width = Data::width;
  static constexpr int threads = ReduceShape::threads;
  static constexpr bool is_core = Machine<Exec>::lanes == 1;
  Data const& data;

  KOKKOS_FUNCTION void run(TeamMember<Exec> const& team) const {
    ReduceShape const& shape = data.shape;
    std::int64_t const part = team.league_rank() / shape.groups, group = team.league_rank() % shape.groups;
    [[maybe_unused]] A* const shared = is_core ? nullptr : data.shared(team);
    for (int round = 0; round < shape.rounds; ++round) {
      std::int64_t const first = (group * shape.rounds + round) * shape.outputs;
      each_thread<Exec>(team, [&](int thread) {
        std::int64_t const pack = first + thread % shape.outputs;
        int const lane = thread / shape.outputs;
        bool const mine = lane < shape.lanes && pack < data.across.packs;
        Accumulators<Exec, In, Step, A> values;
        if (mine) reduce_columns(values, pack, part, lane);
        if constexpr (is_core) {
          if (mine) finish(pack, part, values.value, 1);
        } else {
          unroll<width>([&](auto j) { shared[thread + j * threads] = values.value[j]; });
        }
      });
      if constexpr (!is_core) join(team, shared, first, part);
    }
  }

  KOKKOS_INLINE_FUNCTION void join(TeamMember<Exec> const& team, A* shared, std::int64_t first,
                                   std::int64_t part) const {
    int const outputs = data.shape.outputs;
    for (int half = data.shape.lanes / 2; half > 0; half /= 2) {
      team.team_barrier();
      each_thread<Exec>(team, [&](int thread) {
        if (thread / outputs >= half) return;
        for (int j = 0; j < width; ++j) {
          A* const mine = shared + thread + j * threads;
          *mine = Step<A>::combine(*mine, mine[half * outputs]);
        }
      });
    }
    each_thread<Exec>(team, [&](int thread) {
      if (thread < outputs && first + thread < data.across.packs)
        finish(first + thread, part, shared + thread, threads);
    });
    team.team_barrier();
  }

  KOKKOS_INLINE_FUNCTION void reduce_columns(Accumulators<Exec, In, Step, A>& values, std::int64_t pack,
                                             std::int64_t part, int lane) const {
    auto const at = data.across.place(pack);
    In const* const from = data.in + at.offset[0];
    std::int64_t const begin = part * data.shape.part_steps;
    std::int64_t const end = begin + data.shape.part_steps < data.steps ? begin + data.shape.part_steps : data.steps;
    std::int64_t step = begin + lane;
    if (data.vector && at.full()) step = values.take_many(from, data.stride, step, data.shape.lanes, end);
    for (; step < end; step += data.shape.lanes)
      values.take(data, from + step * data.stride, data.across.stride[0][0], at.low, at.high);
  }

  KOKKOS_INLINE_FUNCTION void finish(std::int64_t pack, std::int64_t part, A const* value,
                                     [[maybe_unused]] int by) const {
    auto const at = data.across.place(pack);
    std::int64_t const first = at.offset[1] + part * data.shape.output_of_parts, stride = data.across.stride[1][0];
    if constexpr (is_core)
      data.out.store_many(first + at.low * stride, stride, value + at.low, at.high - at.low);
    else
      for (int j = at.low; j < at.high; ++j) data.out.store(first + j * stride, value[j * by]);
  }
};

template <class Exec, class In, class A>
struct ReduceKernel {
  ReduceData<Exec, In, A> data;
  StepKind step;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    // fp32 never adds squares, and fp64 compares only what is fp64 or an integer: see Reduction's accumulation types.
    constexpr bool compares =
        std::is_same_v<A, float> || std::is_same_v<In, double> || std::integral<In> || std::is_same_v<In, std::byte>;
    switch (step) {
      case StepKind::sum:
        return run<Sum>(team);
      case StepKind::largest:
        if constexpr (compares) run<Largest>(team);
        return;
      case StepKind::largest_magnitude:
        if constexpr (compares) run<LargestMagnitude>(team);
        return;
      case StepKind::sum_of_squares:
        if constexpr (std::is_same_v<A, double>) run<SumOfSquares>(team);
        return;
    }
  }

 private:
  template <template <class> class Step>
  KOKKOS_INLINE_FUNCTION void run(TeamMember<Exec> const& team) const {
    if (data.is_along)
      ReduceAlong<Exec, In, Step, A>{data}.run(team);
    else
      ReduceAcross<Exec, In, Step, A>{data}.run(team);
  }
};

}  // namespace tessera::detail

#endif
