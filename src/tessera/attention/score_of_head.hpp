// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_SCORE_OF_HEAD_HPP
#define TESSERA_ATTENTION_SCORE_OF_HEAD_HPP

#include <concepts>

#include <tessera/detail/matrix.hpp>
#include <tessera/elementary.hpp>
#include <tessera/score.hpp>

// Score functors for one head, f(s, i, j).
namespace tessera::detail {

/// A score functor that finds what is the same for a head's scores once.
template <class Score, class T>
concept PreparesHeads = requires(Score const& score) {
  score.template prepare<T>(0, 0);
};

/// A score functor for one head that may know that it only adds a number.
template <class OfHead, class T>
concept AddsConstants = requires(OfHead const& f, T& c) {
  { f.adds_constant(0, 1, 0, 1, c) } -> std::same_as<bool>;
};

/// One that adds what depends on key less query only, of any two.
template <class OfHead, class T>
concept AddsByDistance = requires(OfHead const& f) {
  { f.by_distance(0) } -> std::same_as<T>;
};
/// A callable for distances, and a machine whose threads find such numbers together, to state concepts with.
struct DistanceProbe {
  KOKKOS_FUNCTION float operator()(int) const { return 0; }
};
template <class Math, class Accumulator>
concept FindsDistances = requires(Math const& math, Accumulator& acc) {
  math.add_by_distance(acc, 1.0f, DistanceProbe{});
};
/// One that may be asked about queries and keys that there are not.
template <class Score>
inline constexpr bool asked_anywhere = requires {
  requires Score::anywhere;
};
/// One that adds what is linear in query and key.
template <class OfHead>
concept AddsPlanes = requires(OfHead const& f) {
  f.plane(0, 0);
};
/// What such a bias takes all weight of, in exponents of 2: a weight so far below what its row's are relative to is 0
/// in fp32, whatever comes to it by rounding and by a scale of all weights; scores are looked at where the bias alone
/// has fallen so far that it is likely; and beyond some size of exponents rounding shows, so that nothing is said of
/// them.
template <class T>
struct LostExponents {
  static constexpr T lost = 170, likely = T(0.9) * lost, moderate = T(1 << 22);
};

/// One that is a simpler function where all scores are small.
template <class OfHead, class T>
concept HasNear = std::same_as<T, float> && requires(OfHead const& f, T x) {
  { f.template near<OfHead::nears - 1>(x, x).covers(x) } -> std::same_as<bool>;
  { f.template near<OfHead::nears - 1>(x, x).minus(x, x) } -> std::same_as<T>;
  { f.whole(x, x).minus(x, x) } -> std::same_as<T>;
};
/// One that adds what can be read for two keys at a time.
template <class OfHead>
concept AddsPairs = requires(OfHead const& f) {
  { f.has_pairs() } -> std::same_as<bool>;
  f.pair(0, 0);
};
/// A callable for pairs, to state a concept with.
struct PairProbe {
  template <class T>
  KOKKOS_FUNCTION void operator()(T&, T&, int, int) const {}
};
/// A machine whose threads have neighbours of a row, the first in an even column.
template <class Math, class Accumulator>
concept WorksInPairs = requires(Math const& math, Accumulator& acc) {
  math.for_each_pair(acc, PairProbe{});
};
/// A machine whose threads know how large the scores of their rows are, and agree on what follows.
template <class Math, class Accumulator, class Rows>
concept BoundsRows = requires(Math const& math, Accumulator& acc, Rows& rows) {
  math.own_row_max_magnitude(acc, rows);
  { math.holds_for_all(true) } -> std::same_as<bool>;
};
/// A machine that adds their columns to scores by constants, and where several threads have parts of a row.
template <class Math, class Accumulator>
concept AddsColumns = requires(Math const& math, Accumulator& acc) {
  math.add_columns(acc, 1.0f);
  { math.holds_for_all(true) } -> std::same_as<bool>;
};
/// The function for small scores, if this thread's are.
template <class Math, class Accumulator, class Near>
KOKKOS_FORCEINLINE_FUNCTION bool taken_for_small(Math& math, Accumulator& s, Near const& near) {
  float most = 0;
  math.for_each(s, [&](float& x, int, int) { most = larger(most, Kokkos::abs(x)); });
  if (!near.covers(most)) return false;
  math.for_each(s, [&](float& x, int, int) { x = near.minus(x, 0); });
  return true;
}

/// s = s scale + what a plane has there
template <class Math, class Accumulator, class T>
KOKKOS_FORCEINLINE_FUNCTION void add_plane(Math& math, Accumulator& s, T scale, score::Plane<T> const& plane) {
  if constexpr (requires { math.add_plane(s, scale, plane.at, plane.per_query, plane.per_key); })
    math.add_plane(s, scale, plane.at, plane.per_query, plane.per_key);
  else
    math.for_each(s, [&](T& x, int r, int c) {
      x = x * scale + (plane.at + plane.per_query * static_cast<T>(r) + plane.per_key * static_cast<T>(c));
    });
}

/// What a score is whose values are a View (batch, head, query, key): the elements' type, and the matrices.
template <class Score>
struct ScoreMatrix {
  using Element = void;
};
template <class V>
struct ScoreMatrix<score::AdditiveBias<V>> {
  using Element = typename V::non_const_value_type;
  static MatrixStack matrices(score::AdditiveBias<V> const& score) {
    V const& v = score.values;
    auto const extent = [&](int k) { return static_cast<std::int64_t>(v.extent(k)); };
    auto const stride = [&](int k) { return static_cast<std::int64_t>(v.stride(k)); };
    return {v.data(),  scalar_of<Element>, extent(2), extent(3), stride(2),
            stride(3), extent(0),          extent(1), stride(0), stride(1)};
  }
};
template <class Score>
using score_element = typename ScoreMatrix<Score>::Element;
/// Elements that pipelines add to scores tile by tile.
template <class Score>
inline constexpr bool adds_tiles =
    std::is_same_v<score_element<Score>, bf16_t> || std::is_same_v<score_element<Score>, fp16_t>;

/// Any other functor, which is told batch and head each time.
template <class Score, class T>
struct AskedEachTime {
  Score const& score;
  int batch, head;
  KOKKOS_FORCEINLINE_FUNCTION T operator()(T s, int i, int j) const { return score(s, batch, head, i, j); }
};

template <class T, class Score>
KOKKOS_FORCEINLINE_FUNCTION auto score_of_head(Score const& functor, int batch, int head) {
  if constexpr (std::same_as<Score, score::Identity>)
    return score::Identity{};
  else if constexpr (PreparesHeads<Score, T>)
    return functor.template prepare<T>(batch, head);
  else
    return AskedEachTime<Score, T>{functor, batch, head};
}

}  // namespace tessera::detail

#endif
