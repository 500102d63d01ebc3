// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_PLAN_HPP
#define TESSERA_ELEMENT_REDUCE_PLAN_HPP

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include <tessera/compiled_spaces.hpp>
#include <tessera/element/reduce.hpp>
#include <tessera/element/reduce_join.hpp>
#include <tessera/element/reduce_rows.hpp>
#include <tessera/element/reduce_short_rows.hpp>
#include <tessera/vector_units.hpp>

// From a ReduceProblem to launches.
namespace tessera::detail {

/// Tuning numbers; none depends on the machine's size, so that the order of the additions does not either.
struct ReduceTuning {
  static constexpr std::int64_t packs_per_lane = 16;     // two rounds of loads, so that the lanes' joining is little
  static constexpr std::int64_t fewest_per_lane = 4;     // where rows are short or few
  static constexpr std::int64_t longest_per_lane = 512;  // of columns: chains of half as many additions
  static constexpr std::int64_t part_elements = 8192;    // a team's start must not cost more than its work
  static constexpr std::int64_t teams = 512;             // all at once on 132 multiprocessors, four each
  static constexpr std::int64_t core_elements = 16384;   // the same for a core: of a part, and of a round of outputs
  static constexpr std::int64_t core_teams = 2048;       // for any number of cores
  static constexpr std::int64_t neighbours = 32;         // packs across that make whole cache lines,
  static constexpr std::int64_t fewest_neighbours = 2;   // or whole sectors, where teams would be few,
  static constexpr std::int64_t narrow_steps = 2048;     // of so many elements each at most,
  static constexpr std::int64_t narrow_per_lane = 8;     // so many of them a lane
};

inline std::int64_t power_of_two_up(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}
inline std::int64_t power_of_two_down(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

/// One pass: collapsed loops, the direction of the packs, and how teams share the work.
struct ReducePass {
  Dimensions<2> kept;
  Dimensions<1> reduced;
  bool along = true;
  std::int64_t outputs = 0, elements = 0;  // results; elements of each
  ReduceShape shape;

  ReducePass(ReduceProblem const& problem, bool is_core, int width, bool may_split)
      : kept(problem.kept), reduced(problem.reduced) {
    kept.collapse();
    reduced.collapse();
    outputs = kept.size();
    elements = reduced.size();
    if (outputs == 0) return;
    along = outputs == 1 || reduced.rank > 1 || reduced.stride[0][0] <= kept.stride[0][0];
    if (elements == 1) along = false;
    std::int64_t const slots =
        along ? outputs : divide_up(kept.extent[0], width) * (outputs / kept.extent[0]);  // outputs or packs of them
    std::int64_t const row = reduced.extent[0];
    std::int64_t const steps = !along ? elements : row > 0 ? divide_up(row, width) * (elements / row) : 0;
    constexpr std::int64_t threads = ReduceShape::threads;
    std::int64_t lanes = 1, at_once = 1;
    if (!is_core) {
      std::int64_t const most = power_of_two_down(steps / ReduceTuning::fewest_per_lane);
      if (along) {
        lanes = std::min(
            {std::max(power_of_two_down(steps / ReduceTuning::packs_per_lane), std::int64_t{8}), most, threads});
        while (2 * lanes <= std::min(most, threads) && slots * lanes < ReduceTuning::teams * threads) lanes *= 2;
      } else {
        lanes = std::min(most, threads / std::min(ReduceTuning::neighbours, power_of_two_up(slots)));
        std::int64_t const more = std::min(power_of_two_down(steps / ReduceTuning::narrow_per_lane),
                                           threads / ReduceTuning::fewest_neighbours);
        if (steps <= ReduceTuning::narrow_steps)
          while (2 * lanes <= more && slots * lanes < ReduceTuning::teams * threads) lanes *= 2;
      }
      at_once = std::min(threads / lanes, power_of_two_up(slots));
    } else {
      std::int64_t const work = std::max<std::int64_t>(1, elements * (along ? 1 : width));
      shape.rounds = static_cast<int>(std::clamp<std::int64_t>(ReduceTuning::core_elements / work, 1, 4096));
    }
    shape.lanes = static_cast<int>(lanes);
    shape.outputs = static_cast<int>(at_once);
    shape.groups = divide_up(slots, at_once * shape.rounds);
    shape.by_lanes = Divisor(lanes);
    shape.by_outputs = Divisor(at_once);
    shape.by_groups = Divisor(shape.groups);
    if (may_split) split(steps, is_core);
    shape.part_steps = divide_up(divide_up(steps, shape.parts), lanes) * lanes;
  }

 private:
  void split(std::int64_t steps, bool is_core) {
    std::int64_t const least = is_core ? ReduceTuning::core_elements : ReduceTuning::part_elements;
    std::int64_t const share = outputs * elements / shape.groups / least;
    std::int64_t const room = (is_core ? ReduceTuning::core_teams : ReduceTuning::teams) / shape.groups;
    shape.parts = std::max<std::int64_t>(1, std::min({share, room, steps / shape.lanes}));
    if (!is_core && !along && steps <= shape.lanes * ReduceTuning::packs_per_lane) shape.parts = 1;
    if (!is_core && !along) shape.parts = std::max(shape.parts, steps / (shape.lanes * ReduceTuning::longest_per_lane));
    if (!is_core) shape.parts = std::max(shape.parts, steps >> 30);  // a part's packs are counted in 31 bits
  }
};

/// fp64 accumulates fp64 and integers, squares, and sums when the user asks for it.
template <class In>
inline constexpr bool always_fp64 = std::is_same_v<In, double> || std::integral<In>;

/// Do packs of `width` elements of `in` lie at aligned addresses for all the steps of these loops, the first of which
/// is the packs' own?
template <int A, int B>
bool has_aligned_packs(void const* in, std::size_t alignment, int width, Dimensions<A> const& own,
                       Dimensions<B> const& other) {
  bool good = own.stride[0][0] == 1 && reinterpret_cast<std::uintptr_t>(in) % alignment == 0;
  for (int d = 1; d < own.rank; ++d) good = good && own.stride[0][d] % width == 0;
  for (int d = 0; d < other.rank; ++d) good = good && (other.extent[d] == 1 || other.stride[0][d] % width == 0);
  return good;
}

template <class Exec, class Element, class A>
void start_pass(char const* label, Exec const& exec, ReducePass const& pass,
                ReduceKernel<KernelSpace<Exec>, Element, A> const& kernel) {
  constexpr int teams_at_once = sizeof(A) == 8 ? 2 : 4;  // registers: what is under way needs many threads
  char const* const scheme = pass.along ? "along rows" : "across rows";
  launch<ReduceShape::threads, teams_at_once>(KernelLabel{label, scheme}, exec, pass.shape.groups * pass.shape.parts,
                                              kernel.data.scratch(), kernel);
}

/// Starts ReduceRowsKernel for a pass of packs at aligned addresses along rows where it can serve it.
template <class Exec, class In, class A>
bool start_rows(char const* label, Exec const& exec, ReduceProblem const& problem, ReducePass const& pass,
                StepKind step, ReduceOutput const& out) {
  if constexpr (Machine<Exec>::lanes == 1) {
    return false;
  } else {
    using Kernel = ReduceRowsKernel<Exec, In, A>;
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    std::int64_t const row = pass.reduced.extent[0], packs = row / Kernel::width;
    std::int64_t const rows = pass.outputs * pass.shape.parts, part = std::min(pass.shape.part_steps, packs);
    if (pass.kept.rank != 1 || pass.reduced.rank != 1 || row % Kernel::width != 0 || packs == 0) return false;
    if (rows > most || packs > most - 8 * Kernel::threads) return false;
    if constexpr (WarpAtoms<KernelSpace<Exec>>::available && std::is_same_v<A, float> && is_short_row_type<In>)
      if (pass.shape.parts == 1 && start_short_rows(label, exec, static_cast<In const*>(problem.in), rows, packs,
                                                    pass.kept.stride[0][0], pass.kept.stride[1][0], step, out))
        return true;
    // Eight packs a lane, all under way at once, and accesses of 64 bytes where rows are shorter.
    std::int64_t const lanes = std::clamp<std::int64_t>(
        power_of_two_up(divide_up(part, 8)), std::min<std::int64_t>(power_of_two_up(part), 4), Kernel::threads);
    Kernel const kernel{static_cast<In const*>(problem.in),
                        out,
                        pass.kept.stride[0][0],
                        pass.kept.stride[1][0],
                        pass.shape.output_of_parts,
                        static_cast<int>(rows),
                        std::countr_zero(static_cast<unsigned>(lanes)),
                        static_cast<int>(packs),
                        static_cast<int>(part),
                        Divisor(pass.shape.parts),
                        step};
    launch<Kernel::threads, sizeof(A) == 8 ? 2 : 4>(KernelLabel{label, "along rows of whole packs"}, exec,
                                                    kernel.teams(), Kernel::scratch_bytes, kernel);
    return true;
  }
}

template <class Exec, class In, class A>
void launch_pass(char const* label, Exec const& exec, ReduceProblem const& problem, ReducePass pass, StepKind step,
                 ReduceOutput const& out) {
  using Element = ReduceElement<Exec, In>;
  constexpr int width = reduce_width<Exec, In>;
  constexpr std::size_t alignment = pack_alignment<In, width>();
  bool const vector = pass.along ? has_aligned_packs(problem.in, alignment, width, pass.reduced, pass.kept)
                                 : has_aligned_packs(problem.in, alignment, width, pass.kept, pass.reduced);
  if (pass.along && vector && start_rows<Exec, In, A>(label, exec, problem, pass, step, out)) return;
  decltype(ReduceData<KernelSpace<Exec>, Element, A>::read) read{};
  if constexpr (std::is_same_v<Element, std::byte>) {
    if constexpr (std::is_same_v<A, double> && !always_fp64<In>)
      read.read_fp32 = for_vector_units<read_elements<float, In>>();
    else
      read.read = for_vector_units<read_elements<A, In>>();
    for (int d = 0; d < pass.kept.rank; ++d) pass.kept.stride[0][d] *= static_cast<std::int64_t>(sizeof(In));
    for (int d = 0; d < pass.reduced.rank; ++d) pass.reduced.stride[0][d] *= static_cast<std::int64_t>(sizeof(In));
  }
  start_pass<Exec, Element, A>(label, exec, pass,
                               {{static_cast<Element const*>(problem.in), out, pass.shape, pass.along, vector,
                                 PackSpace<2, 1>(pass.kept, 0), PackSpace<1, width>(pass.reduced, 0),
                                 PackSpace<2, width>(pass.kept, 0), pass.elements, pass.reduced.stride[0][0], read},
                                step});
}

/// How an operation is made of steps: over the elements, over the results of parts, and at the end.
struct ReduceRecipe {
  StepKind step, join;
  Closing closing;
};

inline ReduceRecipe recipe(Reduction operation) {
  switch (operation) {
    case Reduction::sum:
      return {StepKind::sum, StepKind::sum, Closing::none};
    case Reduction::mean:
      return {StepKind::sum, StepKind::sum, Closing::divide};
    case Reduction::max:
      return {StepKind::largest, StepKind::largest, Closing::none};
    case Reduction::amax:
      return {StepKind::largest_magnitude, StepKind::largest, Closing::none};
    case Reduction::min:
      return {StepKind::largest_negative, StepKind::largest, Closing::negate};
    case Reduction::sum_of_squares:
      return {StepKind::sum_of_squares, StepKind::sum, Closing::none};
    case Reduction::norm2:
      break;
  }
  return {StepKind::sum_of_squares, StepKind::sum, Closing::root};
}

template <class In>
bool accumulates_fp64(ReduceProblem const& problem) {
  StepKind const step = recipe(problem.operation).step;
  return always_fp64<In> || step == StepKind::sum_of_squares || (step == StepKind::sum && problem.accumulate_fp64);
}

template <class Exec, class In>
ReducePass first_pass(ReduceProblem const& problem) {
  return ReducePass(problem, Machine<Exec>::lanes == 1, reduce_width<Exec, In>, true);
}

/// One pass, or two through the workspace: over the elements of each part, then over the parts.
template <class Exec, class In, class A>
void run_passes(Exec const& exec, ReduceProblem const& problem) {
  ReducePass first = first_pass<Exec, In>(problem);
  if (first.outputs == 0) return;
  ReduceRecipe const how = recipe(problem.operation);
  ReduceOutput const out{problem.out, problem.out_type, how.closing, static_cast<double>(first.elements)};
  if (first.shape.parts == 1) {
    launch_pass<Exec, In, A>("tessera::reduce", exec, problem, first, how.step, out);
    return;
  }
  // Partial results: (parts, outputs), the outputs in the order of the collapsed loops.
  ReduceProblem join = problem;
  join.in = problem.workspace;
  join.kept = {};
  join.reduced = {};
  join.reduced.add(first.shape.parts, {first.outputs});
  std::int64_t flat = 1;
  for (int d = 0; d < first.kept.rank; ++d) {
    join.kept.add(first.kept.extent[d], {flat, first.kept.stride[1][d]});
    first.kept.stride[1][d] = flat;
    flat *= first.kept.extent[d];
  }
  first.shape.output_of_parts = first.outputs;
  launch_pass<Exec, In, A>("tessera::reduce::parts", exec, problem, first, how.step,
                           ReduceOutput{problem.workspace, scalar_of<A>, Closing::none, 1});
  if constexpr (Machine<Exec>::lanes > 1)
    if (first.outputs > 1) {
      auto const* const parts = static_cast<A const*>(problem.workspace);
      if (how.join == StepKind::sum)
        launch_join<A, Sum>("tessera::reduce::join", exec, parts, first.shape.parts, join.kept, out);
      else
        launch_join<A, Largest>("tessera::reduce::join", exec, parts, first.shape.parts, join.kept, out);
      return;
    }
  ReducePass const second(join, Machine<Exec>::lanes == 1, reduce_width<Exec, A>, false);
  launch_pass<Exec, A, A>("tessera::reduce::join", exec, join, second, how.join, out);
}

template <class Exec, class In>
void run_reduction_of(Exec const& exec, ReduceProblem const& problem) {
  if (accumulates_fp64<In>(problem)) return run_passes<Exec, In, double>(exec, problem);
  if constexpr (!always_fp64<In>) run_passes<Exec, In, float>(exec, problem);
}

template <class Exec, class In>
std::size_t reduction_workspace_of(ReduceProblem const& problem) {
  ReducePass const pass = first_pass<Exec, In>(problem);
  if (pass.shape.parts == 1) return 0;
  return static_cast<std::size_t>(pass.shape.parts * pass.outputs) * (accumulates_fp64<In>(problem) ? 8 : 4);
}

/// f.template operator()<In>() for the type with that name.
template <class F>
auto with_type(Scalar type, F const& f) {
  switch (type) {
    case Scalar::fp64:
      return f.template operator()<double>();
    case Scalar::fp32:
      return f.template operator()<float>();
    case Scalar::fp16:
      return f.template operator()<fp16_t>();
    case Scalar::bf16:
      return f.template operator()<bf16_t>();
    case Scalar::e4m3:
      return f.template operator()<e4m3_t>();
    case Scalar::e5m2:
      return f.template operator()<e5m2_t>();
    case Scalar::int8:
      return f.template operator()<std::int8_t>();
    case Scalar::int32:
      return f.template operator()<std::int32_t>();
  }
  return f.template operator()<float>();
}

// The instances that the library's sources hold between them.
#define TESSERA_REDUCTION_OF(EXTERN, EXEC, IN) \
  EXTERN template void run_reduction_of<EXEC, IN>(EXEC const&, ReduceProblem const&);
#define TESSERA_NARROW_REDUCTIONS(EXTERN, EXEC) \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, fp16_t)    \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, bf16_t)    \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, e4m3_t)    \
  TESSERA_REDUCTION_OF(EXTERN, EXEC, e5m2_t)
/// The kernels of the second passes, whose input is of the accumulator's type; on a CPU those of all passes.
#define TESSERA_REDUCE_START(EXTERN, EXEC, A)                                                                          \
  EXTERN template void start_pass<EXEC, ReduceElement<EXEC, A>, A>(                                                    \
      char const*, EXEC const&, ReducePass const&, ReduceKernel<KernelSpace<EXEC>, ReduceElement<EXEC, A>, A> const&); \
  EXTERN template bool start_rows<EXEC, A, A>(char const*, EXEC const&, ReduceProblem const&, ReducePass const&,       \
                                              StepKind, ReduceOutput const&);
#define TESSERA_REDUCE_STARTS(EXTERN, EXEC) \
  TESSERA_REDUCE_START(EXTERN, EXEC, float) \
  TESSERA_REDUCE_START(EXTERN, EXEC, double)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_NARROW_REDUCTIONS, extern)
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_REDUCE_STARTS, extern)

}  // namespace tessera::detail

#endif
