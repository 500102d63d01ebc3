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
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>

// On machines of many threads a thread has a few packs of Width elements, one vector access each, in flight at once.
// There are two kernels of them: of whole packs that follow each other, and of packs at any places.
namespace tessera::detail {

/// What the kernels share. One has packs() and run(team, thread, numbers of the inputs).
template <class Kernel, class Exec, int Width, class F, class To, class... From>
struct TransformOfPacks {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  using Places = PackPlaces<Operands::operands, Width>;
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

  std::int64_t teams() const { return (std::int64_t{kernel().packs()} + packs_a_team - 1) / packs_a_team; }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    kernel().run(team.league_rank(), thread_of<Exec>(team), std::index_sequence_for<From...>{});
  }

 protected:
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
  KOKKOS_FORCEINLINE_FUNCTION Kernel const& kernel() const { return static_cast<Kernel const&>(*this); }

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
struct WholePacks : TransformOfPacks<WholePacks<Exec, Width, Rows, F, To, From...>, Exec, Width, F, To, From...> {
  using Base = TransformOfPacks<WholePacks, Exec, Width, F, To, From...>;
  using Base::in_flight, Base::packs_a_team, Base::threads;
  using typename Base::Operands, typename Base::Places;
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
  int pack_count;
  [[no_unique_address]] std::conditional_t<Rows, RowsOfTeams, NoRows> rows;

  WholePacks(Operands const& operands, Places const& p) : elements(operands), pack_count(p.packs), rows(p) {}

  /// Whether such packs are all there are, where every input has them.
  static bool are_all(Places const& p) {
    return p.even() && (Rows ? p.rank == 2 && static_cast<int>(p.count[0]) % packs_a_team == 0 : p.rank == 1);
  }

 private:
  friend Base;

  KOKKOS_FORCEINLINE_FUNCTION int packs() const { return pack_count; }

  template <std::size_t... I>
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...>) const {
    int row = 0, first = team * packs_a_team + thread;
    if constexpr (Rows) {
      row = team / rows.teams;
      first -= row * static_cast<int>(rows.teams) * packs_a_team;
    }
    auto const inside = [&](int u) { return Rows || packs() - first > u * threads; };
    // Behind the last pack that one again, not to be stored.
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : packs() - 1; };
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
struct PackTransform : TransformOfPacks<PackTransform<Exec, Width, F, To, From...>, Exec, Width, F, To, From...> {
  using Base = TransformOfPacks<PackTransform, Exec, Width, F, To, From...>;
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
  KOKKOS_FORCEINLINE_FUNCTION void run(int team, int thread, std::index_sequence<I...>) const {
    int const first = team * Base::packs_a_team + thread;
    [[maybe_unused]] Stage stage;
    Place place[in_flight];
    // Behind the last pack that one again, not to be stored.
    auto const inside = [&](int u) { return packs() - first > u * threads; };
    auto const pack = [&](int u) { return inside(u) ? first + u * threads : packs() - 1; };
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

}  // namespace tessera::detail

#endif
