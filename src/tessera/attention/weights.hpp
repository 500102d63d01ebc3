// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_WEIGHTS_HPP
#define TESSERA_ATTENTION_WEIGHTS_HPP

#include <cstdint>

#include <tessera/attention/dropout.hpp>
#include <tessera/attention/key_scales.hpp>
#include <tessera/attention/numerator.hpp>
#include <tessera/attention/online_softmax.hpp>
#include <tessera/attention/score_of_head.hpp>
#include <tessera/mask.hpp>
#include <tessera/score.hpp>

namespace tessera::detail {

/// From scores to weights, for a tile of queries of an attention kernel: scales of tiles of keys, the caller's scores,
/// hidden keys, the softmax, dropout.
template <class Kernel>
struct AttentionWeights {
  using Atoms = typename Kernel::Atoms;
  using Math = typename Atoms::Math;
  using Compute = typename Kernel::Compute;
  using Scores = typename Kernel::Scores;
  using RowValues = typename Kernel::RowValues;
  using OwnScore = typename Kernel::OwnScore;
  static constexpr int BM = Kernel::BM, BN = Kernel::BN;
  static constexpr bool ranged = Kernel::ranged, masked = Kernel::masked, drops = Kernel::drops,
                        brings_biases = Kernel::brings_biases, shares_tiles = Kernel::shares_tiles,
                        scales_keys = Kernel::scales_keys, scales_steps = Kernel::scales_steps,
                        bounds_rows = Kernel::bounds_rows;
  /// What dropout draws is found where it is needed.
  static constexpr bool draws_late = requires { requires Atoms::draws_late; };
  static constexpr Compute log2_e = Kernel::log2_e;
  static constexpr Compute most_moderate = Compute(1 << 16);  // of exponents whose rounding does not show

  /// Numbers that f adds may go into what exponents are relative to. Tiles for few queries wait for K and V, and have
  /// no registers for it.
  template <class OfHead>
  static constexpr bool adds_sums = (AddsPlanes<OfHead> || AddsConstants<OfHead, Compute>)&&AddsColumns<Math, Scores> &&
                                    !ReadsPages<Atoms> && !brings_biases;

  /// It is asked whether whole steps have no weight, see loses().
  template <class OfHead>
  static constexpr bool asks_for_losses = AddsPlanes<OfHead>&& FindsAllWithin<Math, Scores, RowValues> && !drops &&
                                          !scales_keys && !brings_biases && !ReadsPages<Atoms> && !AddsApart<Atoms>;

  Kernel const& kernel;
  typename Kernel::Tile const& t;

  /// Of those of a key: scales.tiles.k or v.
  KOKKOS_FORCEINLINE_FUNCTION Compute key_scale(KeyScales::Operand const& of, int key) const {
    return of.data == nullptr ? 1 : of(t.batch, t.head / kernel.heads_per_kv, kernel.scales.tiles.tile(key));
  }
  /// Of products of Q and K of step j, but for those that keys have one by one.
  KOKKOS_FORCEINLINE_FUNCTION Compute score_scale(int j) const {
    if constexpr (scales_steps)
      return kernel.score_scale(t) * key_scale(kernel.scales.tiles.k, Kernel::key(t, j));
    else
      return kernel.score_scale(t);
  }
  /// x times what its key has.
  KOKKOS_FORCEINLINE_FUNCTION void scale_by_keys(Math& math, int j, KeyScales::Operand const& of, Scores& x) const {
    int const first_key = Kernel::key(t, j);
    if (of.data != nullptr)
      math.for_each(x, [&](Compute& e, int, int c) {  // behind the last key there may be no scale
        if (first_key + c < t.keys) e *= key_scale(of, first_key + c);
      });
  }

