// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_RUN_HPP
#define TESSERA_CAST_RUN_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <tessera/cast.hpp>
#include <tessera/cast/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <type_traits>

namespace tessera::detail {

/// Elements of one index of the launch. A CPU core wants long loops; elsewhere a thread makes one 16-byte access to the
/// wider of the two types.
template <class Exec, class Out, class In>
inline constexpr int cast_width = Machine<Exec>::is_host ? 1024 : common_pack_size<Out, In>();

/// Is the address fit for a vector access to N elements?
template <int N, class T>
KOKKOS_INLINE_FUNCTION bool pack_aligned(T const* data) {
  return reinterpret_cast<std::uintptr_t>(data) % pack_alignment<T, N>() == 0;
}

template <class Exec, class Out, class In>
struct CastKernel {
  static constexpr int width = cast_width<Exec, Out, In>;
  static constexpr bool packed = !Machine<Exec>::is_host;

  Out* out;
  In const* in;
  typename FloatFormat<Out>::bits_type overflow;
  bool consecutive;  // the innermost stride of both operands is 1
  PackSpace<2, width> space;

  KOKKOS_FUNCTION void operator()(std::int64_t pack) const {
    auto const at = space.place(pack);
    Out* const to = out + at.offset[0];
    In const* const from = in + at.offset[1];
    if (!consecutive) {
      std::int64_t const step = space.stride[0][0], in_step = space.stride[1][0];
      for (int i = at.low; i < at.high; ++i) to[i * step] = convert<Out>(from[i * in_step], overflow);
      return;
    }
    if constexpr (packed) {
      if (at.full() && pack_aligned<width>(to) && pack_aligned<width>(from)) {
        auto const x = load_pack<width>(from);  // (width)
        Pack<Out, width> y;                     // (width)
        for (int i = 0; i < width; ++i) y[i] = convert<Out>(x[i], overflow);
        store_pack<width>(to, y);
        return;
      }
    }
    for (int i = at.low; i < at.high; ++i) to[i] = convert<Out>(from[i], overflow);
  }
};

template <class Exec, class Out, class In>
void launch_cast(Exec const& exec, CastProblem const& problem, Dimensions<2> const& dims) {
  using Kernel = CastKernel<Exec, Out, In>;
  auto* const out = static_cast<Out*>(problem.out);
  bool const consecutive = dims.stride[0][0] == 1 && dims.stride[1][0] == 1;
  // Packs start where stores are aligned; where the loads are not, or rows differ, an element at a time is right.
  auto const position = reinterpret_cast<std::uintptr_t>(out) / sizeof(Out);
  int const head = Kernel::packed && consecutive ? static_cast<int>(position % Kernel::width) : 0;
  PackSpace<2, Kernel::width> const space(dims, head);
  for_each_index(
      "tessera::cast", exec, space.packs,
      Kernel{out, static_cast<In const*>(problem.in), cast_overflow<Out>(problem.saturate), consecutive, space});
}

/// Calls f with std::type_identity of the floating-point type of that name.
template <class F>
void with_float_type(Scalar scalar, F f) {
  switch (scalar) {
    case Scalar::fp64:
      return f(std::type_identity<double>{});
    case Scalar::fp32:
      return f(std::type_identity<float>{});
    case Scalar::fp16:
      return f(std::type_identity<fp16_t>{});
    case Scalar::bf16:
      return f(std::type_identity<bf16_t>{});
    case Scalar::e4m3:
      return f(std::type_identity<e4m3_t>{});
    case Scalar::e5m2:
      return f(std::type_identity<e5m2_t>{});
    case Scalar::int8:
    case Scalar::int32:
      return;  // require_cast lets none of these in
  }
}

template <class Exec>
void run_cast(Exec const& exec, CastProblem const& problem) {
  Dimensions<2> dims;
  for (int d = problem.rank - 1; d >= 0; --d)
    dims.add(problem.extent[d], {problem.out_stride[d], problem.in_stride[d]});
  dims.collapse();
  with_float_type(problem.out_type, [&](auto out) {
    with_float_type(problem.in_type, [&](auto in) {
      launch_cast<Exec, typename decltype(out)::type, typename decltype(in)::type>(exec, problem, dims);
    });
  });
}

}  // namespace tessera::detail

#endif
