// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_RUN_HPP
#define TESSERA_CAST_RUN_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <tessera/cast.hpp>
#include <tessera/cast/convert.hpp>
#include <tessera/cast/strips.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <type_traits>

namespace tessera::detail {

/// Is the address fit for a vector access to N elements?
template <int N, class T>
KOKKOS_INLINE_FUNCTION bool pack_aligned(T const* data) {
  return reinterpret_cast<std::uintptr_t>(data) % pack_alignment<T, N>() == 0;
}

/// A thread makes one 16-byte access to the wider of the two types.
template <class Out, class In>
struct CastKernel {
  static constexpr int width = common_pack_size<Out, In>();

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
    if (at.full() && pack_aligned<width>(to) && pack_aligned<width>(from)) {
      auto const x = load_pack<width>(from);  // (width)
      Pack<Out, width> y;                     // (width)
      for (int i = 0; i < width; ++i) y[i] = convert<Out>(x[i], overflow);
      store_pack<width>(to, y);
      return;
    }
    for (int i = at.low; i < at.high; ++i) to[i] = convert<Out>(from[i], overflow);
  }
};

template <class Out, class In, class Exec>
void launch_cast(Exec const& exec, CastProblem const& problem, Dimensions<2> const& dims) {
  using Kernel = CastKernel<Out, In>;
  auto* const out = static_cast<Out*>(problem.out);
  bool const consecutive = dims.stride[0][0] == 1 && dims.stride[1][0] == 1;
  // Packs start where stores are aligned; where the loads are not, or rows differ, an element at a time is right.
  auto const position = reinterpret_cast<std::uintptr_t>(out) / sizeof(Out);
  int const head = consecutive ? static_cast<int>(position % Kernel::width) : 0;
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

template <class Through, class Exec>
void launch_cast_strips(Exec const& exec, CastProblem const& problem, Dimensions<2> const& dims) {
  using Kernel = CastStrips<Through>;
  ReadStrip<Through> read = nullptr;
  ReadStrip<Through> widen = nullptr;
  WriteStrip<Through> write = nullptr;
  // In place, an element may not be read after it is written: through a strip.
  bool const may_widen = problem.out_type == scalar_of<Through> && dims.stride[0][0] == 1 && problem.in != problem.out;
  bool const lies_ready = problem.in_type == scalar_of<Through> && dims.stride[1][0] == 1 && problem.in != problem.out;
  // Of wide and narrow types only what can meet: a pair with a double goes through double, others through float.
  constexpr bool wide = std::is_same_v<Through, double>;
  with_float_type(problem.in_type, [&](auto in) {
    using In = typename decltype(in)::type;
    if constexpr (wide || !std::is_same_v<In, double>) {
      if (!lies_ready) read = read_cast_strip<Through, In>;
      if (may_widen)
        widen = problem.saturate ? widen_cast_strip<Through, In, true> : widen_cast_strip<Through, In, false>;
    }
  });
  with_float_type(problem.out_type, [&](auto out) {
    using Out = typename decltype(out)::type;
    if constexpr (wide || !std::is_same_v<Out, double>)
      write = problem.saturate ? write_cast_strip<Through, Out, true> : write_cast_strip<Through, Out, false>;
  });
  PackSpace<2, Kernel::width> const space(dims, 0);
  for_each_index("tessera::cast", exec, space.packs, Kernel{widen, read, write, problem.out, problem.in, space});
}

template <class Exec>
void run_cast(Exec const& exec, CastProblem const& problem) {
  Dimensions<2> dims;
  for (int d = problem.rank - 1; d >= 0; --d)
    dims.add(problem.extent[d], {problem.out_stride[d], problem.in_stride[d]});
  dims.collapse();
  if constexpr (Machine<Exec>::is_host) {
    if (problem.out_type == Scalar::fp64 || problem.in_type == Scalar::fp64)
      launch_cast_strips<double>(exec, problem, dims);
    else
      launch_cast_strips<float>(exec, problem, dims);
  } else {
    with_float_type(problem.out_type, [&](auto out) {
      with_float_type(problem.in_type, [&](auto in) {
        launch_cast<typename decltype(out)::type, typename decltype(in)::type>(exec, problem, dims);
      });
    });
  }
}

}  // namespace tessera::detail

#endif
