// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_REDUCE_HPP
#define TESSERA_REDUCE_HPP

/// \file
/// Reductions of a View over all its elements or along some of its dimensions.

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/element/reduce_problem.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// Memory of the execution space lent to reduce(); a View<std::byte*> of any memory space converts to it.
using ReduceWorkspace = Kokkos::View<std::byte*, Kokkos::AnonymousSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Some dimensions of a View, as `{0, 2}`; -1 is the last.
class ReduceAxes {
 public:
  ReduceAxes() = default;
  ReduceAxes(std::initializer_list<int> axes) {  // NOLINT(google-explicit-constructor): a list is what one passes
    for (int axis : axes) add(axis);
  }
  int count() const { return count_; }
  int operator[](int i) const { return axis_[i]; }

 private:
  void add(int axis) {
    detail::check_value(count_ < 8, "tessera::ReduceAxes", "a View has 8 dimensions at most");
    axis_[count_++] = axis;
  }
  int axis_[8] = {};
  int count_ = 0;
};

struct ReduceOptions {
  /// The dimension that is reduced when the output has one dimension less than the input; -1 is the last.
  int axis = -1;
  /// The dimensions that are reduced, instead of `axis`, as many as the output has fewer than the input.
  ReduceAxes axes = {};
  /// Adds in fp64 whatever the input is.
  bool accumulate_fp64 = false;
  /// At least reduce_workspace_size() bytes, aligned to 8; not needed when that is 0.
  ReduceWorkspace workspace = {};
};

namespace detail {

/// Compiled into the library for every execution space it was built for.
template <class Exec>
void run_reduction(Exec const& exec, ReduceProblem const& problem);
template <class Exec>
std::size_t reduction_workspace(ReduceProblem const& problem);

template <class In, int Rank, class Out, int OutRank>
ReduceProblem reduce_problem(Array<In, Rank> const& in, Array<Out, OutRank> const& out, Reduction operation,
                             ReduceOptions const& options) {
  static constexpr char const* op = "tessera::reduce";
  constexpr bool all = OutRank == 0;
  bool is_reduced[Rank > 0 ? Rank : 1] = {};
  int reduced = 0;
  auto const reduce_axis = [&](int given) {
    int const axis = given < 0 ? given + Rank : given;
    check_value(axis >= 0 && axis < Rank, op,
                "axis " + std::to_string(given) + " does not exist in the input " + shape(in));
    check_value(!is_reduced[axis], op, "axis " + std::to_string(given) + " is given twice");
    is_reduced[axis] = true;
    ++reduced;
  };
  if (!all) {
    for (int i = 0; i < options.axes.count(); ++i) reduce_axis(options.axes[i]);
    if (options.axes.count() == 0) reduce_axis(options.axis);
    check_value(reduced == Rank - OutRank, op,
                std::to_string(reduced) + " axes are reduced, but out " + shape(out) + " has " +
                    std::to_string(Rank - OutRank) + " dimensions less than the input " + shape(in));
  }
  ReduceProblem p;
  p.operation = operation;
  p.in_type = scalar_of<std::remove_cv_t<In>>;
  if constexpr (scalar_type<std::remove_cv_t<Out>>) p.out_type = scalar_of<std::remove_cv_t<Out>>;
  p.in = in.data;
  p.out = out.data;
  p.accumulate_fp64 = options.accumulate_fp64;
  p.workspace = options.workspace.data();
  p.workspace_bytes = options.workspace.size();
  for (int d = Rank - 1, to = OutRank - 1; d >= 0; --d) {
    if (all || is_reduced[d]) {
      std::int64_t const stride[1] = {in.stride[d]};  // named: nvcc drops the braces of a one-element array argument
      p.reduced.add(in.extent[d], stride);
      continue;
    }
    if constexpr (!all) {
      check_extent(op, "out", out, to, in.extent[d], "extent " + std::to_string(d) + " of the input " + shape(in));
      p.kept.add(in.extent[d], {in.stride[d], out.stride[to]});
      --to;
    }
  }
  return p;
}

template <class Exec, class Out, class In>
constexpr void require_reducible() {
  require_views<Exec, Out, In>();
  require_outputs<Out>();
  static_assert(scalar_type<typename Out::non_const_value_type> && scalar_type<typename In::non_const_value_type>,
                "reduce takes the element types of this library: double, float, fp16_t, bf16_t, e4m3_t, e5m2_t, "
                "std::int8_t, std::int32_t");
  static_assert(Out::rank() == 0 || Out::rank() < In::rank(),
                "the output of reduce has rank 0 (all elements) or fewer dimensions than the input");
}

}  // namespace detail

