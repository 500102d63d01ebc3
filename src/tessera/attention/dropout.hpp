// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_DROPOUT_DETAIL_HPP
#define TESSERA_ATTENTION_DROPOUT_DETAIL_HPP

#include <tessera/attention_dropout.hpp>
#include <tessera/score.hpp>

// Kernels with dropout are kernels of their own, told apart by the type of their score.
namespace tessera::detail {

/// What a kernel's score is besides dropout.
template <class Score>
struct ScoreParts {
  using Own = Score;
  static constexpr bool drops = false;
  KOKKOS_FORCEINLINE_FUNCTION static Own const& own(Score const& score) { return score; }
};
template <class Score>
struct ScoreParts<score::WithDropout<Score>> {
  using Own = Score;
  static constexpr bool drops = true;
  KOKKOS_FORCEINLINE_FUNCTION static Own const& own(score::WithDropout<Score> const& score) { return score.own; }
};

template <class Score>
inline constexpr bool drops_weights = ScoreParts<Score>::drops;
template <class Score>
using own_score = typename ScoreParts<Score>::Own;

/// In the place of a rule, where no weight is dropped.
struct KeepsAll {
  KeepsAll() = default;
  explicit KeepsAll(DropoutRule const&) {}
};

/// What dropout keeps of a tile of one head's pairs, whose rows are queries or, `Transposed`, keys.
template <bool Transposed>
struct DropsTile {
  static constexpr bool words_for_rows = Transposed;
  DropoutRule const* rule;
  int batch, head, query, key;

  /// Four words for eight keys of 32, see DropoutRule.
  KOKKOS_FORCEINLINE_FUNCTION PhiloxCounter words(int r, int c) const {
    return rule->words(batch, head, query + (Transposed ? c : r), key + (Transposed ? r : c));
  }
  KOKKOS_FORCEINLINE_FUNCTION int place(int r, int c) const { return key + (Transposed ? r : c); }
  KOKKOS_FORCEINLINE_FUNCTION bool flag(std::uint32_t word, bool odd) const { return !rule->drops(word, odd); }
};

}  // namespace tessera::detail

#endif
