// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_SCORES_HPP
#define TESSERA_ATTENTION_BACKWARD_SCORES_HPP

#include <tessera/attention/backward_problem.hpp>
#include <tessera/attention/dropout.hpp>
#include <tessera/attention/mask_table.hpp>
#include <tessera/attention/score_of_head.hpp>
#include <tessera/dual.hpp>
#include <tessera/elementary.hpp>
#include <tessera/flags.hpp>
#include <tessera/mask.hpp>
#include <tessera/score.hpp>
#include <tessera/unroll.hpp>

// What callers do to scores, in a backward pass: scores again, their derivatives, and which pairs count.
namespace tessera::detail {

template <class Score>
concept OnlyAdds = std::is_same_v<Score, score::Identity> || Score::only_adds;
template <class Score, class T>
concept HasSlope = requires(Score const& f, T s) {
  { f.slope(s, 0, 0, 0, 0) } -> std::convertible_to<T>;
};
template <class Score, class T>
concept TakesDuals = requires(Score const& f, Dual<T> s) {
  { f(s, 0, 0, 0, 0) } -> std::convertible_to<Dual<T>>;
};
template <class Score, class T>
inline constexpr bool has_derivative =
    OnlyAdds<own_score<Score>> || HasSlope<own_score<Score>, T> || TakesDuals<own_score<Score>, T>;

/// A score functor for one head that gives its derivative with its value.
template <class OfHead, class T>
concept GivesDuals = requires(OfHead const& f, T s) {
  { f.with_slope(s, 0, 0) } -> std::same_as<Dual<T>>;
};

/// The functors of one problem, for the kernels that form its gradients.
template <class Score, class Mask>
struct BackwardFunctors {
  using Own = own_score<Score>;
  static constexpr bool changes = !std::is_same_v<Own, score::Identity>;
  static constexpr bool masked = !std::is_same_v<Mask, mask::All>;
  static constexpr bool drops = drops_weights<Score>;
  static constexpr bool classifies = ClassifiesTiles<Mask>;
  template <class T>
  using OfHead = decltype(score_of_head<T>(std::declval<Own const&>(), 0, 0));
  /// Scores only grow by what is linear in query and key.
  template <class T>
  static constexpr bool plane_alone = !masked && OnlyAdds<Own> && AddsPlanes<OfHead<T>>;
  /// Every pair is asked about.
  template <class T>
  static constexpr bool by_pairs = masked || (changes && !plane_alone<T>);
  /// But for those of tiles that the mask leaves whole, whose scores are plain.
  static constexpr bool plain_where_whole = masked && classifies && !changes && !drops;

  Own score;
  Mask mask;
  DropoutRule dropout;

  BackwardFunctors(Score const& s, Mask const& m, DropoutRule const& d)
      : score(ScoreParts<Score>::own(s)), mask(m), dropout(d) {}

  /// The queries of some heads from `head` on that the mask lets see one of the keys [j, j_end).
  KOKKOS_FORCEINLINE_FUNCTION void bound_queries([[maybe_unused]] int batch, [[maybe_unused]] int head,
                                                 [[maybe_unused]] int heads, [[maybe_unused]] int j,
                                                 [[maybe_unused]] int j_end, [[maybe_unused]] int& begin,
                                                 [[maybe_unused]] int& end) const {
    if constexpr (BoundsQueries<Mask>) {
      mask::Queries some = mask.queries(batch, head, j, j_end);
      for (int h = 1; h < heads; ++h) {
        mask::Queries const more = mask.queries(batch, head + h, j, j_end);
        if (more.begin >= more.end) continue;
        bool const first = some.begin >= some.end;
        some.begin = first || more.begin < some.begin ? more.begin : some.begin;
        some.end = first || more.end > some.end ? more.end : some.end;
      }
      begin = some.begin > begin ? some.begin : begin;
      end = some.end < end ? some.end : end;
    }
  }
  /// The keys that one of the queries [i, i_end) may see.
  KOKKOS_FORCEINLINE_FUNCTION void bound_keys([[maybe_unused]] int batch, [[maybe_unused]] int head,
                                              [[maybe_unused]] int i, [[maybe_unused]] int i_end,
                                              [[maybe_unused]] int& begin, [[maybe_unused]] int& end) const {
    if constexpr (BoundsKeys<Mask>) {
      mask::Keys const some = mask.keys(batch, head, i, i_end);
      begin = some.begin > begin ? some.begin : begin;
      end = some.end < end ? some.end : end;
    }
  }
  /// The mask leaves every pair of a tile of so many queries and keys, of those before `queries` and `keys`.
  KOKKOS_FORCEINLINE_FUNCTION bool shows_all(Plane plane, int query, int queries, int tile_queries, int key, int keys,
                                             int tile_keys) const {
    int const i_end = query + tile_queries < queries ? query + tile_queries : queries,
              j_end = key + tile_keys < keys ? key + tile_keys : keys;
    return mask.tile(static_cast<int>(plane.outer), static_cast<int>(plane.inner), query, i_end, key, j_end) ==
           mask::Tile::full;
  }
};

/// Weights of the pairs of one head by its functors, and what arrives for its scores.
template <class Functors, class Compute>
struct HeadWeights {
  using Own = typename Functors::Own;
  using OfHead = typename Functors::template OfHead<Compute>;
  static constexpr Compute log2_e = Compute(1.44269504088896340736);
  static constexpr Compute hidden = -Kokkos::Experimental::infinity_v<Compute>;

  Functors const& functors;
  int batch, head;
  Compute scale, exponent_scale, factor;  // of products of Q and K, two; of weights that are kept
  OfHead of_head;

