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
#include <tessera/element/dimensions.hpp>
#include <tessera/element/draws.hpp>
#include <tessera/element/leaves.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/functors.hpp>
#include <tessera/launch.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/streaming.hpp>
#include <tessera/strip_rounding.hpp>

// out = f(in...) over the loops of dimensions.hpp. Operand 0 is the output, operands 1..n are the inputs and, for a
// functor that wants it, the last operand is the linear index: it has strides like the others and no memory.
namespace tessera::detail {

/// The operands of a transform and the loops over them.
template <class F, class To, class... From>
struct Elements {
  static constexpr int inputs = static_cast<int>(sizeof...(From));
  static constexpr bool indexed = wants_index_v<F>;
  static constexpr int operands = 1 + inputs + (indexed ? 1 : 0);
  using Real = detail::Real<To, From...>;

  F f;
  To* out;
  Leaves<From const*...> in;

  template <class... X>
  KOKKOS_INLINE_FUNCTION To evaluate(std::int64_t index, X... x) const {
    return round_to<To>(call(f, index, x...));
  }
};

/// For machines of many threads: a thread has a few packs of Width elements, one vector access each, in flight at once.
template <class Exec, int Width, class F, class To, class... From>
struct TransformOfPacks {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  // More accesses of a thread, or larger teams, spread what is under way over more memory: on an H200 a copy in four
  // packs a thread takes 4 % longer.
  static constexpr int threads = 128;
  static constexpr int in_flight = Operands::inputs > 2 || Width >= 16 ? 1 : 2;
  static constexpr int packs_a_team = threads * in_flight;
  static constexpr int teams_at_once = std::is_same_v<Real, float> ? 10 : 1;  // 48 registers a thread
  static constexpr bool starts_early = true;

  template <class T>
  struct Staged {
    PackBits<T, Width> bits[in_flight];  // (in_flight, Width)
  };
  using Stage = Leaves<Staged<From>...>;

  /// Of element j of a pack index(j) is the linear index.
  template <class Index, class... X>
  KOKKOS_FORCEINLINE_FUNCTION static auto evaluate(F const& f, Index const& index, Pack<X, Width> const&... x) {
    if constexpr (few_bits<To> && std::is_same_v<Real, float> && has_usual_v<F> && !Operands::indexed) {
      bool all = true;
      unroll<Width>([&](auto j) { all = all & usual(f, x[j]...); });
      if (all) return results(for_usual(f), index, x...);
    }
    return results(f, index, x...);
  }

 private:
  template <class G, class Index, class... X>
  KOKKOS_FORCEINLINE_FUNCTION static auto results(G const& f, Index const& index, Pack<X, Width> const&... x) {
    using Result = decltype(call(f, std::int64_t{}, x[0]...));
    Pack<Result, Width> result;
    unroll<Width>([&](auto j) { result[j] = call(f, index(j), x[j]...); });
    return round_pack<To>(result);
  }
};

/// Whole packs of one loop or, with Rows, of two, each team in one row: a load from every input and a store. Each has a
/// text of its own and no parameter that it does not need, since both take longer to fetch than few elements.
template <class Exec, int Width, bool Rows, class F, class To, class... From>
struct WholePacks : TransformOfPacks<Exec, Width, F, To, From...> {
  using Base = TransformOfPacks<Exec, Width, F, To, From...>;
  using Base::in_flight, Base::packs_a_team, Base::threads;
  using typename Base::Operands;
  using Places = PackPlaces<Operands::operands, Width>;
  struct NoRows {
    explicit NoRows(Places const&) {}
  };
  struct RowsOfTeams {
    Divisor teams;                 // of a row
    int step[Operands::operands];  // bytes from a row to the next
    explicit RowsOfTeams(Places const& p) : teams(static_cast<int>(p.count[0]) / packs_a_team) {
      for (int o = 0; o < Operands::operands; ++o) step[o] = p.step[o][1];
    }
  };

  Operands elements;
  int packs;
  [[no_unique_address]] std::conditional_t<Rows, RowsOfTeams, NoRows> rows;

  WholePacks(Operands const& operands, Places const& p) : elements(operands), packs(p.packs), rows(p) {}

  /// Whether such packs are all there are, where every input has them.
  static bool are_all(Places const& p) {
    return p.even() && (Rows ? p.rank == 2 && static_cast<int>(p.count[0]) % packs_a_team == 0 : p.rank == 1);
  }
  std::int64_t teams() const { return (std::int64_t{packs} + packs_a_team - 1) / packs_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    run(team.league_rank(), thread_of<Exec>(team), std::index_sequence_for<From...>{});
  }

