// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_TRANSFORM_HPP
#define TESSERA_ELEMENT_TRANSFORM_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/detail/array.hpp>
#include <tessera/element/convert.hpp>
#include <tessera/element/core_transform.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/element/leaves.hpp>
#include <tessera/element/packed_transform.hpp>
#include <tessera/element/transform_data.hpp>
#include <tessera/launch.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>

// out = f(in...) over the loops of dimensions.hpp: by packs or by single elements where threads are many, by runs of
// them on a core.
namespace tessera::detail {

/// For operands that are no packs, and for places beyond 32 bits: a few single elements a thread.
template <class F, class To, class... From>
struct SingleTransform {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  using Space = PackSpace<Operands::operands, 1>;
  static constexpr int in_flight = 2;
  static constexpr std::int64_t lanes = 32;  // neighbours, whose accesses make whole cache lines

  Operands elements;
  Space space;

  std::int64_t threads() const {
    constexpr std::int64_t elements_of_all = lanes * in_flight;
    return (space.packs + elements_of_all - 1) / elements_of_all * lanes;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const { run(thread, std::index_sequence_for<From...>{}); }

 private:
  template <std::size_t... I>
  KOKKOS_INLINE_FUNCTION void run(std::int64_t thread, std::index_sequence<I...>) const {
    std::int64_t const first = thread / lanes * (lanes * in_flight) + thread % lanes;
    [[maybe_unused]] Leaves<From...> x[in_flight];
    typename Space::Place place[in_flight];
    unroll<in_flight>([&](auto u) {
      if (first + u * lanes >= space.packs) return;
      place[u] = space.place(first + u * lanes);
      ((leaf<I>(x[u]) = leaf<I>(elements.in)[place[u].offset[I + 1]]), ...);
    });
    unroll<in_flight>([&](auto u) {
      if (first + u * lanes >= space.packs) return;
      std::int64_t const index = Operands::indexed ? place[u].offset[Operands::operands - 1] : 0;
      elements.out[place[u].offset[0]] = elements.evaluate(index, widen<Real>(leaf<I>(x[u]))...);
    });
  }
};

/// For functors without inputs, an element a thread. nvcc 13.0 does not survive the empty packs of the others.
template <class F, class To>
struct Generate {
  static constexpr bool vectorises = true;
  using Operands = Elements<F, To>;
  static constexpr int operands = Operands::operands;
  Operands elements;
  PackSpace<operands, 1> space;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const at = space.place(i);
    elements.out[at.offset[0]] = elements.evaluate(Operands::indexed ? at.offset[operands - 1] : 0);
  }
};

/// The strides of an input seen in the output's index space: aligned at the last dimension, 0 where it is broadcast.
template <class T, int Rank, class U, int OutRank>
Array<T, OutRank> broadcast(char const* op, std::string const& name, Array<T, Rank> const& in,
                            Array<U, OutRank> const& out) {
  Array<T, OutRank> seen;
  seen.data = in.data;
  constexpr int missing = OutRank - Rank;
  for (int d = 0; d < OutRank; ++d) {
    std::int64_t const extent = d < missing ? 1 : in.extent[d - missing];
    if (extent != out.extent[d] && extent != 1)
      throw Error(ErrorCode::extent, std::string(op) + ": extent " + std::to_string(d - missing) + " of " + name + " " +
                                         shape(in) + " is neither 1 nor extent " + std::to_string(d) + " of out " +
                                         shape(out));
    seen.extent[d] = out.extent[d];
    seen.stride[d] = extent == 1 ? 0 : in.stride[d - missing];
  }
  return seen;
}

template <class T, int Rank, class U, int OutRank>
Array<T, OutRank> checked_input(char const* op, std::string const& name, Array<T, Rank> const& in,
                                Array<U, OutRank> const& out) {
  auto const seen = broadcast(op, name, in, out);
  check_data(op, name.c_str(), in);
  if constexpr (sizeof(T) == sizeof(U))
    if (same_elements(out, seen)) return seen;
  check_no_overlap(op, "out", out, name, in);
  return seen;
}

/// Launches packs of Width elements, or single elements when the output does not suit packs. Which inputs do is said
/// at run time.
template <class Exec, class F, class To, class... From>
void launch_packs(char const* op, Exec const& exec, Elements<F, To, From...> const& elements,
                  Dimensions<Elements<F, To, From...>::operands> const& dims, void const* const* data,
                  std::size_t const* bytes) {
  constexpr int width = common_pack_size<To, From...>();
  auto const suits = [&](int o) {
    if (dims.stride[o][0] != 1) return false;
    for (int d = 1; d < dims.rank; ++d)
      if (dims.stride[o][d] % width != 0) return false;
    return reinterpret_cast<std::uintptr_t>(data[o]) % bytes[o] == 0;
  };
  auto const misaligned = [&](int o) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(data[o]) / bytes[o] % width);
  };
  if constexpr (width > 1) {
    if (suits(0) && dims.extent[0] >= width) {
      using Packs = PackTransform<Exec, width, F, To, From...>;
      int const head = misaligned(0);
      unsigned vector = 0;
      for (int i = 0; i < static_cast<int>(sizeof...(From)); ++i)
        if (suits(i + 1) && misaligned(i + 1) == head) vector |= 1u << i;
      int sizes[Elements<F, To, From...>::operands];
      for (int o = 0; o < Elements<F, To, From...>::operands; ++o)
        sizes[o] = o <= static_cast<int>(sizeof...(From)) ? static_cast<int>(bytes[o]) : 1;
      bool fits = false;
      typename Packs::Places const places(dims, head, sizes, fits);
      auto const run = [&]<class Kernel>(Kernel const& packs) {
        launch<Kernel::threads, Kernel::teams_at_once>(KernelLabel{op, "packs"}, exec, packs.teams(), 0, packs);
      };
      if (fits && vector == (1u << sizeof...(From)) - 1) {
        using Line = WholePacks<Exec, width, F, To, From...>;
        using Rows = PacksOfRows<Exec, width, F, To, From...>;
        using Singles = SinglePacks<Exec, width, F, To, From...>;
        if (Singles::are_all(places, Machine<Exec>::concurrency(exec))) return run(Singles(elements, places));
        if (Line::are_all(places)) return run(Line(elements, places));
        if (Rows::are_all(places)) return run(Rows(elements, places));
      }
      if (fits) return run(Packs(elements, places, vector));
    }
  }
  SingleTransform<F, To, From...> const single{elements, {dims, 0}};
  for_each_index(KernelLabel{op, "element by element"}, exec, single.threads(), single);
}