  /// The caller's scores. In tiles that hang over an edge the last query and key stand for those behind it, so that
  /// what the functor reads of them is there; nobody looks at these scores.
  template <class OfHead>
  KOKKOS_FORCEINLINE_FUNCTION void change(Math& math, int first_key, Compute own, OfHead const& f, Scores& s) const {
    int const rows = kernel.queries_of(t) - t.query, cols = t.keys - first_key;
    if constexpr (AddsPlanes<OfHead>) return add_plane(math, s, own, f.plane(t.query, first_key));
    if constexpr (AddsConstants<OfHead, Compute>) {
      Compute c;
      if (f.adds_constant(t.query, t.query + BM, first_key, first_key + BN, c))
        return math.for_each(s, [&](Compute& x, int, int) { x = x * own + c; });
    }
    if constexpr (AddsByDistance<OfHead, Compute> && FindsDistances<Math, Scores>)
      return math.add_by_distance(s, own, [&](int distance) { return f.by_distance(first_key - t.query + distance); });
    if constexpr (HasNear<OfHead, Compute> && !bounds_rows) {
      if (taken_for_small(math, s, f.template near<OfHead::nears - 1>(own, Compute(1)))) return;
    }
    constexpr bool pairs = AddsPairs<OfHead> && WorksInPairs<typename Atoms::Math, Scores>;
    bool const inside = rows >= BM && cols >= BN;
    if constexpr (pairs)
      if (inside && f.has_pairs())
        return math.for_each_pair(s, [&](Compute& x, Compute& y, int r, int c) {
          auto const pair = f.pair(t.query + r, first_key + c);
          x = x * own + static_cast<Compute>(pair.first);
          y = y * own + static_cast<Compute>(pair.second);
        });
    if (asked_anywhere<OwnScore> || (inside && !pairs))
      math.for_each(s, [&](Compute& x, int r, int c) { x = f(x * own, t.query + r, first_key + c); });
    else
      math.for_each(s, [&](Compute& x, int r, int c) {
        x = f(x * own, t.query + (r < rows ? r : rows - 1), first_key + (c < cols ? c : cols - 1));
      });
  }

  /// The caller's scores, and −∞ where a key is not seen.
  template <class OfHead, class SB>
  KOKKOS_FORCEINLINE_FUNCTION void modify(Math& math, int j, OfHead const& f, Scores& s, SB& bs) const {
    int const first_key = Kernel::key(t, j);
    if constexpr (scales_keys && !scales_steps) scale_by_keys(math, j, kernel.scales.tiles.k, s);
    if constexpr (brings_biases) {
      math.template add_tile<score_element<OwnScore>>(s, kernel.score_scale(t), bs.acquire().biases);
      bs.release();
    } else if constexpr (!std::is_same_v<OwnScore, score::Identity>) {
      change(math, first_key, score_scale(j), f, s);
    }
    if (first_key + BN > kernel.seen(t, shares_tiles && kernel.together > 0 ? 0 : t.query).end)
      math.for_each(s, [&](Compute& x, int r, int c) {
        if (first_key + c >= kernel.seen(t, t.query + r).end) x = -Kokkos::Experimental::infinity_v<Compute>;
      });
    if constexpr (ranged)
      if (first_key < kernel.seen(t, t.query + BM - 1).begin)
        math.for_each(s, [&](Compute& x, int r, int c) {
          if (first_key + c < kernel.seen(t, t.query + r).begin) x = -Kokkos::Experimental::infinity_v<Compute>;
        });
    if constexpr (masked)
      if (kernel.left_of(t, j) != mask::Tile::full)
        math.for_each(s, [&](Compute& x, int r, int c) {  // no condition on what is read: it comes for many at a time
          int const i = t.query + r < t.queries ? t.query + r : t.queries - 1;
          int const key = first_key + c < t.keys ? first_key + c : t.keys - 1;
          if (!kernel.mask(t.batch, t.head, i, key)) x = -Kokkos::Experimental::infinity_v<Compute>;
        });
  }