 private:
  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...>) const {
    int row = 0, first = team * packs_a_team + thread;
    if constexpr (Rows) {
      row = team / rows.teams;
      first -= row * static_cast<int>(rows.teams) * packs_a_team;
    }
    auto const inside = [&](int u) { return Rows || packs - first > u * threads; };
    // Behind the last pack that one again, not to be stored.
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : packs - 1; };
    [[maybe_unused]] typename Base::Stage stage;
    unroll<in_flight>([&](auto u) {
      ((leaf<I>(stage).bits[u] =
            reinterpret_cast<PackBits<From, Width> const*>(in_row<I + 1>(leaf<I>(elements.in), row))[pack(u)]),
       ...);
    });
    unroll<in_flight>([&](auto u) {
      auto const index = [&](int j) { return index_of(row, std::int64_t{pack(u)} * Width + j); };
      Pack<To, Width> const result =
          Base::evaluate(elements.f, index, widen_pack<typename Base::Real>(leaf<I>(stage).bits[u].pack())...);
      if (inside(u)) store_pack(in_row<0>(elements.out, row) + std::int64_t{pack(u)} * Width, result);
    });
  }
  template <std::size_t Operand, class T>
  KOKKOS_FORCEINLINE_FUNCTION T* in_row(T* data, [[maybe_unused]] int row) const {
    if constexpr (Rows)
      return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(data) + std::int64_t{row} * rows.step[Operand]);
    else
      return data;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t index_of([[maybe_unused]] int row, std::int64_t column) const {
    if constexpr (Rows && Operands::indexed)
      return std::int64_t{row} * rows.step[Operands::operands - 1] + column;
    else
      return column;
  }
};

/// Packs of any places.
template <class Exec, int Width, class F, class To, class... From>
struct PackTransform : TransformOfPacks<Exec, Width, F, To, From...> {
  using Base = TransformOfPacks<Exec, Width, F, To, From...>;
  using Base::in_flight, Base::packs_a_team, Base::threads;
  using typename Base::Operands, typename Base::Real, typename Base::Stage;
  using Places = PackPlaces<Operands::operands, Width>;
  using Place = typename Places::Place;

  Operands elements;
  Places places;
  unsigned vector;  // bit i: input i has packs at aligned addresses
  bool even;        // they are whole, of one or two loops, and an input that has none is one element, repeated

  PackTransform(Operands const& operands, Places const& p, unsigned vector_inputs)
      : elements(operands), places(p), vector(vector_inputs), even(p.even()) {
    for (int i = 0; i < Operands::inputs; ++i) even = even && ((vector >> i & 1) != 0 || p.element[i + 1] == 0);
  }

  std::int64_t teams() const { return (std::int64_t{places.packs} + packs_a_team - 1) / packs_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    run(team.league_rank(), thread_of<Exec>(team), std::index_sequence_for<From...>{});
  }

