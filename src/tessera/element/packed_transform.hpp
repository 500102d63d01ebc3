// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_PACKED_TRANSFORM_HPP
#define TESSERA_ELEMENT_PACKED_TRANSFORM_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/element/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/element/leaves.hpp>
#include <tessera/element/transform_data.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/launch.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/passing.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>
#include <tessera/warp.hpp>

// On machines of many threads a thread has a pack of Width elements or a few, one vector access each, in flight at
// once. There are kernels of whole packs, in one loop, in rows of whole teams and of few of them, and of packs at any
// places. Each has a text of its own and no parameter that it does not need, since both take longer to fetch than few
// elements.
namespace tessera::detail {

/// What the kernels share. One has packs() and run(team, thread, numbers of the inputs).
template <class Kernel, class Exec, int Threads, int Packs, int Width, class F, class To, class... From>
struct TransformOfPacks {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  using Places = PackPlaces<Operands::operands, Width>;
  static constexpr int threads = Threads, in_flight = Packs, packs_a_team = threads * in_flight;
  // As many threads as 48 registers leave room for, of what needs fewer 40, or 32 for a single pack: the more threads
  // wait for memory beside those that compute, the nearer is a functor of many instructions to a copy.
  static constexpr bool needs_48 = Operands::inputs > 2 || Operands::indexed || Width >= 16;
  static constexpr int threads_of_fewer = in_flight == 1 ? 2048 : 1536,
                       threads_at_once = needs_48 ? 1280 : threads_of_fewer,
                       teams_at_once = std::is_same_v<Real, float> ? threads_at_once / threads : 1;
  static constexpr bool starts_early = true;

  template <class T>
  struct Staged {
    PackBits<T, Width> bits[in_flight];  // (in_flight, Width)
  };
  using Stage = Leaves<Staged<From>...>;

  std::int64_t teams() const { return (std::int64_t{kernel().packs()} + packs_a_team - 1) / packs_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    kernel().run(team.league_rank(), thread_of<Exec>(team), std::index_sequence_for<From...>{});
  }

 protected:
  /// Functors that ask whether arguments are usual compute for so long, and have so much text, that the next kernel had
  /// better be placed meanwhile.
  KOKKOS_FORCEINLINE_FUNCTION static void wait_for_kernels() { wait_for_kernels_before<Exec>(Operands::may_be_usual); }
  /// How inputs are read that have so many bytes an element in all.
  static ReadOnce read_once(int packs, std::size_t bytes) {
    std::int64_t const elements = std::int64_t{packs} * Width;
    return {elements * static_cast<std::int64_t>(bytes), elements * static_cast<std::int64_t>(sizeof(To))};
  }
  /// store(u, result) of every pack u that is inside(u). index(u, j) is the linear index of its element j.
  template <std::size_t... I, class Inside, class Index, class Store>
  KOKKOS_FORCEINLINE_FUNCTION static void evaluate(std::index_sequence<I...>, F const& f, Stage const& stage,
                                                   Inside const& inside, Index const& index, Store const& store) {
    auto const by = [&](auto const& g) TESSERA_INLINE_LAMBDA {
      unroll<in_flight>([&](auto u) TESSERA_INLINE_LAMBDA {
        if (!inside(u)) return;
        store(u, results(
                     g, [&](int j) TESSERA_INLINE_LAMBDA { return index(u, j); },
                     widen_pack<Real>(leaf<I>(stage).bits[u].pack())...));
      });
    };
    if constexpr (Operands::may_be_usual)
      if (are_usual<I...>(f, stage)) return by(for_usual(f));
    by(f);
  }

 private:
  using Atoms = WarpAtoms<KernelSpace<Exec>>;
  static constexpr bool have_16_bits = ((narrow_type<From> && sizeof(From) == 2) && ...);

  KOKKOS_FORCEINLINE_FUNCTION Kernel const& kernel() const { return static_cast<Kernel const&>(*this); }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION static bool are_usual(F const& f, Stage const& stage) {
    // Two at a time, and before any is widened.
    if constexpr (usual_by_magnitude_v<F> && Atoms::available && have_16_bits)
      return usual(f, largest_magnitude(leaf<I>(stage))...);
    bool all = true;
    unroll<in_flight>([&](auto u) TESSERA_INLINE_LAMBDA {
      all = all & are_usual(f, widen_pack<Real>(leaf<I>(stage).bits[u].pack())...);
    });
    return all;
  }
  template <class... X>
  KOKKOS_FORCEINLINE_FUNCTION static bool are_usual(F const& f, Pack<X, Width> const&... x) {
    bool all = true;
    unroll<Width>([&](auto j) { all = all & usual(f, x[j]...); });
    return all;
  }
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static float largest_magnitude(Staged<T> const& stage) {
    Pack<T, Width> packs[in_flight];
    unroll<in_flight>([&](auto u) { packs[u] = stage.bits[u].pack(); });
    return __builtin_bit_cast(float, Atoms::largest_magnitude(packs));
  }
  template <class G, class Index, class... X>
  KOKKOS_FORCEINLINE_FUNCTION static auto results(G const& f, Index const& index, Pack<X, Width> const&... x) {
    using Result = decltype(call(f, std::int64_t{}, x[0]...));
    Pack<Result, Width> result;
    unroll<Width>([&](auto j) { result[j] = call(f, index(j), x[j]...); });
    return round_pack<To>(result);
  }
};

/// Where rows of whole packs are.
template <class Operands>
struct RowSteps {
  int bytes[Operands::operands];  // from a row to the next

