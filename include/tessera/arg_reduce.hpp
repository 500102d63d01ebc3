// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ARG_REDUCE_HPP
#define TESSERA_ARG_REDUCE_HPP

/// \file
/// Reductions whose state is a pair of numbers: argmax, argmin, logsumexp.

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/reduce.hpp>

namespace tessera {

namespace detail {

enum class PairReduction : std::uint8_t { argmax, argmin, logsumexp };

struct PairReduceProblem {
  PairReduction operation = PairReduction::argmax;
  ReduceProblem operands;  // `operation`, `accumulate_fp64` and out_type apart
  Scalar out_type = Scalar::fp32;
  bool wide_index = false;  // the results are std::int64_t
  char const* label = "";
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_pair_reduction(Exec const& exec, PairReduceProblem const& problem);
template <class Exec>
std::size_t pair_reduction_workspace(PairReduceProblem const& problem);

template <class Exec, class Out, class In>
PairReduceProblem pair_reduce_problem(char const* op, PairReduction operation, Out const& out, In const& in,
                                      ReduceOptions const& options) {
  require_views<Exec, Out, In>();
  require_outputs<Out>();
  using From = typename In::non_const_value_type;
  static_assert(std::is_same_v<From, double> || std::is_same_v<From, float> || std::is_same_v<From, fp16_t> ||
                    std::is_same_v<From, bf16_t>,
                "in must hold double, float, fp16_t or bf16_t");
  static_assert(Out::rank() == 0 || Out::rank() < In::rank(),
                "the output has rank 0 (all elements) or fewer dimensions than the input");
  auto const from = array(in);
  auto const to = array(out);
  PairReduceProblem problem;
  problem.operands = reduce_problem(from, to, Reduction::max, options);
  problem.operation = operation;
  using To = typename Out::value_type;
  if constexpr (std::is_same_v<To, std::int64_t>)
    problem.wide_index = true;
  else
    problem.out_type = scalar_of<To>;
  problem.label = op;
  return problem;
}

template <class Exec, class Out, class In>
void pair_reduce(char const* op, PairReduction operation, Exec const& exec, Out const& out, In const& in,
                 ReduceOptions const& options) {
  PairReduceProblem const problem = pair_reduce_problem<Exec>(op, operation, out, in, options);
  auto const from = array(in);
  auto const to = array(out);
  check_data(op, "in", from);
  check_data(op, "out", to);
  check_writable(op, "out", to);
  check_no_overlap(op, "out", to, "in", from);
  bool const index = operation != PairReduction::logsumexp;
  check_value(!index || to.size() == 0 || problem.operands.reduced.size() > 0, op,
              "there is no largest or smallest element of none: in " + shape(from));
  check_value(!index || problem.wide_index || problem.operands.reduced.size() <= 2147483647, op,
              "indices of in " + shape(from) + " need std::int64_t");
  std::size_t const needed = pair_reduction_workspace<Exec>(problem);
  if (needed > 0) {
    if (options.workspace.size() < needed || reinterpret_cast<std::uintptr_t>(options.workspace.data()) % 16 != 0)
      throw Error(ErrorCode::workspace, std::string(op) + ": in " + shape(from) + " needs a workspace of " +
                                            std::to_string(needed) + " bytes aligned to 16, " +
                                            std::to_string(options.workspace.size()) + " were passed" +
                                            (options.workspace.size() < needed ? "" : " unaligned"));
    auto const workspace = array(options.workspace);
    check_no_overlap(op, "workspace", workspace, "in", from);
    check_no_overlap(op, "workspace", workspace, "out", to);
  }
  if (to.size() > 0) run_pair_reduction(exec, problem);
}

template <class Out>
constexpr void require_indices() {
  static_assert(
      std::is_same_v<typename Out::value_type, std::int32_t> || std::is_same_v<typename Out::value_type, std::int64_t>,
      "the results of argmax and argmin are of std::int32_t or std::int64_t");
}

}  // namespace detail

/// Bytes of workspace that argmax(), argmin() and logsumexp() need for these extents; often 0.
template <detail::execution_space Exec, detail::view Out, detail::view In>
std::size_t pair_reduce_workspace_size(Exec const&, Out const& out, In const& in, ReduceOptions const& options = {}) {
  return detail::pair_reduction_workspace<Exec>(
      detail::pair_reduce_problem<Exec>("tessera::pair_reduce", detail::PairReduction::logsumexp, out, in, options));
}

/// out = the index of the largest element along options.axis or options.axes, or of all where out has rank 0: the first
/// of several, and the first NaN where there is one. With several axes it counts their elements with the last axis
/// fastest, whatever the layout.
///
/// `in` holds double, float, fp16_t or bf16_t, any layout; `out` std::int32_t or std::int64_t. options.workspace as
/// pair_reduce_workspace_size() says. Deterministic.
///
/// Errors, before anything is written: those of reduce(); value also where nothing is reduced to a result, or an index
/// does not fit.
template <detail::execution_space Exec, detail::view Out, detail::view In>
void argmax(Exec const& exec, Out const& out, In const& in, ReduceOptions const& options = {}) {
  detail::require_indices<Out>();
  detail::pair_reduce("tessera::argmax", detail::PairReduction::argmax, exec, out, in, options);
}

/// The same of the smallest element.
template <detail::execution_space Exec, detail::view Out, detail::view In>
void argmin(Exec const& exec, Out const& out, In const& in, ReduceOptions const& options = {}) {
  detail::require_indices<Out>();
  detail::pair_reduce("tessera::argmin", detail::PairReduction::argmin, exec, out, in, options);
}

/// out = log sum exp(x) over options.axis, options.axes or all elements, relative to the largest, so that nothing
/// overflows; `out` holds float or double, otherwise as argmax. In fp32, in fp64 if an operand is double. No elements,
/// or nothing but -Inf: -Inf. A NaN or a +Inf: NaN, Inf.
template <detail::execution_space Exec, detail::view Out, detail::view In>
void logsumexp(Exec const& exec, Out const& out, In const& in, ReduceOptions const& options = {}) {
  static_assert(std::is_same_v<typename Out::value_type, float> || std::is_same_v<typename Out::value_type, double>,
                "the results of logsumexp are of float or double");
  detail::pair_reduce("tessera::logsumexp", detail::PairReduction::logsumexp, exec, out, in, options);
}

}  // namespace tessera

#endif