 private:
  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...>) const {
    int const first = team * packs_a_team + thread;
    [[maybe_unused]] Stage stage;
    Place place[in_flight];
    // Behind the last pack that one again, not to be stored.
    auto const inside = [&](int u) { return places.packs - first > u * threads; };
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : places.packs - 1; };
    if (even) {
      unroll<in_flight>([&](auto u) { place[u] = places.even_place(pack(u)); });
      unroll<in_flight>([&](auto u) { (load_or_repeat<I>(leaf<I>(stage).bits[u], place[u]), ...); });
    } else {
      unroll<in_flight>([&](auto u) { place[u] = places.place(pack(u)); });
      unroll<in_flight>([&](auto u) { (gather<I>(leaf<I>(stage).bits[u], place[u]), ...); });
    }
    unroll<in_flight>([&](auto u) {
      auto const index = [&](int j) { return Operands::indexed ? index_of(place[u], j) : std::int64_t{0}; };
      Pack<To, Width> const result =
          Base::evaluate(elements.f, index, widen_pack<Real>(leaf<I>(stage).bits[u].pack())...);
      if (!inside(u)) return;
      To* const to = reinterpret_cast<To*>(reinterpret_cast<char*>(elements.out) + place[u].offset[0]);
      if (even)
        store_pack(to, result);
      else
        store_part(to, result, places.place(pack(u)));
    });
  }

  /// Elements outside of [low, high) become copies of the nearest inside.
  KOKKOS_FORCEINLINE_FUNCTION static int clamped(int j, Place const& at) {
    return j < at.low ? at.low : j < at.high ? j : at.high - 1;
  }

  template <std::size_t I>
  KOKKOS_FORCEINLINE_FUNCTION char const* address(Place const& at) const {
    return reinterpret_cast<char const*>(leaf<I>(elements.in)) + at.offset[I + 1];
  }
  template <std::size_t I, class T>
  KOKKOS_FORCEINLINE_FUNCTION void load(PackBits<T, Width>& to, Place const& at) const {
    to = *reinterpret_cast<PackBits<T, Width> const*>(address<I>(at));
  }
  template <std::size_t I, class T>
  KOKKOS_FORCEINLINE_FUNCTION void load_or_repeat(PackBits<T, Width>& to, Place const& at) const {
    if ((vector >> I & 1) != 0)
      load<I>(to, at);
    else
      to = repeated(*reinterpret_cast<T const*>(address<I>(at)));
  }
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static PackBits<T, Width> repeated(T x) {
    Pack<T, Width> pack;
    unroll<Width>([&](auto j) { pack[j] = x; });
    return __builtin_bit_cast(PackBits<T, Width>, pack);
  }
  template <std::size_t I, class T>
  KOKKOS_FORCEINLINE_FUNCTION void gather(PackBits<T, Width>& to, Place const& at) const {
    if ((vector >> I & 1) != 0 && at.full()) {
      load<I>(to, at);
    } else {
      Pack<T, Width> pack;
      unroll<Width>([&](auto j) {
        pack[j] = *reinterpret_cast<T const*>(address<I>(at) + clamped(j, at) * places.element[I + 1]);
      });
      to = __builtin_bit_cast(PackBits<T, Width>, pack);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION std::int64_t index_of(Place const& at, int j) const {
    constexpr int last = Operands::operands - 1;
    return at.offset[last] + clamped(j, at) * places.element[last];
  }

  KOKKOS_FORCEINLINE_FUNCTION static void store_part(To* to, Pack<To, Width> const& x, Place const& at) {
    unroll<Width>([&](auto j) {
      if (j >= at.low && j < at.high) to[j] = x[j];
    });
  }
};

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

/// For machines of few threads with vector units: a thread has a run of elements and works on it in strips, gathered
/// and converted into arrays that loops vectorise over and that stay in the first-level cache.
template <class F, class To, class... From>
struct RunTransform {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  static constexpr int operands = Operands::operands;
  static constexpr bool vectorises = true;
  static constexpr int strip = 256;  // 8 inputs of fp32 take 8 KB
  // Elements per index, so that the start of a run and waiting for streamed results behind it cost nothing.
  static constexpr std::int64_t run = 8192;
  // Strips before it is worked on a strip of an input larger than the caches is asked for: processors fetch ahead of
  // the reads that they have begun, which are few while they compute.
  static constexpr int strips_ahead = 8;

  template <class T>
  struct Strip {
    T value[strip];  // (strip)
  };

  Operands elements;
  Dimensions<operands> dims;
  std::int64_t total;
  bool streamed = false;  // results go past the caches

  RunTransform(Operands const& o, Dimensions<operands> const& d) : elements(o), dims(d), total(d.size()) {
    may_stream(std::index_sequence_for<From...>{});
  }

  std::int64_t threads() const { return (total + run - 1) / run; }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    std::int64_t left = total - thread * run < run ? total - thread * run : run;
    std::int64_t at[max_dimensions], offset[operands] = {};
    std::int64_t rest = thread * run;
    for (int d = 0; d < dims.rank; ++d) {
      at[d] = rest % dims.extent[d];
      rest /= dims.extent[d];
      for (int o = 0; o < operands; ++o) offset[o] += at[d] * dims.stride[o][d];
    }
    while (left > 0) {
      std::int64_t const row = dims.extent[0] - at[0];
      int const n = static_cast<int>(row < strip ? (row < left ? row : left) : (left < strip ? left : strip));
      work(n, offset, std::index_sequence_for<From...>{});
      left -= n;
      advance(n, at, offset);
    }
    if (streamed) streaming_done();
  }

 private:
  /// With the inputs, which lie elsewhere, results are larger than the caches.
  template <std::size_t... I>
  void may_stream(std::index_sequence<I...>) {
    auto const bytes = [&](std::size_t size, int operand) {
      bool const repeated = dims.stride[operand][dims.rank - 1] == 0;
      return repeated ? 0 : total * static_cast<std::int64_t>(size);
    };
    streamed = dims.stride[0][0] == 1 && reinterpret_cast<std::uintptr_t>(elements.out) % line_of_memory == 0 &&
               ((static_cast<void const*>(leaf<I>(elements.in)) != elements.out) && ...) &&
               worth_streaming((bytes(sizeof(To), 0) + ... + bytes(sizeof(From), I + 1)));
  }

  KOKKOS_FUNCTION void advance(int n, std::int64_t* at, std::int64_t* offset) const {
    at[0] += n;
    for (int o = 0; o < operands; ++o) offset[o] += n * dims.stride[o][0];
    for (int d = 0; d + 1 < dims.rank && at[d] == dims.extent[d]; ++d) {
      at[d] = 0;
      ++at[d + 1];
      for (int o = 0; o < operands; ++o) offset[o] += dims.stride[o][d + 1] - dims.extent[d] * dims.stride[o][d];
    }
  }

  template <class T>
  KOKKOS_FUNCTION static void fetch(T const* from, std::int64_t by) {
    if (by == 1) fetch_ahead(from + strips_ahead * strip, strip * sizeof(T));
  }

  /// Input elements as the functor takes them: where they are if that is their stored form, else copied to `strip`.
  template <class T>
  KOKKOS_FUNCTION static Widened<Real, T> const* gather(int n, T const* from, std::int64_t by,
                                                        Strip<Widened<Real, T>>& copy) {
    if constexpr (std::is_same_v<T, Widened<Real, T>>) {
      if (by == 1) return from;
    }
    read_strip(from, by, n, copy.value);
    return copy.value;
  }

  template <std::size_t... I>
  KOKKOS_FUNCTION void work(int n, std::int64_t const* offset, std::index_sequence<I...>) const {
    [[maybe_unused]] Leaves<Strip<Widened<Real, From>>...> copies;
    if (streamed) (fetch(leaf<I>(elements.in) + offset[I + 1], dims.stride[I + 1][0]), ...);
    // The result goes through an array of its own: the output may be one of the inputs, which must not stop the
    // compiler from vectorising.
    using Result = decltype(call(elements.f, std::int64_t{}, std::declval<Widened<Real, From>>()...));
    using Stored = std::conditional_t<narrow_type<To> && std::is_same_v<Result, float>, float, To>;
    Strip<Stored> result;
    std::int64_t first = 0, by = 0;
    if constexpr (Operands::indexed) {
      first = offset[operands - 1];
      by = dims.stride[operands - 1][0];
    }
    apply(n, first, by, result.value,
          gather(n, leaf<I>(elements.in) + offset[I + 1], dims.stride[I + 1][0], leaf<I>(copies))...);
    if (!streamed) return write_strip(result.value, n, elements.out + offset[0], dims.stride[0][0]);
    if constexpr (std::is_same_v<Stored, To>) {
      stream(elements.out + offset[0], result.value, n * sizeof(To));
    } else {
      if (RoundStrip const round = streamed_rounding<To>(); round != nullptr)
        return round(result.value, n, elements.out + offset[0]);
      Strip<To> rounded;
      write_strip(result.value, n, rounded.value, 1);
      stream(elements.out + offset[0], rounded.value, n * sizeof(To));
    }
  }

  template <class Stored, class... X>
  KOKKOS_INLINE_FUNCTION void apply(int n, std::int64_t first, std::int64_t by, Stored* KOKKOS_RESTRICT result,
                                    X const*... x) const {
    if constexpr (draws_words_v<F>) {
      if (by == 1) {
        Draws<strip> draws;
        std::uint32_t const* const words =
            draws(elements.f.seed(), elements.f.offset(), static_cast<std::uint64_t>(first), n);
        for (int j = 0; j < n; ++j) result[j] = round_to<Stored>(elements.f.drawn(words[j], x[j]...));
        return;
      }
    }
    for (int j = 0; j < n; ++j) result[j] = round_to<Stored>(call(elements.f, first + j * by, x[j]...));
  }
};

/// For functors without inputs, an element a thread. nvcc 13.0 does not survive the empty packs of the other two.
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
      auto const run = [&](auto const& packs) {
        launch<Packs::threads, Packs::teams_at_once>(op, exec, packs.teams(), 0, packs);
      };
      if (fits && vector == (1u << sizeof...(From)) - 1) {
        using Line = WholePacks<Exec, width, false, F, To, From...>;
        using Rows = WholePacks<Exec, width, true, F, To, From...>;
        if (Line::are_all(places)) return run(Line(elements, places));
        if (Rows::are_all(places)) return run(Rows(elements, places));
      }
      if (fits) return run(Packs(elements, places, vector));
    }
  }
  SingleTransform<F, To, From...> const single{elements, {dims, 0}};
  for_each_index(op, exec, single.threads(), single);
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
  for_each_index(op, exec, space.packs, Generate<F, To>{Operands{f, out.data, {}}, space});
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
      for_each_index(op, exec, runs.threads(), runs);
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
