// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_ONLINE_SOFTMAX_HPP
#define TESSERA_ATTENTION_ONLINE_SOFTMAX_HPP

#include <Kokkos_Core.hpp>
#include <concepts>
#include <type_traits>

#include <tessera/atoms.hpp>
#include <tessera/attention/score_of_head.hpp>

namespace tessera::detail {

/// A machine whose threads agree with those they share rows with.
template <class Math>
concept AgreesOnRows = requires(Math const& math) {
  { math.holds_for_all(true) } -> std::same_as<bool>;
};

/// One whose warps multiply each for itself, and so may do it where others do not.
template <class Math>
concept MultipliesByWarps = requires {
  requires Math::by_warps;
};

/// One that compares elements with what their rows have.
template <class Math, class Scores, class Values>
concept ComparesRows = requires(Math const& math, Scores const& s, Values const& limits) {
  { math.none_above(s, limits) } -> std::same_as<bool>;
};

/// One that tells, to all threads that multiply together, whether no element is above its row's limit, or NaN.
template <class Math, class Scores, class Values>
concept FindsAllWithin = requires(Math const& math, Scores& s, Values const& limits) {
  { math.all_within(s, limits) } -> std::same_as<bool>;
};

/// Exponents that are a multiple of scores, of which -inf hides keys.
template <class T>
struct Times {
  static constexpr bool hides = true;
  T scale;
  KOKKOS_FORCEINLINE_FUNCTION T minus(T x, T y) const { return x * scale - y; }
};

/// The softmax of rows seen a tile at a time (Milakov and Gimelshein 2018): running maximum m, denominator l, and the
/// factor a by which what was accumulated before the newest tile shrinks. Exponentials are to base 2, with the scale
/// folded into one multiply-add.
template <class Atoms, int Rows>
class OnlineSoftmax {
  using Compute = typename Atoms::Compute;
  using Values = typename Atoms::template RowValues<Rows>;
  using Math = typename Atoms::Math;
  static constexpr Compute exponent = weight_exponent<Atoms>();  // numerator and denominator are times 2 to it
  /// Weights may be up to 2 to that power: the maximum that they are relative to stays while the true one is not
  /// further above, so that after a row's first tiles nothing is left to rescale. Where threads can agree on that.
  static constexpr Compute slack = exponent == 0 && AgreesOnRows<Math> ? 8 : 0;

 public:
  /// `scale`: from scores to exponents of 2, positive.
  KOKKOS_FORCEINLINE_FUNCTION OnlineSoftmax(Math& math, Compute scale)
      : scale_(scale), m_(math, -Kokkos::Experimental::infinity_v<Compute>), l_(math), a_(math), base_(math) {}

  /// Whether it is asked if maxima move, which they seldom do, before they are found.
  template <class Scores>
  static constexpr bool asks_first = slack > 0 && ComparesRows<Math, Scores, Values>;

  /// Scores become weights relative to the new maximum. Before, where that may have moved, moved() is called.
  template <class Scores, class Moved>
  KOKKOS_FORCEINLINE_FUNCTION void update(Math& math, Scores& s, Moved const& moved) {
    moved_ = !keeps_maximum(math, s);
    if (moved_) {
      move_maximum(math, s);
      if constexpr (!asks_first<Scores>) moved_ = moves(math);
      moved();
    }
    take_exponentials(math, s, Times<Compute>{scale_});
  }

  /// The same of scores whose exponents are f.minus(x, 0), which grows with x; `largest` is no less than any of a row.
  template <class Scores, class Exponents, class Moved>
  KOKKOS_FORCEINLINE_FUNCTION void update(Math& math, Scores& s, Exponents const& f, Values& largest,
                                          Moved const& moved) {
    Compute const scale = scale_;
    math.for_rows(
        [&](Compute& x, Compute& m, Compute& a, Compute& base, Compute& l) {
          Compute const before = m * scale, e = f.minus(x, 0);
          m = e <= before + slack ? m : e * Compute(0.69314718055994530942);
          base = m * scale;
          if constexpr (requires { Exponents::hides; }) base = m == lowest ? Compute(0) : base;
          a = Math::exp2(before - base);
          if constexpr (exponent != 0) base -= exponent;
          l *= a;
        },
        largest, m_, a_, base_, l_);
    moved_ = moves(math);
    moved();
    take_exponentials(math, s, f);
  }

  /// The same where no maximum moves, `largest` being no less than any of this thread's scores of a row; else false,
  /// and nothing is done.
  template <class Scores, class Exponents>
  KOKKOS_FORCEINLINE_FUNCTION bool update_in_place(Math& math, Scores& s, Exponents const& f, Values& largest) {
    static_assert(slack > 0);
    Compute const scale = scale_;
    bool stays = true;
    math.for_rows(
        [&](Compute x, Compute const& m, Compute& base) {
          base = m * scale;
          stays = stays && f.minus(x, 0) <= base + slack;
        },
        largest, m_, base_);
    if (!math.holds_for_all(stays)) return false;
    moved_ = false;
    take_exponentials(math, s, f);
    return true;
  }