  /// The scores of step j become weights. Where they are small enough for a score's simpler function, that goes into
  /// the exponents. moved(): see OnlineSoftmax::update().
  template <class OfHead, class FoundSums, class SB, class Moved>
  KOKKOS_FORCEINLINE_FUNCTION void weigh(Math& math, int j, OfHead const& f, [[maybe_unused]] FoundSums const& sums,
                                         Scores& s, SB& bs, OnlineSoftmax<Atoms, BM>& softmax,
                                         Moved const& moved) const {
    if constexpr (HasNear<OfHead, Compute> && bounds_rows)
      if (sees_all(j)) {
        RowValues largest(math);
        math.own_row_max_magnitude(s, largest);
        if (weigh_small<0>(math, f, kernel.score_scale(t), largest, s, softmax, moved)) return;
        largest = RowValues(math, -Kokkos::Experimental::infinity_v<Compute>);
        math.row_max(s, largest);
        auto const whole = f.whole(kernel.score_scale(t), log2_e);
        if (moderate(math, whole, largest)) return softmax.update(math, s, whole, largest, moved);
      }
    if constexpr (adds_sums<OfHead>) {
      Compute factor = 1;
      RowValues offset(math);
      if (sums.found) {
        factor = sums.factor, offset = sums.offset;
        if constexpr (AddsPlanes<OfHead>) math.add_columns(s, sums.in_columns);
      } else {
        modify(math, j, f, s, bs);
      }
      softmax.update(math, s, factor, offset, most_moderate, moved);
    } else {
      modify(math, j, f, s, bs);
      if constexpr (scales_steps) {
        RowValues largest(math, -Kokkos::Experimental::infinity_v<Compute>);
        math.row_max(s, largest);
        bool const own = std::is_same_v<OwnScore, score::Identity>;
        softmax.update(math, s, Times<Compute>{own ? score_scale(j) * log2_e : log2_e}, largest, moved);
      } else {
        softmax.update(math, s, moved);
      }
    }
  }
  /// Values of a step count in units of its scale: what was accumulated in those of the step before comes to them.
  /// Weights times scales would have fewer bits.
  template <class Softmax>
  KOKKOS_FORCEINLINE_FUNCTION void change_unit(Math& math, int j, Compute& unit, Softmax& softmax) const {
    Compute const before = unit;
    unit = key_scale(kernel.scales.tiles.v, Kernel::key(t, j));
    if (unit != before) softmax.also_shrink(math, before / unit);
  }

  /// The same by the first of a score's simpler functions that covers them all; false if none does. `largest`: of this
  /// thread's magnitudes. Where weights far below 1 are as exact as others, 2^-80 or more they are, they are relative
  /// to what a row's largest magnitude has as exponent, for which nobody need look for the maximum too.
  template <int Which, class OfHead, class Moved>
  KOKKOS_FORCEINLINE_FUNCTION bool weigh_small(Math& math, OfHead const& f, Compute own, RowValues& largest, Scores& s,
                                               OnlineSoftmax<Atoms, BM>& softmax, Moved const& moved) const {
    constexpr Compute largest_exponent = 40;
    if constexpr (Which < OfHead::nears) {
      auto const near = f.template near<Which>(own, log2_e);
      bool covered = true;
      math.for_rows([&](Compute x) { covered = covered && near.covers(x) && near.minus(x, 0) <= largest_exponent; },
                    largest);
      if (!math.holds_for_all(covered)) return weigh_small<Which + 1>(math, f, own, largest, s, softmax, moved);
      if constexpr (Atoms::wide_weights) {
        if (softmax.update_in_place(math, s, near, largest)) return true;
        math.join_row_max(largest);
      } else {
        largest = RowValues(math, -Kokkos::Experimental::infinity_v<Compute>);
        math.row_max(s, largest);
      }
      softmax.update(math, s, near, largest, moved);
      return true;
    } else {
      return false;
    }
  }
  /// What f adds to the scores of a step, where it is one number or a plane that grows with the key: scores are then
  /// x factor + offset of this thread's part of a row, x being products, or products in_columns + column. The offset
  /// goes into what exponents are relative to: a plane is a multiply-add a score, a constant nothing.
  struct Sums {
    bool found;
    Compute factor, in_columns;
    RowValues offset;
  };
  /// Found while the scores are multiplied.
  template <class OfHead>
  KOKKOS_FORCEINLINE_FUNCTION auto find_sums([[maybe_unused]] Math& math, [[maybe_unused]] int j,
                                             [[maybe_unused]] OfHead const& f) const {
    if constexpr (!adds_sums<OfHead>) {
      return KeepsAll{};
    } else {
      Sums sums{sees_all(j), score_scale(j), 0, RowValues(math)};
      int const first_key = Kernel::key(t, j);
      if constexpr (AddsPlanes<OfHead>) {
        auto const plane = f.plane(t.query, first_key);
        constexpr Compute most = Compute(std::uint64_t(1) << 40);  // products times that do not overflow
        sums.in_columns = sums.factor * reciprocal_approximate(plane.per_key);
        sums.found = sums.found && plane.per_key > 0 && sums.in_columns <= most;
        sums.factor = plane.per_key;
        Compute const first = math.first_column(static_cast<Scores const*>(nullptr));
        math.each_row(sums.offset, [&](Compute& x, int row) {
          x = plane.at + plane.per_query * static_cast<Compute>(row) + plane.per_key * first;
        });
      } else if (sums.found) {
        Compute c = 0;
        sums.found = f.adds_constant(t.query, t.query + BM, first_key, first_key + BN, c);
        math.for_rows([c](Compute& x) { x = c; }, sums.offset);
      }
      return sums;
    }
  }
  /// Whether a bias that falls with the distance has fallen so far, in step j and those behind it, that likely nothing
  /// is left of their weights, see docs/attention.md.
  template <class OfHead>
  KOKKOS_FORCEINLINE_FUNCTION bool likely_lost([[maybe_unused]] int j, [[maybe_unused]] OfHead const& f) const {
    if constexpr (asks_for_losses<OfHead>) {
      int const last = Kernel::key(t, j) + BN - 1, nearest = kernel.seen(t, t.query).end - 1;
      constexpr Compute likely = LostExponents<Compute>::likely / log2_e;
      return f.plane(t.query, last).per_key * static_cast<Compute>(nearest - last) > likely;
    } else {
      return false;
    }
  }
  /// Whether every weight of step j is 0, for the products of Q and K in s.
  template <class OfHead>
  KOKKOS_FORCEINLINE_FUNCTION bool loses(Math& math, int j, OfHead const& f, Scores& s,
                                         OnlineSoftmax<Atoms, BM> const& softmax) const {
    Compute const own = score_scale(j);
    if (!(own > 0 && sees_all(j))) return false;
    auto const plane = f.plane(t.query, Kernel::key(t, j) + BN - 1);
    RowValues largest(math);
    math.each_row(largest, [&](Compute& x, int row) { x = plane.at + plane.per_query * static_cast<Compute>(row); });
    return softmax.loses(math, s, own, largest);
  }
  /// Whether the rounding of such exponents does not show.
  template <class Near>
  KOKKOS_FORCEINLINE_FUNCTION static bool moderate(Math& math, Near const& near, RowValues& largest) {
    bool all = true;
    math.for_rows([&](Compute x) { all = all && Kokkos::abs(near.minus(x, 0)) <= most_moderate; }, largest);
    return math.holds_for_all(all);
  }

