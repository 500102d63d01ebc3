// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_COMPOSE_HPP
#define TESSERA_COMPOSE_HPP

/// \file
/// compose(), which chains functors.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/functor_traits.hpp>
#include <tessera/narrow_functors.hpp>

namespace tessera {
namespace detail {

template <class First, class... Rest>
struct Chain {
  static constexpr bool wants_index = wants_index_v<First> || wants_index_v<Chain<Rest...>>;
  First first;
  Chain<Rest...> rest;

  template <class... T>
  requires(wants_index) KOKKOS_INLINE_FUNCTION constexpr auto operator()(std::int64_t index, T... x) const {
    return call(rest, index, stage_value(call(first, index, x...)));
  }
  template <class... T>
  requires(!wants_index) KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return rest(stage_value(first(x...)));
  }

  // One of its functors draws words.
  static constexpr bool first_draws = draws_words_v<First> && !wants_index_v<Chain<Rest...>>,
                        rest_draws = !wants_index_v<First> && draws_words_v<Chain<Rest...>>;
  KOKKOS_FUNCTION constexpr std::uint64_t seed() const requires(first_draws || rest_draws) {
    if constexpr (first_draws)
      return first.seed();
    else
      return rest.seed();
  }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const requires(first_draws || rest_draws) {
    if constexpr (first_draws)
      return first.offset();
    else
      return rest.offset();
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto drawn(std::uint32_t word, T... x) const {
    if constexpr (first_draws)
      return rest(stage_value(first.drawn(word, x...)));
    else
      return rest.drawn(word, stage_value(first(x...)));
  }

  /// With others in place of the last functor, and of those before it whose errors what follows does not magnify.
  constexpr auto for_narrow() const {
    auto const narrow_rest = tessera::for_narrow(rest);
    if constexpr ((keeps_accuracy_v<Rest> && ...))
      return chained(tessera::for_narrow(first), narrow_rest);
    else
      return chained(first, narrow_rest);
  }
  /// Where one of them has a text for usual arguments.
  static constexpr bool any_usual = !wants_index && (has_usual_v<First> || has_usual_v<Chain<Rest...>>),
                        usual_by_magnitude = usual_by_magnitude_v<First> &&
                                             (!has_usual_v<Chain<Rest...>> ||
                                              (keeps_magnitudes_v<First> && Chain<Rest...>::usual_by_magnitude));
  constexpr auto for_usual() const requires any_usual {
    return chained(tessera::for_usual(first), tessera::for_usual(rest));
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool usual(T... x) const requires any_usual {
    return tessera::usual(first, x...) & tessera::usual(rest, stage_value(tessera::for_usual(first)(x...)));
  }

  /// Where the first has a text for moderate arguments, or the rest and moderate results of the first are known by its
  /// arguments' magnitudes.
  static constexpr bool rest_moderate = has_moderate_v<Chain<Rest...>> && keeps_magnitudes_v<First>,
                        any_moderate = !wants_index && (has_moderate_v<First> || rest_moderate);
  constexpr auto for_moderate() const requires any_moderate {
    if constexpr (rest_moderate)
      return chained(tessera::for_moderate(first), tessera::for_moderate(rest));
    else
      return chained(tessera::for_moderate(first), rest);
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool moderate(T... x) const requires any_moderate {
    bool const of_first = tessera::moderate(first, x...);
    if constexpr (rest_moderate)
      return of_first && tessera::moderate(rest, stage_value(first(x...)));
    else
      return of_first;
  }

 private:
  template <class F, class... G>
  static constexpr auto chained(F const& f, Chain<G...> const& g) {
    return Chain<F, G...>{f, g};
  }
};

template <class Last>
struct Chain<Last> {
  static constexpr bool wants_index = wants_index_v<Last>, usual_by_magnitude = usual_by_magnitude_v<Last>;
  Last last;

  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto operator()(T... x) const {
    return last(x...);
  }
  KOKKOS_FUNCTION constexpr std::uint64_t seed() const requires draws_words_v<Last> { return last.seed(); }
  KOKKOS_FUNCTION constexpr std::uint64_t offset() const requires draws_words_v<Last> { return last.offset(); }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr auto drawn(std::uint32_t word, T... x) const {
    return last.drawn(word, x...);
  }
  constexpr auto for_narrow() const { return Chain<NarrowOf<Last>>{tessera::for_narrow(last)}; }
  constexpr auto for_usual() const requires has_usual_v<Last> { return Chain<UsualOf<Last>>{tessera::for_usual(last)}; }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool usual(T... x) const requires has_usual_v<Last> {
    return last.usual(x...);
  }
  constexpr auto for_moderate() const requires has_moderate_v<Last> {
    auto const moderate_last = tessera::for_moderate(last);
    return Chain<std::remove_const_t<decltype(moderate_last)>>{moderate_last};
  }
  template <class... T>
  KOKKOS_INLINE_FUNCTION constexpr bool moderate(T... x) const requires has_moderate_v<Last> {
    return last.moderate(x...);
  }
};

}  // namespace detail

/// Chains functors in the order they are applied, first applied first: compose(f, g, h)(x...) = h(g(f(x...))). The
/// first takes all the inputs, each other one the result before it. 16- and 8-bit results between stages are passed on
/// as fp32. Where a stage wants the element's index, every stage that does is given it.
///
///     transform(exec, out, compose(fn::add{}, fn::gelu{}), x, b);   // gelu(x + b)
template <class F, class... G>
constexpr auto compose(F f, G... g) {
  if constexpr (sizeof...(G) == 0)
    return detail::Chain<F>{f};
  else
    return detail::Chain<F, G...>{f, compose(g...)};
}

}  // namespace tessera

#endif
