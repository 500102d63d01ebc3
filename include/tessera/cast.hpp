// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Conversion of whole Views between the floating-point element types.
#ifndef TESSERA_CAST_HPP
#define TESSERA_CAST_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <tessera/detail/array.hpp>
#include <tessera/types.hpp>

namespace tessera {

struct CastOptions {
  /// Finite numbers too large for the output type, and infinities, become its largest finite number of the same sign,
  /// so that the result is finite or NaN. Otherwise both become infinity, or NaN in e4m3, which has no infinity.
  bool saturate = false;
};

namespace detail {

/// A cast without types: one compiled entry point serves all pairs, ranks and layouts.
struct CastProblem {
  static constexpr int max_rank = 8;
  void* out = nullptr;
  void const* in = nullptr;
  Scalar out_type = Scalar::fp32, in_type = Scalar::fp32;
  bool saturate = false;
  int rank = 0;
  std::int64_t extent[max_rank] = {};      // (rank)
  std::int64_t out_stride[max_rank] = {};  // (rank), elements
  std::int64_t in_stride[max_rank] = {};   // (rank), elements
};

/// Compiled in the library for the execution spaces it was built for; tessera/cast/run.hpp has the definition.
template <class Exec>
void run_cast(Exec const& exec, CastProblem const& problem);

template <view Out, view In>
constexpr void require_cast() {
  static_assert(int{Out::rank()} == int{In::rank()}, "cast: the Views must have the same rank");
  static_assert(float_type<typename Out::non_const_value_type> && float_type<typename In::non_const_value_type>,
                "cast: the Views must be of double, float, fp16_t, bf16_t, e4m3_t or e5m2_t");
}

}  // namespace detail

/// out(i, j, ...) = in(i, j, ...), converted to the type of `out`.
///
/// Views of the same rank (0 to 8) and extents, of any layout and strides; double, float, fp16_t, bf16_t, e4m3_t or
/// e5m2_t each, all 36 pairs. `in` may broadcast (stride 0). In place (`out` and `in` the same elements) when the types
/// have the same size.
///
/// Rounded once, to nearest, ties to even; subnormals and the sign of zero are kept. Every NaN becomes the canonical
/// NaN of the output type: positive, all exponent and mantissa bits set (limits<T>::nan_bits), also where both types
/// are the same. The bits of the result are the same on every backend for every input.
///
/// Asynchronous on `exec`, without allocation. Errors: extents that differ (extent), a View with elements but no data
/// (null_data), an `out` with stride 0 or that shares memory with `in` without being the same elements
/// (overlap).
template <detail::execution_space Exec, class Out, class In>
void cast(Exec const& exec, Out const& out, In const& in, CastOptions options = {}) {
  detail::require_views<Exec, Out, In>();
  detail::require_outputs<Out>();
  detail::require_cast<Out, In>();
  constexpr char const* op = "tessera::cast";
  auto const y = detail::array(out);
  auto const x = detail::array(in);
  detail::check_same_extents(op, "out", y, "in", x);
  detail::check_data(op, "out", y);
  detail::check_data(op, "in", x);
  detail::check_writable(op, "out", y);
  detail::check_no_partial_overlap(op, "out", y, "in", x);
  if (y.size() == 0) return;

  detail::CastProblem problem{y.data,
                              x.data,
                              scalar_of<typename Out::non_const_value_type>,
                              scalar_of<typename In::non_const_value_type>,
                              options.saturate,
                              static_cast<int>(Out::rank())};
  for (int d = 0; d < problem.rank; ++d) {
    problem.extent[d] = y.extent[d];
    problem.out_stride[d] = y.stride[d];
    problem.in_stride[d] = x.stride[d];
  }
  detail::run_cast(exec, problem);
}

/// The same on the default instance of the execution space of `out`.
template <detail::view Out, class In>
void cast(Out const& out, In const& in, CastOptions options = {}) {
  cast(typename Out::execution_space{}, out, in, options);
}

}  // namespace tessera

#endif