  template <class Places>
  explicit RowSteps(Places const& p) {
    for (int o = 0; o < Operands::operands; ++o) bytes[o] = p.step[o][1];
  }
  template <int Operand, class T>
  KOKKOS_FORCEINLINE_FUNCTION T* elements(T* data, int row) const {
    // Not by way of a number, of which a compiler does not know that it is an address of global memory.
    using Byte = std::conditional_t<std::is_const_v<T>, char const, char>;
    return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + std::int64_t{row} * bytes[Operand]);
  }
  template <int Operand, int Width, class T>
  KOKKOS_FORCEINLINE_FUNCTION PackBits<T, Width> const* pack(T const* data, int row, int column) const {
    return reinterpret_cast<PackBits<T, Width> const*>(elements<Operand>(data, row)) + column;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t index([[maybe_unused]] int row, std::int64_t column) const {
    if constexpr (Operands::indexed)
      return std::int64_t{row} * bytes[Operands::operands - 1] + column;
    else
      return 0;
  }
};

/// A thread's packs where they are many. More accesses of a thread, or larger teams, spread what is under way over more
/// memory: on an H200 a copy in four packs a thread takes 4 % longer.
template <int Width, class... From>
inline constexpr int packs_in_flight = sizeof...(From) > 2 || Width >= 16 ? 1 : 2;

template <class Kernel, class Exec, int Width, class F, class To, class... From>
using TransformOfManyPacks =
    TransformOfPacks<Kernel, Exec, 128, packs_in_flight<Width, From...>, Width, F, To, From...>;

/// Whole packs of one loop.
template <class Exec, int Width, class F, class To, class... From>
struct WholePacks : TransformOfManyPacks<WholePacks<Exec, Width, F, To, From...>, Exec, Width, F, To, From...> {
  using Base = TransformOfManyPacks<WholePacks, Exec, Width, F, To, From...>;
  using Base::in_flight, Base::packs_a_team, Base::threads;
  using typename Base::Operands, typename Base::Places;

  Operands elements;
  int pack_count;
  ReadOnce once;

  WholePacks(Operands const& operands, Places const& p)
      : elements(operands),
        pack_count(p.packs),
        once(Base::read_once(p.packs, (std::size_t{0} + ... + sizeof(From)))) {}

  /// Whether such packs are all there are, where every input has them.
  static bool are_all(Places const& p) { return p.even() && p.rank == 1; }

 private:
  friend Base;

  KOKKOS_FORCEINLINE_FUNCTION int packs() const { return pack_count; }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...> inputs) const {
    int const first = team * packs_a_team + thread;
    auto const inside = [&](int u) { return packs() - first > u * threads; };
    // Behind the last pack that one again, not to be stored.
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : packs() - 1; };
    [[maybe_unused]] typename Base::Stage stage;
    Base::wait_for_kernels();
    unroll<in_flight>([&](auto u) {
      ((leaf<I>(stage).bits[u] = once(reinterpret_cast<PackBits<From, Width> const*>(leaf<I>(elements.in)))[pack(u)]),
       ...);
    });
    Base::evaluate(
        inputs, elements.f, stage, inside, [&](int u, int j) { return std::int64_t{pack(u)} * Width + j; },
        [&](int u, Pack<To, Width> const& result)
            TESSERA_INLINE_LAMBDA { store_pack(elements.out + std::int64_t{pack(u)} * Width, result); });
  }
};

/// Whole packs of rows that end with a team.
template <class Exec, int Width, class F, class To, class... From>
struct PacksOfRows : TransformOfManyPacks<PacksOfRows<Exec, Width, F, To, From...>, Exec, Width, F, To, From...> {
  using Base = TransformOfManyPacks<PacksOfRows, Exec, Width, F, To, From...>;
  using Base::in_flight, Base::packs_a_team, Base::threads;
  using typename Base::Operands, typename Base::Places;

  Operands elements;
  int pack_count;
  Divisor teams_a_row;
  RowSteps<Operands> step;
  ReadOnce once;

  PacksOfRows(Operands const& operands, Places const& p)
      : elements(operands), pack_count(p.packs), teams_a_row(static_cast<int>(p.count[0]) / packs_a_team), step(p) {
    std::size_t read = 0;  // bytes of an element, of inputs whose rows are not all the same one
    int input = 0;
    ((read += step.bytes[++input] != 0 ? sizeof(From) : 0), ...);
    once = Base::read_once(p.packs, read);
  }

  static bool are_all(Places const& p) {
    return p.even() && p.rank == 2 && static_cast<int>(p.count[0]) % packs_a_team == 0;
  }

 private:
  friend Base;

