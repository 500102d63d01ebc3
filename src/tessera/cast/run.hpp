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
#include <tessera/pack_conversion.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>
#include <tessera/vector_units.hpp>
#include <type_traits>

namespace tessera::detail {

/// A thread has a few 16-byte accesses to the wider of the two types under way.
template <class Exec, class Out, class In>
struct CastKernel {
  static constexpr int width = common_pack_size<Out, In>();
  static constexpr int threads = 128, in_flight = 2;  // as in PackTransform
  static constexpr bool starts_early = true;
  using Places = PackPlaces<2, width>;

  Out* out;
  In const* in;
  bool saturate;
  bool vector;            // places are right, and full packs lie at aligned addresses; otherwise:
  PackSpace<2, 1> space;  // single elements
  Places places;

  std::int64_t teams() const {
    std::int64_t const all = vector ? places.packs : space.packs;
    return (all + threads * in_flight - 1) / (threads * in_flight);
  }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * (threads * in_flight) + thread_of<Exec>(team);
    wait_for_kernels_before<Exec>();
    if (vector && places.even())
      packs(static_cast<int>(first));
    else if (vector)
      ragged_packs(static_cast<int>(first));
    else
      elements(first);
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Out* to(std::int64_t offset) const {
    return reinterpret_cast<Out*>(reinterpret_cast<char*>(out) + offset);
  }
  KOKKOS_FORCEINLINE_FUNCTION In const* from(std::int64_t offset) const {
    return reinterpret_cast<In const*>(reinterpret_cast<char const*>(in) + offset);
  }
  KOKKOS_FORCEINLINE_FUNCTION Out converted(In x) const { return convert<Out>(x, cast_overflow<Out>(saturate)); }

  KOKKOS_FORCEINLINE_FUNCTION void packs(int first) const {
    Pack<In, width> x[in_flight];  // (in_flight, width)
    typename Places::Place at[in_flight];
    unroll<in_flight>([&](auto u) {
      if (places.packs - first <= u * threads) return;
      at[u] = places.even_place(first + u * threads);
      x[u] = load_pack<width>(from(at[u].offset[1]));
    });
    unroll<in_flight>([&](auto u) {
      if (places.packs - first > u * threads) store_pack<width>(to(at[u].offset[0]), convert_pack<Out>(x[u], saturate));
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION void ragged_packs(int first) const {
    TESSERA_ROLLED
    for (int u = 0; u < in_flight && places.packs - first > u * threads; ++u) {
      auto const at = places.place(first + u * threads);
      Out* const y = to(at.offset[0]);
      In const* const x = from(at.offset[1]);
      if (at.full()) {
        store_pack<width>(y, convert_pack<Out>(load_pack<width>(x), saturate));
        continue;
      }
      TESSERA_ROLLED
      for (int i = at.low; i < at.high; ++i) y[i] = converted(x[i]);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void elements(std::int64_t first) const {
    TESSERA_ROLLED
    for (int u = 0; u < in_flight && space.packs - first > u * threads; ++u) {
      auto const at = space.place(first + u * threads);
      out[at.offset[0]] = converted(in[at.offset[1]]);
    }
  }
};

template <class Out, class In, class Exec>
void launch_cast(Exec const& exec, CastProblem const& problem, Dimensions<2> const& dims) {
  using Kernel = CastKernel<Exec, Out, In>;
  Kernel kernel{
      static_cast<Out*>(problem.out), static_cast<In const*>(problem.in), problem.saturate, false, {dims, 0}, {}};
  bool vector = dims.stride[0][0] == 1 && dims.stride[1][0] == 1;
  for (int d = 1; d < dims.rank; ++d)
    vector = vector && dims.stride[0][d] % Kernel::width == 0 && dims.stride[1][d] % Kernel::width == 0;
  // Packs start where stores are aligned; the loads must be so there, too.
  auto const position = [](void const* data, std::size_t size) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(data) / size % Kernel::width);
  };
  int const head = position(problem.out, sizeof(Out));
  if (vector && position(problem.in, sizeof(In)) == head)
    kernel.places = {dims, head, {int{sizeof(Out)}, int{sizeof(In)}}, kernel.vector};
  launch<Kernel::threads>("tessera::cast", exec, kernel.teams(), 0, kernel);
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
      if (!lies_ready) read = for_vector_units<read_cast_strip<Through, In>>();
      if (may_widen)
        widen = problem.saturate ? for_vector_units<widen_cast_strip<Through, In, true>>()
                                 : for_vector_units<widen_cast_strip<Through, In, false>>();
    }
  });
  with_float_type(problem.out_type, [&](auto out) {
    using Out = typename decltype(out)::type;
    if constexpr (wide || !std::is_same_v<Out, double>)
      write = problem.saturate ? for_vector_units<write_cast_strip<Through, Out, true>>()
                               : for_vector_units<write_cast_strip<Through, Out, false>>();
  });
  PackSpace<2, Kernel::width> const space(dims, 0);
  Kernel kernel{widen, read, write, problem.out, problem.in, space};
  auto const size = static_cast<std::int64_t>(size_of(problem.out_type));
  if (dims.stride[0][0] == 1 && problem.in != problem.out &&
      reinterpret_cast<std::uintptr_t>(problem.out) % line_of_memory == 0 &&
      worth_streaming(dims.size() * (size + static_cast<std::int64_t>(size_of(problem.in_type)))))
    kernel.streamed = size;
  for_each_index("tessera::cast", exec, space.packs, kernel);
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