  KOKKOS_FORCEINLINE_FUNCTION HeadWeights(Functors const& f, Plane plane, Compute scores, Compute exponents,
                                          Compute weights)
      : functors(f),
        batch(static_cast<int>(plane.outer)),
        head(static_cast<int>(plane.inner)),
        scale(scores),
        exponent_scale(exponents),
        factor(weights),
        of_head(score_of_head<Compute>(f.score, batch, head)) {}

  /// The weight of a pair, but for the factor that dropout keeps it with. Its product of Q and K, of which -inf says
  /// that it is hidden, becomes the weight before dropout, times what the score changes by with the product. `Asks`:
  /// the mask whether it shows the pair.
  template <class Math, bool Asks>
  KOKKOS_FORCEINLINE_FUNCTION Compute weigh(Compute& x, Compute lse, int i, int j, bool kept) const {
    bool shown = !Functors::changes || x != hidden;  // else its exponential is 0
    if constexpr (Asks && Functors::masked) shown = functors.mask(batch, head, i, j) && shown;
    Dual<Compute> const s = changed(x, i, j);
    Compute const weight = chosen(shown, Math::exp2(s.value - lse), Compute(0));
    x = chosen(OnlyAdds<Own> || weight == Compute(0), weight, weight * s.slope);
    return chosen(kept, weight, Compute(0));
  }
  /// What arrives for a pair's score, of what weigh() left and what arrives for its weight. Of one that a functor hides
  /// anything may have come.
  KOKKOS_FORCEINLINE_FUNCTION Compute arrived(Compute left, Compute of_weight, Compute delta, bool kept) const {
    if constexpr (Functors::drops) of_weight = chosen(kept, of_weight * factor, Compute(0));
    bool const hidden_by_functor = (Functors::masked || Functors::changes) && left == Compute(0);
    return chosen(hidden_by_functor, Compute(0), left * (of_weight - delta));
  }

 private:
  /// The exponent of 2, and what the score changes by.
  KOKKOS_FORCEINLINE_FUNCTION Dual<Compute> changed(Compute product, int i, int j) const {
    if constexpr (Functors::changes) {
      Dual<Compute> const s = score(product * scale, i, j);
      return {s.value * log2_e, s.slope};
    } else {
      return {product * exponent_scale, Compute(1)};
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION Dual<Compute> score(Compute s, int i, int j) const {
    if constexpr (OnlyAdds<Own>)
      return {of_head(s, i, j), Compute(1)};
    else if constexpr (GivesDuals<OfHead, Compute>)
      return of_head.with_slope(s, i, j);
    else if constexpr (HasSlope<Own, Compute>)
      return {of_head(s, i, j), functors.score.slope(s, batch, head, i, j)};
    else
      return functors.score(Dual<Compute>(s, Compute(1)), batch, head, i, j);
  }
};

/// scores = exponents of 2 of products of Q and K that a plane is added to; `at` has what is added per row and column.
template <class Math, class Accumulator, class Compute>
KOKKOS_FORCEINLINE_FUNCTION void add_exponents(Math& math, Accumulator& s, Compute scale, score::Plane<Compute> at) {
  constexpr Compute log2_e = Compute(1.44269504088896340736);
  at.at *= log2_e, at.per_query *= log2_e, at.per_key *= log2_e;
  add_plane(math, s, scale * log2_e, at);
}

/// A machine that knows what holds for all threads of a team's consumers.
template <class Math>
concept AgreesInTeams = requires(Math const& math) {
  { math.holds_for_team(true) } -> std::same_as<bool>;
};
/// Which weights of a tile are 0 in fp32, of products of Q and K to which a plane is added that grows with the key.
template <class Compute>
struct LostWeights {
  static constexpr Compute log2_e = Compute(1.44269504088896340736);
  using Exponents = LostExponents<Compute>;
  Compute factor, at;  // exponents of 2 are not above products times factor + at - LSE

  /// `plane` begins with the tile's last key and its first query, of `queries`.
  KOKKOS_FORCEINLINE_FUNCTION LostWeights(score::Plane<Compute> const& plane, int queries, Compute of_products)
      : factor(of_products),
        at((plane.at + (plane.per_query > 0 ? plane.per_query * static_cast<Compute>(queries - 1) : Compute(0))) *
           log2_e) {}
  /// Keys further before the nearest than that have likely lost their weights.
  KOKKOS_FORCEINLINE_FUNCTION static int furthest(score::Plane<Compute> const& plane) {
    constexpr Compute most = Compute(1 << 30);
    Compute const distance = Exponents::likely / log2_e * reciprocal_approximate(plane.per_key);
    return static_cast<int>(plane.per_key > 0 && distance < most ? distance : most);
  }
  KOKKOS_FORCEINLINE_FUNCTION bool has(Compute product, Compute lse) const {
    bool const lost = product * factor + (at - lse) <= -Exponents::lost,
               known = Kokkos::abs(lse) <= Exponents::moderate;
    return lost & known;  // no branch
  }
};

/// x times what a head has, if anything.
template <class Math, class Accumulator>
KOKKOS_FORCEINLINE_FUNCTION void scale_by_head(Math& math, Accumulator& x, HeadScales::Operand const& scales, int batch,
                                               int head) {
  if (scales.data == nullptr) return;
  float const factor = scales(batch, head);
  math.for_each(x, [factor](auto& e, int, int) { e *= factor; });
}

/// A fragment that not every kernel needs.
template <bool Needed, class Fragment>
struct FragmentIf : Fragment {
  template <class Math>
  KOKKOS_FUNCTION explicit FragmentIf(Math& math) : Fragment(math) {}
};
template <class Fragment>
struct FragmentIf<false, Fragment> {
  static constexpr std::size_t scratch_bytes = 0;
  template <class Math>
  KOKKOS_FUNCTION explicit FragmentIf(Math&) {}
};

}  // namespace tessera::detail

#endif