  /// The same of scores that are x factor + offset, which this thread has for its elements of a row: at no price, but
  /// where an exponent exceeds `most`, whose rounding might show.
  template <class Scores, class Moved>
  KOKKOS_FORCEINLINE_FUNCTION void update(Math& math, Scores& s, Compute factor, Values const& offset, Compute most,
                                          Moved const& moved) {
    moved_ = !keeps_maximum(math, s, factor, offset, most);
    if (moved_) {
      move_maximum(math, s, factor, offset, most);
      moved();
    }
    take_exponentials(math, s, Times<Compute>{factor * scale_});
  }

  /// Whether all weights of scores that are no larger than x factor + offset, factor > 0, would be 0.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION bool loses(Math& math, Scores& s, Compute factor, Values const& offset) const {
    using Exponents = LostExponents<Compute>;
    constexpr Compute none = -Kokkos::Experimental::infinity_v<Compute>;
    Compute const scale = scale_, per_factor = 1 / factor;
    Values limits = m_;
    math.for_rows(
        [=](Compute& limit, Compute const& off) {
          bool const moderate =
              Kokkos::abs(limit * scale) <= Exponents::moderate && Kokkos::abs(off * scale) <= Exponents::moderate;
          limit = moderate ? (limit - Exponents::lost / scale - off) * per_factor : none;
        },
        limits, offset);
    return math.all_within(s, limits);
  }

  /// Brings what was accumulated before the last update to the new maximum.
  template <class Accumulator>
  KOKKOS_FORCEINLINE_FUNCTION void rescale(Math& math, Accumulator& acc) {
    if (moved_) multiply(math, acc);
  }

  /// What was accumulated before the last update, but for the denominators, shrinks by a further factor.
  KOKKOS_FORCEINLINE_FUNCTION void also_shrink(Math& math, Compute factor) {
    math.for_rows([factor](Compute& a) { a *= factor; }, a_);
    moved_ = true;
  }
  /// By which what was accumulated before the last update shrinks.
  KOKKOS_FORCEINLINE_FUNCTION Values const& factors() const {
    static_assert(slack == 0, "they are not found while maxima stay");
    return a_;
  }

  /// Divides by the denominators, times `factor`; rows without a key become 0. Afterwards lse() holds ln Σ exp(score),
  /// if it is wanted. With sinks, exp(sink(row)) is one of the summands.
  template <class Accumulator, class Sink>
  KOKKOS_FORCEINLINE_FUNCTION void finish(Math& math, Accumulator& acc, Compute factor, bool wants_lse, bool has_sinks,
                                          Sink const& sink) {
    Compute const scale = scale_;
    math.row_combine(l_);
    math.for_rows([scale](Compute& m, Compute& a) { m *= scale, a = 1; }, m_, a_);
    if (has_sinks) add_sinks(math, sink);
    math.for_rows([factor](Compute& a, Compute& l) { a = l == Compute(0) ? Compute(0) : a * (factor / l); }, a_, l_);
    if (wants_lse)
      math.for_rows(
          [](Compute& m, Compute& l) {
            m = l == Compute(0) ? lowest : (m + (Kokkos::log2(l) - exponent)) * Compute(0.69314718055994530942);
          },
          m_, l_);
    multiply(math, acc);
  }
  KOKKOS_FORCEINLINE_FUNCTION Values const& lse() const { return m_; }

