// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_SCORES_HPP
#define TESSERA_ATTENTION_BACKWARD_SCORES_HPP

#include <tessera/attention/backward_problem.hpp>
#include <tessera/attention/dropout.hpp>
#include <tessera/dual.hpp>
#include <tessera/mask.hpp>
#include <tessera/score.hpp>

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

/// One pair of a query and a key.
struct ScorePlace {
  int batch, head, query, key;
};

/// The functors of one problem, for the kernels that form its gradients.
template <class Score, class Mask>
struct BackwardFunctors {
  using Own = own_score<Score>;
  static constexpr bool changes = !std::is_same_v<Own, score::Identity>;
  static constexpr bool sloped = !OnlyAdds<Own>;
  static constexpr bool masked = !std::is_same_v<Mask, mask::All>;
  static constexpr bool drops = drops_weights<Score>;
  static constexpr bool any = changes || masked || drops;

  Own score;
  Mask mask;
  DropoutRule dropout;

  BackwardFunctors(Score const& s, Mask const& m, DropoutRule const& d)
      : score(ScoreParts<Score>::own(s)), mask(m), dropout(d) {}

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T changed(T s, ScorePlace const& at) const {
    if constexpr (changes)
      return score(s, at.batch, at.head, at.query, at.key);
    else
      return s;
  }
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T slope(T s, ScorePlace const& at) const {
    if constexpr (!sloped)
      return T(1);
    else if constexpr (HasSlope<Own, T>)
      return score.slope(s, at.batch, at.head, at.query, at.key);
    else
      return Dual<T>(score(Dual<T>(s, T(1)), at.batch, at.head, at.query, at.key)).slope;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool shows([[maybe_unused]] ScorePlace const& at) const {
    if constexpr (masked)
      return mask(at.batch, at.head, at.query, at.key);
    else
      return true;
  }
  /// What a weight, or what arrives for it, is times.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T kept(ScorePlace const& at) const {
    PhiloxCounter const words = dropout.words(at.batch, at.head, at.query, at.key);
    int const k = at.key / 8 % 4;
    std::uint32_t const word = k < 2 ? (k == 0 ? words[0] : words[1]) : (k == 2 ? words[2] : words[3]);
    return dropout.drops(word, at.key % 2 != 0) ? T(0) : static_cast<T>(dropout.factor);
  }
};

/// Where an element of a tile lies, and whether there is such a pair and no range hides it.
struct PlacedScore : ScorePlace {
  bool exists;

  KOKKOS_FORCEINLINE_FUNCTION PlacedScore(BackwardSight const& sight, Plane plane, int i, int j)
      : ScorePlace{static_cast<int>(plane.outer), static_cast<int>(plane.inner), i, j},
        exists(i < sight.queries && sight.sees(i, j)) {}
};

/// Products of Q and K become exponents of 2 and, where that is not 1 throughout, `slopes` what scores change by with
/// them. `place(row, column)` is a PlacedScore.
template <class Functors, class Math, class Compute, class Scores, class Slopes, class Place>
KOKKOS_FORCEINLINE_FUNCTION void change_scores(Math& math, Functors const& f, Compute scale, Scores& s,
                                               [[maybe_unused]] Slopes& slopes, Place const& place) {
  constexpr Compute log2_e = Compute(1.44269504088896340736);
  if constexpr (Functors::sloped) {
    math.copy(s, slopes);
    math.for_each(slopes, [&](Compute& x, int r, int c) {
      PlacedScore const at = place(r, c);
      x = at.exists ? f.slope(x * scale, at) : Compute(0);
    });
  }
  math.for_each(s, [&](Compute& x, int r, int c) {
    PlacedScore const at = place(r, c);
    x = (at.exists ? f.changed(x * scale, at) : Compute(0)) * log2_e;
  });
}
/// Weights of pairs that do not count become 0.
template <class Functors, class Math, class Scores, class Place>
KOKKOS_FORCEINLINE_FUNCTION void hide_pairs(Math& math, Functors const& f, Scores& s, Place const& place) {
  math.for_each(s, [&](auto& x, int r, int c) {
    PlacedScore const at = place(r, c);
    if (!at.exists || !f.shows(at)) x = 0;
  });
}
/// Dropout, of weights and of what arrives for them.
template <class Functors, class Math, class Scores, class Place>
KOKKOS_FORCEINLINE_FUNCTION void drop_pairs(Math& math, Functors const& f, Scores& s, Place const& place) {
  math.for_each(
      s, [&](auto& x, int r, int c) { x *= f.template kept<std::remove_reference_t<decltype(x)>>(place(r, c)); });
}

/// A fragment that is needed only where there are functors.
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