  KOKKOS_FORCEINLINE_FUNCTION int packs() const { return pack_count; }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...> inputs) const {
    int const row = team / teams_a_row, first = (team - row * static_cast<int>(teams_a_row)) * packs_a_team + thread;
    [[maybe_unused]] typename Base::Stage stage;
    Base::wait_for_kernels();
    unroll<in_flight>([&](auto u) {
      ((leaf<I>(stage).bits[u] = once(step.template pack<I + 1, Width>(leaf<I>(elements.in), row, first))[u * threads]),
       ...);
    });
    Base::evaluate(
        inputs, elements.f, stage, [](int) { return true; },
        [&](int u, int j) { return step.index(row, std::int64_t{first + u * threads} * Width + j); },
        [&](int u, Pack<To, Width> const& result) TESSERA_INLINE_LAMBDA {
          store_pack(step.template elements<0>(elements.out, row) + std::int64_t{first + u * threads} * Width, result);
        });
  }
};

/// Whole packs of one loop or two, a thread one of them: of few, whose threads so have less to do one after the other.
template <class Exec, int Width, class F, class To, class... From>
struct SinglePacks : TransformOfPacks<SinglePacks<Exec, Width, F, To, From...>, Exec, 256, 1, Width, F, To, From...> {
  using Base = TransformOfPacks<SinglePacks, Exec, 256, 1, Width, F, To, From...>;
  using Base::threads;
  using typename Base::Operands, typename Base::Places;

  Operands elements;
  int pack_count;
  Divisor packs_a_row;
  RowSteps<Operands> step;

  SinglePacks(Operands const& operands, Places const& p)
      : elements(operands), pack_count(p.packs), packs_a_row(static_cast<int>(p.count[0])), step(p) {}

  /// The same, where all of them can be under way at once.
  static bool are_all(Places const& p, int multiprocessors) {
    return p.even() && p.packs <= Base::threads_at_once * multiprocessors;
  }

 private:
  friend Base;

  KOKKOS_FORCEINLINE_FUNCTION int packs() const { return pack_count; }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...> inputs) const {
    int const own = team * threads + thread;
    bool const inside = own < packs();
    // Behind the last pack that one again, not to be stored.
    int const pack = inside ? own : packs() - 1, row = pack / packs_a_row,
              column = pack - row * static_cast<int>(packs_a_row);
    [[maybe_unused]] typename Base::Stage stage;
    Base::wait_for_kernels();
    ((leaf<I>(stage).bits[0] = *step.template pack<I + 1, Width>(leaf<I>(elements.in), row, column)), ...);
    Base::evaluate(
        inputs, elements.f, stage, [&](int) { return inside; },
        [&](int, int j) { return step.index(row, std::int64_t{column} * Width + j); },
        [&](int, Pack<To, Width> const& result) TESSERA_INLINE_LAMBDA {
          store_pack(step.template elements<0>(elements.out, row) + std::int64_t{column} * Width, result);
        });
  }
};

/// Packs of any places.
template <class Exec, int Width, class F, class To, class... From>
struct PackTransform : TransformOfManyPacks<PackTransform<Exec, Width, F, To, From...>, Exec, Width, F, To, From...> {
  using Base = TransformOfManyPacks<PackTransform, Exec, Width, F, To, From...>;
  using Base::in_flight, Base::threads;
  using typename Base::Operands, typename Base::Places, typename Base::Real, typename Base::Stage;
  using Place = typename Places::Place;

  Operands elements;
  Places places;
  unsigned vector;  // bit i: input i has packs at aligned addresses
  bool even;        // they are whole, of one or two loops, and an input that has none is one element, repeated

  PackTransform(Operands const& operands, Places const& p, unsigned vector_inputs)
      : elements(operands), places(p), vector(vector_inputs), even(p.even()) {
    for (int i = 0; i < Operands::inputs; ++i) even = even && ((vector >> i & 1) != 0 || p.element[i + 1] == 0);
  }

 private:
  friend Base;

  KOKKOS_FORCEINLINE_FUNCTION int packs() const { return places.packs; }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...> inputs) const {
    int const first = team * Base::packs_a_team + thread;
    [[maybe_unused]] Stage stage;
    Place place[in_flight];
    // Behind the last pack that one again, not to be stored.
    auto const inside = [&](int u) { return packs() - first > u * threads; };
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : packs() - 1; };
    Base::wait_for_kernels();
    if (even) {
      unroll<in_flight>([&](auto u) { place[u] = places.even_place(pack(u)); });
      unroll<in_flight>([&](auto u) { (load_or_repeat<I>(leaf<I>(stage).bits[u], place[u]), ...); });
    } else {
      unroll<in_flight>([&](auto u) { place[u] = places.place(pack(u)); });
      unroll<in_flight>([&](auto u) { (gather<I>(leaf<I>(stage).bits[u], place[u]), ...); });
    }
    Base::evaluate(
        inputs, elements.f, stage, inside,
        [&](int u, int j) { return Operands::indexed ? index_of(place[u], j) : std::int64_t{0}; },
        [&](int u, Pack<To, Width> const& result) TESSERA_INLINE_LAMBDA {
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

}  // namespace tessera::detail

#endif