 private:
  /// Whether no score exceeds the maximum that its row's weights are relative to by more than the slack. That asks for
  /// no more than a comparison, where the true maximum would have to be found first, by all threads that share a row.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION bool keeps_maximum([[maybe_unused]] Math& math, [[maybe_unused]] Scores const& s) {
    if constexpr (asks_first<Scores>) {
      Compute const scale = scale_;
      Values limits = m_;
      math.for_rows(
          [scale](Compute& limit, Compute& base) {
            base = limit * scale;
            limit = Kokkos::abs(base) <= largest_base ? limit + slack / scale : Compute(-1);
          },
          limits, base_);
      return math.none_above(s, limits);
    } else {
      return false;
    }
  }
  /// The same of scores that are x factor + offset.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION bool keeps_maximum([[maybe_unused]] Math& math, [[maybe_unused]] Scores const& s,
                                                 [[maybe_unused]] Compute factor, [[maybe_unused]] Values const& offset,
                                                 [[maybe_unused]] Compute most) {
    if constexpr (asks_first<Scores>) {
      Compute const scale = scale_, per_factor = reciprocal_approximate(factor);
      Values limits = m_;
      math.for_rows(
          [=](Compute& limit, Compute& base, Compute const& off) {
            Compute const before = limit;
            base = (before - off) * scale;
            limit = (before + slack / scale - off) * per_factor;
            limit = Kokkos::abs(before * scale) <= most ? limit : Compute(-1);
            limit = Kokkos::abs(off * scale) <= most ? limit : Compute(-1);
          },
          limits, base_, offset);
      return math.none_above(s, limits);
    } else {
      return false;
    }
  }
  /// Whether a_, which an update has found, changes what was accumulated before.
  KOKKOS_FORCEINLINE_FUNCTION bool moves([[maybe_unused]] Math& math) {
    if constexpr (slack > 0) {
      bool stays = true;
      math.for_rows([&stays](Compute& a) { stays = stays && a == Compute(1); }, a_);
      return !math.holds_for_all(stays);
    } else {
      return true;
    }
  }
  /// Finds the maxima, and the factors by which what was accumulated before shrinks.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION void move_maximum(Math& math, Scores& s) {
    Compute const scale = scale_;
    a_ = m_;
    math.row_max(s, m_);
    bool huge = false;
    math.for_rows(
        [scale, &huge](Compute& m, Compute const& before, Compute& base) {
          if constexpr (slack > 0) m = (m - before) * scale <= slack ? before : m;
          base = m == lowest ? Compute(0) : m * scale;  // no key seen yet: -inf - 0
          huge = huge || Kokkos::abs(base) > largest_base;
        },
        m_, a_, base_);
    if constexpr (!bounded)
      if (huge) take_off(math, s);
    math.for_rows(
        [scale](Compute& a, Compute& l, Compute& base) {
          a = Math::exp2(a * scale - base);
          if constexpr (exponent != 0) base -= exponent;
          l *= a;
        },
        a_, l_, base_);
  }
  /// The same of scores that are x factor + offset. If one is so large that rounding would show, s becomes the scores
  /// and the factor 1.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION void move_maximum(Math& math, Scores& s, Compute& factor, Values const& offset,
                                                Compute most) {
    Values largest(math, lowest);
    math.own_row_max(s, largest);
    math.for_rows([factor](Compute& x, Compute const& off) { x = x * factor + off; }, largest, offset);
    math.join_row_max(largest);
    bool moderate = true;
    math.for_rows([&](Compute x) { moderate = moderate && Kokkos::abs(x) <= most; }, largest);
    if (!math.holds_for_all(moderate)) {
      math.for_each_with(s, offset, [factor](Compute& x, Compute off) { x = x * factor + off; });
      factor = 1;
      return move_maximum(math, s);
    }
    Compute const scale = scale_;
    math.for_rows(
        [scale](Compute& top, Compute const& off, Compute& m, Compute& a, Compute& base, Compute& l) {
          Compute const before = m;
          m = (top - before) * scale <= slack ? before : top;
          base = m * scale;
          a = Math::exp2(before * scale - base);
          base -= off * scale + exponent;
          l *= a;
        },
        largest, offset, m_, a_, base_, l_);
  }
  /// Scores become weights relative to base_.
  template <class Scores, class Exponents>
  KOKKOS_FORCEINLINE_FUNCTION void take_exponentials(Math& math, Scores& s, Exponents const& f) {
    if constexpr (std::is_same_v<Exponents, Times<Compute>> && requires { math.exponentials(s, f.scale, base_, l_); }) {
      math.exponentials(s, f.scale, base_, l_);
    } else {
      math.for_each_with(s, base_, [f](Compute& x, Compute base) { x = Math::exp2(f.minus(x, base)); });
      math.row_add_partial(s, l_);
    }
  }
  template <class Accumulator>
  KOKKOS_FORCEINLINE_FUNCTION void multiply(Math& math, Accumulator& acc) const {
    if constexpr (requires { math.scale_rows(acc, a_); })
      math.scale_rows(acc, a_);
    else
      math.for_each_with(acc, a_, [](Compute& x, Compute a) { x *= a; });
  }

  static constexpr Compute lowest = -Kokkos::Experimental::infinity_v<Compute>;
  /// Up to here what rounding leaves of the largest score behind its base is less than 1. Without scales of heads those
  /// of 8-bit operands do not come near, whose kernels have no register left to ask.
  static constexpr Compute largest_base = Compute(1 << 24);
  static constexpr bool bounded = exponent != 0;

  /// Further on it would not be: the maximum is taken off scores before they are scaled, and the base is 0.
  template <class Scores>
  KOKKOS_FORCEINLINE_FUNCTION void take_off(Math& math, Scores& s) {
    math.for_rows(
        [](Compute& m, Compute& a, Compute& base) {
          base = m == lowest ? Compute(0) : m;
          a -= base;
        },
        m_, a_, base_);
    math.for_each_with(s, base_, [](Compute& x, Compute base) { x -= base; });
    math.for_rows([](Compute& base) { base = 0; }, base_);
  }

  /// Beside a sink above all scores what was accumulated shrinks further.
  template <class Sink>
  KOKKOS_FORCEINLINE_FUNCTION void add_sinks(Math& math, Sink const& sink) {
    math.each_row(base_, [&](Compute& x, int row) { x = sink(row) * Compute(1.44269504088896340736); });
    math.for_rows(
        [](Compute& m, Compute& a, Compute& l, Compute& base) {  // m and base are exponents of 2
          Compute const larger = base > m ? base : m, top = larger == lowest ? Compute(0) : larger;
          a = Math::exp2(m - top);
          l = l * a + Math::exp2(base - top + exponent);
          m = top;
        },
        m_, a_, l_, base_);
  }

  Compute scale_;
  Values m_, l_, a_, base_;
  bool moved_ = true;  // a_ holds what accumulators shrink by; else they stay
};

}  // namespace tessera::detail

#endif