/// Bytes of workspace that reduce() needs with the same arguments; often 0. It depends on the shapes, the layout and
/// the input's type alone.
template <detail::execution_space Exec, detail::view Out, detail::view In>
std::size_t reduce_workspace_size(Exec const&, Out const& out, In const& in, Reduction operation,
                                  ReduceOptions const& options = {}) {
  detail::require_reducible<Exec, Out, In>();
  return detail::reduction_workspace<Exec>(
      detail::reduce_problem(detail::array(in), detail::array(out), operation, options));
}

/// out = operation over all elements of `in` (out of rank 0), or along options.axis or options.axes (out has the other
/// dimensions).
///
/// Types: any element types of this library, any layout, strides and extents. sum and mean add in fp32, in fp64 for
/// fp64 and integer input and with options.accumulate_fp64; norm2 and sum_of_squares square and add in fp64, so that
/// they neither overflow nor underflow for any input but fp64 (where |x| beyond 1e154 does); max, min and amax are
/// exact. The result is rounded once to out's type (integers saturate).
///
/// No elements: sum, amax and norm2 give 0, mean gives NaN, max gives -infinity and min infinity (or what out's type
/// makes of it). A NaN among the elements gives NaN.
///
/// Deterministic: for one shape, layout and type the additions are made in one order, without atomics, so repeated runs
/// give the same bits on the same kind of backend. The order differs between CPUs and GPUs, and on GPUs between rows of
/// whole packs of 16 bytes that begin at multiples of 16 bytes, in the input or the workspace, and others. The sum of n
/// elements goes through at most about n / 2048 + 300 additions one after another in any element's path.
///
/// Long reductions with few results are made in two passes through options.workspace. Asynchronous on `exec`; no fence,
/// no allocation.
///
/// Error{extent}: out's extents are not those of the other dimensions. Error{value}: no such axis, one
/// given twice, or more or fewer than out has dimensions less. Error{overlap}: out
/// or the workspace shares memory with the input or with each other, or out has stride 0. Error{null_data}: a View with
/// elements has no data. Error{workspace}: missing, too small or not aligned to 8 bytes. Outputs are then untouched.
template <detail::execution_space Exec, detail::view Out, detail::view In>
void reduce(Exec const& exec, Out const& out, In const& in, Reduction operation, ReduceOptions const& options = {}) {
  detail::require_reducible<Exec, Out, In>();
  static constexpr char const* op = "tessera::reduce";
  auto const from = detail::array(in);
  auto const to = detail::array(out);
  detail::ReduceProblem const problem = detail::reduce_problem(from, to, operation, options);
  detail::check_data(op, "in", from);
  detail::check_data(op, "out", to);
  detail::check_writable(op, "out", to);
  detail::check_no_overlap(op, "out", to, "in", from);
  std::size_t const needed = detail::reduction_workspace<Exec>(problem);
  if (needed > 0) {
    if (options.workspace.size() < needed || reinterpret_cast<std::uintptr_t>(options.workspace.data()) % 8 != 0)
      throw Error(ErrorCode::workspace, std::string(op) + ": reducing in " + detail::shape(from) + " to out " +
                                            detail::shape(to) + " needs a workspace of " + std::to_string(needed) +
                                            " bytes aligned to 8, " + std::to_string(options.workspace.size()) +
                                            " were passed" + (options.workspace.size() < needed ? "" : " unaligned"));
    auto const workspace = detail::array(options.workspace);
    detail::check_no_overlap(op, "workspace", workspace, "in", from);
    detail::check_no_overlap(op, "workspace", workspace, "out", to);
  }
  detail::run_reduction(exec, problem);
}

/// The same on the default instance of out's execution space.
template <detail::view Out, detail::view In>
void reduce(Out const& out, In const& in, Reduction operation, ReduceOptions const& options = {}) {
  reduce(typename Out::execution_space{}, out, in, operation, options);
}

}  // namespace tessera

#endif