template <class Exec, class F, class To, int Rank>
void transform(Exec const& exec, Array<To, Rank> const& out, F const& f) {
  static constexpr char const* op = "tessera::transform";
  using Operands = Elements<F, To>;
  check_data(op, "out", out);
  check_writable(op, "out", out);
  if (out.size() == 0) return;
  Dimensions<Operands::operands> dims;
  std::int64_t linear = 1;
  for (int d = Rank - 1; d >= 0; --d) {
    std::int64_t const strides[] = {out.stride[d], linear};
    std::int64_t used[Operands::operands];
    for (int o = 0; o < Operands::operands; ++o) used[o] = strides[o];
    dims.add(out.extent[d], used);
    linear *= out.extent[d];
  }
  dims.collapse();
  PackSpace<Operands::operands, 1> const space(dims, 0);
  for_each_index(KernelLabel{op, "element by element"}, exec, space.packs,
                 Generate<F, To>{Operands{f, out.data, {}}, space});
}

template <class Exec, class F, class To, int Rank, class... From, int... Ranks>
void transform_inputs(Exec const& exec, Array<To, Rank> const& out, F const& f, Array<From, Ranks> const&... in) {
  static constexpr char const* op = "tessera::transform";
  using Operands = Elements<F, To, std::remove_cv_t<From>...>;
  check_data(op, "out", out);
  check_writable(op, "out", out);
  int number = 0;
  [[maybe_unused]] auto const name = [&] { return "input " + std::to_string(number++); };
  using Seen = Leaves<Array<From, Rank>...>;
  Seen const seen = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return Seen{Leaf<I, Array<From, Rank>>{checked_input(op, name(), in, out)}...};
  }
  (std::index_sequence_for<From...>{});
  if (out.size() == 0) return;

  [&]<std::size_t... I>(std::index_sequence<I...>) {
    Dimensions<Operands::operands> dims;
    std::int64_t linear = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      std::int64_t const strides[] = {out.stride[d], leaf<I>(seen).stride[d]..., linear};
      std::int64_t used[Operands::operands];
      for (int o = 0; o < Operands::operands; ++o) used[o] = strides[o];
      dims.add(out.extent[d], used);
      linear *= out.extent[d];
    }
    dims.collapse();
    Operands const elements{f, out.data, {Leaf<I, std::remove_cv_t<From> const*>{in.data}...}};
    if constexpr (Machine<Exec>::lanes == 1) {
      RunTransform<F, To, std::remove_cv_t<From>...> const runs(elements, dims);
      for_each_index(KernelLabel{op, "runs of elements"}, exec, runs.threads(), runs);
    } else {
      void const* const data[] = {out.data, in.data...};
      std::size_t const bytes[] = {sizeof(To), sizeof(From)...};
      launch_packs(op, exec, elements, dims, data, bytes);
    }
  }
  (std::index_sequence_for<From...>{});
}

template <class Exec, class F, class To, int Rank, class... From, int... Ranks>
requires(sizeof...(From) > 0) void transform(Exec const& exec, Array<To, Rank> const& out, F const& f,
                                             Array<From, Ranks> const&... in) {
  transform_inputs(exec, out, for_results<Real<To, std::remove_cv_t<From>...>, To>(f), in...);
}

}  // namespace tessera::detail

#endif