  /// No pair of step j is hidden.
  KOKKOS_FORCEINLINE_FUNCTION bool sees_all(int j) const {
    int const first_key = Kernel::key(t, j);
    if (first_key + BN > kernel.seen(t, shares_tiles && kernel.together > 0 ? 0 : t.query).end) return false;
    if constexpr (ranged)
      if (first_key < kernel.seen(t, t.query + BM - 1).begin) return false;
    if constexpr (masked) return kernel.left_of(t, j) == mask::Tile::full;
    return true;
  }

  /// The random words of step j. They wait for nothing: a consumer has time for them while its scores are multiplied.
  KOKKOS_FORCEINLINE_FUNCTION auto draw(Math& math, int j) const {
    if constexpr (!drops) {
      return KeepsAll{};
    } else if constexpr (draws_late) {
      return DropsTile<false>{&kernel.dropout, t.batch, t.head, t.query, Kernel::key(t, j)};
    } else {
      static_assert(BN % DropoutRule::keys == 0);
      int const first_key = Kernel::key(t, j);
      return math.template words<BM, BN>(kernel.dropout.dropped_below > 0, [this, first_key](int r, int c) {
        return kernel.dropout.words(t.batch, t.head, t.query + r, first_key + c);
      });
    }
  }
  /// Some weights become 0, behind their sums.
  template <class Drawn>
  KOKKOS_FORCEINLINE_FUNCTION void drop(Math& math, Drawn const& drawn, Scores& s) const {
    if constexpr (drops && draws_late)
      math.clear_unset(s, drawn);
    else if constexpr (drops)
      math.for_each_of_words(s, drawn, [&](Compute& x, std::uint32_t word, bool odd) {
        x = kernel.dropout.drops(word, odd) ? Compute(0) : x;
      });
  }
};

}  // namespace tessera::detail

#endif
